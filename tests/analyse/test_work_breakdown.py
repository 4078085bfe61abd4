"""What lies below the operators, and the kinds of work in a step: answers by hand, and sums that
must agree.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse.operator_kinds import worker_of
from layerscope.analyse.summary import OperatorRow, OperatorTimes, Summary, summarise
from layerscope.model.schema import TABLES
from layerscope.recording.reader import Reader
from layerscope.recording.writer import TableWriter
from tests.analyse.test_primitives import CONVOLUTION, REORDER
from tests.recordings import MS, Recording, S

STEP = (1 * MS, 4 * MS, 3 * MS, 1 * MS, 1 * MS)


def summary_of(recording: Recording, cuts: list[int] | None = None, **info: Any) -> Summary:
    """The summary of a recording; with `cuts` of one whose spans are in several pieces, by thread
    and start.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.layerscope"
        spans = recording.rows["spans"]
        if cuts is not None:
            recording.rows["spans"] = []
        run = recording.write(path, **info)
        recording.rows["spans"] = spans
        if cuts is not None:
            (path / "spans" / "all.parquet").unlink()
            ordered = sorted(spans, key=lambda row: (row["track"], row["start_ns"], row["depth"]))
            parts = TableWriter(path, "spans")
            for first, behind in pairwise([0, *cuts, len(spans)]):
                rows = ordered[first:behind]
                parts.add(
                    {c.name: [row.get(c.name) for row in rows] for c in TABLES["spans"].columns}
                )
        with Reader(run) as reader:
            return summarise(reader)


def operators_of(recording: Recording, cuts: list[int] | None = None, **info: Any) -> OperatorTimes:
    operators = summary_of(recording, cuts, **info).operators
    assert operators is not None
    return operators


def kinds_of(recording: Recording, cuts: list[int] | None = None, **info: Any) -> dict[str, float]:
    return {kind.name: kind.ns for kind in operators_of(recording, cuts, **info).kinds}


def row_of(operators: OperatorTimes, name: str) -> OperatorRow:
    return next(row for row in operators.rows if row.name == name)


def primitives_of(row: OperatorRow) -> dict[str, float]:
    return {one.what: one.ns for one in row.primitives}


