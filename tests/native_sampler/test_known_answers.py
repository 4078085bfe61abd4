"""Programs in C that know what they did: CPU time by function, waits to the nanosecond, page
faults.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from layerscope.rawfile import sampler_file
from tests.attempts import once_in_three
from tests.native_sampler.sampling import NOBODY, Sampling, check, check_sums, function, line_with

pytestmark = pytest.mark.alone

FUTEX, READ, NANOSLEEP = 202, 0, 230
PERIOD_NS = 10_101_010


def allowed(share: float, count: int) -> float:
    """How far a share of so many samples may be off, one time in a hundred million: 6 standard
    deviations.
    """
    return 6 * math.sqrt(share * (1 - share) / count)


@pytest.mark.slow
@pytest.mark.parametrize("user", [(), NOBODY], ids=["root", "nobody"])
def test_cpu_time_of_two_functions(known, sampling: Callable[..., Sampling], user) -> None:
    found, said = sampling(user).run(known, "split", 2000)

    check(found)
    check_sums(found)
    measured = line_with(said, "sixty_ns")
    rows = found.of(measured["tid"], sampler_file.CPU)
    sixty, sixty_ns = found.weight_in(rows, function(said, "sixty"))
    forty, forty_ns = found.weight_in(rows, function(said, "forty"))
    share = measured["sixty_ns"] / (measured["sixty_ns"] + measured["forty_ns"])
    count = sixty + forty
    total_ns = measured["sixty_ns"] + measured["forty_ns"]
    # One at each period of CPU time but those in the kernel, which the weights say. The period is
    # another one after each few samples.
    in_kernel = int(np.round(rows["kernel_ns"] / PERIOD_NS).sum())
    assert abs(count + in_kernel - total_ns / PERIOD_NS) <= 0.15 * total_ns / PERIOD_NS + 2
    assert abs(sixty / count - share) <= allowed(share, count)
    assert abs(sixty_ns / (sixty_ns + forty_ns) - share) <= 2 * allowed(share, count)
    assert found.file.quality["to_root"] == found.file.quality["samples"]


@pytest.mark.slow
@pytest.mark.parametrize("user", [(), NOBODY], ids=["root", "nobody"])
@once_in_three
def test_waits_are_as_long_as_the_threads_themselves_measured(
    known, sampling: Callable[..., Sampling], user
) -> None:
    found, said = sampling(user).run(known, "locks", 20)

    check(found)
    check_sums(found)
    for what, place, call in (
        ("sleeper", "sleep_under_lock", NANOSLEEP),
        ("waiter", "wait_for_lock", FUTEX),
    ):
        measured = line_with(said, "what", what)
        rows = found.of(measured["tid"], sampler_file.OFFCPU)
        rows = rows[(rows["at_ns"] >= measured["begun"]) & (rows["at_ns"] < measured["ended"])]
        # What the thread was off a CPU is the time that passed less its CPU time: two clocks that
        # it read itself.
        off_ns = int(rows["weight_ns"].sum())
        assert abs(off_ns - measured["off_ns"]) <= 0.02 * measured["off_ns"], what
        count, in_place_ns = found.weight_in(rows, function(said, place))
        # A wait has a stack if the sampler got a CPU while it lasted.
        assert in_place_ns >= 0.4 * 20 * 50e6, (what, count)
        long = rows[(rows["flags"] & sampler_file.EXACT > 0) & (rows["weight_ns"] > 30e6)]
        assert len(long) >= 8
        assert set(long["system_call"]) == {call}
        assert set(long["file"]) == {sampler_file.NO_FILE}


@pytest.mark.parametrize(
    ("mode", "kind"), [("pipe", sampler_file.PIPE), ("socket", sampler_file.SOCKET)]
)
@once_in_three
def test_what_a_thread_waits_for(
    known, sampling: Callable[..., Sampling], mode: str, kind: int
) -> None:
    found, said = sampling().run(known, mode)

    check(found)
    rows = found.of(line_with(said, "what", "reader")["tid"], sampler_file.OFFCPU)
    long = rows[(rows["flags"] & sampler_file.EXACT > 0) & (rows["weight_ns"] > 30e6)]
    assert len(long) >= 2
    assert set(long["system_call"]) == {READ}
    assert set(long["file"]) == {kind}


@once_in_three
def test_page_faults(known, sampling: Callable[..., Sampling]) -> None:
    found, said = sampling().run(known, "faults", 60_000)

    check(found)
    rows = found.samples[found.samples["kind"] == sampler_file.FAULT]
    inside = [
        found.passes(int(row["stack"]), *list(function(said, "touch").values())[1:]) for row in rows
    ]
    counted = int(rows["count"][np.array(inside, bool)].sum())
    measured = line_with(said, "faults")["faults"]
    most = int(rows["count"].max())  # what one sample stands for
    assert abs(counted - measured) <= 2 * most + 0.05 * measured
    assert len(rows) < 0.75 * measured / 509
    assert (rows["weight_ns"] == 0).all()
