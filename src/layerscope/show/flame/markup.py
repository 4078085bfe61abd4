"""A flame graph as SVG: what can be seen without its script, and the data and the script that make
it answer.

The outermost frames are at the top, or flipped at the bottom. The script (`viewer.js`) lays the
frames out again for the width of the window.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from layerscope.analyse.result import BYTES, NS
from layerscope.analyse.stacks.flame_layout import SURE, WIDTH_PX, Drawn
from layerscope.analyse.stacks.frames import LAYERS, StackFrame
from layerscope.analyse.stacks.graphs import Graph
from layerscope.analyse.stacks.marked import SPINNING, UNKNOWN, WORDS, mark_of, marked_weights
from layerscope.analyse.stacks.memory import ALLOC, LEAK, LIVE
from layerscope.analyse.stacks.sample_reader import CPU, OFFCPU, PAGEFAULTS, WALL
from layerscope.model import units
from layerscope.model.distinct import distinct
from layerscope.model.layers import GPU, OPERATORS, PRIMITIVES
from layerscope.show.flame import Picture, labels
from layerscope.show.flame.palette import css
from layerscope.show.screen import printable

ROW_PX = 18
TOP_PX = 116
_NOTE_PX = 17
_LETTER_PX = 7.25
_FEWEST_LETTERS = 3
_LINE_LETTERS = 150
# A frame that is gone has no width of its own: it is as wide as this, but all of them together no
# more than a quarter of their caller.
_GONE_PX, _LEAST_GONE_PX = 6, 2
_GONE_PART = 0.25
# Parts of the larger weight by which a frame changed, for the four steps of colour.
_STEPS = (0.1, 0.25, 0.5)
ALL = "all"
ALL_FRAMES = {"label": ALL, "place": "", "layer": "everything"}
# Stripes over the colour of the layer.
_HATCHES = "".join(
    f'<pattern id="hatch-{mark}" patternUnits="userSpaceOnUse" width="7" height="7" '
    f'patternTransform="rotate({angle})"><rect class="{layer}" width="7" height="7"/>'
    '<rect class="stripe" width="2" height="7"/></pattern>'
    for mark, layer, angle in (
        (SPINNING, "native", 45),
        (UNKNOWN, "other", -45),
        ("gone", "shrank4", -45),
        ("gone-same", "same", -45),
    )
)
# What the whole is, and what it was counted in.
WHOLE = {
    CPU: ("of CPU time", "sample"),
    OFFCPU: ("of waiting", "wait"),
    WALL: ("on the CPU and waiting", "sample"),
    PAGEFAULTS: ("page faults", "sample"),
    OPERATORS: ("in operators", "span"),
    PRIMITIVES: ("in primitives", "span"),
    GPU: ("of work on GPUs", "span"),
    ALLOC: ("allocated", "block"),
    LIVE: ("live at the peak", "block"),
    LEAK: ("left over", "block"),
}


def amount(graph: Graph, weight: float) -> str:
    """A weight as people read it: a time, a size, or a number."""
    if graph.unit == NS:
        return units.duration(weight)
    return units.size(weight) if graph.unit == BYTES else f"{weight:,.0f}"


def whole(graph: Graph) -> str:
    """What the picture adds up to: `12.3 s of CPU time in 1,204 samples, 1.2 s spinning`."""
    what, noun = WHOLE[graph.kind]
    count = int(graph.tree.whole()[1])
    nouns = noun if count == 1 else f"{noun}s"
    marked = [
        f", {amount(graph, weight)} {WORDS[mark]}" for mark, weight in marked_weights(graph).items()
    ]
    return f"{amount(graph, graph.whole)} {what} in {count:,} {nouns}{''.join(marked)}"


def sentences(picture: Picture, drawn: Drawn) -> list[str]:
    """What is written below the frames."""
    graph, said = picture.graph, []
    if drawn.left_out:
        frames = "1 frame" if drawn.left_out == 1 else f"{drawn.left_out:,} frames"
        said.append(
            f"{frames} thinner than {drawn.thinnest_px:.2g} px of {WIDTH_PX}, and what they hold, "
            "not drawn."
        )
    if graph.compared is not None:
        per = graph.compared.per
        chance = ", or none beyond the chance of sampling" if graph.is_sampled else ""
        said.append(f"Red grew, blue shrank per {per}; grey: no change{chance}.")
        if drawn.is_gone.any():
            said.append(
                "Hatched: gone, which only the recording before has; click it for what it was."
            )
    return [*said, *picture.notes]


def figure(picture: Picture, drawn: Drawn, is_file: bool) -> str:
    """The element `svg`; `is_file`: it is a file of its own, with styles and script inside."""
    notes = sentences(picture, drawn)
    below_px = TOP_PX + _rows(drawn) * ROW_PX
    height = below_px + 14 + _NOTE_PX * len(notes)
    title = _text(picture.title)
    about = _text(_about(picture))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" id="layerscope-flame" width="{WIDTH_PX}" '
        f'height="{height}" '
        f'viewBox="0 0 {WIDTH_PX} {height}" role="group" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<desc>{about}</desc>",
        f"<style>\n{css()}\n{read('viewer.css')}</style>" if is_file else "",
        _HATCHES,
        '<rect class="page" width="100%" height="100%"/>',
        f'<text class="title" x="10" y="26">{title}</text>',
        f'<text class="about" x="10" y="45">{about}</text>',
        f'<foreignObject id="tools" x="10" y="54" width="{WIDTH_PX - 20}" '
        'height="30"></foreignObject>',
        _key(picture.graph, drawn),
        *_frames(picture, drawn),
        '<g id="notes">',
        *(
            '<text class="about" x="10" '
            f'y="{below_px + 20 + _NOTE_PX * place}">{_text(note)}</text>'
            for place, note in enumerate(notes)
        ),
        "</g>",
        f'<script id="flame-data" type="application/json">{data(picture, drawn, height)}</script>',
        f"<script><![CDATA[\n{script()}]]></script>" if is_file else "",
        "</svg>",
    ]
    return "\n".join(part for part in parts if part)


def read(name: str) -> str:
    """A file beside this one."""
    return (files("layerscope.show.flame") / name).read_text(encoding="utf-8")


def script() -> str:
    """What makes the picture answer."""
    return read("viewer.js")


def as_json(value: Any) -> str:
    """JSON in ASCII that may stand inside an element of SVG and of HTML."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def data(picture: Picture, drawn: Drawn, height: int) -> str:
    """What the script knows, as JSON. The first node is the whole."""
    return as_json(
        {
            **about_graph(picture.graph, drawn),
            "width": WIDTH_PX,
            "height": height,
            "row": ROW_PX,
            "top": TOP_PX,
            "rows": _rows(drawn),
            "flipped": picture.is_flipped,
            "nodes": nodes(picture.graph, drawn),
            "frames": about_frames(picture.graph, drawn),
        }
    )


