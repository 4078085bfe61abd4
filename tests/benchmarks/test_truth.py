"""What judges tools by programs whose times are known: how their output is read, and the
arithmetic.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from measuring import judge, planted
from measuring.judge import Claim, MeanError, coverage, merged, sampling_error, verdict
from measuring.runs import BenchmarkError
from measuring.shown import ShownTime, plain, read_layerscope, read_perf, read_py_spy

FUNCTIONS = {
    "columns": [
        {"name": name}
        for name in (
            "name", "file", "self_ns", "self_share", "self_share_low", "self_share_high",
            "total_ns", "wait_ns",
        )
    ],
    "rows": [
        ["work", "/a/b.py", 600_000_000, 0.6, 0.5, 0.7, 700_000_000, 10_000_000],
        ["work", "/other/c.py", 300_000_000, 0.3, 0.2, 0.4, 300_000_000, 0],
        ["not known", None, 100_000_000, 0.1, 0.05, 0.2, 100_000_000, 0],
    ],
}  # fmt: skip
PLACES = {
    "columns": [{"name": "state"}, {"name": "line"}, {"name": "total_ns"}],
    "rows": [["lock", "/a/b.py:5", 800_000_000], ["thread", "/a/b.py:5", 100_000_000]],
}
WAITS = {
    "columns": [{"name": "state"}, {"name": "total_ns"}],
    "rows": [["lock", 800_000_000], ["thread", 200_000_000]],
}
PY_SPY = """\
main (b.py:9);work (b.py:5) 30
main (b.py:9);work (b.py:5);read (libc.so.6);entry_SYSCALL_64 (kernel) 20
main (b.py:9);work (/else/c.py:5) 50
Python said something else
"""
PERF = """\
b 17331   10000000 cpu-clock:
\t          1aee17 inner(double) (/a/b)
\t    7f9e1ac16a00 outer (/a/b)
\t    7f9e1b256240 [unknown] ([unknown])

