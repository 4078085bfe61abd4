"""Windows and steps of several threads, of spans that end elsewhere or out of sight, and of full
rings.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.native.door import Door
from tests.native.driven import Drive
from tests.native.windows import CLOSED, INSIDE, NAMED, OPENED, OPTIMIZER, marks, run


def test_steps_of_several_threads_are_recorded_until_the_last_one_ends(drive: Drive) -> None:
    _, names, told = run(
        drive,
        """
        window(1, 3, mark="iteration")
        others = [Worker(), Worker()]
        first = begin("iteration", RANGE)
        end(first)
        spans = [other.do(begin, "iteration", RANGE) for other in others]  # steps 1 and 2
        others[0].do(op, "work 1")
        others[0].do(end, spans[0])
        op("here")
        others[1].do(op, "work 2")
        others[1].do(end, spans[1])
        others[1].do(op, "after")
        for other in others:
            other.close()
        """,
    )

    assert [name for name in names if name != "iteration"] == ["work 1", "here", "work 2"]
    assert told[-1] == (CLOSED, 3, NAMED)


def test_a_step_that_outlasts_its_window_lets_no_others_into_it(drive: Drive) -> None:
    door = Door(drive.folder / "raw")
    drive.options = {"window": {"first": 1, "last": 2, "every": 3}, "step_mark": "iteration"}
    driven = drive(
        INSIDE
        + textwrap.dedent("""
        window(1, 2, 3, mark="iteration")
        other = Worker()
        begin_step = lambda: begin("iteration", RANGE)
        end(begin_step())  # 0
        long = other.do(begin_step)  # 1
        end(begin_step())
        end(begin_step())
        other.do(end, long)
        op("between")
        long = other.do(begin_step)  # 4
        end(begin_step())
        end(begin_step())
        next = begin_step()  # 7
        other.do(end, long)
        end(next)
        other.close()
        """),
        door,
    )

    assert (driven.status, driven.stderr) == (0, "")
    told = [tuple(mark[:2]) for mark in marks(door)]
    assert told == [(OPENED, 1), (CLOSED, 2), (OPENED, 4), (CLOSED, 5), (OPENED, 7), (CLOSED, 8)]
    assert [row["step"] for row in driven.rows("SELECT step FROM steps ORDER BY start_ns")] == [
        1,
        4,
        7,
    ]
    assert driven.rows("SELECT step FROM spans WHERE name = 'between'") == [{"step": None}]


def test_the_first_step_of_all_is_waited_for_as_well(drive: Drive) -> None:
    _, names, told = run(
        drive,
        """
        window(0, 2, mark="iteration")
        other = Worker()
        first = other.do(begin, "iteration", RANGE)
        second = begin("iteration", RANGE)
        end(second)
        other.do(op, "work 0")
        other.do(end, first)
        op("after")
        other.close()
        """,
    )

    assert [name for name in names if name != "iteration"] == ["work 0"]
    assert told[-1] == (CLOSED, 2, NAMED)


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ('begin("request", RANGE)', "other.do(end, span)"),
        ('agent.ls_range_begin(b"request", TASK, handle)', "other.do(agent.ls_range_end, handle)"),
    ],
)
def test_a_step_may_end_on_another_thread(drive: Drive, begins: str, ends: str) -> None:
    _, names, _ = run(
        drive,
        f"""
        window(1, 3, mark="request")
        other = Worker()
        handle = (ctypes.c_uint64 * 2)()
        for step in range(4):
            span = {begins}
            op(f"work {{step}}")
            {ends}
        other.close()
        """,
    )

    assert [name for name in names if name != "request"] == ["work 1", "work 2"]


def test_steps_of_optimizers_deep_inside_others_are_not_lost_track_of(drive: Drive) -> None:
    _, names, _ = run(
        drive,
        """
        def nested(level):
            optimize(level, f"Level{level}", *([lambda: nested(level + 1)] if level < 7 else []))

        window(0, 2)
        nested(1)
        for step in range(1, 3):
            op(f"work {step}")
            optimize(1, "Level1")
        """,
    )

    assert names == ["work 1"]


def test_a_step_for_which_too_many_spans_are_open_counts(drive: Drive) -> None:
    driven, names, told = run(
        drive,
        """
        window(0, 2)
        open = [begin("deep") for _ in range(512)]
        optimize()
        while open:
            end(open.pop())
        for step in range(1, 3):
            op(f"work {step}")
            optimize()
        """,
    )

    assert [name for name in names if name != "deep"] == ["work 1"]
    assert told == [(CLOSED, 2, OPTIMIZER)]
    assert driven.losses() == {"too_deep": 1}


def test_spans_that_are_open_where_the_window_closes_are_recorded_to_their_end(
    drive: Drive,
) -> None:
    driven, names, _ = run(
        drive,
        """
        window(0, 1)
        outer = begin("epoch", RANGE)
        op("inside")
        optimize()
        late = begin("late", RANGE)
        op("outside")
        end(late)
        end(outer)
        """,
    )

    assert names == ["epoch", "inside"]
    assert not driven.rows("SELECT * FROM spans WHERE unfinished")


def test_a_full_ring_has_room_for_the_end_of_a_window(drive: Drive) -> None:
    door = Door(drive.folder / "raw", drainer="")
    lines = "window(0, 1)\nrun(['work'], 150_000)\nfor _ in range(9): agent.ls_counter(b'c', 1)\noptimize()"
    driven = drive(INSIDE + lines, door)

    assert (driven.status, driven.stderr) == (0, "")
    assert marks(door) == [[CLOSED, 1, OPTIMIZER]]
