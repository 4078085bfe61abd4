"""Ranges, counters and marks that a program records by itself, as the agent writes them."""

from __future__ import annotations

from layerscope.rawfile import layout
from tests.native.door import Door
from tests.native.driven import Drive, Driven

LIBRARY = """
TASK, FRAME, EVENT = 6, 7, 8
agent.ls_range_begin.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64 * 2]
agent.ls_range_end.argtypes = [ctypes.c_uint64 * 2]
agent.ls_counter.argtypes = [ctypes.c_char_p, ctypes.c_int64]
agent.ls_mark.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_int32]
agent.ls_counter.restype = agent.ls_mark.restype = None

def open_range(text, kind=TASK):
    handle = (ctypes.c_uint64 * 2)()
    assert agent.ls_range_begin(text.encode(), kind, handle) == 0
    return handle

def end_range(handle):
    return agent.ls_range_end(handle)
"""


def well(driven: Driven) -> Driven:
    """`driven`, which must have ended without a word and without a loss."""
    assert (driven.status, driven.stderr) == (0, "")
    assert not driven.losses()
    return driven


def test_ranges_lie_on_one_stack_with_operators_and_have_their_domain(drive: Drive) -> None:
    driven = well(
        drive(
            LIBRARY
            + """
start()
task = open_range("task\\nmine", TASK)
op("in task")
frame = open_range("frame\\nmine", FRAME)
op("in frame")
event = open_range("event", EVENT)
assert end_range(event) == end_range(frame) == end_range(task) == 0
op("outside")
"""
        )
    )
    assert driven.tree() == [
        ("task", 0, None), ("in task", 1, "task"), ("frame", 1, "task"), ("in frame", 2, "frame"),
        ("event", 2, "frame"), ("outside", 0, None),
    ]  # fmt: skip
    rows = driven.rows(
        "SELECT name, kind, layer, json FROM spans LEFT JOIN args USING (args) WHERE layer = 'ranges' ORDER BY start_ns"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("task", "task", "ranges", '{"domain": "mine"}'), ("frame", "frame", "ranges", '{"domain": "mine"}'),
        ("event", "event", "ranges", None),
    ]  # fmt: skip


def test_ranges_that_cross_leave_the_rest_where_it_was(drive: Drive) -> None:
    driven = well(
        drive(
            LIBRARY
            + """
start()
first, second = open_range("first"), open_range("second")
assert end_range(first) == 0
op("in second")
third = open_range("third")
assert end_range(second) == 0
op("in third")
assert end_range(third) == 0
op("outside")
"""
        )
    )
    assert driven.tree() == [
        ("first", 0, None), ("second", 1, "first"), ("in second", 2, "second"), ("third", 2, "second"),
        ("in third", 3, "third"), ("outside", 0, None),
    ]  # fmt: skip


def test_a_range_that_ends_on_another_thread_stays_on_its_own(drive: Drive) -> None:
    driven = well(
        drive(
            LIBRARY
            + """
start()
op("first of main")
carried = open_range("carried")
op("in carried")
worker = Worker()
worker.do(op, "worker's own")
assert worker.do(end_range, carried) == 0
assert end_range(carried) == -1  # over
op("outside")
worker.do(op, "worker's last")
worker.close()
"""
        )
    )
    spans = {span["name"]: span for span in driven.spans()}
    assert spans["carried"]["tid"] == driven.pid
    assert (spans["in carried"]["parent_name"], spans["outside"]["depth"]) == ("carried", 0)
    assert (spans["worker's last"]["depth"], spans["worker's last"]["parent_name"]) == (0, None)
    assert not any(span["unfinished"] for span in spans.values())


def test_a_range_ends_once_whatever_came_into_its_place(drive: Drive) -> None:
    driven = well(
        drive(
            LIBRARY
            + """
start()
old = open_range("old")
assert end_range(old) == 0
assert end_range(old) == -1
new = open_range("new")  # has the place of the old one
assert end_range(old) == -1
op("in new")
assert end_range(new) == 0
assert end_range((ctypes.c_uint64 * 2)()) == -1
"""
        )
    )
    assert driven.tree() == [("old", 0, None), ("new", 0, None), ("in new", 1, "new")]


