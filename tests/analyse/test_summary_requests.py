"""The figures of the summary that tell of requests, of marked steps and of modules."""

from __future__ import annotations

import pytest

from layerscope.analyse.module_times import ModuleRow, ModuleTimes
from layerscope.analyse.summary import Summary
from tests.analyse.test_summary import summary_of, training
from tests.recordings import MS, Recording, S

REQUEST = (0, 4 * MS, 0, 0, MS)


def add_module(recording: Recording, path: str, of_class: str = "") -> int:
    """The key of a new module; those around it come first."""
    rows = recording.rows.setdefault("modules", [])
    around = {row["path"]: row["module"] for row in rows}
    parent = around.get(path.rpartition(".")[0])
    rows.append(
        {
            "module": len(rows),
            "parent": parent,
            "path": path,
            "class": of_class or path.rpartition(".")[2],
        }
    )
    return len(rows) - 1


def modules_of(times: dict[str, int], outside_ns: int = 0) -> ModuleTimes | None:
    recording = Recording()
    for path, self_ns in times.items():
        module = add_module(recording, path, "Block" if path[-1].isdecimal() else "")
        if self_ns:
            recording.add_span("aten::mm", 0, self_ns, module=module)
    if outside_ns:
        recording.add_span("aten::sgd", 0, outside_ns)
    return summary_of(recording).modules


def served(threads: int, requests: int = 12) -> Summary:
    """Requests of 5 ms, 3 ms of them in an operator, that begin every millisecond on one thread
    after the other.
    """
    recording = Recording()
    tracks = [
        recording.thread,
        *(recording.add_thread(0, 101 + number, "server") for number in range(1, threads)),
    ]
    for number in range(requests):
        start_ns = S + number * MS * (1 if threads > 1 else 10)
        track = tracks[number % threads]
        recording.add_step(number, start_ns, REQUEST, rule="request")
        about = {"step": number, "track": track}
        recording.add_span("Net", start_ns, 4 * MS, layer="modules", kind="module", **about)
        recording.add_span("aten::mm", start_ns, 3 * MS, depth=1, **about)
    recording.add_counter(0, "cpu_ns", [(0, 0), (2 * S, 4 * S)], "ns")
    return summary_of(recording)


def test_requests_that_overlap() -> None:
    summary = served(threads=6)

    assert summary.steps is not None
    assert (summary.steps.rule, summary.steps.count, summary.steps.at_once) == ("request", 12, 5)
    assert (summary.steps.mean_ns, summary.steps.p99_ns) == (5 * MS, 5 * MS)
    assert summary.steps.per_second == pytest.approx(12 / 0.016)
    assert summary.operators is not None
    assert summary.operators.idle_ns == 2 * MS


def test_a_request_has_its_part_of_the_cpu_time_between_the_requests() -> None:
    for summary, wall_ms in ((served(threads=6), 16), (served(threads=1), 115)):
        assert summary.resources is not None
        assert summary.resources.busy_cpus == pytest.approx(2)
        assert summary.resources.cpu_ns == pytest.approx(2 * wall_ms / 12 * MS)


def test_requests_one_after_the_other_run_one_at_a_time() -> None:
    steps = served(threads=1).steps

    assert steps is not None
    assert steps.at_once == 1


@pytest.mark.parametrize("first", ["request", "optimizer"])
def test_beside_steps_of_training_nothing_else_is_measured(first: str) -> None:
    recording = training(steps=0)
    second = recording.add_process(200)
    thread = recording.add_thread(second, 200, "python")
    processes = {first: 0, "request" if first == "optimizer" else "optimizer": second}
    tracks = {0: recording.thread, second: thread}
    for rule, process in processes.items():
        for number in range(3 if rule == "optimizer" else 30):
            dur_ns = 10 * MS if rule == "optimizer" else MS
            recording.add_step(
                number, S + number * dur_ns, (0, dur_ns, 0, 0, 0), rule=rule, process=process
            )
            recording.add_span(
                rule, S + number * dur_ns, dur_ns // 2, step=number, track=tracks[process]
            )

    summary = summary_of(recording)

    assert summary.steps is not None
    assert (summary.steps.rule, summary.steps.count, summary.steps.processes) == ("optimizer", 3, 1)
    assert summary.steps.mean_ns == 10 * MS
    assert summary.operators is not None
    assert [(row.name, row.self_ns, row.calls) for row in summary.operators.rows] == [
        ("optimizer", 5 * MS, 1)
    ]


