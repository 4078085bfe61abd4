"""What tests of the agent's windows share: a program that makes steps, and the marks that it
leaves.
"""

from __future__ import annotations

import textwrap

from layerscope.rawfile import layout
from tests.native.door import Door
from tests.native.driven import Drive, Driven

OPENED, CLOSED, BEGINS, ENDS = (
    layout.MARK_OPENED,
    layout.MARK_CLOSED,
    layout.MARK_BEGINS,
    layout.MARK_ENDS,
)
NONE, SERVED, LOADER, OPTIMIZER, MARK, NAMED = (
    layout.RULE_NONE, layout.RULE_SERVED, layout.RULE_LOADER, layout.RULE_OPTIMIZER, layout.RULE_MARK, layout.RULE_NAMED,
)  # fmt: skip
# What the lines of a test may use.
INSIDE = """
MARK_STEP, TASK = 1, 6
agent.ls_window_set.argtypes = [ctypes.c_int64] * 3 + [ctypes.c_int, ctypes.c_char_p]

def window(first, last=-1, every=0, by_time=0, mark=""):
    assert prepare() == 0
    agent.ls_window_set(first, last, every, by_time, mark.encode())
    start()

def optimize(instance=1, name="SGD", *inside):
    span = begin(f"Optimizer.step#{name}.step", RANGE)
    for call in inside:
        call()
    agent.ls_note_optimizer(instance)
    end(span)

class Wait:
    def __enter__(self):
        self.span = begin("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", RANGE)

    def __exit__(self, kind, value, trace):
        end(self.span)

def watch_exits():
    own = ctypes.PyDLL(AGENT)
    own.ls_window_watch_exits.argtypes = [ctypes.py_object, ctypes.py_object]
    assert own.ls_window_watch_exits(Wait.__exit__, watch_exits) == 0

def wait(is_empty=False):
    try:
        with Wait():
            if is_empty:
                raise StopIteration
    except StopIteration:
        pass
"""


def marks(door: Door) -> list[tuple[int, int, int]]:
    """(what it is, step that begins there, rule) of the marks of windows on all threads, in the
    order of time.
    """
    (handed,) = door.handed.values()
    found = []
    for ring in range(len(handed.rings)):
        for record in handed.records(ring):
            if record["kind"] == layout.MARK and record["module"] in (OPENED, CLOSED, BEGINS, ENDS):
                rule = int(record["end"]) & (layout.WINDOW_BY_TIME - 1)
                found.append(
                    (int(record["start"]), int(record["module"]), int(record["seq"]), rule)
                )
    return [mark for _, *mark in sorted(found)]  # type: ignore[misc]


def run(drive: Drive, lines: str) -> tuple[Driven, list[str], list[tuple[int, int, int]]]:
    """What became of it, the names of the spans that are neither optimizer nor loader, and the
    marks.
    """
    door = Door(drive.folder / "raw")
    drive.options = {"window": {"first": 0 if "window(0" in lines else 1}}
    driven = drive(INSIDE + textwrap.dedent(lines), door)
    assert (driven.status, driven.stderr) == (0, "")
    names = [span["name"] for span in driven.spans() if span["kind"] not in ("optimizer", "loader")]
    return driven, names, [tuple(mark) for mark in marks(door)]  # type: ignore[misc]
