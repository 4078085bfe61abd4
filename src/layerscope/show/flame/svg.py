"""A picture with zoom, search and tooltips in any browser; a plain picture without scripts."""

from __future__ import annotations

from typing import IO

from layerscope.analyse.stacks.flame_layout import draw
from layerscope.show.flame import Picture, Written
from layerscope.show.flame.markup import figure

SUFFIX = ".svg"
OPEN = "open it in a browser: click a frame to zoom, s shows its callers, / searches, Escape resets"
IS_CUT = True


def write(picture: Picture, stream: IO[bytes]) -> Written:
    """Write the picture as SVG."""
    drawn = draw(picture.graph)
    stream.write(b'<?xml version="1.0" encoding="UTF-8"?>\n')
    stream.write(figure(picture, drawn, is_file=True).encode())
    stream.write(b"\n")
    return Written(len(drawn.node), drawn.left_out)
