"""Processes without the agent: programs in C, linked statically too, pipelines of a shell, other
users' processes.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from layerscope.rawfile import layout, raw_file, sampler_file
from layerscope.sources.raw.stacks import SampledFile
from tests.attempts import once_in_three
from tests.native.building import build
from tests.native_sampler.conftest import HERE, folder_for_all
from tests.native_sampler.sampling import NOBODY, PATIENCE_S, Sampled, Sampling, check, check_sums
from tests.native_sampler.test_areas import Area

pytestmark = pytest.mark.alone

FLAGS = ("-O2", "-fomit-frame-pointer")


@pytest.fixture(scope="module")
def plain_static(perf_events: None) -> Iterator[Path]:
    """The same with everything linked into it."""
    with folder_for_all() as folder:
        try:
            yield build(folder / "plain", [HERE / "plain.c"], *FLAGS, "-static")
        except AssertionError as error:
            pytest.skip(f"nothing can be linked statically here: {error}")


def functions(program: Path) -> dict[str, tuple[int, int]]:
    """Where functions lie in the file, as another program reads it."""
    done = subprocess.run(
        ["nm", "-S", str(program)], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    return {
        row[3]: (int(row[0], 16), int(row[0], 16) + int(row[1], 16))
        for row in rows
        if len(row) == 4
    }


def weight_in(
    found: Sampled, rows: np.ndarray, program: Path, name: str, of: str = "weight_ns"
) -> int:
    """The weight, or another column, of those that have a function of the program in their stack,
    added up.
    """
    first, last = functions(program)[name]
    total = 0
    for row in rows[rows["stack"] != sampler_file.NONE]:
        total += int(row[of]) * any(
            frame["kind"] == sampler_file.NATIVE
            and first <= frame["address"] < last
            and Path(found.file.objects[frame["of"]].path).name == program.name
            for frame in found.chain(int(row["stack"]))
        )
    return total


def cpu_of(found: Sampled, pid: int) -> np.ndarray:
    """Samples on a CPU of all threads of the processes that had this number."""
    processes = {number for number, row in found.file.processes.items() if row["pid"] == pid}
    threads = [
        number for number, row in found.file.threads.items() if int(row["process"]) in processes
    ]
    rows = found.samples[np.isin(found.samples["thread"], threads)]
    return rows[rows["kind"] == sampler_file.CPU]


@pytest.mark.parametrize("user", [(), NOBODY], ids=["root", "nobody"])
@pytest.mark.parametrize("kind", ["plain", "plain_static"])
@once_in_three
def test_a_program_in_c(sampling: Callable[..., Sampling], request, kind: str, user) -> None:
    program: Path = request.getfixturevalue(kind)
    found, pid, out = sampling(user).whole(str(program), "split", "1500")

    assert found.codes() == set()
    said = json.loads(out)
    rows = cpu_of(found, pid)
    with_stack = rows[rows["stack"] != sampler_file.NONE]
    assert with_stack["weight_ns"].sum() > 0.3 * rows["weight_ns"].sum()
    seventy, thirty = (weight_in(found, rows, program, name) for name in ("seventy", "thirty"))
    assert seventy + thirty > 0.95 * with_stack["weight_ns"].sum()
    share = said["seventy_ns"] / (said["seventy_ns"] + said["thirty_ns"])
    error = 4 * math.sqrt(share * (1 - share) / len(with_stack))
    assert abs(seventy / (seventy + thirty) - share) < error
    quality = found.file.quality
    assert quality["to_root"] >= 0.98 * quality["samples"]


@once_in_three
def test_callers_of_code_that_points_the_stack_pointer_into_the_heap(
    sampling: Callable[..., Sampling], perf_events: None
) -> None:
    """The kernel copies the heap in place of the stack, which the sampler reads itself, soon."""
    with folder_for_all() as folder:
        program = build(folder / "elsewhere", [HERE / "elsewhere.c"], *FLAGS)
        found, pid, out = sampling().whole(str(program), "2500")
        said = json.loads(out)
        rows = cpu_of(found, pid)
        with_stack = rows[rows["stack"] != sampler_file.NONE]
        whole_ns = weight_in(found, rows, program, "product")
        often_ns = weight_in(found, rows, program, "often")

    assert whole_ns > 0.95 * with_stack["weight_ns"].sum()
    share = said["often_ns"] / (said["often_ns"] + said["seldom_ns"])
    error = 4 * math.sqrt(share * (1 - share) / len(with_stack))
    assert abs(often_ns / whole_ns - share) < error
    quality = found.file.quality
    assert quality["to_root"] >= 0.95 * quality["samples"]


@once_in_three
def test_its_threads_and_what_it_forks(sampling: Callable[..., Sampling], plain: Path) -> None:
    found, pid, out = sampling().whole(str(plain), "threads", "300")

    for number, threads in ((pid, 4), (json.loads(out)["child"], 1)):
        rows = cpu_of(found, number)
        known = rows[rows["stack"] != sampler_file.NONE]
        assert len(np.unique(known["thread"])) == threads
        assert known["weight_ns"].sum() > 0.7 * threads * 300e6


@once_in_three
def test_a_program_that_never_leaves_its_cpu(
    sampling: Callable[..., Sampling], plain: Path
) -> None:
    """Nothing tells of a thread that computes without a switch; a real-time one on a CPU of its own
    does just that.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("there is one CPU here, which the sampler needs")
    alone = ("chrt", "--fifo", "1", "taskset", "--cpu-list", str(cpus[-1]))
    if (
        refused := subprocess.run([*alone, "true"], capture_output=True, text=True, check=False)
    ).returncode:
        pytest.skip(f"no real-time thread may be made here: {refused.stderr.strip()}")
    one = sampling()
    os.sched_setaffinity(one.process.pid, cpus[:-1])
    process = one.start(*alone, str(plain), "threads", "300")
    process.communicate(timeout=PATIENCE_S)
    found = one.end()

    check(found)
    check_sums(found)
    rows = cpu_of(found, process.pid)
    computing = 0
    for thread in np.unique(rows["thread"]):
        of_it = rows[rows["thread"] == thread]
        if of_it["weight_ns"].sum() < 5e6:  # chrt and taskset, before they became the program
            continue
        computing += 1
        assert 285e6 < of_it["weight_ns"].sum() < 345e6
        assert of_it["weight_ns"][of_it["stack"] != sampler_file.NONE].sum() > 0.7 * 300e6
    assert computing


