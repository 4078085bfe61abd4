"""What layerscope, py-spy and perf show of a program: seconds by function, by line and by wait."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Which column of which table of layerscope tells each kind.
COLUMNS = {
    "function": ("functions", "self_ns"),
    "function_total": ("functions", "total_ns"),
    "line": ("lines", "self_ns"),
    "line_total": ("lines", "total_ns"),
    "symbol": ("symbols", "self_ns"),
    "symbol_total": ("symbols", "total_ns"),
    "wait": ("waits", "total_ns"),
    "wait_function": ("waits by place", "total_ns"),
    "wait_line": ("waits by place", "total_ns"),
}
TABLES = {
    "functions": ("functions",),
    "lines": ("lines",),
    "symbols": ("symbols",),
    "waits": ("waits", "--by", "state"),
    "waits by place": ("waits",),
}
_NAME = {
    "function": "name",
    "line": "line",
    "symbol": "name",
    "wait": "state",
    "wait_function": "function",
    "wait_line": "line",
}
_NOT_KNOWN = {
    "not known",
    "(function not known)",
    "outside Python",
    "outside native code",
    "native code outside Python",
}
# Of py-spy: `name (file.py:12)` is a frame of Python, `name (libc.so.6)` a native one.
_PYTHON_FRAME = re.compile(r"^(.*) \((?:.*/)?([^/()]+\.py|<[^()]*>):(\d+)\)$")
_NATIVE_FRAME = re.compile(r"^(.*) \(([^()]*)\)$")
_PERF_EVENT = re.compile(r"\s(\d+) +[\w-]+(?::\w*)?: *$")
_PERF_FRAME = re.compile(r"^\s+[0-9a-f]+ (.*) \(([^()]*)\)$")


@dataclass(frozen=True)
class ShownTime:
    """What a tool shows for one name: seconds, and the ends of its interval if it states one."""

    seconds: float
    low: float | None = None
    high: float | None = None


@dataclass
class ShownTimes:
    """What a tool shows of one run: seconds by kind and name. A kind that it cannot tell is not
    there.
    """

    by_kind: dict[str, dict[str, ShownTime]]
    not_known: dict[str, float]  # seconds that a table gives to no function
    file: str = ""
    sampled: float = 0.0  # seconds of all samples

    def scaled(self, seconds: float) -> ShownTimes:
        """The same shares of so many seconds in all."""
        factor = seconds / self.sampled if self.sampled else 0.0
        by_kind = {
            kind: {name: ShownTime(factor * one.seconds) for name, one in names.items()}
            for kind, names in self.by_kind.items()
        }
        return ShownTimes(by_kind, self.not_known, self.file, seconds)

    def of(self, kind: str, names: str) -> ShownTime | None:
        """The sum for a name (`a|b`: for any of them); none if the tool does not tell the kind."""
        if kind not in self.by_kind:
            return None
        wanted = {plain(name) for name in names.split("|")}
        found = [one for name, one in self.by_kind[kind].items() if name in wanted]
        # Who states intervals and has no row says that there is nothing.
        states = any(one.low is not None for one in self.by_kind[kind].values())
        return total(found) if found else ShownTime(0.0, *((0.0, 0.0) if states else ()))


def total(readings: Sequence[ShownTime]) -> ShownTime:
    """Several rows of one name; an interval only where it is of one row."""
    if len(readings) == 1:
        return readings[0]
    return ShownTime(sum(one.seconds for one in readings))


def plain(name: str) -> str:
    """A name without its parameters and template arguments: `inner(double)` is `inner`,
    `A::operator()` stays.
    """
    name = _without(name.strip().removesuffix(" const"), "(", ")")
    return _without(name, "<", ">").strip() or name


def _without(name: str, opening: str, closing: str) -> str:
    """Without what is in brackets, but for operators, unless it is at the beginning."""
    kept, depth, begin = "", 0, 0
    for at, letter in enumerate(name):
        if letter == opening and not depth and (at == 0 or name[:at].endswith("operator")):
            begin = name.find(closing, at) + 1  # `(anonymous namespace)`, `operator()`, `<module>`
        if at < begin:
            kept += letter
            continue
        depth += letter == opening
        if not depth:
            kept += letter
        depth -= letter == closing
    return kept


def read_layerscope(tables: dict[str, dict[str, Any]], file: str) -> ShownTimes:
    """From the tables as --json gives them; functions and lines of the program's `file` alone."""
    by_kind: dict[str, dict[str, ShownTime]] = {}
    not_known: dict[str, float] = {}
    for kind, (table, column) in COLUMNS.items():
        if table not in tables:
            continue
        rows = table_rows(tables[table])
        not_known[table] = (
            sum(
                row.get("self_ns") or 0
                for row in rows
                if row.get("function", row.get("name")) in _NOT_KNOWN
                or row.get("line") in _NOT_KNOWN
            )
            / 1e9
        )
        whole = sum(row.get("self_ns") or 0 for row in rows) / 1e9
        found: dict[str, list[ShownTime]] = defaultdict(list)
        column_of_name = _NAME[kind.removesuffix("_total")]
        if rows and column_of_name not in rows[0]:
            continue
        for row in rows:
            name = row_name(row, column_of_name, table, file)
            if name is None:
                continue
            seconds = (row[column] or 0) / 1e9
            if column == "self_ns":
                low, high = whole * row["self_share_low"], whole * row["self_share_high"]
                found[name].append(ShownTime(seconds, low, high))
            else:
                found[name].append(ShownTime(seconds))
        by_kind[kind] = {name: total(rows) for name, rows in found.items()}
    return ShownTimes(by_kind, not_known, file)


