"""Which optimizer instance a step belongs to, as the framework's own hook says it at the end of the
step.
"""

from __future__ import annotations

from layerscope.rawfile import layout
from tests.native.door import Door
from tests.native.driven import Drive


def instances(drive: Drive, lines: str) -> list[tuple[int, list[int]]]:
    """Per span of the main thread, in the order of their ends: its kind and the instances that were
    noted.
    """
    door = Door(drive.folder / "raw", drainer="")
    driven = drive(lines, door)
    assert (driven.status, driven.stderr) == (0, "")
    (handed,) = door.handed.values()
    found: list[tuple[int, list[int]]] = []
    for record in handed.records(0):
        if record["kind"] < layout.THREAD_BEGIN:
            found.append((int(record["kind"]), []))
        elif record["kind"] == layout.EXTRA and record["name"] == layout.EXTRA_OPTIMIZER:
            found[-1][1].append(int(record["start"]))
    return found


def test_two_adams_are_told_apart_and_nested_steps_too(drive: Drive) -> None:
    assert instances(
        drive,
        """
        start()
        def step(number, *inside):
            span = begin("Optimizer.step#Adam.step", RANGE)
            for call in inside:
                call()
            op("aten::add")
            agent.ls_note_optimizer(number)
            end(span)
        step(1)
        step(2)
        step(1, lambda: step(2), lambda: op("forward"))
        agent.ls_note_optimizer(9)  # no step is open: about nothing
        op("Optimizer.zero_grad#Adam.zero_grad", RANGE)
        """,
    ) == [
        (0, []),
        (3, [1]),
        (0, []),
        (3, [2]),
        (0, []),
        (3, [2]),
        (0, []),
        (0, []),
        (3, [1]),
        (3, []),
    ]


def test_a_step_that_ends_out_of_order_or_elsewhere_leaves_nothing_behind(drive: Drive) -> None:
    found = instances(
        drive,
        """
        start()
        other = Worker()
        other.do(op, "other")
        outer = begin("Optimizer.step#Adam.step", RANGE)
        inner = begin("above it", RANGE)
        end(outer)
        agent.ls_note_optimizer(5)  # the step is over
        end(inner)
        carried = begin("Optimizer.step#Adam.step", RANGE)
        other.do(end, carried)
        op("reuses its context")
        agent.ls_note_optimizer(6)
        ranges = [begin("range", RANGE) for _ in range(70)]
        agent.ls_note_optimizer(7)
        for span in reversed(ranges):
            end(span)
        other.close()
        """,
    )

    assert not any(noted for _, noted in found)


def test_a_thread_does_not_inherit_the_open_step_of_the_one_before(drive: Drive) -> None:
    door = Door(drive.folder / "raw", drainer="")
    driven = drive(
        """
        start()
        first = Worker()
        first.do(begin, "Optimizer.step#SGD.step", RANGE)
        first.close()
        second = Worker()
        span = second.do(begin, "range", RANGE)
        second.do(agent.ls_note_optimizer, 3)
        second.do(end, span)
        second.close()
        """,
        door,
    )

    assert (driven.status, driven.stderr) == (0, "")
    (handed,) = door.handed.values()
    assert not (handed.records(0)["kind"] == layout.EXTRA).any()


def test_a_forward_thread_travels_with_its_backward_function(drive: Drive) -> None:
    door = Door(drive.folder / "raw", drainer="")
    driven = drive(
        """
        start()
        op("forward", FUNCTION, 5, 99)
        op("backward", BACKWARD, 5, 42)
        op("no forward known", BACKWARD, -1, 0)
        op("huge", BACKWARD, 2**40, 2**40)
        """,
        door,
    )

    assert (driven.status, driven.stderr) == (0, "")
    (handed,) = door.handed.values()
    records = handed.records(0)
    spans = records[records["kind"] < layout.THREAD_BEGIN]
    extras = records[records["kind"] == layout.EXTRA]
    assert spans["seq"].tolist() == [5, 5, -1, -1]
    assert extras["start"].tolist() == [42, 2**40]
    assert (spans["flags"] == [0, layout.FLAG_EXTRA, 0, layout.FLAG_EXTRA]).all()
