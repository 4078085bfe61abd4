"""What the agent says about spans that do not nest as they should, with truth known from the
driver.
"""

from __future__ import annotations

from layerscope.model.schema import TABLES
from tests.native.driven import Drive, Driven


def checked(driven: Driven) -> Driven:
    """`driven`, which must have ended well and without a word."""
    assert (driven.status, driven.stderr) == (0, "")
    assert not driven.rows("SELECT * FROM problems")
    return driven


def test_spans_that_nest_have_their_depth_parent_and_sequence_number(drive: Drive) -> None:
    driven = checked(
        drive(
            """
            start()
            outer = begin("outer", RANGE)
            inner = begin("inner", FUNCTION, 7)
            op("leaf", FUNCTION, 8)
            end(inner)
            op("backward", BACKWARD, 7, 33)
            end(outer)
            op("after")
            """
        )
    )

    assert driven.tree() == [
        ("outer", 0, None), ("inner", 1, "outer"), ("leaf", 2, "inner"), ("backward", 1, "outer"), ("after", 0, None)
    ]  # fmt: skip
    spans = {span["name"]: span for span in driven.spans()}
    assert {name: span["sequence"] for name, span in spans.items()} == {
        "outer": None, "inner": 7, "leaf": 8, "backward": 7, "after": None
    }  # fmt: skip
    assert spans["backward"]["kind"] == "backward"
    assert spans["outer"]["kind"] == "range"
    assert not any(span["unfinished"] for span in spans.values())


def test_ends_out_of_order_leave_later_operators_at_the_right_depth(drive: Drive) -> None:
    driven = checked(
        drive(
            """
            start()
            first = begin("first", RANGE)
            second = begin("second", RANGE)
            third = begin("third", RANGE)
            end(second)
            op("in third")
            end(first)
            op("still in third")
            end(third)
            op("alone")
            """
        )
    )

    assert driven.tree() == [
        ("first", 0, None), ("second", 1, "first"), ("third", 2, "second"), ("in third", 3, "third"),
        ("still in third", 3, "third"), ("alone", 0, None),
    ]  # fmt: skip


def test_a_span_ended_on_another_thread_keeps_its_start_and_frees_its_place(drive: Drive) -> None:
    driven = checked(
        drive(
            """
            start()
            other = Worker()
            other.do(op, "other's own")
            carried = begin("carried", RANGE)
            op("below carried")
            other.do(end, carried)
            op("alone again")
            other.do(op, "other's last")
            other.close()
            """
        )
    )

    assert [row for row in driven.tree() if "other" not in row[0]] == [
        ("carried", 0, None), ("below carried", 1, "carried"), ("alone again", 0, None)
    ]  # fmt: skip
    spans = {span["name"]: span for span in driven.spans()}
    assert spans["carried"]["tid"] == spans["below carried"]["tid"] == driven.pid
    assert spans["carried"]["track"] == spans["alone again"]["track"]
    below = spans["below carried"]
    assert spans["carried"]["start_ns"] < below["start_ns"]
    assert (
        spans["carried"]["start_ns"] + spans["carried"]["dur_ns"]
        >= below["start_ns"] + below["dur_ns"]
    )
    assert spans["other's last"]["depth"] == 0


def test_the_starter_may_open_more_while_its_span_ends_elsewhere(drive: Drive) -> None:
    driven = checked(
        drive(
            """
            start()
            other = Worker()
            lower = begin("lower", RANGE)
            upper = begin("upper", RANGE)
            op("in upper")
            other.do(end, lower)
            op("upper is open still")
            end(upper)
            op("alone")
            a = begin("a"); b = begin("b"); c = begin("c")
            other.do(end, c)
            other.do(end, b)
            op("in a")
            end(a)
            op("alone too")
            other.close()
            """
        )
    )

    assert driven.tree() == [
        ("lower", 0, None), ("upper", 1, "lower"), ("in upper", 2, "upper"), ("upper is open still", 2, "upper"),
        ("alone", 0, None), ("a", 0, None), ("b", 1, "a"), ("c", 2, "b"), ("in a", 1, "a"), ("alone too", 0, None),
    ]  # fmt: skip


def test_a_span_of_a_thread_that_is_gone_may_still_end_on_another(drive: Drive) -> None:
    driven = checked(
        drive(
            """
            start()
            first = Worker()
            first.do(op, "before")
            left = first.do(begin, "left open", RANGE)
            first.close()
            second = Worker()  # has the first one's ring now
            outer = second.do(begin, "second's outer", RANGE)
            end(left)
            second.do(op, "in second's outer")
            second.do(end, outer)
            second.do(op, "second's last")
            second.close()
            """
        )
    )

    spans = {span["name"]: span for span in driven.spans()}
    assert spans["left open"]["track"] == spans["before"]["track"]
    assert spans["second's outer"]["track"] != spans["before"]["track"]
    assert driven.tree() == [
        ("before", 0, None), ("left open", 0, None), ("second's outer", 0, None),
        ("in second's outer", 1, "second's outer"), ("second's last", 0, None),
    ]  # fmt: skip