def table_rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows by the names of the columns."""
    columns = [column["name"] for column in table["columns"]]
    return [dict(zip(columns, row, strict=True)) for row in table["rows"]]


def row_name(row: dict[str, Any], column: str, table: str, file: str) -> str | None:
    """What the truth calls it; none if it belongs to another file."""
    name = str(row[column])
    if table == "functions":
        return name if base(row["file"] or "") == file else None
    return base(name) if column == "line" else plain(name)


def base(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


class Sums:
    """Seconds of stacks: of the innermost function or line, and of all that are on them."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.found: dict[str, dict[str, float]] = {kind: defaultdict(float) for kind in kinds}

    def add(self, kind: str, names: Sequence[str], seconds: float) -> None:
        """`names` from the outside in; `kind` is its own time, `kind_total` with all inside."""
        if names:
            self.found[kind][names[-1]] += seconds
        for name in set(names):
            self.found[f"{kind}_total"][name] += seconds

    def readings(self, file: str, sampled: float = 0.0) -> ShownTimes:
        """As a tool's."""
        by_kind = {
            kind: {name: ShownTime(seconds) for name, seconds in names.items()}
            for kind, names in self.found.items()
        }
        return ShownTimes(by_kind, {}, file, sampled)


def read_py_spy(text: str, rate_hz: float, file: str) -> ShownTimes:
    """From `py-spy record --format raw`. Its functions have the last part of their names."""
    sums = Sums(["function", "function_total", "line", "line_total", "symbol", "symbol_total"])
    sampled = 0.0
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        if not count.isdigit():
            continue
        seconds = int(count) / rate_hz
        sampled += seconds
        functions, lines, symbols = [], [], []
        native = False
        for frame in frames.split(";"):
            python = _PYTHON_FRAME.match(frame)
            if python:
                functions.append(python[1] if python[2] == file else f"{python[1]} ({python[2]})")
                lines.append(f"{python[2]}:{python[3]}")
                native = False
            elif other := _NATIVE_FRAME.match(frame):
                symbols.append(plain(other[1]))
                native = True
        sums.add("function", functions, seconds)
        sums.add("line", lines, seconds)
        sums.add("symbol", symbols if native else [*symbols, ""], seconds)
    return sums.readings(file, sampled)


def read_perf(text: str, file: str) -> ShownTimes:
    """From `perf script -F comm,tid,period,event,ip,sym,dso`: native functions alone."""
    sums = Sums(["symbol", "symbol_total"])
    seconds = 0.0
    frames: list[str] = []
    for line in [*text.splitlines(), ""]:
        if not line.strip():
            sums.add("symbol", frames[::-1], seconds)
            frames, seconds = [], 0.0
        elif event := _PERF_EVENT.search(line):
            seconds = int(event[1]) / 1e9
        elif frame := _PERF_FRAME.match(line):
            frames.append(plain(frame[1]))
    return sums.readings(file)