def test_a_child_does_not_end_what_its_parent_began(drive: Drive) -> None:
    driven = well(
        drive(
            LIBRARY
            + """
start()
outer = open_range("outer")
child = os.fork()
if child == 0:
    assert end_range(outer) == -1
    own = open_range("child's own")
    assert end_range(outer) == -1
    agent.ls_counter(b"child's", 5)
    assert end_range(own) == 0
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert end_range(outer) == 0
print(child)
"""
        )
    )
    child = int(driven.stdout)
    assert driven.tree() == [("outer", 0, None)]
    assert driven.tree(child) == [("child's own", 0, None)]
    counted = driven.rows(
        "SELECT pid, c.name, value FROM counters c JOIN tracks USING (track) JOIN processes USING (process) "
        "WHERE tracks.name = 'program'"
    )
    assert counted == [{"pid": child, "name": "child's", "value": 5}]


def test_counters_and_marks_come_in_their_order_with_every_value(drive: Drive) -> None:
    driven = well(
        drive(
            LIBRARY
            + """
start()
values = [0, -1, 2**63 - 1, -(2**63), 7]
for value in values:
    agent.ls_counter(b"queue\\nmine", value)
    agent.ls_mark(b"tick", 0, 0)
agent.ls_counter(b"other", 3)
agent.ls_mark(b"epoch\\nmine", 1, 0)
agent.ls_mark(b"pause", 2, 0)
agent.ls_mark(b"resume", 3, 0)
worker = Worker()
worker.do(lambda: agent.ls_mark(b"of a thread with nothing else", 0, 0))
worker.close()
"""
        )
    )
    counters = driven.rows(
        "SELECT c.name, value, tracks.name AS domain FROM counters c JOIN tracks USING (track) "
        "WHERE tracks.name IN ('mine', 'program') ORDER BY at_ns"
    )
    assert [(row["name"], row["value"], row["domain"]) for row in counters] == [
        *(("queue", value, "mine") for value in (0, -1, 2**63 - 1, -(2**63), 7)), ("other", 3, "program"),
    ]  # fmt: skip
    marks = driven.rows(
        "SELECT m.name, m.kind, json, tid FROM marks m LEFT JOIN args USING (args) JOIN tracks USING (track) "
        "ORDER BY at_ns"
    )
    assert [(row["name"], row["kind"], row["json"]) for row in marks] == [
        *[("tick", "marker", None)] * 5, ("epoch", "step", '{"domain": "mine"}'), ("pause", "paused", None),
        ("resume", "resumed", None), ("of a thread with nothing else", "marker", None),
    ]  # fmt: skip
    assert [row["tid"] == driven.pid for row in marks] == [True] * 8 + [False]


def test_what_does_not_fit_into_the_ring_is_counted(drive: Drive) -> None:
    door = Door(drive.folder / "raw", drainer="")
    driven = drive(
        LIBRARY
        + """
start()
kept = [open_range("open") for _ in range(3)]
run(["filler"], layout_records)
for _ in range(10):
    agent.ls_counter(b"lost", 1)
    agent.ls_mark(b"lost", 0, 0)
assert [end_range(handle) for handle in kept] == [0, 0, 0]
assert [end_range(handle) for handle in kept] == [-1, -1, -1]
""".replace("layout_records", str(layout.RING_RECORDS + 100)),
        door,
    )
    assert (driven.status, driven.stderr) == (0, "")
    (handed,) = driven.door.handed.values()
    (header,) = handed.headers()
    records = handed.records(0)
    told = int((records["kind"] < layout.THREAD_BEGIN).sum()) + int(
        records["name"][records["kind"] == layout.LOST].sum()
    )
    assert told + int(header["lost_full"]) == layout.RING_RECORDS + 100 + 20 + 3
    assert (
        int(header["lost_full"]) >= 15
    )  # a mark takes less room than a span may need: a few still fit
    assert int(header["depth"]) == 0


def test_a_refusal_of_the_part_inside_becomes_a_problem(drive: Drive) -> None:
    driven = well(
        drive(
            LIBRARY
            + """
start()
for _ in range(2):
    agent.ls_mark(b"modules_refused\\nthis Python runs without the GIL", 4, 0)
op("only")
"""
        )
    )
    (problem,) = driven.rows("SELECT * FROM problems")
    assert (problem["layer"], problem["code"]) == ("modules", "modules_refused")
    assert problem["what"] == f"process {driven.pid}: this Python runs without the GIL"
    assert problem["remedy"]
    assert problem["lost"]
    assert not driven.rows("SELECT * FROM marks")
