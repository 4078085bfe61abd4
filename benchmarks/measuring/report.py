"""What a benchmark found, as text, as Markdown and as data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring.intervals import Interval


@dataclass
class Table:
    """One table of finished strings."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """One more row."""
        self.rows.append(list(cells))


@dataclass
class Report:
    """Tables, remarks, and the figures behind them."""

    title: str
    tables: list[Table] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    pictures: dict[str, str] = field(default_factory=dict)  # SVG by the name of its file

    def table(self, title: str, *columns: str) -> Table:
        """A new table at the end."""
        self.tables.append(Table(title, list(columns)))
        return self.tables[-1]

    def text(self) -> str:
        """For a terminal."""
        lines = [self.title, "=" * len(self.title)]
        for table in self.tables:
            lines += ["", table.title, *_aligned([table.columns, *table.rows])]
        return "\n".join([*lines, "", *(f"- {remark}" for remark in self.remarks)]).rstrip() + "\n"

    def markdown(self, machine: dict[str, str], command: str) -> str:
        """For a file."""
        lines = [f"# {self.title}", "", f"Written by `{command}`.", ""]
        lines += [f"- {name}: {value}" for name, value in machine.items()]
        for table in self.tables:
            lines += [
                "",
                f"## {table.title}",
                "",
                _row(table.columns),
                _row(["---"] * len(table.columns)),
            ]
            lines += [_row(row) for row in table.rows]
        lines += ["", *(f"- {remark}" for remark in self.remarks)] if self.remarks else []
        for name in self.pictures:
            lines += ["", f"![{self.title}]({name})"]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path, name: str, machine: dict[str, str], command: str) -> None:
        """Write NAME.md, NAME.json and the pictures into `folder`."""
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.md").write_text(self.markdown(machine, command), encoding="utf-8")
        tables = [{"title": t.title, "columns": t.columns, "rows": t.rows} for t in self.tables]
        content = {
            "benchmark": name,
            "command": command,
            "machine": machine,
            "tables": tables,
            "data": self.data,
        }
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        for picture, svg in self.pictures.items():
            (folder / picture).write_text(svg, encoding="utf-8")


def _aligned(rows: list[list[str]]) -> list[str]:
    """Columns of one width: the first is text, the others are mostly figures."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(["", row[0].ljust(widths[0]), *cells]).rstrip())
    return lines


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def at_most(value: float, target: float, text: str = "") -> str:
    """The target and whether `value` meets it."""
    return f"{text or f'<= {target:g}'}: {'met' if value <= target else 'MISSED'}"


def at_least(value: float, target: float, text: str = "") -> str:
    """The target and whether `value` meets it."""
    return f"{text or f'>= {target:g}'}: {'met' if value >= target else 'MISSED'}"


def interval(found: Interval, digits: int = 3) -> str:
    """An estimate with its interval."""
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def mib(count: float) -> str:
    """Bytes as MiB."""
    return f"{count / 2**20:.2f} MiB"


def ms(ns: float) -> str:
    """Nanoseconds as milliseconds."""
    return f"{ns / 1e6:.2f} ms"


def percent(share: float) -> str:
    """A share with one digit behind the point."""
    return f"{100 * share:.1f} %"
