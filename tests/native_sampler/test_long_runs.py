"""Long runs: what is written stays within bounds, and sums stay exact."""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from layerscope.rawfile import layout, sampler_file
from tests.attempts import once_in_three
from tests.native.building import NATIVE, build
from tests.native_sampler.conftest import HERE
from tests.native_sampler.sampling import (
    NOBODY,
    PATIENCE_S,
    Sampling,
    check,
    check_sums,
    function,
    line_with,
)
from tests.native_sampler.test_areas import Area, await_consumed

pytestmark = pytest.mark.alone

MB = 1_000_000


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled long_run.c: the thinning of the sampler, in fast motion."""
    folder = tmp_path_factory.mktemp("long-run")
    return build(
        folder / "long_run", [HERE / "long_run.c", NATIVE / "sampler" / "thinning.c"], "-O2"
    )


@pytest.mark.parametrize(
    ("hours", "most_bytes", "cpu", "waits"),
    [
        (0.1, 300 * MB, 200, 100),
        (1, 20 * MB, 800, 500),
        (10, 300 * MB, 400, 100),
        (100, 3 * MB, 50, 20),
    ],
)
def test_the_file_stays_within_its_size_and_sums_are_exact(
    long_run: Path, hours: float, most_bytes: int, cpu: int, waits: int
) -> None:
    words = [str(long_run), str(hours), str(most_bytes), str(cpu), str(waits)]
    told = json.loads(
        subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=True).stdout
    )

    seconds = round(hours * 3600)
    assert told["bytes"] <= most_bytes
    assert sum(told["cpu_ns"]) == seconds * cpu * (10**9 // cpu)
    assert sum(told["wait_ns"]) == 2 * seconds * waits * 10**6
    assert told["sleep_ns"] == seconds * 10**9
    assert told["waits"] == seconds * (waits + 1)
    assert told["late_ns"] == 0, (
        "a sample came after it was told that all before its time are there"
    )
    everything = seconds * (cpu + waits + 2)
    if told["level"] == 0 and told["rows"] == everything:
        assert hours < 1
        return
    # What was written is a sample by weight, of which few long waits have as much as many short
    # ones.
    error = 5 / np.sqrt(told["rows"] / 50)
    assert abs(told["cpu_ns"][0] / sum(told["cpu_ns"]) - 0.7) < error
    assert abs(told["wait_ns"][0] / sum(told["wait_ns"]) - 0.5) < error


def test_what_fits_is_kept_as_it_is(long_run: Path) -> None:
    words = [str(long_run), "0.2", str(300 * MB), "200", "100"]
    told = json.loads(
        subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=True).stdout
    )

    assert (told["level"], told["rows"]) == (0, 720 * (200 + 100 + 2))
    assert told["exact_ns"] == told["sleep_ns"]


@pytest.mark.slow
@once_in_three
def test_a_real_run_within_little(known, sampling: Callable[..., Sampling]) -> None:
    # The level rises by one in two seconds: it takes several of them.
    one = sampling(hz=1000, most_bytes=200_000)
    found, said = one.run(known, "split", 10_000)

    check(found)
    check_sums(found)
    cpu = found.samples[found.samples["kind"] == sampler_file.CPU]
    assert len(cpu) < 0.5 * found.told["samples"]
    assert int(cpu["count"].sum()) >= found.told["samples"]
    tid = line_with(said, "tid")["tid"]
    rows = found.of(tid, sampler_file.CPU)
    sixty, forty = (found.weight_in(rows, function(said, name))[1] for name in ("sixty", "forty"))
    measured = line_with(said, "sixty_ns")
    share = measured["sixty_ns"] / (measured["sixty_ns"] + measured["forty_ns"])
    weights = rows["weight_ns"].astype(float)
    effective = weights.sum() ** 2 / (weights**2).sum()
    assert abs(sixty / (sixty + forty) - share) < 4 * np.sqrt(share * (1 - share) / effective)


def test_definitions_have_a_share(known, sampling: Callable[..., Sampling]) -> None:
    """With no room for stacks their samples stay, charged to what is known of them."""
    one = sampling(most_bytes=4 * 500)
    found, _ = one.run(known, "burn", 300)

    check(found)
    check_sums(found)
    assert "too_many_stacks" in found.codes()
    defined = found.frames.nbytes + found.stacks.nbytes
    assert defined < 4 * 500


def test_stacks_that_do_not_fit_are_told(known, sampling: Callable[..., Sampling]) -> None:
    """What is said of them is short, and fits."""
    one = sampling(hz=999)
    resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (1000, 1000))
    found, _ = one.run(known, "burn", 300)
    assert "disk_full" in found.codes()


LOST_FULL_AT = 80


@pytest.mark.parametrize("lost", [0, 7])
def test_what_was_lost_is_not_the_kernels(sampling: Callable[..., Sampling], lost: int) -> None:
    """CPU time without samples is time in the kernel, unless samples were lost."""
    one = sampling(NOBODY)  # who sees no stacks of the kernel
    with subprocess.Popen([*NOBODY, "sleep", "600"]) as owner:
        try:
            time.sleep(0.3)  # until it is what it will be
            area = Area(owner.pid)
            one.send(0, owner.pid, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
            one.send(layout.SEND_SAMPLES, owner.pid, 1, [area.fd])
            time.sleep(0.5)
            used_ns = int(Path(f"/proc/{owner.pid}/schedstat").read_text().split()[0])
            area.sample(used_ns + 10_000_000)
            await_consumed(area)
            os.pwrite(area.fd, struct.pack("<Q", lost), LOST_FULL_AT)
            area.sample(used_ns + 210_000_000)
            await_consumed(area)
        finally:
            owner.kill()
    found = one.end()

    check(found)
    rows = found.samples[
        (found.samples["kind"] == sampler_file.CPU) & (found.samples["weight_ns"] > 15_000_000)
    ]
    (row,) = rows
    assert int(row["weight_ns"]) in range(185_000_000, 202_000_000)
    assert (int(row["kernel_ns"]) > 0.9 * int(row["weight_ns"])) == (lost == 0)
    assert int(row["kernel_ns"]) == 0 or lost == 0
