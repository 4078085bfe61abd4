"""A flame graph as a tree of text: the heaviest branches, with their share of the whole.

Frames of which each has nearly all its weight in the next stand in one line, `main > train > loop`:
what is deeper is shown further in only where the weight parts.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from layerscope.analyse.result import BYTES, NS
from layerscope.analyse.stacks.flame_layout import Drawn
from layerscope.analyse.stacks.graphs import Graph
from layerscope.show.flame import Picture
from layerscope.show.flame.markup import amount, whole
from layerscope.show.screen import printable
from layerscope.show.terminal import shortened

LEAST_SHARE = 0.01
_NEARLY_ALL = 0.95
_NARROWEST = 24
_MOST_LINES = 50
_HEADINGS = {NS: "time", BYTES: "memory"}


def text(picture: Picture, drawn: Drawn, width: int | None = None) -> str:
    """The tree, no wider than `width`; without one, names are whole."""
    graph = picture.graph
    about = [whole(graph)]
    if picture.chosen:
        about.append(picture.chosen)
    if graph.compared:
        about.append(f"change per {graph.compared.per}")
    lines = [printable(picture.title), printable("; ".join(about)), _heading(graph)]
    children = _children(graph, drawn)
    waiting = [(place, 0) for place in reversed(children.get(-1, []))]
    while waiting and len(lines) < _MOST_LINES:
        place, depth = waiting.pop()
        chain = [place]
        inside = children.get(place, [])
        while len(inside) == 1 and _is_nearly_all(drawn, place, inside[0]):
            chain += inside
            inside = children.get(chain[-1], [])
        lines.append(_line(graph, drawn, chain, depth, width))
        waiting += [(child, depth + 1) for child in reversed(inside)]
    if waiting:
        lines.append(f"{len(waiting):,} more branches; a file has all: -o flame.svg.")
    lines += map(printable, picture.notes)
    return "".join(f"{line}\n" for line in lines)


def _heading(graph: Graph) -> str:
    amount_heading = _HEADINGS.get(graph.unit, "count")
    change_heading = f"{'change':>9}  " if graph.compared else ""
    return f"{'total':>7} {'own':>7} {amount_heading:>10}  {change_heading}frame"


def _children(graph: Graph, drawn: Drawn) -> dict[int, list[int]]:
    """By frame those that it called, from left to right, without the small ones; -1: the outermost.
    What is gone comes last.
    """
    least = LEAST_SHARE * drawn.whole
    is_large = drawn.total >= least
    if graph.compared is not None:
        least_before = LEAST_SHARE * int(graph.tree.whole()[2])
        is_large |= drawn.is_gone & (drawn.before >= least_before)
    children: dict[int, list[int]] = {}
    for place in np.flatnonzero(is_large).tolist():
        children.setdefault(int(drawn.parent[place]), []).append(place)
    for places in children.values():
        places.sort(key=lambda place: (bool(drawn.is_gone[place]), int(drawn.start[place])))
    return children


def _is_nearly_all(drawn: Drawn, place: int, child: int) -> bool:
    """Whether a child has nearly all of the time of a frame."""
    if drawn.is_gone[place] != drawn.is_gone[child]:
        return False
    weight = drawn.total
    if drawn.is_gone[place]:
        weight = drawn.before
    return int(weight[child]) >= _NEARLY_ALL * int(weight[place])


def _line(graph: Graph, drawn: Drawn, chain: list[int], depth: int, width: int | None) -> str:
    """A line for a frame and those in it that have nearly all of its time."""
    first = chain[0]
    total = int(drawn.total[first])
    own = int(drawn.own[chain].sum())
    of_all = max(drawn.whole, 1)  # everything may be gone
    total_percent = 100 * total / of_all
    own_percent = 100 * own / of_all
    numbers = f"{total_percent:5.1f} % {own_percent:5.1f} % {amount(graph, total):>10}  "
    if graph.compared is not None:
        numbers += f"{_change(graph, drawn, first):>9}  "
    numbers += "  " * depth
    frames = [graph.frames[number] for number in drawn.frame[chain].tolist()]
    name = " > ".join(_folded([printable(frame.label) for frame in frames]))
    if drawn.is_gone[first]:
        name = f"gone: {name}"
    if width is not None:
        name = shortened(name, max(width - len(numbers), _NARROWEST))
    return numbers + name


def _folded(names: list[str]) -> list[str]:
    """Calls of a function by itself as one, with how many there are."""
    folded = []
    for name, repeated in groupby(names):
        times = sum(1 for _ in repeated)
        folded.append(f"{name} ({times:,} times)" if times > 1 else name)
    return folded


def _change(graph: Graph, drawn: Drawn, place: int) -> str:
    """How a frame changed; a dash where that is not sure, unless it is gone."""
    if not (drawn.sure[place] or drawn.is_gone[place]):
        return "-"
    change = float(drawn.change[place])
    size = amount(graph, change)
    if change > 0:
        return f"+{size}"
    return size