@once_in_three
def test_what_a_process_used_before_it_became_another_program_is_told_once(
    sampling: Callable[..., Sampling], plain: Path
) -> None:
    counts = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    one = sampling()
    process = one.start("sh", "-c", f"({counts}; exec {plain} split 200); true")
    process.communicate(timeout=PATIENCE_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = one.end()

    check(found)
    check_sums(found)
    used_ns = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e9
    rows = found.samples[found.samples["kind"] == sampler_file.CPU]
    assert abs(int(rows["weight_ns"].sum()) - used_ns) < 0.05 * used_ns
    (earlier, later) = (
        int(rows["weight_ns"][rows["thread"] == number].sum())
        for number, row in found.file.threads.items()
        if row["tid"] != process.pid
    )
    assert earlier > 50e6
    assert abs(later - 200e6) < 20e6


@once_in_three
def test_its_page_faults(sampling: Callable[..., Sampling], plain: Path) -> None:
    found, _, out = sampling().whole(str(plain), "faults", "300")

    rows = found.samples[found.samples["kind"] == sampler_file.FAULT]
    measured = json.loads(out)["faults"]
    assert measured > 60_000
    counted = weight_in(found, rows, plain, "touch", "count")
    # What one sample stands for at most; the last one of each CPU may not be complete.
    most = int(rows["count"].max())
    margin = 2 * most + 0.05 * measured
    assert measured - most * found.file.quality["lost"] - margin <= counted <= measured + margin
    assert counted > 0.3 * measured
    assert (rows["weight_ns"] == 0).all()


@once_in_three
def test_a_pipeline_of_a_shell(sampling: Callable[..., Sampling], plain: Path) -> None:
    found, _, _ = sampling().whole("sh", "-c", f"{plain} writes 300 | {plain} reads 100")

    assert weight_in(found, found.samples, plain, "seventy") > 0.5 * 0.7 * 400e6
    waits = found.samples[found.samples["kind"] == sampler_file.OFFCPU]
    assert waits["weight_ns"][waits["file"] == sampler_file.PIPE].sum() > 200e6


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_processes_of_other_users_are_left_alone(
    sampling: Callable[..., Sampling], plain: Path
) -> None:
    one = sampling()
    process = one.start("sh", "-c", f"{' '.join(NOBODY)} {plain} split 300; true")
    process.communicate(timeout=PATIENCE_S)
    found = one.end()

    check(found)
    assert found.codes() == set()
    assert weight_in(found, found.samples, plain, "seventy") == 0


@once_in_three
def test_an_area_takes_its_place(sampling: Callable[..., Sampling], plain: Path) -> None:
    """A process that hands its area over late: from then on the kernel copies nothing, and no time
    is told twice.
    """
    one = sampling(NOBODY)  # who gets no stacks of the kernel
    process = one.start(str(plain), "split", "2500")
    file = SampledFile(one.raw / raw_file.SAMPLER_FILE)
    rows = file.take(sampler_file.SAMPLES)
    give_up = time.monotonic() + PATIENCE_S
    while not (rows["stack"] != sampler_file.NONE).any() and time.monotonic() < give_up:
        time.sleep(0.05)
        file.advance()
        rows = file.take(sampler_file.SAMPLES)
    handed_ns = time.monotonic_ns()
    area = Area(process.pid)
    one.send(layout.SEND_SAMPLES, process.pid, 1, [area.fd])
    process.communicate(timeout=PATIENCE_S)
    found = one.end()

    check(found)
    check_sums(found)
    known = found.samples[
        (found.samples["kind"] == sampler_file.CPU) & (found.samples["stack"] != sampler_file.NONE)
    ]
    assert len(known)
    assert (known["at_ns"] < handed_ns + 500_000_000).all()
    assert found.file.quality["samples"] < 200
