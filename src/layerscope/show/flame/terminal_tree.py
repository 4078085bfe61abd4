"""A flame graph as a tree of text: the heaviest branches, with their share of the whole.

Frames of which each has nearly all its weight in the next stand in one line, `main > train > loop`:
what is deeper is shown further in only where the weight parts.
"""

from __future__ import annotations

from layerscope.analyse.result import NS
from layerscope.analyse.stacks.flame_layout import Drawn
from layerscope.analyse.stacks.graphs import Graph
from layerscope.show.flame import Picture
from layerscope.show.flame.markup import amount, what_is_gone, whole
from layerscope.show.screen import printable
from layerscope.show.terminal import shortened

LEAST_SHARE = 0.01
_NEARLY_ALL = 0.95
_NARROWEST = 24
_MOST_LINES = 50


def text(picture: Picture, drawn: Drawn, width: int | None = None) -> str:
    """The tree, no wider than `width`; without one, names are whole."""
    graph = picture.graph
    about = [whole(graph), *([picture.chosen] if picture.chosen else [])]
    about += [f"change per {graph.compared.per}"] if graph.compared else []
    lines = [printable(picture.title), printable("; ".join(about))]
    compared = f"{'change':>9}  " if graph.compared else ""
    lines.append(
        f"{'total':>7} {'own':>7} {'time' if graph.unit == NS else 'count':>10}  {compared}frame"
    )
    below: dict[int, list[int]] = {}
    for place, parent in enumerate(drawn.parent.tolist()):
        if drawn.total[place] >= LEAST_SHARE * drawn.whole:
            below.setdefault(parent, []).append(place)
    for places in below.values():
        places.sort(key=lambda place: int(drawn.start[place]))
    waiting = [(place, 0) for place in reversed(below.get(-1, []))]
    while waiting and len(lines) < _MOST_LINES:
        place, depth = waiting.pop()
        chain = [place]
        while len(inside := below.get(chain[-1], [])) == 1 and _is_nearly_all(
            drawn, place, inside[0]
        ):
            chain += inside
        lines.append(_line(graph, drawn, chain, depth, width))
        waiting += [(child, depth + 1) for child in reversed(inside)]
    if waiting:
        lines.append(f"{len(waiting):,} more branches; a file has all: -o flame.svg.")
    return "".join(
        f"{line}\n" for line in [*lines, *map(printable, (*what_is_gone(graph), *picture.notes))]
    )


def _is_nearly_all(drawn: Drawn, place: int, child: int) -> bool:
    return bool(drawn.total[child] >= _NEARLY_ALL * drawn.total[place])


def _line(graph: Graph, drawn: Drawn, chain: list[int], depth: int, width: int | None) -> str:
    total, own = int(drawn.total[chain[0]]), int(drawn.own[chain].sum())
    numbers = (
        f"{100 * total / drawn.whole:5.1f} % {100 * own / drawn.whole:5.1f} % "
        f"{amount(graph, total):>10}  "
    )
    if graph.compared is not None:
        change = float(drawn.change[chain[0]])
        sign = "+" if change > 0 else ""
        shown = sign + amount(graph, change) if drawn.sure[chain[0]] else "-"
        numbers += f"{shown:>9}  "
    name = " > ".join(printable(graph.frames[int(drawn.frame[place])].label) for place in chain)
    numbers += "  " * depth
    return numbers + (
        name if width is None else shortened(name, max(width - len(numbers), _NARROWEST))
    )