b 17331   10000000 cpu-clock:
\t          1aee17 outer (/a/b)
"""


def claim(truth: float, **shown: float) -> Claim:
    """One run of a program of one second."""
    found = Claim("p", "function", "f")
    for tool, seconds in shown.items():
        found.add(tool.replace("_", "-"), truth, 1.0, ShownTime(seconds))
    return found


def test_the_processes_of_a_program_are_added_up() -> None:
    lines = [
        json.dumps({"truth": {"function": {"f": 1.0}}, "cpu": 1.0, "wall": 2.0}),
        "something else",
        json.dumps({"truth": {"function": {"f": 0.5}, "wait": {"lock": 1}}, "cpu": 1, "wall": 1.5}),
    ]

    truth = planted.read_truth("\n".join(lines))

    assert truth.times == {"function": {"f": 1.5}, "wait": {"lock": 1}}
    assert (truth.whole("line"), truth.whole("wait_line")) == (2.0, 2.0)


def test_a_program_without_truth_is_a_fault_that_is_said() -> None:
    with pytest.raises(BenchmarkError, match="did not tell"):
        planted.read_truth("hello\n")


def test_a_program_says_how_it_is_built_and_run() -> None:
    text = "// What it is.\n// build: gcc {source} -o {out}\n// run: {python} {script}\n"

    assert planted.header(text, "build") == "gcc {source} -o {out}"
    assert planted.header(text, "run") == "{python} {script}"
    assert planted.header('"""A generator."""\n', "build") == ""


def test_every_program_is_found_by_its_folder() -> None:
    found = planted.names()

    assert len(found) >= 60
    assert planted.SHARED not in found


def test_functions_of_other_files_are_not_the_programs() -> None:
    readings = read_layerscope({"functions": FUNCTIONS}, "b.py")

    assert readings.of("function", "work") == ShownTime(0.6, 0.5, 0.7)
    assert readings.of("function_total", "work") == ShownTime(0.7)
    assert readings.not_known == {"functions": 0.1}


def test_a_function_without_a_row_has_nothing_and_an_interval_that_says_so() -> None:
    readings = read_layerscope({"functions": FUNCTIONS}, "b.py")

    assert readings.of("function", "gone") == ShownTime(0.0, 0.0, 0.0)
    assert readings.of("symbol", "gone") is None


def test_a_wait_has_one_of_several_names() -> None:
    readings = read_layerscope({"waits": WAITS}, "b.py")

    assert readings.of("wait", "thread|join") == ShownTime(0.2)
    assert readings.of("wait", "lock") == ShownTime(0.8)


def test_where_a_wait_is_has_all_its_kinds() -> None:
    readings = read_layerscope({"waits by place": PLACES}, "b.py")

    assert readings.of("wait_line", "b.py:5") == ShownTime(0.9)
    assert readings.of("wait_function", "work") is None  # the table has no such column


def test_stacks_of_py_spy_are_added_up() -> None:
    readings = read_py_spy(PY_SPY, 100, "b.py")

    assert readings.of("function", "work") == ShownTime(0.5)
    assert readings.of("line_total", "b.py:9") == ShownTime(1.0)
    assert readings.of("symbol_total", "read") == ShownTime(0.2)
    assert readings.of("wait", "lock") is None


def test_shares_of_py_spy_are_of_the_cpu_time() -> None:
    readings = read_py_spy(PY_SPY, 100, "b.py").scaled(4.0)

    assert readings.of("function", "work") == ShownTime(2.0)
    assert readings.of("line_total", "b.py:9") == ShownTime(4.0)


def test_samples_of_perf_are_added_up() -> None:
    readings = read_perf(PERF, "b")

    assert readings.of("symbol", "inner") == ShownTime(0.01)
    assert readings.of("symbol_total", "outer") == ShownTime(0.02)
    assert readings.of("function", "inner") is None


def test_names_go_without_their_parameters() -> None:
    assert plain("inner(double)") == "inner"
    assert plain("a::f(std::function<void (int)>) const") == "a::f"
    assert plain("Worker<double, 30>::operator()(double) const") == "Worker::operator()"
    assert plain("f<std::pair<int, int> >(int)") == "f"
    assert plain("<module>") == "<module>"
    assert plain("Worker::operator()") == "Worker::operator()"
    assert plain("(anonymous namespace)::f(int)") == "(anonymous namespace)::f"


def test_more_runs_and_larger_shares_have_smaller_sampling_errors() -> None:
    assert sampling_error(1.0, 2.0) == pytest.approx(0.0707, abs=1e-4)
    assert sampling_error(1.0, 2.0, runs=4) == pytest.approx(0.0354, abs=1e-4)
    assert sampling_error(2.0, 2.0) == 0.01  # all of it: a sample at its ends


def test_an_error_within_chance_is_met_and_beyond_it_is_not() -> None:
    assert not MeanError(1.0, 1.17, 2.0, 1).is_beyond
    assert MeanError(1.0, 1.19, 2.0, 1).is_beyond
    assert MeanError(1.0, 1.19 - 0.09, 2.0, 4).is_beyond
    assert not MeanError(2.0, 2.09, 2.0, 1).is_beyond  # 5 %


def test_what_is_small_is_judged_only_where_it_is_shown_large() -> None:
    assert not MeanError(0.05, 0.0, 1.0, 1).is_judged
    assert MeanError(0.0, 0.3, 1.0, 1).is_beyond


def test_a_tool_that_is_nearer_is_named() -> None:
    others = ("py-spy", "perf")

    assert verdict(claim(0.5, layerscope=0.1, py_spy=0.45), others) == "BEYOND, py-spy is nearer"
    assert verdict(claim(0.5, layerscope=0.49, py_spy=0.5), others) == "met"
    assert verdict(claim(0.5, layerscope=0.1, py_spy=0.0), others) == "BEYOND"
    assert verdict(claim(0.5, py_spy=0.5), others) == "not told"
    assert verdict(claim(0.05, layerscope=0.0), others) == "small"


def test_runs_are_merged_and_intervals_counted() -> None:
    runs = []
    for truth in (0.5, 0.9):
        run = Claim("p", "function", "f")
        run.add(judge.OURS, truth, 1.0, ShownTime(0.5, 0.4, 0.6))
        runs.append(run)

    (one,) = merged(runs)

    assert one.covered() == (1, 2)
    assert coverage([one]) == {"function": (1, 2)}
    finding = one.finding(judge.OURS)
    assert finding is not None
    assert (finding.truth, finding.shown, finding.runs) == (pytest.approx(0.7), 0.5, 2)


def test_only_what_a_tool_tells_is_claimed() -> None:
    truth = planted.PlantedTruth({"function": {"A.work": 0.5}, "symbol": {"inner": 0.1}}, 1.0, 1.0)

    found = judge.claims_of("p", "py-spy", truth, read_py_spy(PY_SPY, 100, "b.py"))
    ours = judge.claims_of("p", judge.OURS, truth, read_layerscope({}, "b.py"))
    by_perf: list[Any] = judge.claims_of("p", "perf", truth, read_perf(PERF, "b"))

    assert [one.name for one in found] == ["A.work", "inner"]
    assert found[0].shown["py-spy"] == [ShownTime(0.5)]
    assert [one.name for one in by_perf] == ["inner"]
    assert [verdict(one, ()) for one in ours] == ["not told", "not told"]
