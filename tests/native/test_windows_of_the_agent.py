"""Windows as the agent itself opens and closes them: what is recorded, and the marks that say which
step begins.
"""

from __future__ import annotations

import textwrap

import pytest

from layerscope.rawfile import layout
from tests.native.door import Door
from tests.native.driven import Drive
from tests.native.windows import (
    BEGINS,
    CLOSED,
    ENDS,
    INSIDE,
    LOADER,
    MARK,
    NAMED,
    OPENED,
    OPTIMIZER,
    SERVED,
    run,
)


def test_a_window_of_steps_of_the_first_optimizer_holds_exactly_these(drive: Drive) -> None:
    driven, names, told = run(
        drive,
        """
        window(2, 4)
        for step in range(6):
            op(f"work {step}")
            optimize(1)
            optimize(2, "Adam")
            op(f"rest {step}", RANGE)
        """,
    )

    assert names == ["rest 1", "work 2", "rest 2", "work 3"]
    assert told == [(OPENED, 2, OPTIMIZER), (CLOSED, 4, OPTIMIZER)]
    optimizers = driven.rows(
        "SELECT name, count(*) AS n FROM spans WHERE kind = 'optimizer' GROUP BY 1 ORDER BY 1"
    )
    assert [row["n"] for row in optimizers] == [2, 2]
    assert not driven.losses()


REQUESTS = """
def arrive():
    handle = (ctypes.c_uint64 * 2)()
    agent.ls_request_begin(handle)
    return handle

def answer(handle):
    agent.ls_request_end(handle, b"r\\nrequest")
"""


def test_a_window_holds_requests_where_these_are_marked(drive: Drive) -> None:
    driven, names, told = run(
        drive,
        REQUESTS
        + """
window(2, 4)
for number in range(6):
    request = arrive()
    op(f"work {number}")
    answer(request)
    op(f"rest {number}")
""",
    )
    assert names == ["r", "work 2", "rest 2", "r", "work 3"]
    assert told == [(OPENED, 2, SERVED), (CLOSED, 4, SERVED)]
    assert [row["step"] for row in driven.rows("SELECT step FROM steps ORDER BY step")] == [2, 3]


def test_a_window_of_requests_that_overlap_closes_when_the_last_one_is_over(drive: Drive) -> None:
    driven, names, told = run(
        drive,
        REQUESTS
        + """
window(1, 3)
requests = [arrive(), arrive()]
answer(requests[0])
requests += [arrive(), arrive()]
answer(requests[1])
op("while others run")
answer(requests[3])
answer(requests[2])
op("late")
answer(arrive())
""",
    )
    assert names == ["r", "r", "r", "while others run"]
    assert told == [(OPENED, 1, SERVED), (CLOSED, 3, SERVED)]
    assert [row["step"] for row in driven.rows("SELECT step FROM steps ORDER BY step")] == [1, 2]
    assert driven.rows("SELECT code FROM problems") == []


def test_requests_are_counted_where_nothing_is_recorded(drive: Drive) -> None:
    _, names, told = run(
        drive,
        REQUESTS
        + """
window(1, 1)
first, second = arrive(), arrive()
answer(second)
answer(first)
optimize(1)
answer(arrive())
""",
    )
    assert names == []
    requests = [(BEGINS, 0), (BEGINS, 1), (ENDS, 1), (ENDS, 0)]
    expected = [(what, number, SERVED) for what, number in requests]
    assert told == [*expected, (BEGINS, 1, OPTIMIZER)]


def test_a_window_that_holds_no_step_says_where_each_begins_and_records_nothing(
    drive: Drive,
) -> None:
    driven, names, told = run(
        drive,
        """
        window(1, 1)
        for batch in range(2):
            wait()
            op("evaluate")
        for step in range(3):
            wait()
            op(f"work {step}")
            optimize(1)
            optimize(2, "Adam")
        """,
    )

    assert names == []
    assert driven.spans() == []
    # Until the first optimizer steps a batch of the loader is a step.
    assert told == [
        (BEGINS, 0, LOADER), (BEGINS, 1, LOADER), (BEGINS, 2, LOADER), (BEGINS, 1, OPTIMIZER), (BEGINS, 2, OPTIMIZER),
        (BEGINS, 3, OPTIMIZER),
    ]  # fmt: skip
    assert not driven.losses()


def test_a_window_that_begins_with_step_0_is_open_from_the_start(drive: Drive) -> None:
    _, names, told = run(
        drive,
        """
        window(0, 1)
        op("before")
        optimize()
        op("after")
        """,
    )

    assert names == ["before"]
    assert told == [(CLOSED, 1, OPTIMIZER)]


