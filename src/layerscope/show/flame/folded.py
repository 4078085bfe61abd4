"""Text with a line for each stack, `a;b;c 1204`, which most tools for flame graphs read.

The weight is in ns, of memory in bytes, of page faults their number. A semicolon in a name becomes
a comma, a line break a space. Of a comparison the lines have two weights: before, and now.
"""

from __future__ import annotations

import re
from typing import IO

from layerscope.analyse.stacks.tree import walk
from layerscope.show.flame import Picture, Written

SUFFIX = ".folded"
OPEN = "give it to a tool that reads folded stacks, such as speedscope or inferno-flamegraph"
IS_CUT = False
_PIECE = 1 << 14


def write(picture: Picture, stream: IO[bytes]) -> Written:
    """Write the stacks, however many they are: no text is kept but that of the way to one of
    them.
    """
    graph, tree = picture.graph, picture.graph.tree
    names = [_name(frame.label) for frame in graph.frames]
    weights = tree.own[:, [2, 0] if graph.compared is not None else [0]]
    order = walk(tree)
    path = [""] * (len(tree.levels) + 1)
    for first in range(0, len(order), _PIECE):
        nodes = order[first : first + _PIECE]
        lines = []
        for depth, frame, weight in zip(
            tree.depth_of(nodes).tolist(),
            tree.frame[nodes].tolist(),
            weights[nodes].tolist(),
            strict=True,
        ):
            path[depth] = f"{path[depth - 1]};{names[frame]}" if depth else names[frame]
            if any(weight):
                lines.append(f"{path[depth]} {' '.join(map(str, weight))}\n")
        stream.write("".join(lines).encode("utf-8", "backslashreplace"))
    return Written(len(tree))


def _name(label: str) -> str:
    """The name of a frame as one word of a line: semicolons stand between frames."""
    in_one_line = re.sub(r"\s", " ", label)
    return in_one_line.replace(";", ",") or "?"
