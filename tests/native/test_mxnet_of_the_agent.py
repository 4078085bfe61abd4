"""MXNet's engine calls the agent instead of itself: what is recorded of it, what is refused, and what
is left when it ends, without MXNet.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.driven import Drive, Driven
from tests.native.mxnet_driven import KNOWN, LOAD, START, UNKNOWN, drive_with, fake


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that the agent takes for a build that it knows."""
    return fake(tmp_path_factory.mktemp("known"), KNOWN)


def problems(driven: Driven) -> list[tuple[str, str]]:
    rows = driven.rows("SELECT code, what FROM problems")
    return [(row["code"], row["what"].partition(": ")[2]) for row in rows]


def test_each_execution_is_one_span_and_every_argument_arrives(drive: Drive, known: Path) -> None:
    driven = drive_with(
        drive,
        known,
        START,
        """
        for name in (b"Convolution", b"FullyConnected", b"Convolution", b""):
            assert mxnet.fake_execute(name) == arrived.value
        assert mxnet.fake_push(b"naive") == arrived.value
        assert mxnet.fake_push(None) == arrived.value
        assert mxnet.fake_push_cached(b"cached") == arrived.value
        assert mxnet.fake_delete() == arrived.value
        """,
    )

    assert [(span["name"], span["kind"]) for span in driven.spans()] == [
        (name, "function")
        for name in (
            "Convolution", "FullyConnected", "Convolution", "(no name)",
            "naive", "(no name)", "cached", "DeleteVariable",
        )
    ]  # fmt: skip
    assert problems(driven) == []


def test_operators_are_executed_alone_while_that_is_wanted(drive: Drive, known: Path) -> None:
    drive_with(
        drive,
        known,
        START,
        """
        assert mxnet.fake_bulk_size() == 15
        agent.ls_mxnet_separate(1)
        assert mxnet.fake_bulk_size() == 0
        agent.ls_operators_stop()
        assert mxnet.fake_bulk_size() == 15
        """,
    )


def test_a_name_is_read_anew_where_another_lies_at_its_address(drive: Drive, known: Path) -> None:
    driven = drive_with(
        drive,
        known,
        START,
        """
        buffer = ctypes.create_string_buffer(300)
        for name in (b"a" * 255, b"b" * 255, b"short"):
            buffer.value = name
            mxnet.fake_execute(buffer)
        """,
    )

    assert [span["name"] for span in driven.spans()] == ["a" * 255, "b" * 255, "short"]


def test_after_the_end_everything_is_as_it_was(drive: Drive, known: Path) -> None:
    driven = drive_with(
        drive,
        known,
        START,
        """
        assert all(now != then for now, then in zip(vtable, before))
        mxnet.fake_execute(b"recorded")
        agent.ls_operators_stop()
        assert list(vtable) == before
        assert mxnet.fake_execute(b"not recorded") == arrived.value
        assert mxnet.fake_push(b"not recorded") == arrived.value
        assert agent.ls_mxnet_start(FAKE_MXNET.encode(), 1) == 0
        mxnet.fake_execute(b"recorded again")
        """,
    )

    assert [span["name"] for span in driven.spans()] == ["recorded", "recorded again"]


def test_what_somebody_else_put_there_later_stays(drive: Drive, known: Path) -> None:
    drive_with(
        drive,
        known,
        START,
        """
        theirs = vtable[1] = ctypes.cast(mxnet.fake_delete, ctypes.c_void_p).value
        agent.ls_operators_stop()
        assert list(vtable) == [before[0], theirs, *before[2:]]
        """,
    )


def test_a_build_that_nobody_has_looked_at_is_refused_and_left_alone(
    drive: Drive, tmp_path: Path
) -> None:
    driven = drive_with(
        drive,
        fake(tmp_path, UNKNOWN),
        LOAD,
        """
        assert code == -1
        assert list(vtable) == before
        assert mxnet.fake_execute(b"not recorded") == arrived.value
        """,
    )

    assert driven.spans() == []
    assert problems(driven) == [
        (
            "build_refused",
            "this build of MXNet is not understood: nobody has looked at the one with build-id "
            + UNKNOWN,
        )
    ]


def test_a_build_that_lacks_a_function_is_refused_and_left_alone(
    drive: Drive, tmp_path: Path
) -> None:
    library = fake(tmp_path, KNOWN, '-DDELETE_NAIVE="another_name"')

    driven = drive_with(drive, library, LOAD, "assert code == -1\nassert list(vtable) == before")

    ((code, what),) = problems(driven)
    assert code == "build_refused"
    assert "it has no function _ZN5mxnet6engine11NaiveEngine14DeleteVariable" in what


def test_a_function_that_somebody_else_listens_to_is_left_to_them(
    drive: Drive, known: Path
) -> None:
    driven = drive_with(
        drive,
        known,
        LOAD.replace("before =", "vtable[2] = 4096\nbefore ="),
        """
        assert code == -1
        assert list(vtable) == before
        """,
    )

    ((_, what),) = problems(driven)
    assert "somebody else listens to _ZN5mxnet6engine11NaiveEngine14DeleteVariable" in what


LINKED = """SELECT s.name, s.sequence AS number, p.name AS call, e.sequence AS executed, t.tid != u.tid AS elsewhere
    FROM links l JOIN spans s ON s.span = l.from_span JOIN spans e ON e.span = l.to_span
    LEFT JOIN spans p ON p.span = s.parent JOIN tracks t ON t.track = s.track JOIN tracks u ON u.track = e.track
    WHERE l.kind = 'submit_execute' ORDER BY e.start_ns"""