def about_graph(graph: Graph, drawn: Drawn) -> dict[str, Any]:
    """What the script knows of the whole."""
    made: dict[str, Any] = {
        "unit": graph.unit,
        "whole": drawn.whole,
        "sampled": graph.is_sampled,
        "noun": WHOLE[graph.kind][1],
        "inverted": graph.is_inverted,
        "left_out": drawn.left_out,
    }
    if graph.compared is not None:
        made["compared"] = {
            "per": graph.compared.per,
            "units": graph.compared.units,
            "units_before": graph.compared.units_before,
            "steps": _STEPS,
            "sure": SURE,
        }
        made["gone"] = {"px": _GONE_PX, "least": _LEAST_GONE_PX, "part": _GONE_PART}
    return made


def nodes(graph: Graph, drawn: Drawn) -> dict[str, list[Any]]:
    """The columns of the frames that are drawn, with the whole before them."""
    _, at = np.unique(drawn.frame, return_inverse=True)
    count = int(graph.tree.whole()[1])
    made = {
        "parent": [-1, *(drawn.parent + 1).tolist()],
        "start": [0, *drawn.start.tolist()],
        "total": [drawn.whole, *drawn.total.tolist()],
        "own": [0, *drawn.own.tolist()],
        "count": [count, *drawn.count.tolist()],
        "frame": [0, *(at + 1).tolist()],
        "depth": [0, *(drawn.depth + 1).tolist()],
    }
    if graph.compared is not None:
        of_all = graph.tree.whole()
        change = of_all[0] / graph.compared.units - of_all[2] / graph.compared.units_before
        made["change"] = [float(change), *drawn.change.tolist()]
        made["sure"] = [1, *drawn.sure.astype(int).tolist()]
        made["count_before"] = [int(of_all[3]), *drawn.count_before.tolist()]
        made["gone"] = [0, *drawn.is_gone.astype(int).tolist()]
        made["before"] = [0, *drawn.before.tolist()]
    return made


def about_frames(graph: Graph, drawn: Drawn) -> list[dict[str, Any]]:
    """What is said of each frame that `nodes` names."""
    used = np.unique(drawn.frame).tolist()
    return [ALL_FRAMES, *(_frame(graph, frame) for frame in used)]


def colour_class(graph: Graph, drawn: Drawn, place: int) -> str:
    """The class of the colour of a drawn frame: its layer, or how it changed."""
    if graph.compared is None:
        return layer_class(graph.frames[int(drawn.frame[place])])
    if drawn.is_gone[place]:
        return "shrank4 gone" if drawn.sure[place] else "same gone"
    change = float(drawn.change[place])
    if not drawn.sure[place] or not change:
        return "same"
    now = float(drawn.total[place]) / graph.compared.units
    part = abs(change) / max(now, now - change)
    shade = 1 + sum(part >= step for step in _STEPS)
    return f"grew{shade}" if change > 0 else f"shrank{shade}"


