"""Functions that XLA compiles again and again; those of torch have a pair of programs."""

from __future__ import annotations

import json
from pathlib import Path

from layerscope.analyse import findings
from layerscope.analyse.findings.finding import Finding
from layerscope.recording.reader import Reader
from tests.recordings import MS, Recording, S

STEPS = 30


def compiling(until: int, reason: str) -> Recording:
    """Steps of 10 ms that compile for 6 of them, up to one of this number."""
    recording = Recording()
    recording.rows["args"] = []
    sums = dict.fromkeys(("total_ns", "self_ns", "min_ns", "max_ns"), 8 * MS)
    total = {"total": 0, "process": 0, "layer": "operators", "kind": "function", "count": STEPS}
    total |= {"name": "PjitFunction(step)", "step_class": "measured"}
    recording.rows["totals"] = [{**total, **sums}]
    for number in range(STEPS):
        start_ns = S + number * 10 * MS
        recording.add_step(number, start_ns, (0, 0, 0, 0, 10 * MS), rule="mark", warmup=number == 0)
        call = recording.add_span("PjitFunction(step)", start_ns, 8 * MS, step=number)
        if number >= until:
            continue
        about = {"domain": "compilation", "number": f"{number}", "reason": reason if number else ""}
        recording.rows["args"].append({"args": number, "json": json.dumps(about)})
        more = {"layer": "ranges", "kind": "task", "args": number}
        recording.add_span("compile jit(step)", start_ns + MS, 6 * MS, call, **more)
    return recording


def found(recording: Recording, folder: Path) -> list[Finding]:
    with Reader(recording.write(folder / "made.layerscope")) as reader:
        return list(findings.find(reader, ["recompilations"]).found)


def test_sizes_that_change_are_named_with_the_time_of_their_compilations(tmp_path: Path) -> None:
    (one,) = found(compiling(STEPS, "x: float32[7,64] → float32[8,64]"), tmp_path)

    assert one.title == "jax.jit compiles 29 times in 29 steps what it had compiled before"
    assert one.where.operator == "compile jit(step)"
    assert one.price.low_ns == 6 * MS
    assert one.notes == ("the reason: x: float32[7,64] → float32[8,64]",)
    assert one.remedies[0].what == "pad batches to few sizes, and compile for those"


def test_the_same_arguments_are_a_function_that_is_made_anew(tmp_path: Path) -> None:
    reason = "the same arguments: something static, a device or an option differs"
    (one,) = found(compiling(STEPS, reason), tmp_path)

    assert one.remedies[0].what.startswith("call `jax.jit` once")


def test_a_program_that_has_settled_is_no_finding(tmp_path: Path) -> None:
    assert found(compiling(STEPS // 2, "x: float32[7] → float32[8]"), tmp_path) == []
