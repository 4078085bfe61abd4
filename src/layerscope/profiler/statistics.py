"""The sums of `dumps`, as the table and as the JSON of the MXNet profiler, with its traps taken
out.

Names of any length keep the columns straight, a mean is a mean, and counters are not printed as
milliseconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # category, name, count, total, least, most
    Row = list[Any]
    Statistics = dict[str, list[Row]]

SORTS = ("total", "avg", "min", "max", "count")
HEAD = "\nProfile Statistics:\n\tNote the difference in units for different entries.\n"
RULE = "=" * 17
NS_PER_MS, BYTES_PER_KB = 1e6, 1e3
NAME_WIDTH, NUMBER_WIDTH = 25, 16
TIMES = ("Name", "Total Count", "Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)")
COUNTERS = ("Name", "Total Count", "Min Value", "Max Value", "Avg Value")
MEMORY = ("Name", "Total Count", "Min Use (kB)", "Max Use (kB)", "Avg Use (kB)")
NOTHING: Statistics = {"times": [], "counters": [], "memory": []}


def as_table(found: Statistics, sort_by: str, ascending: bool) -> str:
    """One section a category, its rows sorted."""
    parts = [HEAD]
    for kind, columns in (("times", TIMES), ("counters", COUNTERS), ("memory", MEMORY)):
        for category, rows in grouped(found[kind], sort_by, ascending):
            lines = [_cells(kind, row) for row in rows]
            parts.append(f"\n{category}\n{RULE}\n" + _aligned(columns, lines))
    return "".join(parts)


def as_json(found: Statistics, sort_by: str, ascending: bool) -> str:
    """The same as JSON: Time, Memory, Counter by category and name, and the units."""
    import json

    answer: dict[str, Any] = {"Time": {}, "Memory": {}, "Counter": {}}
    units = {
        "times": ("Time", NS_PER_MS),
        "memory": ("Memory", BYTES_PER_KB),
        "counters": ("Counter", 1),
    }
    for kind, (key, unit) in units.items():
        for category, rows in grouped(found[kind], sort_by, ascending):
            answer[key][category] = {row[1]: _entry(key, row, unit) for row in rows}
    answer["Unit"] = {"Time": "ms", "Memory": "kB", "Counter": "value"}
    return json.dumps(answer, indent=4)


def grouped(rows: list[Row], sort_by: str, ascending: bool) -> list[tuple[str, list[Row]]]:
    """The rows by category in the order of the alphabet, `operator` first, sorted within."""
    keys = {
        "count": lambda r: r[2],
        "total": lambda r: r[3],
        "avg": lambda r: r[3] / r[2],
        "min": lambda r: r[4],
    }
    key = keys.get(sort_by, lambda r: r[5])
    by_category: dict[str, list[Row]] = {}
    ordered = sorted(rows, key=key, reverse=not ascending)
    for row in ordered:
        by_category.setdefault(row[0], []).append(row)
    names = sorted(by_category, key=lambda name: (name != "operator", name))
    return [(name, by_category[name]) for name in names]


def _entry(key: str, row: Row, unit: float) -> dict[str, Any]:
    _, _, count, total, least, most = row
    sums = {"Total": total / unit} if key == "Time" else {}
    return {
        "Count": count,
        **sums,
        "Min": least / unit,
        "Max": most / unit,
        "Avg": total / count / unit,
    }


def _cells(kind: str, row: Row) -> list[str]:
    _, name, count, total, least, most = row
    average = total / count
    if kind == "counters":
        return [name, f"{count}", f"{least}", f"{most}", f"{average:.4f}"]
    unit, values = BYTES_PER_KB, [least, most, average]
    if kind == "times":
        unit, values = NS_PER_MS, [total, least, most, average]
    in_unit = [f"{value / unit:.4f}" for value in values]
    return [name, f"{count}", *in_unit]


def _aligned(columns: tuple[str, ...], lines: list[list[str]]) -> str:
    """The first column to the left and as wide as its longest name, the others to the right."""
    rules = ["-" * len(column) for column in columns]
    table = [list(columns), rules, *lines]
    widths = []
    for place in range(len(columns)):
        longest = max(len(line[place]) for line in table)
        widths.append(max(longest, NUMBER_WIDTH if place else NAME_WIDTH))
    text = ""
    for first, *rest in table:
        cells = [first.ljust(widths[0])]
        for cell, width in zip(rest, widths[1:]):  # noqa: B905 - Python 3.8 has no strict
            cells.append(cell.rjust(width))
        text += " ".join(cells).rstrip() + "\n"
    return text
