"""A sampled profile for speedscope.app: one weight for each stack, depth first, so that its view
in the order of time shows the tree.

Its format, https://www.speedscope.app/file-format-schema.json: `shared.frames` with name, file and
line, and a profile of type `sampled` with `samples` (stacks as indices of frames, the outermost
first) and `weights` in `unit`.
"""

from __future__ import annotations

import json
from typing import IO, Any

from layerscope.analyse.result import BYTES, NS
from layerscope.analyse.stacks.frames import StackFrame
from layerscope.analyse.stacks.tree import walk
from layerscope.show.flame import Picture, Written

SUFFIX = ".speedscope.json"
OPEN = "drop it on https://www.speedscope.app, which runs in the browser and sends it nowhere"
IS_CUT = False
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_PIECE = 4096
_UNITS = {NS: "nanoseconds", BYTES: "bytes"}


def write(picture: Picture, stream: IO[bytes]) -> Written:
    """Write the stacks of the picture, of a comparison those of the newer recording, piece by
    piece.
    """
    graph, tree = picture.graph, picture.graph.tree
    weights = tree.own[:, 0]
    nodes = walk(tree)
    nodes = nodes[weights[nodes] != 0]
    frames = [_frame(frame) for frame in graph.frames]
    head = {
        "$schema": _SCHEMA,
        "exporter": "layerscope",
        "name": picture.title,
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
    }
    profile = {
        "type": "sampled",
        "name": picture.title,
        "unit": _UNITS.get(graph.unit, "none"),
        "startValue": 0,
        "endValue": graph.whole,
    }
    stream.write(
        f'{json.dumps(head)[:-1]}, "profiles": [{json.dumps(profile)[:-1]}, "samples": ['.encode()
    )
    parent, frame = tree.parent.tolist(), tree.frame.tolist()
    for first in range(0, len(nodes), _PIECE):
        stacks = ",\n".join(
            json.dumps(_stack(node, parent, frame))
            for node in nodes[first : first + _PIECE].tolist()
        )
        stream.write(f"{',' if first else ''}\n{stacks}".encode())
    own = json.dumps(weights[nodes].tolist())
    stream.write(f'], "weights": {own}}}]}}\n'.encode())
    return Written(len(tree))


def _frame(frame: StackFrame) -> dict[str, Any]:
    made: dict[str, Any] = {"name": frame.label}
    if frame.file:
        made["file"] = frame.file
    if frame.line > 0:
        made["line"] = frame.line
    return made


def _stack(node: int, parent: list[int], frame: list[int]) -> list[int]:
    stack = []
    while node >= 0:
        stack.append(frame[node])
        node = parent[node]
    return stack[::-1]