def test_a_range_that_its_thread_never_ends_gives_nobody_a_wrong_parent(drive: Drive) -> None:
    driven = checked(
        drive(
            """
            start()
            worker = Worker()
            worker.do(begin, "never ended", RANGE)
            worker.do(op, "below it")
            worker.close()
            worker = Worker()  # has the same ring
            worker.do(op, "next thread")
            worker.close()
            op("main")
            """
        )
    )

    assert driven.tree() == [
        ("never ended", 0, None), ("below it", 1, "never ended"), ("next thread", 0, None), ("main", 0, None),
    ]  # fmt: skip
    assert [span["name"] for span in driven.spans() if span["unfinished"]] == ["never ended"]


def test_threads_that_follow_each_other_have_tracks_of_their_own(drive: Drive) -> None:
    driven = checked(
        drive(
            """
            start()
            op("main")
            for number in range(5):
                worker = Worker()
                worker.do(op, f"worker {number}")
                worker.close()
            """
        )
    )

    tracks = driven.rows("SELECT * FROM tracks WHERE kind = 'thread' ORDER BY start_ns")
    assert len(tracks) == 6
    assert len({track["tid"] for track in tracks}) > 1
    assert [track["end_ns"] is not None for track in tracks] == [False] + [True] * 5
    (handed,) = driven.door.handed.values()
    assert len(handed.rings) == 2  # five threads in one ring, one after the other
    for span in driven.spans():
        (track,) = [track for track in tracks if track["track"] == span["track"]]
        assert track["start_ns"] <= span["start_ns"]
        assert track["end_ns"] is None or span["start_ns"] + span["dur_ns"] <= track["end_ns"]


def test_600_spans_deep_are_512_recorded_and_88_counted(drive: Drive) -> None:
    driven = checked(
        drive(
            """
            start()
            spans = [begin(f"level {level}") for level in range(600)]
            for span in reversed(spans):
                end(span)
            op("after")
            """
        )
    )

    assert driven.losses() == {"too_deep": 88}
    spans = driven.spans()
    assert [span["depth"] for span in spans] == [*range(512), 0]
    assert all(span["parent_name"] == f"level {span['depth'] - 1}" for span in spans[1:-1])
    assert driven.rows("SELECT track FROM gaps") == [{"track": spans[0]["track"]}]


def test_open_spans_of_every_thread_are_known_after_a_crash(drive: Drive) -> None:
    driven = drive(
        """
        start()
        outer = begin("outer", RANGE)
        op("done")
        worker = Worker()
        worker.do(begin, "first of worker", RANGE)
        worker.do(begin, "second of worker")
        begin("inner")
        os.kill(os.getpid(), 9)
        """
    )

    assert driven.status == -9
    spans = {span["name"]: span for span in driven.spans()}
    assert {name for name, span in spans.items() if span["unfinished"]} == {
        "outer", "inner", "first of worker", "second of worker"
    }  # fmt: skip
    assert spans["inner"]["parent_name"] == "outer"
    assert spans["second of worker"]["parent_name"] == "first of worker"
    # The worker had finished nothing: its thread is known by its open spans alone.
    assert spans["first of worker"]["tid"] not in (None, driven.pid)
    assert spans["outer"]["tid"] == driven.pid


def test_tables_hold_every_column_of_the_schema(drive: Drive) -> None:
    driven = checked(drive("start()\nop('only')"))
    for name, table in TABLES.items():
        columns = driven.rows(f"SELECT column_name FROM (DESCRIBE {name})")
        assert [row["column_name"] for row in columns] == [column.name for column in table.columns]


def test_a_ring_whose_last_span_ends_elsewhere_serves_the_next_thread(drive: Drive) -> None:
    driven = checked(
        drive(
            """
            start()
            op("main")
            for _ in range(5):
                worker = Worker()
                left = worker.do(begin, "left", RANGE), worker.do(begin, "left open", RANGE)
                worker.close()
                end(left[0])
                end(left[1])
            print(open("/proc/self/maps").read().count("layerscope-ring"))
            """
        )
    )

    assert driven.stdout == "2\n"
    assert driven.tree() == [("main", 0, None)] + 5 * [("left", 0, None), ("left open", 1, "left")]
