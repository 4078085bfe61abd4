"""A screen of `layerscope top` as lines of text that fit a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from layerscope.model.live import (
    FUNCTIONS,
    OPERATORS,
    PRIMITIVES,
    SUMS,
    SYMBOLS,
    THREADS,
    WAITS,
)
from layerscope.model.units import duration, elapsed, size
from layerscope.show.live.view import LiveView
from layerscope.show.screen import printable
from layerscope.show.terminal import display_width, shortened

# By key of the keyboard the table that it shows.
TABLES = {name[0]: name for name in (FUNCTIONS, OPERATORS, PRIMITIVES, SYMBOLS, THREADS, WAITS)}
_KEYS = "  ".join(f"{key} {name}" for key, name in TABLES.items()) + "  ? keys"
_KEYS_SHORT = f"{' '.join(TABLES)}  ? keys"
HELP = (
    *(f"{key}        {name}" for key, name in TABLES.items()),
    "space    hold the screen, and let it go on",
    "r        count anew from now",
    "?        this list",
    "q        quit",
    "",
    "The left half of a table is of the last seconds, the right one of all.",
    "self     in it, and in nothing that it called",
    "total    with what it called",
    "wait     off the CPU",
    "idle     without work, as a thread of a pool",
    "ready    it could run, and waited for a CPU",
)
# How a line is drawn.
TITLE, PLAIN, HEADING, NOTE = "title", "plain", "heading", "note"
_GAP = "  "
_LEAST_NAME = 15
_WHOLE_FROM = 10  # rates below have a digit behind the point
_NS_PER_S = 1_000_000_000
Row = dict[str, Any]
Maker = Callable[[LiveView, Row], str]


class ScreenLine(NamedTuple):
    """One line of the screen, and what it is."""

    role: str
    text: str


class _Cell(NamedTuple):
    """A column of numbers: its heading, its width, and what makes its text."""

    heading: str
    width: int
    text: Maker
    is_recent: bool = True


def lines(view: LiveView, width: int, height: int, shows_keys: bool = True) -> list[ScreenLine]:
    """The screen in a window of this size; without keys where nobody can press them."""
    found = _above(view, width)
    keys = _KEYS if display_width(_KEYS) <= width else _KEYS_SHORT
    last = _all_of(NOTE, [keys]) if shows_keys else []
    room = height - len(found) - len(last)
    found += _table(view, width, room)
    if shows_keys:
        found += _blank(height - len(found) - len(last))
    return _fitted([*found, *last], width)


def help_lines(view: LiveView, width: int, height: int) -> list[ScreenLine]:
    """The keys in place of a table."""
    listed = [f"  {sentence}" for sentence in HELP]
    found = _above(view, width)
    found += _all_of(PLAIN, ["", *listed])
    found += _blank(height - len(found))
    return _fitted(found[:height], width)


def text(view: LiveView, width: int, height: int) -> str:
    """The same as plain text, without keys."""
    made = lines(view, width, height, shows_keys=False)
    return "".join(f"{line.text.rstrip()}\n" for line in made)


def _all_of(role: str, texts: list[str]) -> list[ScreenLine]:
    """Lines of the same role."""
    found = []
    for text in texts:
        found.append(ScreenLine(role, text))
    return found


def _blank(count: int) -> list[ScreenLine]:
    return _all_of(PLAIN, [""] * max(count, 0))


def _fitted(made: list[ScreenLine], width: int) -> list[ScreenLine]:
    """The same, none wider than the window."""
    fitting = []
    for line in made:
        text = shortened(printable(line.text), width)
        fitting.append(ScreenLine(line.role, text))
    return fitting


# -- above the table -------------------------------------------------------------------------------


def _above(view: LiveView, width: int) -> list[ScreenLine]:
    """The program, and what there is to say of it."""
    title = _title(view, width)
    found = [
        ScreenLine(TITLE, title),
        ScreenLine(PLAIN, _usage(view, width)),
        ScreenLine(PLAIN, _steps(view, width)),
        *_all_of(NOTE, [*_wrapped(view.note, width)]),
    ]
    return [line for line in found if line.text]


def _title(view: LiveView, width: int) -> str:
    """The program on the left, and how long it runs on the right."""
    running = elapsed(view.running_ns)
    end = f"running {running}"
    if view.pid and width >= _LEAST_NAME + display_width(end) + _LEAST_NAME:
        end = f"pid {view.pid}{_GAP}{end}"
    room = width - len(end) - len(_GAP)
    title = printable(view.title)
    name = shortened(title, max(room, _LEAST_NAME))
    gap = width - display_width(name) - len(end)
    blank = " " * max(gap, len(_GAP))
    return f"{name}{blank}{end}"


def _usage(view: LiveView, width: int) -> str:
    facts = view.facts
    cpus = f" of {view.cpus:g}" if view.cpus else ""
    told = [f"CPU {facts.cpu_ns / facts.window_ns:.1f}{cpus}"]
    if facts.ready_ns is not None:
        told.append(f"{facts.ready_ns / facts.window_ns:.1f} waiting for a CPU")
    if facts.rss_bytes is not None:
        told.append(f"memory {size(facts.rss_bytes)}")
    if facts.threads is not None:
        told.append(_several(facts.threads, "thread"))
    if facts.processes > 1:
        told.append(_several(facts.processes, "process"))
    return _as_fit(told, width)


def _as_fit(told: list[str], width: int) -> str:
    """The first of these facts, as many as fit in a line, whole."""
    found = ""
    for fact in told:
        more = f"{found}{_GAP}{fact}" if found else fact
        if found and display_width(more) > width:
            break
        found = more
    return found


def _several(count: int, what: str) -> str:
    """A count of things in words."""
    ending = "" if count == 1 else "es" if what.endswith("s") else "s"
    return f"{count:,} {what}{ending}"


_RULES = {
    "mark": "marked by the program",
    "optimizer": "by the optimizer",
    "loader": "by the loader",
    "served": "requests",
    "request": "calls of the network",
}


def _steps(view: LiveView, width: int) -> str:
    steps = view.facts.steps
    if not steps.rule:
        return ""
    times = []
    if steps.step_ns:
        times.append(f"step {duration(steps.step_ns)}")
        times.append(f"{_NS_PER_S / steps.step_ns:,.1f} steps/s")
    count = f"{steps.count:,} steps"
    whole = _GAP.join([*times, f"{count} ({_RULES[steps.rule]})"])
    return whole if display_width(whole) <= width else _as_fit([*times, count], width)


# -- the table -------------------------------------------------------------------------------------


def _table(view: LiveView, width: int, room: int) -> list[ScreenLine]:
    """As many rows as there is room for, below two lines that say what the columns are."""
    if not view.rows:
        sentence = _wrapped(view.empty, width)
        return _all_of(PLAIN, ["", *sentence])[:room]
    cells: Sequence[_Cell] = _CELLS[view.table]
    if _width(cells) + _LEAST_NAME > width:
        cells = [cell for cell in cells if cell.is_recent]
    while len(cells) > 1 and _width(cells) + _LEAST_NAME > width:
        cells = cells[:-1]
    names = [column.name for column in view.columns]
    above, below = _headings(view, cells)
    made = [ScreenLine(HEADING, above), ScreenLine(HEADING, below)]
    for values in view.rows[: max(room - 2, 0)]:
        row = dict(zip(names, values, strict=True))
        numbers = [cell.text(view, row).rjust(cell.width) for cell in cells]
        about = printable(_ABOUT[view.table](row))
        start = _GAP.join([*numbers, ""])
        room_for_name = max(width - len(start), 1)
        name = shortened(about, room_for_name)
        made.append(ScreenLine(PLAIN, f"{start}{name}"))
    return made[:room]


def _headings(view: LiveView, cells: Sequence[_Cell]) -> tuple[str, str]:
    """When, above what."""
    seconds = view.facts.window_ns / _NS_PER_S
    last = f"last {seconds:.1f} s"
    recent = [cell for cell in cells if cell.is_recent]
    whole = cells[len(recent) :]
    above = last.rjust(_width(recent))
    if whole:
        above += _GAP + view.since.rjust(_width(whole))
    headings = [cell.heading.rjust(cell.width) for cell in cells]
    headings.append(_NAMES[view.table])
    return above, _GAP.join(headings)


def _width(cells: Sequence[_Cell]) -> int:
    """How wide these columns are side by side."""
    widths = sum(cell.width for cell in cells)
    gaps = len(_GAP) * (len(cells) - 1)
    return widths + gaps


def _wrapped(sentence: str, width: int) -> Iterator[str]:
    line = ""
    for word in sentence.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line


def _share(name: str) -> Maker:
    def made(_: LiveView, row: Row) -> str:
        return _part(row[name])

    return made


def _of_window(name: str) -> Maker:
    """A time as a share of the window."""

    def made(view: LiveView, row: Row) -> str:
        return _part(row[name] / view.facts.window_ns)

    return made


def _part(share: float) -> str:
    return f"{100 * share:.1f} %" if share else "-"


def _time(name: str) -> Maker:
    def made(_: LiveView, row: Row) -> str:
        dur_ns = row[name]
        return duration(dur_ns) if dur_ns else "-"

    return made


def _rate(name: str) -> Maker:
    """A count as one a second of the window."""

    def made(view: LiveView, row: Row) -> str:
        a_second = row[name] * _NS_PER_S / view.facts.window_ns
        digits = 1 if 0 < a_second < _WHOLE_FROM else 0
        return f"{a_second:,.{digits}f}"

    return made


_OF_FUNCTIONS = (
    _Cell("self", 7, _share("window_self_share")),
    _Cell("total", 7, _share("window_total_share")),
    _Cell("wait", 8, _time("window_wait_ns")),
    _Cell("self", 7, _share("self_share"), False),
    _Cell("total", 7, _share("total_share"), False),
)
_OF_SPANS = (
    _Cell("self", 7, _share("window_self_share")),
    _Cell("total", 7, _share("window_total_share")),
    _Cell("calls/s", 8, _rate("window_count")),
    _Cell("self", 7, _share("self_share"), False),
    _Cell("total", 7, _share("total_share"), False),
)
_CELLS = {
    FUNCTIONS: _OF_FUNCTIONS,
    SYMBOLS: _OF_FUNCTIONS,
    OPERATORS: _OF_SPANS,
    PRIMITIVES: _OF_SPANS,
    THREADS: (
        _Cell("CPU", 7, _of_window("window_cpu_ns")),
        _Cell("ready", 7, _of_window("window_ready_ns")),
        _Cell("wait", 7, _of_window("window_wait_ns")),
        _Cell("idle", 7, _of_window("window_idle_ns")),
        _Cell("CPU", 9, _time("cpu_ns"), False),
    ),
    WAITS: (
        _Cell("share", 7, _share("window_total_share")),
        _Cell("time", 8, _time("window_total_ns")),
        _Cell("waits/s", 8, _rate("window_count")),
        _Cell("share", 7, _share("total_share"), False),
        _Cell("time", 8, _time("total_ns"), False),
    ),
}
_NAMES = {
    FUNCTIONS: "function (file)",
    SYMBOLS: "function (object)",
    OPERATORS: "operator",
    PRIMITIVES: "primitive (implementation)",
    THREADS: "thread",
    WAITS: "waits for, in function",
}
assert _CELLS.keys() == SUMS.keys()
# What a thread waits for, where that is not the name of the state.
_STATES = {"preempted": "a CPU (preempted)"}


def _with(name: str, place: str) -> str:
    """A function with the last part of where it lies, unless its name is that already."""
    file = place.rpartition("/")[2]
    if not file or file == name.strip("[]"):
        return name
    return f"{name} ({file})"


def _called(name: str, kind: str) -> str:
    """An operator with its kind, where that is none of the usual one."""
    if kind == "function":
        return name
    return f"{name} [{kind}]"


_ABOUT: dict[str, Callable[[Row], str]] = {
    FUNCTIONS: lambda row: _with(row["name"], row["file"]),
    SYMBOLS: lambda row: _with(row["name"], row["object"]),
    OPERATORS: lambda row: (
        row["name"] if row["kind"] == "function" else f"{row['name']} [{row['kind']}]"
    ),
    PRIMITIVES: lambda row: f"{row['name']} {row['kind']} ({row['implementation']})",
    THREADS: lambda row: row["thread"],
    WAITS: lambda row: f"{_STATES.get(row['state'], row['state'])}  {row['function']}",
}
