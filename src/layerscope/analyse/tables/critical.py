"""Critical path: what a step took so long for, over threads and streams: shorten these.

class     cpu, data loading; compute, communication, copy: work of a GPU; launch latency: from the
          call to the start of its work; kernel gap: between two pieces of work on a stream; stream
          wait: from the end of work to the start of what waited for it on another stream;
          synchronisation: from the end of work to that of the call that waited for it
name      whose time it is: an operator, a call, a kernel; between operators: no thread had one
track     thread or stream
count     pieces of the path
total_ns  time of the path
share     total_ns as a fraction of the path
start_ns  when the (first) piece began

The path is that of the longest step that is no warm-up, or of --step N, or of all without steps.
--by class adds up the classes, --by piece has every piece in the order of time. Of a step whose
work still waits for that of the step before, the path is its work alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn, of_rows
from layerscope.model.errors import UsageError
from layerscope.model.units import duration

if TYPE_CHECKING:
    from layerscope.analyse.gpu.critical import CriticalEdge, CriticalPath
    from layerscope.recording.reader import Reader

BY = ("class", "piece")
OPTIONS = ("step",)
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("class", "string", "", "what the time is"),
    ResultColumn("name", "string", "", "whose it is", code=True),
    ResultColumn("track", "string", "", "thread or stream"),
    ResultColumn("count", "int64", COUNT, "pieces of the path"),
    ResultColumn("total_ns", "int64", NS, "time of the path"),
    ResultColumn("share", "float64", SHARE, "of the path"),
    ResultColumn("start_ns", "int64", NS, "when it first began", instant=True),
)
TOP = 30
EMPTY = "No operators or work of a GPU were recorded."
NEXT = "layerscope table critical --by class"
_KEYS = {None: ("kind", "name", "track"), "class": ("kind",)}


def build(reader: Reader, by: str | None = None, step: int | None = None) -> Result:
    """One row for each class, name and track, or as `by` says."""
    from layerscope.analyse.gpu.critical import critical_path

    path = critical_path(reader, step)
    if path is None and step is not None:
        raise UsageError(f"there is no step {step}: layerscope table steps lists them")
    if path is None:
        return of_rows("critical", COLUMNS, [])
    rows = _pieces(path) if by == "piece" else _sums(path, _KEYS[by])
    result = of_rows("critical", COLUMNS, rows)
    return replace(result, notes=(_note(path),))


def _note(path: CriticalPath) -> str:
    of = "the recording"
    if path.step is not None:
        of = f"step {path.step}"
    whole_ns = path.end_ns - path.start_ns
    length_ns = _length(path)
    return f"The path takes {duration(length_ns)} of the {duration(whole_ns)} of {of}."


def _length(path: CriticalPath) -> int:
    return sum(edge.lasted_ns for edge in path.edges)


def _pieces(path: CriticalPath) -> list[tuple[Any, ...]]:
    whole_ns = _length(path)
    found = []
    for edge in path.edges:
        share = edge.lasted_ns / whole_ns
        named = (edge.kind, edge.name, edge.track)
        found.append((*named, 1, edge.lasted_ns, share, edge.start_ns))
    return found


def _sums(path: CriticalPath, keys: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The longest sums first."""
    whole_ns = _length(path)
    edges: dict[tuple[str, ...], list[CriticalEdge]] = {}
    for edge in path.edges:
        key = tuple(getattr(edge, name) for name in keys)
        its = edges.setdefault(key, [])
        its.append(edge)
    sums = {key: sum(edge.lasted_ns for edge in its) for key, its in edges.items()}
    found = []
    for key in sorted(sums, key=lambda key: -sums[key]):
        its = edges[key]
        named = (*key, None, None)[:3]
        share = sums[key] / whole_ns
        found.append((*named, len(its), sums[key], share, its[0].start_ns))
    return found
