"""The tables: hand-computed answers on small recordings, and laws on random ones."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.analyse.result import Result, select
from layerscope.model.errors import ReadError, UsageError
from layerscope.model.schema import TABLES
from layerscope.recording.reader import Reader
from layerscope.recording.writer import TableWriter
from tests.recordings import Recording, S


@contextmanager
def opened(recording: Recording, **info: Any) -> Iterator[Reader]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Reader(recording.write(Path(folder) / "x.layerscope", **info)) as reader,
    ):
        yield reader


def rows(
    recording: Recording, table: str, by: str | None = None, **choice: Any
) -> list[dict[str, Any]]:
    with opened(recording) as reader:
        result: list[dict[str, Any]] = select(
            tables.build(reader, table, by), **choice
        ).data.to_pylist()
    return result


def result_of(recording: Recording, table: str, by: str | None = None, **choice: Any) -> Result:
    with opened(recording) as reader:
        result = select(tables.build(reader, table, by), **choice)
        assert result.data is not None  # asked for while the reader is open
    return result


def nested() -> Recording:
    """conv (100, of which 60 convolution, of which 20 a second conv), add (50), and a range of 50
    on another thread.
    """
    recording = Recording()
    conv = recording.add_span("conv", 0, 100)
    convolution = recording.add_span("convolution", 10, 60, conv)
    recording.add_span("conv", 20, 20, convolution)
    recording.add_span("add", 200, 50)
    other = recording.add_thread(recording.process, 101, "worker")
    recording.add_span("mark", 0, 50, kind="range", track=other)
    return recording


def test_operators_add_up_calls_and_order_them_by_self_time() -> None:
    found = rows(nested(), "operators")

    assert [row["name"] for row in found] == ["conv", "add", "mark", "convolution"]
    assert found[0] == {
        "name": "conv",
        "count": 2,
        "total_ns": 120,
        "self_ns": 60,
        "self_share": 60 / 200,
        "total_share": 120 / 200,
        "avg_ns": 60,
        "min_ns": 20,
        "p50_ns": 20,
        "p99_ns": 100,
        "max_ns": 100,
    }
    assert (found[3]["total_ns"], found[3]["self_ns"]) == (60, 40)


def test_a_percentile_is_the_shortest_duration_that_so_many_calls_do_not_exceed() -> None:
    recording = Recording()
    for number in range(1, 101):
        recording.add_span("op", 1000 * number, number)

    (row,) = rows(recording, "operators")

    assert (row["p50_ns"], row["p99_ns"], row["min_ns"], row["max_ns"]) == (50, 99, 1, 100)


def test_a_thinned_call_counts_as_often_as_its_weight_says() -> None:
    recording = Recording()
    recording.add_span("op", 0, 10)
    recording.add_span("op", 100, 30, weight=4)

    result = result_of(recording, "operators")

    (row,) = result.data.to_pylist()
    assert (row["count"], row["total_ns"], row["self_ns"]) == (5, 130, 130)
    assert (row["avg_ns"], row["p50_ns"], row["min_ns"]) == (26, 30, 10)
    (sentence,) = result.sentences
    assert sentence.startswith("The run was thinned: one kept call stands for up to 4 calls.")


@pytest.mark.parametrize(
    ("reason", "said"),
    [("ring_full", "everything else here is exact"), ("max_size", "and not in self_ns")],
)
def test_exact_sums_are_not_called_exact_where_spans_were_lost(reason: str, said: str) -> None:
    recording = Recording()
    recording.add_span("op", 0, 10)
    known = {
        "process": 0,
        "layer": "operators",
        "kind": "function",
        "name": "op",
        "step_class": "outside",
    }
    known |= {"count": 1, "total_ns": 10, "self_ns": 10, "min_ns": 10, "max_ns": 10}
    recording.rows["totals"] = [{"total": 0, **known}]
    recording.rows["histograms"] = [{"total": 0, "from_ns": 10, "count": 1}]
    recording.add_gap(reason, 3)

    assert result_of(recording, "operators").sentences[-1].endswith(f"{said}.")


def test_calls_that_never_ended_count_but_do_not_shape_the_distribution() -> None:
    recording = Recording()
    recording.add_span("op", 0, 10)
    recording.add_span("op", 100, 1000, unfinished=True)
    recording.add_span("stuck", 100, 1000, unfinished=True)

    result = result_of(recording, "operators", sort="name")

    op, stuck = result.data.to_pylist()
    assert (op["count"], op["total_ns"], op["avg_ns"], op["max_ns"], op["p99_ns"]) == (
        2,
        1010,
        10,
        10,
        10,
    )
    assert (stuck["count"], stuck["avg_ns"], stuck["p50_ns"]) == (1, None, None)
    assert result.sentences[0].startswith("2 calls had not ended")


def test_operators_by_kind_and_by_thread_put_that_column_first() -> None:
    by_kind = result_of(nested(), "operators", "kind")
    by_thread = result_of(nested(), "operators", "thread")

    assert by_kind.data.column_names[0] == "kind"
    assert by_kind.data["kind"].to_pylist() == ["function", "function", "range", "function"]
    assert by_thread.data.column_names[0] == "thread"
    assert {row["name"]: row["thread"] for row in by_thread.data.to_pylist()} == {
        "conv": "python 100",
        "convolution": "python 100",
        "add": "python 100",
        "mark": "worker 101",
    }


def test_two_threads_that_had_the_same_id_stay_two() -> None:
    recording = Recording()
    again = recording.add_thread(recording.process, 100, "python")
    recording.add_span("op", 0, 1)
    recording.add_span("op", 10, 2, track=again)

    found = rows(recording, "operators", "thread")

    assert [(row["thread"], row["total_ns"]) for row in found] == [
        ("python 100 #1", 2),
        ("python 100 #0", 1),
    ]


def test_what_no_layer_recorded_is_refused_with_the_reason() -> None:
    with opened(nested()) as reader, pytest.raises(UsageError) as refused:
        tables.build(reader, "operators", "shape")

    assert "operators cannot be shown by shape: no layer recorded" in str(refused.value)
    assert str(refused.value).endswith("or with record_shapes=True of the framework's profiler")


def test_an_unknown_by_names_the_known_ones() -> None:
    with opened(nested()) as reader:
        with pytest.raises(
            UsageError, match=r"by 'colour'\. Possible here: --by kind, --by module, --by line, "
        ):
            tables.build(reader, "operators", "colour")
        with pytest.raises(UsageError, match="This table has no --by"):
            tables.build(reader, "steps", "thread")


def test_an_unknown_table_names_the_known_ones() -> None:
    with pytest.raises(
        UsageError,
        match=r"no table 'ops'.*collectives, compilations, copies, counters, critical, dispatch, functions, gpu, idle, kernels, ",
    ):
        tables.load("ops")


def test_spans_are_the_slowest_calls_with_shares_and_a_total() -> None:
    result = result_of(nested(), "spans", top=2)

    first, second = result.data.to_pylist()
    assert (first["name"], first["thread"], first["dur_ns"], first["self_ns"]) == (
        "conv",
        "python 100",
        100,
        40,
    )
    assert (first["total_share"], first["self_share"]) == (100 / 200, 40 / 200)
    assert second["name"] == "convolution"
    assert result.totals == {"name": "all 5 spans", "self_ns": 200, "self_share": 1.0}
    assert result.left_out == 3


def test_steps_are_compared_with_the_median_of_those_that_are_not_warm_up() -> None:
    recording = Recording()
    recording.add_step(0, 0, (0, 600, 300, 100, 0), warmup=True)
    for number, other in ((1, 0), (2, 0), (3, 100)):
        recording.add_step(number, 1000 * number, (10, 50, 30, 10, other))

    found = rows(recording, "steps")

    assert [row["of_median"] for row in found] == [10.0, 1.0, 1.0, 2.0]
    assert [
        row["step"] for row in rows(recording, "steps", where="of_median > 1 and not warmup")
    ] == [3]


def test_threads_are_busy_in_their_outermost_spans() -> None:
    recording = nested()
    recording.add_gap("ring_full", 7, track=0)
    recording.add_gap("drainer_gone", None, track=1)

    python, worker = rows(recording, "threads")

    assert (python["name"], python["tid"], python["spans"], python["busy_ns"]) == (
        "python",
        100,
        4,
        150,
    )
    assert (python["first_ns"], python["last_ns"], python["lost"]) == (0, 250, 7)
    assert (worker["busy_ns"], worker["lost"]) == (50, None)


def test_of_two_processes_that_had_the_same_id_the_later_one_is_the_parent() -> None:
    recording = Recording()
    recording.add_process(200, start_ns=5, ppid=100, argv="python other.py")
    recording.add_process(200, start_ns=500, ppid=100, argv="python train.py")
    recording.add_process(300, start_ns=900, ppid=200, argv="python other.py")

    assert [row["role"] for row in rows(recording, "processes")] == [
        "program",
        "child",
        "worker",
        "child",
    ]


def test_a_thread_is_not_busy_twice_where_the_parent_of_a_span_was_lost_or_spans_cross() -> None:
    recording = Recording()
    recording.add_span("outer", 100, 1000)
    recording.add_span("its parent was lost", 200, 300, depth=2)
    recording.add_span("crosses", 1050, 100)
    recording.add_span("later", 2000, 10)

    (thread,) = rows(recording, "threads")

    assert thread["busy_ns"] == 1050 + 10


def test_processes_show_their_resources_and_losses() -> None:
    recording = nested()
    child = recording.add_process(200, start_ns=5, end_ns=1005, exit=-15, ppid=100)
    recording.add_counter(recording.process, "cpu_ns", [(0, 10), (S, 700)], "ns")
    recording.add_counter(
        recording.process, "rss_bytes", [(0, 10), (S, 900), (2 * S, 400)], "bytes"
    )
    recording.add_gap("no_ring", 3, process=child)

    parent, worker = rows(recording, "processes")

    assert (parent["cpu_ns"], parent["rss_peak_bytes"], parent["faults_minor"]) == (700, 900, None)
    assert (parent["threads"], parent["spans"], parent["lost"]) == (2, 5, 0)
    assert (worker["pid"], worker["dur_ns"], worker["exit"], worker["lost"], worker["spans"]) == (
        200,
        1000,
        -15,
        3,
        0,
    )


def test_counters_have_a_rate_only_when_they_count() -> None:
    recording = Recording()
    recording.add_counter(0, "cpu_ns", [(2 * S, 5 * S), (0, S), (S, 2 * S)], "ns")
    recording.add_counter(0, "rss_bytes", [(0, 50), (S, 90), (2 * S, 70)], "bytes")
    recording.add_counter(0, "faults_minor", [(0, 50)])

    cpu, faults, rss = rows(recording, "counters")

    assert (cpu["first"], cpu["last"], cpu["rate_per_s"], cpu["unit"]) == (S, 5 * S, 2e9, "ns")
    assert (rss["first"], rss["last"], rss["min"], rss["max"], rss["rate_per_s"]) == (
        50,
        70,
        50,
        90,
        None,
    )
    assert (faults["readings"], faults["rate_per_s"]) == (1, None)


def test_a_counter_of_the_programs_own_is_none_of_the_systems_whatever_it_is_called() -> None:
    recording = Recording()
    for domain, most in (("process", 700), ("mine", 9000), ("yours", 8000)):
        recording.add_counter(0, "cpu_ns", [(0, 10), (S, most)], "ns", domain)

    ours, mine, yours = rows(recording, "counters")
    (process,) = rows(recording, "processes")

    assert [(row["domain"], row["max"], row["rate_per_s"] is None) for row in (ours, mine, yours)] == [
        ("process", 700, False), ("mine", 9000, True), ("yours", 8000, True),
    ]  # fmt: skip
    assert process["cpu_ns"] == 700


@pytest.mark.parametrize("name", tables.names())
def test_a_recording_without_rows_answers_with_a_sentence(name: str) -> None:
    recording = Recording()
    recording.rows = {}

    result = result_of(recording, name)

    assert result.rows == 0
    assert result.sentences == (tables.load(name).EMPTY,)
    assert result.totals == {}


def test_parts_of_a_table_count_once(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_span("op", 0, 10)
    run = recording.write(tmp_path / "x.layerscope")
    (tmp_path / "x.layerscope" / "spans" / "all.parquet").unlink()
    writer = TableWriter(run.path, "spans")
    for dur_ns in (10, 30):
        values = {**recording.rows["spans"][0], "dur_ns": dur_ns, "self_ns": dur_ns}
        writer.add({column.name: [values.get(column.name)] for column in TABLES["spans"].columns})

    with Reader(run) as reader:
        (row,) = tables.build(reader, "operators").data.to_pylist()

    assert (row["count"], row["total_ns"]) == (2, 40)


def test_select_sorts_numbers_down_and_words_up_unless_told_otherwise() -> None:
    def names(sort: str) -> list[str]:
        return [row["name"] for row in rows(nested(), "operators", sort=sort)]

    assert names("count") == [
        "conv",
        "add",
        "mark",
        "convolution",
    ]  # equal ones keep the table's own order
    assert names("name") == ["add", "conv", "convolution", "mark"]
    assert names("-name") == ["mark", "convolution", "conv", "add"]
    assert names("+total_ns") == ["add", "mark", "convolution", "conv"]


def test_rows_without_a_value_come_last_in_both_directions() -> None:
    recording = Recording()
    recording.add_span("ended", 0, 10)
    recording.add_span("stuck", 0, 10, unfinished=True)

    for sort in ("-max_ns", "+max_ns"):
        assert [row["name"] for row in rows(recording, "operators", sort=sort)] == [
            "ended",
            "stuck",
        ]


@pytest.mark.parametrize("top", [0, None])
def test_top_zero_is_everything(top: int | None) -> None:
    result = result_of(nested(), "spans", top=top)

    assert (result.rows, result.left_out) == (5, 0)


def test_where_may_ask_anything_about_the_columns() -> None:
    found = rows(nested(), "operators", where="name like 'conv%' and self_share >= 0.25")

    assert [row["name"] for row in found] == ["conv"]


def test_where_without_a_match_says_so() -> None:
    result = result_of(nested(), "operators", where="count > 100")

    assert result.sentences == ("No row satisfies --where 'count > 100'.",)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("colour = 'red'", 'Referenced column "colour" not found'),
        ("count >", "syntax error at or near"),
        ("name", "Could not convert string"),
        ("", "SELECT clause without selection list"),
    ],
)
def test_a_wrong_where_gives_the_reason_and_the_columns_in_one_sentence(
    where: str, reason: str
) -> None:
    with pytest.raises(UsageError) as refused:
        rows(nested(), "operators", where=where)

    assert reason in str(refused.value)
    assert "Its columns are name, count, total_ns" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("sort", ["colour", "-colour", ""])
def test_sorting_by_an_unknown_column_names_the_known_ones(sort: str) -> None:
    with pytest.raises(
        UsageError, match=r"table operators has no column .* Its columns are name, count, total_ns"
    ):
        rows(nested(), "operators", sort=sort)


def test_a_negative_top_is_refused() -> None:
    with pytest.raises(UsageError, match="--top -1 is not a number of rows"):
        rows(nested(), "operators", top=-1)


def test_what_the_recording_lacks_is_part_of_every_table() -> None:
    recording = nested()
    recording.add_problem("modules", "torch is too old", "update it", lost="modules")
    for track in (0, 1, 1):
        recording.add_gap("ring_full", 1000, track=track)
    recording.add_gap("damaged", None)

    problems = result_of(recording, "steps").problems

    assert [(problem.code, problem.lost) for problem in problems] == [
        ("test", "modules"),
        ("lost_ring_full", "3,000 records on 2 threads"),
        ("lost_damaged", "an unknown number of records"),
    ]


@pytest.mark.parametrize("name", tables.names())
def test_every_column_of_a_table_is_explained_in_its_documentation(name: str) -> None:
    module = tables.load(name)

    for column in module.COLUMNS:
        assert column.name in str(module.__doc__), column.name
        assert column.meaning


@pytest.mark.parametrize("table", ["operators", "threads", "steps"])
def test_damage_that_shows_when_rows_are_asked_for_is_a_sentence(table: str) -> None:
    recording = Recording()
    recording.add_span("only", 0, S)
    recording.add_step(0, 0, (1, 1, 1, 1, 1))
    with opened(recording) as reader:
        result = tables.build(reader, table)
        for file in (file for name in ("spans", "tracks", "steps") for file in reader.files(name)):
            data = file.read_bytes()
            # What stands before the words about the file, whose length comes last.
            at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
            file.write_bytes(b"PAR1" + bytes(at - 4) + data[at:])

        with pytest.raises(ReadError, match="is damaged"):
            _ = result.rows