def training(steps: int = 6, warmup: int = 2) -> Recording:
    """Steps of 10 ms: a loader wait of 1 ms, conv of 4 ms (1 reorder, 2 convolution with half of it
    on another thread, 0.5 creation), mm of 1 ms, a pooling of 0.5 ms, an optimizer step of 1 ms
    that does nothing else.
    """
    recording = Recording()
    worker = recording.add_thread(recording.process, 101, "pool")
    for number in range(steps):
        start_ns = S + number * 10 * MS
        recording.add_step(number, start_ns, STEP, warmup=number < warmup)
        recording.add_span("enumerate(DataLoader)", start_ns, MS, step=number, kind="loader")
        conv = recording.add_span("aten::convolution", start_ns + MS, 4 * MS, step=number)
        recording.add_primitive("reorder", start_ns + MS, MS, conv, REORDER)
        primary = recording.add_primitive(
            "convolution", start_ns + 2 * MS, 2 * MS, conv, CONVOLUTION
        )
        recording.add_primitive("convolution", start_ns + 2 * MS, MS, None, {**CONVOLUTION, "share_of": primary},
                                kind="share", track=worker, step=number)  # fmt: skip
        recording.add_primitive(
            "convolution", start_ns + 4 * MS, MS // 2, conv, CONVOLUTION, kind="create"
        )
        recording.add_span("aten::mm", start_ns + 5 * MS, MS, step=number)
        recording.add_span("aten::max_pool2d", start_ns + 6 * MS, MS // 2, step=number)
        recording.add_span(
            "Optimizer.step#SGD.step", start_ns + 8 * MS, MS, step=number, kind="optimizer"
        )
    return recording


def test_a_step_is_taken_apart_by_kind_of_work() -> None:
    kinds = operators_of(training()).kinds

    assert (
        {kind.name: kind.ns / MS for kind in kinds}
        == {
            "Python and dispatch": 3.5,  # nothing open for 2.5 ms, and the optimizer step, which does nothing itself
            "convolutions (oneDNN)": 2.0,
            "matrix products (BLAS)": 1.0,
            "oneDNN reorders": 1.0,
            "data loader": 1.0,
            "ATen kernels": 1.0,  # 0.5 ms of the convolution's own, 0.5 ms of pooling
            "other oneDNN": 0.5,
        }
    )
    assert [kind.ns for kind in kinds] == sorted((kind.ns for kind in kinds), reverse=True)
    assert sum(kind.share for kind in kinds) == pytest.approx(1)


def test_an_operator_has_what_it_asked_for_below_it() -> None:
    operators = operators_of(training())

    assert primitives_of(row_of(operators, "aten::convolution")) == {
        "oneDNN jit:avx512_core": 2 * MS,
        "reorders": MS,
        "creation": MS / 2,
    }
    workers = {row.name: row.worker for row in operators.rows if not row.primitives}
    assert workers == {
        "aten::mm": "BLAS",
        "aten::max_pool2d": "ATen (oneDNN not used)",
        "enumerate(DataLoader)": "",
        "Optimizer.step#SGD.step": "",
    }


@pytest.mark.parametrize("cuts", [[18, 35], [19, 20], [27, 36, 45], [18, 19, 22, 50]])
def test_it_does_not_matter_where_the_spans_are_cut_into_pieces(cuts: list[int]) -> None:
    """A converter cuts between steps, and row groups are cut anywhere: an operator stands before
    what it asked for.
    """
    whole = operators_of(training())

    pieces = operators_of(training(), cuts)

    assert {kind.name: kind.ns for kind in pieces.kinds} == {
        kind.name: kind.ns for kind in whole.kinds
    }
    assert primitives_of(row_of(pieces, "aten::convolution")) == primitives_of(
        row_of(whole, "aten::convolution")
    )


def test_products_are_called_mkl_where_the_recording_says_so() -> None:
    recording = training()
    assert "matrix products (MKL)" in kinds_of(
        recording, versions={"python": "3.11.7", "mkl": "2024.2"}
    )

    mm = recording.add_span("aten::addmm", S + 67 * MS // 2, MS // 2, step=3)
    recording.add_primitive("gemm", S + 67 * MS // 2, MS // 4, mm, {"library": "MKL"})
    operators = operators_of(recording)

    kinds = {kind.name: kind.ns for kind in operators.kinds}
    assert kinds["matrix products (MKL)"] == MS + MS / 16
    assert "matrix products (BLAS)" not in kinds
    assert kinds["ATen kernels"] == MS + MS / 16  # what addmm did itself
    assert primitives_of(row_of(operators, "aten::addmm")) == {"MKL": MS / 16}
    assert row_of(operators, "aten::mm").worker == "MKL"


def test_a_primitive_without_an_operator_is_no_python() -> None:
    recording = training()
    for number in range(6):
        recording.add_primitive("matmul", S + number * 10 * MS + 7 * MS, MS, step=number)

    kinds = kinds_of(recording)

    assert (kinds["matrix products (oneDNN)"], kinds["Python and dispatch"]) == (MS, 2.5 * MS)


def test_without_primitives_there_are_no_kinds_and_nothing_below() -> None:
    recording = training()
    recording.rows.pop("primitives")
    recording.rows["spans"] = [
        row for row in recording.rows["spans"] if row["layer"] == "operators"
    ]

    operators = operators_of(recording)

    assert operators.kinds == []
    assert operators.primitives == []
    assert all(not row.primitives and not row.worker for row in operators.rows)


def test_without_steps_the_kinds_add_up_to_the_time_in_operators() -> None:
    recording = training()
    recording.rows.pop("steps")
    for row in recording.rows["spans"]:
        row["step"] = None

    kinds = kinds_of(recording)

    assert sum(kinds.values()) == 6 * 7.5 * MS
    assert kinds["convolutions (oneDNN)"] == 6 * 2 * MS


def test_a_program_without_operators_has_ranges_and_primitives() -> None:
    recording = Recording()
    for number in range(4):
        start_ns = S + number * 10 * MS
        recording.add_step(number, start_ns, (0, 0, 0, 0, 10 * MS), rule="mark")
        outer = recording.add_span(
            "train", start_ns, 8 * MS, step=number, layer="ranges", kind="task"
        )
        inner = recording.add_span(
            "forward", start_ns + MS, 5 * MS, outer, layer="ranges", kind="task"
        )
        matmul = recording.add_primitive("matmul", start_ns + 2 * MS, 3 * MS, inner, CONVOLUTION)
        recording.rows["primitives"][-1]["operator"] = None
        assert recording.rows["spans"][matmul]["parent"] == inner

    operators = operators_of(recording)

    assert operators.layer == "ranges"
    assert [(row.name, row.self_ns, row.calls) for row in operators.rows] == [
        ("forward", 5 * MS, 1), ("train", 3 * MS, 1),
    ]  # fmt: skip
    assert primitives_of(operators.rows[0]) == {"oneDNN jit:avx512_core": 3 * MS}
    assert {kind.name: kind.ns for kind in operators.kinds} == {
        "the program itself": 7 * MS,
        "matrix products (oneDNN)": 3 * MS,
    }
    assert [(row.name, row.self_ns, row.share) for row in operators.primitives] == [
        ("matmul jit:avx512_core", 3 * MS, 0.3)
    ]


def test_a_program_of_nothing_but_primitives_has_kinds_too() -> None:
    recording = Recording()
    for number in range(12):
        recording.add_primitive("matmul", number * MS, MS, None, {"implementation": f"jit{number}"})

    operators = operators_of(recording)

    assert operators.rows == []
    assert [(kind.name, kind.share) for kind in operators.kinds] == [
        ("matrix products (oneDNN)", 1.0)
    ]
    assert operators.primitives[-1] == OperatorRow("2 more", 2 * MS, 2 / 12, 2)


def test_sums_below_the_operators_of_a_thinned_run_are_those_of_all() -> None:
    recording = training(steps=4, warmup=0)
    known = {
        "process": 0,
        "layer": "operators",
        "step_class": "step",
        "min_ns": 1,
        "max_ns": 9 * MS,
    }
    sums: dict[tuple[str, str], list[int]] = {}
    for row in recording.rows["spans"]:
        if row["layer"] == "operators":
            mine = sums.setdefault((row["kind"], row["name"]), [0, 0, 0])
            for at, value in enumerate((10, 10 * row["dur_ns"], 10 * row["self_ns"])):
                mine[at] += value
    recording.rows["totals"] = [
        {
            "total": at,
            "kind": kind,
            "name": name,
            **known,
            "count": count,
            "total_ns": total,
            "self_ns": self_ns,
        }
        for at, ((kind, name), (count, total, self_ns)) in enumerate(sums.items())
    ]
    recording.rows["histograms"] = [{"total": 0, "from_ns": MS, "count": 40}]
    for number in range(4, 40):
        recording.add_step(number, S + number * 10 * MS, STEP, weight=0)

    operators = operators_of(recording)

    assert primitives_of(row_of(operators, "aten::convolution"))[
        "oneDNN jit:avx512_core"
    ] == pytest.approx(2 * MS)
    kinds = {kind.name: kind.ns for kind in operators.kinds}
    assert kinds["convolutions (oneDNN)"] == pytest.approx(2 * MS)
    assert sum(kinds.values()) == pytest.approx(10 * MS)
    primitives = {row.name: (row.self_ns, row.calls) for row in operators.primitives}
    assert primitives["convolution jit:avx512_core"] == pytest.approx((2 * MS, 1))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["aten::mm", "aten::conv2d", "x"]),
            st.integers(0, 9),
            st.lists(st.integers(0, 5)),
        ),
        max_size=12,
    )
)
def test_kinds_add_up_to_the_step_whatever_ran(calls: list[tuple[str, int, list[int]]]) -> None:
    recording = Recording()
    recording.add_primitive("eltwise", 0, 1, step=0)
    at_ns = 1
    for name, own_ns, below in calls:
        operator = recording.add_span(name, at_ns, own_ns + sum(below), step=0)
        for dur_ns in below:
            recording.add_primitive("convolution", at_ns, dur_ns, operator, CONVOLUTION)
            at_ns += dur_ns
        at_ns += own_ns
    recording.add_span("Optimizer.step#SGD.step", at_ns, 1, step=0, kind="optimizer")
    recording.add_step(0, 0, (0, at_ns + 10, 0, 0, 0))

    operators = operators_of(recording)

    assert sum(kind.ns for kind in operators.kinds) == pytest.approx(at_ns + 10)
    assert sum(kind.share for kind in operators.kinds) == pytest.approx(1)
    spent = sum(sum(below) for _, _, below in calls)
    assert sum(k.ns for k in operators.kinds if k.name == "convolutions (oneDNN)") == pytest.approx(
        spent
    )
    assert sum(one.ns for row in operators.rows for one in row.primitives) == pytest.approx(spent)


@pytest.mark.parametrize(
    ("name", "worker"),
    [
        ("aten::_slow_conv2d_forward", "ATen (oneDNN not used)"),
        ("aten::native_batch_norm", "ATen (oneDNN not used)"),
        ("aten::conv2d", "ATen"),
        ("aten::convolution", "ATen"),
        ("aten::_convolution", "ATen"),
        ("aten::batch_norm", "ATen"),
        ("aten::add", "ATen"),
        ("aten::mm", "MKL"),
        ("mine::conv", ""),
    ],
)
def test_only_what_does_the_work_itself_is_said_to_do_it_without_onednn(
    name: str, worker: str
) -> None:
    """A convolution calls the operator that does it, whoever that is: it only dispatches itself."""
    assert worker_of(name, "MKL") == worker
