"""What is said to differ between two machines, and what is not worth a word."""

from __future__ import annotations

from typing import Any

import pytest

from layerscope.checks import judge
from layerscope.checks.check import Seen
from layerscope.checks.compare import Side, differences
from layerscope.host.gpu import Gpu
from layerscope.model.measured import Bandwidth, Library, Measured, Rate
from tests.checks.machines import FLAGS, GB, SUPPORT, WELL, machine


def side(measured: Measured | None = None, **changes: Any) -> Side:
    made = machine(**changes)
    return Side(made, tuple(judge.judged(Seen(made, None, measured))), measured)


def measured(gflop_per_s: float, gbyte_per_s: float, chose: str = "SkylakeX") -> Measured:
    return Measured(
        "python", "2026-01-01T00:00:00Z", 1.0, (Library("OpenBLAS of NumPy", "0.3.31", chose),),
        (Rate("MKL", "float32", 1, 1024, gflop_per_s, 9, 0.0), Rate("MKL", "float32", 8, 1024, 900.0, 9, 0.0)),
        (Bandwidth(8, gbyte_per_s, 9, 0.0),),
    )  # fmt: skip


def test_the_same_machine_does_not_differ() -> None:
    assert differences(side(), side(name="another")) == []
    assert differences(side(measured(120.0, 50.0)), side(measured(125.0, 48.0))) == []


@pytest.mark.parametrize(
    ("changes", "subject", "there"),
    [
        ({"cpu": {"model": "Other CPU"}}, "CPU", "Other CPU"),
        ({"cpu": {"granted": 1.5}}, "CPUs granted", "1.5"),
        ({"cpu": {"cores": 4}}, "cores", "4"),
        ({"cpu": {"smt": "on"}}, "SMT", "on"),
        ({"cpu": {"most_mhz": 2000}}, "highest clock", "2000 MHz"),
        ({"cpu": {"caches": {"L2": 1 << 18}}}, "cache L2", "262 kB"),
        ({"cpu": {"is_virtual": True}}, "virtual machine", "yes"),
        ({"isa": {"support": SUPPORT[:2]}}, "", ""),
        ({"isa": {"flags": FLAGS[:2]}}, "instructions", "none more"),
        ({"isa": {"amx": "refused"}}, "AMX", "refused"),
        ({"memory": {"thp": "never"}}, "huge pages", "never"),
        ({"memory": {"total_bytes": 63 * GB}}, "", ""),
        ({"memory": {"total_bytes": 32 * GB}}, "memory", "32.0 GB"),
        ({"cgroup": {"memory_limit_bytes": GB}}, "limit of memory", "1.00 GB"),
        ({"cgroup": {"cpus": 2.0, "periods": 10, "throttled": 5}}, "limit of CPU time",
         "2 CPUs, throttled in 50 % of its periods"),
        ({"kernel": {"release": "5.4.0"}}, "kernel", "5.4.0"),
        ({"gpus": {"devices": (Gpu(0, "H100", "0"),), "driver": "590.1"}}, "GPU", "H100"),
    ],
)  # fmt: skip
def test_what_speed_depends_on_is_told(changes: dict[str, Any], subject: str, there: str) -> None:
    found = {
        one.subject: one
        for one in differences(side(), side(**changes))
        if not one.subject.startswith("check: ")
    }
    assert set(found) == ({subject} if subject else set())
    if subject:
        assert found[subject].there == there
        assert found[subject].here not in ("", there)


def test_what_one_side_does_not_tell_is_no_difference() -> None:
    assert (
        differences(
            side(), side(cpu={"governor": "", "boost": None, "cores": None}, memory={"thp": ""})
        )
        == []
    )


def test_a_limit_that_is_not_visible_is_not_taken_for_none() -> None:
    hidden = {"version": 1, "is_hidden": True, "is_memory_hidden": True}
    seen = {"version": 1, "cpus": 2.0, "memory_limit_bytes": GB}
    told = {one.subject for one in differences(side(cgroup=hidden), side(cgroup=seen))}
    assert not told & {"limit of CPU time", "limit of memory"}


def test_the_limit_of_memory_does_not_depend_on_what_is_used() -> None:
    """A group above has less room left on one side."""
    fuller = {
        "memory_limit_bytes": 2 * GB,
        "memory_used_bytes": 2 * GB - 1,
        "memory_lower_bytes": GB,
    }
    found = differences(side(cgroup=fuller), side(cgroup={"memory_limit_bytes": GB}))
    assert "limit of memory" not in {one.subject for one in found}


def test_what_was_measured_is_compared_by_library_type_and_threads() -> None:
    found = differences(side(measured(120.0, 50.0)), side(measured(60.0, 100.0, "Haswell")))
    rates = {
        one.subject: (one.here, one.there, one.why)
        for one in found
        if not one.subject.startswith("check: ")
    }
    assert rates == {
        "MKL float32, 1 thread": ("120 GFLOP/s", "60.0 GFLOP/s", "measured: here 2.0 times as fast"),
        "copying memory, 8 threads": ("50.0 GB/s", "100 GB/s", "measured: there 2.0 times as fast"),
        "OpenBLAS of NumPy": (
            "0.3.31 SkylakeX", "0.3.31 Haswell", "its version and the instructions that it chose",
        ),
    }  # fmt: skip


def test_checks_that_stand_differently_are_told_with_what_follows() -> None:
    found = differences(side(), side(cpu={"boost": False}))
    told = {one.subject: one for one in found}
    assert told["check: boost"].here == "ok: on"
    assert told["check: boost"].there == "warning: off"
    assert "base frequency" in told["check: boost"].why
    assert WELL.cpu.boost