def test_a_window_opens_again_every_few_steps(drive: Drive) -> None:
    _, names, told = run(
        drive,
        """
        window(1, 2, 3)
        for step in range(8):
            op(f"work {step}")
            optimize()
        """,
    )

    assert names == ["work 1", "work 4", "work 7"]
    assert [number for _, number, _ in told] == [1, 2, 4, 5, 7, 8]


def test_a_step_inside_a_step_of_the_same_optimizer_does_not_count(drive: Drive) -> None:
    _, names, _ = run(
        drive,
        """
        window(1, 2)
        for step in range(3):
            op(f"work {step}")
            optimize(1, "Outer", lambda: optimize(1, "Outer"), lambda: optimize(2, "Inner"))
        """,
    )

    assert names == ["work 1"]


def test_an_empty_wait_for_the_loader_begins_no_step(drive: Drive) -> None:
    _, names, told = run(
        drive,
        """
        watch_exits()
        window(2, 3)
        for epoch in range(2):
            for batch in range(2):
                wait()
                op(f"work {epoch} {batch}")
            wait(is_empty=True)
            op(f"between {epoch}")
        """,
    )

    # The window opens at the wait that might be step 2; that it is none shows only at its end.
    assert names == ["between 0", "work 1 0"]
    assert told == [(OPENED, 2, LOADER), (CLOSED, 3, LOADER)]


def test_what_was_a_step_of_the_loader_is_taken_back_when_an_optimizer_steps(drive: Drive) -> None:
    _, _, told = run(
        drive,
        """
        window(1, 2)
        for step in range(3):
            for batch in range(4):
                wait()
                op(f"work {step} {batch}")
            optimize()
        """,
    )

    assert told[:2] == [(OPENED, 1, LOADER), (CLOSED, 2, LOADER)]
    assert told[2:] == [(OPENED, 1, OPTIMIZER), (CLOSED, 2, OPTIMIZER)]


def test_the_first_window_outlasts_steps_of_a_rule_that_may_not_hold(drive: Drive) -> None:
    _, names, told = run(
        drive,
        """
        window(0, 2)
        for step in range(3):
            for batch in range(4):
                wait()
                op(f"work {step} {batch}")
            optimize()
        """,
    )

    assert names == [f"work {step} {batch}" for step in range(2) for batch in range(4)]
    assert told[-1] == (CLOSED, 2, OPTIMIZER)


def test_it_does_not_outlast_them_for_ever(drive: Drive) -> None:
    _, names, told = run(
        drive,
        """
        window(0, 2)
        for batch in range(200):
            wait()
            op(f"work {batch}")
        """,
    )

    assert told == [(CLOSED, 2, LOADER)]
    assert 2 <= len(names) < 100


@pytest.mark.parametrize("works_before", [True, False])
def test_marks_of_the_program_end_steps(drive: Drive, works_before: bool) -> None:
    _, names, told = run(
        drive,
        f"""
        window(1, 2)
        op("before") if {works_before} else None
        for step in range(4):
            agent.ls_mark(b"step", MARK_STEP, 0)
            op(f"work {{step}}")
        """,
    )

    assert names == ["work 0"] if works_before else ["work 1"]
    assert told == [(OPENED, 1, MARK), (CLOSED, 2, MARK)]


def test_a_range_that_is_named_is_a_step_from_its_start_to_its_end(drive: Drive) -> None:
    _, names, told = run(
        drive,
        """
        window(1, 3, mark="iteration")
        for step in range(5):
            outer = begin("iteration", RANGE)
            inner = begin("iteration", RANGE)
            op(f"work {step}")
            end(inner)
            end(outer)
            op(f"between {step}")
            optimize()
        """,
    )

    assert [name for name in names if name != "iteration"] == ["work 1", "between 1", "work 2"]
    assert names.count("iteration") == 4
    assert [mark for mark in told if mark[2] == NAMED] == [(OPENED, 1, NAMED), (CLOSED, 3, NAMED)]


def test_an_operator_that_is_named_begins_a_step(drive: Drive) -> None:
    _, names, _ = run(
        drive,
        """
        window(1, 2, mark="aten::embedding")
        for step in range(3):
            outer = begin("aten::embedding")
            op("aten::embedding")
            end(outer)
            op(f"work {step}")
        """,
    )

    assert names == ["aten::embedding", "aten::embedding", "work 1"]