def test_calls_submissions_and_executions_are_linked_in_their_order(
    drive: Drive, known: Path
) -> None:
    driven = drive_with(
        drive,
        known,
        START,
        """
        worker = Worker()
        cached, other = (mxnet.fake_operator(text(name)) for name in ("cached", "other"))
        mxnet.fake_enter(text("MXInvoke"))
        for it in (cached, other, cached):
            assert mxnet.fake_submit(it) == arrived.value
        mxnet.fake_exit()
        for it in (cached, cached, other):
            worker.do(mxnet.fake_run_operator, it)
        mxnet.fake_submit(other)
        worker.do(mxnet.fake_run_operator, other)
        worker.do(mxnet.fake_run_operator, other)
        worker.close()
        """,
    )

    found = [tuple(row.values()) for row in driven.rows(LINKED)]
    assert found == [
        ("cached", 0, "MXInvoke", 0, True),
        ("cached", 2, "MXInvoke", 2, True),
        ("other", 1, "MXInvoke", 1, True),
        ("other", 3, None, 3, True),
    ]
    kinds = driven.rows(
        "SELECT layer, kind, count(*)::INT AS count FROM spans GROUP BY ALL ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in kinds] == [
        ("api", "call", 1), ("api", "submit", 4), ("operators", "function", 5),
    ]  # fmt: skip


def test_without_calls_operators_are_recorded_alone(drive: Drive, known: Path) -> None:
    driven = drive_with(
        drive,
        known,
        START.replace("encode(), 1)", "encode(), 0)"),
        """
        it = mxnet.fake_operator(text("alone"))
        mxnet.fake_enter(text("MXInvoke"))
        mxnet.fake_submit(it)
        mxnet.fake_exit()
        mxnet.fake_run_operator(it)
        """,
    )

    assert [(span["layer"], span["name"]) for span in driven.spans()] == [("operators", "alone")]


def test_more_submissions_than_the_table_holds_are_linked_right_or_not_at_all(
    drive: Drive, known: Path
) -> None:
    driven = drive_with(
        drive,
        known,
        START,
        """
        it = mxnet.fake_operator(text("often"))
        for turn in range(2):
            for _ in range(50):
                mxnet.fake_submit(it)
            for _ in range(50):
                mxnet.fake_run_operator(it)
        """,
    )

    linked = [row["number"] for row in driven.rows(LINKED)]
    assert linked == [*range(22), *range(50, 72)]
    assert len(driven.rows("SELECT * FROM spans WHERE kind = 'function'")) == 100


def test_memory_of_each_device_is_a_counter(drive: Drive, known: Path) -> None:
    driven = drive_with(
        drive,
        known,
        START,
        """
        mxnet.fake_memory.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_int]
        for bytes_, type_, number in (
            (4096, 1, 0), (10**10, 2, 1), (100, 1, 0), (-4096, 1, 0), (7, 77, 0), (0, 1, 0), (5, 1, 99),
        ):
            mxnet.fake_memory(bytes_, type_, number)
            assert arrived.value == 5 + abs(bytes_)
        """,
    )

    rows = driven.rows(
        "SELECT c.name, value FROM counters c JOIN tracks t USING (track) "
        "WHERE t.name = 'MXNet' ORDER BY at_ns"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("memory_bytes of cpu(0)", 4096),
        ("memory_bytes of gpu(1)", 10**10),
        ("memory_bytes of cpu(0)", 4196),
        ("memory_bytes of cpu(0)", 100),
    ]


def test_a_wait_says_which_operator_writes_what_it_waits_for(drive: Drive, known: Path) -> None:
    driven = drive_with(
        drive,
        known,
        START,
        """
        first, last = (mxnet.fake_operator(text(name)) for name in ("first", "last"))
        mxnet.fake_uses(first, bytes([1, 0, 2, 3, 0]))
        mxnet.fake_uses(last, bytes([2, 0, 3, 0]))
        mxnet.fake_enter(text("MXInvoke"))
        mxnet.fake_submit(first)
        mxnet.fake_submit(last)
        mxnet.fake_exit()
        for variable in (3, 2, 1):
            mxnet.fake_enter(text(f"MXWait{variable}"))
            assert mxnet.fake_wait(variable) == arrived.value
            mxnet.fake_exit()
        assert mxnet.fake_wait(3) == arrived.value
        """,
    )

    rows = driven.rows(
        "SELECT name, json FROM spans LEFT JOIN args USING (args) WHERE kind = 'call' ORDER BY start_ns"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("MXInvoke", None),
        ("MXWait3", '{"awaited": "last"}'),
        ("MXWait2", '{"awaited": "first"}'),
        ("MXWait1", None),
    ]


def test_code_at_the_address_of_other_code_has_its_own_line(drive: Drive, known: Path) -> None:
    driven = drive_with(
        drive,
        known,
        START,
        """
        it = mxnet.fake_operator(text("op"))
        places = set()

        def step(above):
            defined = {}
            exec(compile("\\n" * above + "def step(submit, it):\\n    submit(it)", "/train.py", "exec"), defined)
            places.add(id(defined["step"].__code__))
            for _ in range(2):
                defined["step"](mxnet.fake_submit, it)
                mxnet.fake_run_operator(it)
            defined.clear()

        for above in range(20):
            step(above)
        assert len(places) < 20
        """,
    )

    lines = [span["line"] for span in driven.spans() if span["kind"] == "function"]
    assert lines == [f"/train.py:{above + 2}" for above in range(20) for _ in range(2)]
