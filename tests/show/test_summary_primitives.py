"""The summary of a recording with primitives: bars by kind of work, and what is below the
operators.
"""

from __future__ import annotations

from layerscope.analyse.summary import OperatorRow
from layerscope.analyse.work_breakdown import PrimitiveTime
from layerscope.show import summary as show
from tests.analyse.test_work_breakdown import training
from tests.recordings import MS, Recording, S
from tests.show.test_summary import text_of


def test_a_training_step_by_kind_of_work_and_what_is_below_its_operators() -> None:
    recording = training(steps=12)
    recording.add_counter(0, "cpu_ns", [(0, 0), (2 * S, 4 * S)], "ns")
    recording.add_counter(0, "system_ns", [(0, 0), (2 * S, S)], "ns")
    recording.add_counter(0, "faults_minor", [(0, 0), (2 * S, 60_000)])
    recording.add_counter(0, "faults_major", [(0, 0), (2 * S, 0)])

    lines = text_of(recording).splitlines()

    assert lines[3:] == [
        "A step takes 10.0 ms (p95 10.0)   loading 1.00  forward 4.00  backward 3.00  optimizer 1.00  other 1.00",
        "  Python and dispatch     35 %  ####         a step is one call of the optimizer",
        "  convolutions (oneDNN)   20 %  ##           steps are steady: no drift, no outliers",
        "  oneDNN reorders         10 %  #            CPU 20.0 ms a step: 2.0 of 4 CPUs busy, 5.00 ms in the kernel",
        "  matrix products (BLAS)  10 %  #            page faults 300 a step, none from disk",
        "  ATen kernels            10 %  #            memory at most 300 MB",
        "  data loader             10 %  #",
        "  other oneDNN             5 %",
        "",
        "Operator (self time)          ms/step  share  calls  below it",
        "aten::convolution                4.00   40 %      1  oneDNN jit:avx512_core 2.00, reorders 1.00, ...",
        "enumerate(DataLoader)            1.00   10 %      1",
        "aten::mm                         1.00   10 %      1  BLAS",
        "Optimizer.step#SGD.step          1.00   10 %      1",
        "aten::max_pool2d                 0.50    5 %      1  ATen (oneDNN not used)",
        "no operator running: Python      2.50   25 %",
        "",
        "Nothing worth changing here. What was looked at: layerscope findings",
        "",
        "Overhead: 1.0 % in the program (estimated), 2.7 % in layerscope's processes (drainer 1.5 %, converter 1.0 %,",
        "  session 0.2 %); 6.40 MB in x.layerscope",
        "Next: layerscope report",
    ]
    assert max(map(len, lines)) <= show.WIDTH


def test_without_steps_the_bars_are_of_the_whole_run() -> None:
    recording = training()
    recording.rows.pop("steps")
    for row in recording.rows["spans"]:
        row["step"] = None

    printed = text_of(recording)

    assert (
        "figures are of the whole run.\n  convolutions (oneDNN)   27 %  ###          CPU 2.00 s"
        in printed
    )


def test_a_program_without_operators_is_summed_up_by_its_ranges_and_primitives() -> None:
    recording = Recording()
    for number in range(4):
        start_ns = S + number * 10 * MS
        recording.add_step(number, start_ns, (0, 0, 0, 0, 10 * MS), rule="mark")
        task = recording.add_span(
            "train", start_ns, 8 * MS, step=number, layer="ranges", kind="task"
        )
        recording.add_primitive(
            "matmul", start_ns, 3 * MS, task, {"implementation": "brg_matmul:avx512_core"}
        )
        recording.add_primitive(
            "reorder", start_ns + 4 * MS, MS, task, {"implementation": "jit:uni"}
        )
        for row in recording.rows["primitives"]:
            row["operator"] = None

    printed = text_of(recording)

    assert "A step takes 10.0 ms (p95 10.0)\n  the program itself " in printed
    assert (
        "  the program itself        60 %  #####      a step is what was marked as one\n" in printed
    )
    assert (
        "Range (self time)   ms/step  share  calls  below it\n"
        "train                  8.00   80 %      1  oneDNN brg_matmul:avx512_core 3.00, reorders 1.00\n"
        "\n"
        "Primitive (self time)           ms/step  share    calls\n"
        "matmul brg_matmul:avx512_core      3.00   30 %        1\n"
        "reorder jit:uni                    1.00   10 %        1\n"
    ) in printed
    assert printed.endswith("Next: layerscope report\n")


def test_a_program_of_ranges_alone_shows_them() -> None:
    recording = Recording()
    recording.add_span("work", 0, 5 * MS, layer="ranges", kind="task")

    printed = text_of(recording)

    assert (
        "Range (self time)        ms  share    calls\nwork                   5.00  100 %        1\n"
        in printed
    )
    assert printed.endswith("Next: layerscope report\n")


def test_sums_of_ranges_in_a_thinned_run_are_not_called_exact() -> None:
    recording = Recording()
    recording.add_span("work", 0, 5 * MS, layer="ranges", kind="task", weight=4)
    recording.rows["totals"] = [
        {"total": 0, "process": 0, "layer": "ranges", "kind": "task", "name": "work", "step_class": "outside",
         "count": 4, "total_ns": 20 * MS, "self_ns": 20 * MS, "min_ns": 5 * MS, "max_ns": 5 * MS}
    ]  # fmt: skip
    recording.rows["histograms"] = [{"total": 0, "from_ns": 5 * MS, "count": 4}]

    printed = text_of(recording)

    assert "work                   20.0  100 %        4\n" in printed
    assert "in the sums above each counts for those like it" in " ".join(printed.split())


def test_without_primitives_there_are_no_bars_that_pretend() -> None:
    recording = training()
    recording.rows.pop("primitives")
    recording.rows["spans"] = [
        row for row in recording.rows["spans"] if row["layer"] == "operators"
    ]

    printed = text_of(recording)

    assert "below it" not in printed
    assert "ATen kernels" not in printed
    assert "  forward     4.00 ms" in printed


def test_what_has_no_room_below_an_operator_is_left_out() -> None:
    def below(room: int, *whats: str) -> str:
        primitives = tuple(PrimitiveTime(what, 4.0 * MS) for what in whats)
        return show._primitives_of(OperatorRow("op", 20.0 * MS, 0.5, 1, primitives), MS, room)

    assert below(60, "oneDNN jit:avx2", "oneDNN jit_1x1:avx2", "MKL") == (
        "oneDNN jit:avx2 4.00, jit_1x1:avx2 4.00, MKL 4.00"
    )
    assert below(34, "oneDNN jit:avx2", "oneDNN jit_1x1:avx2", "MKL") == "oneDNN jit:avx2 4.00, ..."
    assert len(below(12, "oneDNN jit:avx2", "MKL")) <= 12
