"""The picture as a page, with what a frame says and a table of the heaviest frames beside it."""

from __future__ import annotations

from html import escape
from typing import IO, Any

from layerscope.analyse.result import BYTES, NS
from layerscope.analyse.stacks.flame_layout import draw, heaviest
from layerscope.analyse.stacks.frames import LAYERS
from layerscope.analyse.stacks.graphs import Graph
from layerscope.show.flame import Picture, Written
from layerscope.show.flame.markup import amount, as_json, figure, read, script
from layerscope.show.flame.palette import css
from layerscope.show.screen import printable

SUFFIX = ".html"
# What frames have by the unit of it.
_WEIGHTS = {NS: "time", BYTES: "memory"}
OPEN = "open it in a browser: click a frame to zoom, s shows its callers, / searches, Escape resets"
IS_CUT = True
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<figure>
{figure}
</figure>
<aside aria-label="details">
<h2>Frame</h2>
<div id="frame-name">all</div>
<ul id="frame-lines"></ul>
<h2>{heading}</h2>
<table id="heaviest">
<thead><tr>
<th>frame</th>
<th data-by="own"><button>own</button></th>
<th data-by="{third}"><button>{third}</button></th>
</tr></thead>
<tbody></tbody>
</table>
</aside>
</main>
<script id="frames-data" type="application/json">{data}</script>
<script>
{page}</script>
<script>
{viewer}</script>
</body>
</html>
"""


def write(picture: Picture, stream: IO[bytes]) -> Written:
    """Write the picture as a page in one file."""
    graph = picture.graph
    drawn = draw(graph)
    page = _PAGE.format(
        title=escape(printable(picture.title)),
        style="\n".join((css(), read("viewer.css"), read("page.css"))),
        figure=figure(picture, drawn, is_file=False),
        heading=_heading(graph),
        third="total" if graph.compared is None else "change",
        data=as_json(_rows(graph)),
        page=read("page.js"),
        viewer=script(),
    )
    stream.write(page.encode("utf-8", "backslashreplace"))
    return Written(len(drawn.node), drawn.left_out)


def _heading(graph: Graph) -> str:
    if graph.compared is not None:
        return f"Own changes per {graph.compared.per}"
    what = _WEIGHTS.get(graph.unit, "page faults")
    return f"Most {what} of their own"


def _rows(graph: Graph) -> list[dict[str, Any]]:
    made = []
    for one in heaviest(graph):
        frame = graph.frames[one.frame]
        row: dict[str, Any] = {
            "label": printable(frame.label),
            "place": printable(frame.place),
            "layer": LAYERS[frame.layer],
            "own": one.own,
            "own_text": amount(graph, one.own),
        }
        if graph.compared is None:
            row |= {"total": one.total, "total_text": amount(graph, one.total)}
        else:
            sign = "+" if one.change > 0 else ""
            row |= {
                "change": abs(one.change) if one.sure else 0,
                "change_text": sign + amount(graph, one.change),
            }
            row["sure"] = one.sure
        made.append(row)
    return made