def layer_class(frame: StackFrame) -> str:
    """The class of the colour of a frame by its layer."""
    layer, mark = LAYERS[frame.layer], mark_of(frame)
    return f"{layer} {mark}" if mark else layer


def _frame(graph: Graph, number: int) -> dict[str, Any]:
    made = about_frame(graph.frames[number])
    if hot := graph.lines.get(number):
        made["hot"] = [[line, round(share, 4)] for line, share in hot]
    return made


def about_frame(frame: StackFrame) -> dict[str, Any]:
    """What is said of a frame wherever it is."""
    made: dict[str, Any] = {
        "label": printable(frame.label),
        "place": printable(frame.place),
        "layer": LAYERS[frame.layer],
    }
    shorter = labels.forms(made["label"])[1:]
    if shorter:
        made["shorter"] = shorter
    return made


def _about(picture: Picture) -> str:
    """The line below the title, shortened at its beginning."""
    parts = [picture.command, whole(picture.graph), picture.chosen]
    text = printable(" · ".join(filter(None, parts)))
    if len(text) <= _LINE_LETTERS:
        return text
    return "…" + text[1 - _LINE_LETTERS :]


def _text(words: str) -> str:
    return escape(printable(words))


def _rows(drawn: Drawn) -> int:
    """How many rows the picture has, with that of the whole."""
    return int(drawn.depth.max(initial=-1)) + 2


def _tops(picture: Picture, drawn: Drawn) -> list[int]:
    """Where the row of the whole begins, and that of each depth."""
    rows = range(_rows(drawn))
    in_order = reversed(rows) if picture.is_flipped else rows
    return [TOP_PX + row * ROW_PX for row in in_order]


def _frames(picture: Picture, drawn: Drawn) -> list[str]:
    graph = picture.graph
    tops = _tops(picture, drawn)
    rects = [f'<rect class="other" x="0" y="{tops[0]}" width="{WIDTH_PX}" height="{ROW_PX}"/>']
    texts = [f'<text x="4" y="{tops[0] + ROW_PX - 5}">{ALL}</text>']
    rows = zip(*_widths(drawn), drawn.depth.tolist(), drawn.frame.tolist(), strict=True)
    for place, (x, px, depth, frame) in enumerate(rows):
        y = tops[depth + 1]
        name = colour_class(graph, drawn, place)
        rects.append(
            f'<rect class="{name}" x="{x:.2f}" y="{y}" width="{px:.2f}" height="{ROW_PX}"/>'
        )
        room = int((px - 6) / _LETTER_PX)
        if room >= _FEWEST_LETTERS:
            words = labels.fitted(printable(graph.frames[frame].label), room)
            texts.append(f'<text x="{x + 4:.2f}" y="{y + ROW_PX - 5}">{_text(words)}</text>')
    return [
        '<g id="frames" role="tree" aria-label="frames">',
        *rects,
        "</g>",
        '<g id="labels">',
        *texts,
        "</g>",
    ]


def _widths(drawn: Drawn) -> tuple[list[float], list[float]]:
    """Where each frame begins and how wide it is, in px. What is gone stands at the end of its
    caller.
    """
    scale = WIDTH_PX / max(drawn.whole, 1)
    starts = (drawn.start * scale).tolist()
    widths = (drawn.total * scale).tolist()
    gone_in: dict[int, list[int]] = {}
    for place in np.flatnonzero(drawn.is_gone).tolist():
        caller = int(drawn.parent[place])
        if caller < 0 or not drawn.is_gone[caller]:
            gone_in.setdefault(caller, []).append(place)
    for caller, places in gone_in.items():
        begin, width = (starts[caller], widths[caller]) if caller >= 0 else (0, WIDTH_PX)
        each = min(_GONE_PX, _GONE_PART * width / len(places))
        for number, place in enumerate(places):
            starts[place] = begin + width - each * (len(places) - number)
            widths[place] = each if each >= _LEAST_GONE_PX else 0
    return starts, widths


def _key(graph: Graph, drawn: Drawn) -> str:
    """What the colours mean."""
    if graph.compared is None:
        used = sorted({graph.frames[frame].layer for frame in distinct(drawn.frame).tolist()})
        named = [(LAYERS[layer], LAYERS[layer]) for layer in used]
    else:
        named = [
            ("shrank4", "shrank"),
            ("shrank2", ""),
            ("same", "no change"),
            ("grew2", ""),
            ("grew4", "grew"),
            *([("gone", "gone")] if drawn.is_gone.any() else []),
        ]
    parts, x = [], 10
    for name, words in named:
        parts.append(f'<rect class="{name}" x="{x}" y="92" width="13" height="13" rx="2"/>')
        parts.append(f'<text x="{x + 18}" y="103">{words}</text>' if words else "")
        x += 34 + 7 * len(words) if words else 17
    return f'<g class="key">{"".join(parts)}</g>'