def test_the_thread_of_marked_steps_is_the_busiest() -> None:
    recording = Recording()
    worker = recording.add_thread(0, 101, "worker")
    for number in range(4):
        start_ns = S + number * 10 * MS
        recording.add_step(number, start_ns, (0, 10 * MS, 0, 0, 0), rule="mark")
        recording.add_span("aten::mm", start_ns, 7 * MS, step=number)
        recording.add_span("aten::copy_", start_ns, 2 * MS, step=number, track=worker)

    operators = summary_of(recording).operators

    assert operators is not None
    assert operators.idle_ns == 3 * MS


def test_modules_are_named_by_their_path_in_the_network() -> None:
    modules = modules_of(
        {"Net": 3 * MS, "Net.conv": MS, "Net.block": 2 * MS, "Net.block.fc": 5 * MS},
        outside_ns=4 * MS,
    )

    assert modules == ModuleTimes(
        root="Net",
        rows=[
            ModuleRow("block.fc", "", 5 * MS),
            ModuleRow("Net", "", 3 * MS, functional=True),
            ModuleRow("block", "", 2 * MS),
            ModuleRow("conv", "", MS),
        ],
        rest_names=0,
        rest_ns=0,
        outside_ns=4 * MS,
    )


def test_a_loss_beside_the_network_keeps_its_name_and_the_network_its_short_ones() -> None:
    modules = modules_of({"Net": 0, "Net.conv": 2 * MS, "MSELoss": MS})

    assert modules is not None
    assert (modules.root, [row.name for row in modules.rows]) == ("", ["conv", "MSELoss"])
    assert not any(row.functional for row in modules.rows)


def test_two_networks_are_told_apart() -> None:
    modules = modules_of({"G": MS, "G.fc": 3 * MS, "D": 0, "D.fc": 2 * MS})

    assert modules is not None
    assert [(row.name, row.functional) for row in modules.rows] == [
        ("G.fc", False),
        ("D.fc", False),
        ("G", True),
    ]


def test_a_number_is_no_name() -> None:
    recording = Recording()
    for path, of_class, self_ns in (
        ("Sequential", "", 0),
        ("Sequential.0", "Linear", 2),
        ("Sequential.1", "ReLU", 1),
    ):
        module = add_module(recording, path, of_class)
        recording.add_span("aten::mm", 0, self_ns, module=module)

    modules = summary_of(recording).modules

    assert modules is not None
    assert [(row.name, row.of_class) for row in modules.rows] == [("0", "Linear"), ("1", "ReLU")]


def test_of_many_modules_those_that_differ_in_a_number_are_one() -> None:
    times = {"GPT": 1, "GPT.h": 0}
    for number in range(12):
        times |= {f"GPT.h.{number}": 10, f"GPT.h.{number}.attn": 200, f"GPT.h.{number}.mlp": 300}
    modules = modules_of({name: ns * MS for name, ns in times.items()})

    assert modules is not None
    assert [(row.name, row.of_class, row.self_ns / MS) for row in modules.rows] == [
        ("h.*.mlp", "", 3600),
        ("h.*.attn", "", 2400),
        ("h.*", "Block", 120),
        ("GPT", "", 1),
    ]


def test_the_five_modules_with_the_most_time_and_the_rest_in_one() -> None:
    modules = modules_of({f"Net{number}.fc": number * MS for number in range(1, 12)})

    assert modules is not None
    assert [row.self_ns / MS for row in modules.rows] == [11, 10, 9, 8, 7]
    assert (modules.rest_names, modules.rest_ns) == (6, 21 * MS)


def test_times_of_modules_are_those_of_a_measured_step() -> None:
    recording = training(steps=4, warmup=2)
    module = add_module(recording, "Net")
    recording.add_span("aten::mm", 0, 50 * MS, module=module)
    for number in range(4):
        recording.add_span("aten::mm", S + number * 10 * MS, MS, step=number, module=module)
        recording.add_span(
            "Net", S + number * 10 * MS, 2 * MS, step=number, layer="modules", module=module
        )

    modules = summary_of(recording).modules

    assert modules is not None
    assert [(row.name, row.self_ns, row.functional) for row in modules.rows] == [("Net", MS, False)]
    assert modules.outside_ns == 4 * MS


def test_without_a_module_nothing_is_said_of_modules() -> None:
    assert summary_of(training()).modules is None