def test_a_task_of_the_library_that_is_named_is_a_step(drive: Drive) -> None:
    _, names, _ = run(
        drive,
        """
        window(1, 2, mark="request")
        handle = (ctypes.c_uint64 * 2)()
        for step in range(3):
            agent.ls_range_begin(b"request\\nserver", TASK, handle)
            op(f"work {step}")
            agent.ls_range_end(handle)
            op(f"between {step}")
        """,
    )

    assert names == ["request", "work 1"]


def test_stopping_and_starting_counts_on(drive: Drive) -> None:
    _, names, told = run(
        drive,
        """
        window(1, 3)
        for step in range(4):
            op(f"work {step}")
            if step == 1:
                agent.ls_operators_stop()
                op("stopped")
                start()
            op(f"more {step}")
            optimize()
        """,
    )

    assert names == ["work 1", "more 1", "work 2", "more 2"]
    assert told == [(OPENED, 1, OPTIMIZER), (CLOSED, 3, OPTIMIZER)]


def test_a_forked_child_counts_its_own_steps(drive: Drive) -> None:
    door = Door(drive.folder / "raw")
    driven = drive(
        INSIDE
        + textwrap.dedent("""
        window(1, 2)
        op("of the parent")
        agent.ls_window_forks()
        child = os.fork()
        agent.ls_window_forked(int(not child))
        for step in range(3):
            op(f"work {step}")
            optimize()
        if child:
            print(child)
            os.waitpid(child, 0)
        else:
            os._exit(0)
        """),
        door,
    )

    assert (driven.status, driven.stderr) == (0, "")
    for pid in (driven.pid, int(driven.stdout)):
        assert [span["name"] for span in driven.spans(pid) if span["kind"] == "function"] == [
            "work 1"
        ]


def test_a_thread_that_forks_is_not_waited_for(drive: Drive) -> None:
    """It waits for the GIL perhaps, which a thread has that calls a module."""
    _, names, told = run(
        drive,
        """
        window(1, 3)
        op("work 0")
        agent.ls_window_forks()
        optimize()
        agent.ls_window_forked(0)
        op("work 1")
        optimize()
        op("work 2")
        agent.ls_window_forks()
        optimize()
        agent.ls_window_forked(0)
        op("work 3")
        """,
    )

    assert names == ["work 1", "work 2"]
    assert told == [(OPENED, 1, OPTIMIZER), (CLOSED, 3, OPTIMIZER)]


TIMED = """
import sys
for said in sys.stdin:
    op(said.strip())
    print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("by_time", "asked", "expected"),
    [
        (1, {"after_s": 1.0}, ["two", "four"]),
        (2, {"for_s": 1.0}, ["zero", "two", "four"]),
    ],
)
def test_a_window_of_time_is_open_while_the_drainer_says_so(
    by_time: int, asked: dict[str, float], expected: list[str], drive: Drive
) -> None:
    door = Door(drive.folder / "raw")
    drive.options = {"window": asked}
    process = drive.start(INSIDE + f"window(0, by_time={by_time})\n" + TIMED, door)
    assert process.stdin is not None
    assert process.stdout is not None
    said = (
        layout.CAPTURE_NOTHING,
        layout.CAPTURE_CLOSED,
        layout.CAPTURE_OPEN,
        layout.CAPTURE_CLOSED,
        layout.CAPTURE_OPEN,
    )
    for word, value in zip(
        ("zero", "one", "two", "three", "four", "five"), (*said, layout.CAPTURE_OVER), strict=True
    ):
        if value:
            door.page(process.pid)["window"] = value
            # The operator at which it listens is not recorded yet, nor the one at which it hears
            # that it is over.
            process.stdin.write("listen\n")
            process.stdin.flush()
            process.stdout.readline()
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
    stdout, stderr = process.communicate(timeout=60)
    driven = drive.finish(door, process.pid, process.returncode, stdout, stderr)

    assert (driven.status, driven.stderr) == (0, "")
    names = [span["name"] for span in driven.spans() if span["name"] != "listen"]
    assert names == expected
    assert {row["kind"] for row in driven.rows("SELECT kind FROM marks")} == {"opened", "closed"}


def test_torch_does_not_call_us_for_operators_while_a_window_of_time_is_closed(
    drive: Drive,
) -> None:
    lines = """
        window(0, by_time=1)
        print([torch.fake_always_called(scope) for scope in (FUNCTION, BACKWARD, RANGE)])
        """
    driven = drive(INSIDE + textwrap.dedent(lines))

    assert (driven.status, driven.stderr) == (0, "")
    assert driven.stdout == "[0, 0, 1]\n"
