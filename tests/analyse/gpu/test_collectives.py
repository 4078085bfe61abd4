"""Collectives of ranks: matched, measured, and who was late for which reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse import tables
from layerscope.analyse.gpu.clock_fit import SharedEnds, fit_clocks
from layerscope.analyse.gpu.intervals import Intervals, difference, merged
from layerscope.analyse.gpu.summary import gpu_summary
from layerscope.show.gpu_lines import gpu_lines
from tests.analyse.gpu.made import US, GpuRecording

STEPS = 12
STEP_US = 1_000
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


class Job:
    """Ranks that compute 100 us, and then reduce a million floats, which takes 50 us after the last
    of them has come.

    `late`: what a rank does beside that in each step, and for how long. `ahead_us`: by how much its
    clock is ahead.
    """

    def __init__(
        self,
        ranks: int,
        late: dict[int, tuple[str, float]],
        ahead_us: dict[int, float] | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        self.gpu = GpuRecording(rank=0)
        self.late = late
        self.ahead_us = ahead_us or {}
        self.longest_us = max((us for _, us in late.values()), default=0)
        told = {"dtype": "Float", "In msg nelems": 1_000_000, "Process Group Name": "0"}
        self.arguments = arguments or told
        for rank in range(ranks):
            if rank:
                self.gpu.next_rank(rank)
            for step in range(STEPS):
                self.step(rank, step * STEP_US + self.ahead_us.get(rank, 0))

    def step(self, rank: int, begin_us: float) -> None:
        what, more_us = self.late.get(rank, ("", 0))
        gpu = self.gpu
        compute_us = 100 + (more_us if what == "compute" else 0)
        wait_us = more_us if what in ("host", "loader") else 0
        launched = gpu.call("cudaLaunchKernel", begin_us + wait_us, 5)
        if what == "loader":
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            about = {"kind": "loader"}
            gpu.recording.add_span(name, round(begin_us * US), round(wait_us * US), **about)
        gpu.work(begin_us + wait_us + 10, compute_us, launched_by=launched)
        at_us = begin_us + wait_us + 10 + compute_us
        if what == "copy":
            gpu.work(at_us, more_us, "Memcpy HtoD", "memcpy", launched_by=launched)
            at_us += more_us
        end_us = begin_us + 110 + self.longest_us + 50
        gpu.work(
            at_us, end_us - at_us, REDUCE, stream=9, launched_by=launched, arguments=self.arguments
        )


def table(job: Job, folder: Path, name: str, by: str | None = None) -> tuple[list[Any], str]:
    with job.gpu.reader(folder) as reader:
        result = tables.build(reader, name, by)
        return result.data.to_pylist(), " ".join(result.notes)


def test_a_collective_has_size_rates_and_skew(tmp_path: Path) -> None:
    (row,), notes = table(Job(4, {2: ("compute", 40)}), tmp_path, "collectives")

    assert (row["name"], row["group"], row["ranks"], row["count"]) == ("all_reduce", "0", 4, STEPS)
    assert (row["bytes"], row["dtype"]) == (4_000_000, "Float")
    assert row["transfer_ns"] == 50 * US
    assert row["algorithm_rate"] == pytest.approx(80.0)
    assert row["bus_rate"] == pytest.approx(80.0 * 2 * 3 / 4)
    assert (row["skew_ns"], row["max_skew_ns"]) == (40 * US, 40 * US)
    assert row["wait_ns"] == 3 * 40 * US * STEPS
    assert (row["last_rank"], row["last_count"]) == (2, STEPS)
    assert "within 0.0 us" in notes


def test_each_call_of_a_collective(tmp_path: Path) -> None:
    rows, _ = table(Job(2, {1: ("compute", 40)}), tmp_path, "collectives", "call")

    assert len(rows) == STEPS
    assert [row["start_ns"] for row in rows] == [(110 + n * STEP_US) * US for n in range(STEPS)]


@pytest.mark.parametrize("reason", ["compute", "copy", "loader", "host"])
def test_the_late_rank_is_named_with_its_reason(tmp_path: Path, reason: str) -> None:
    rows, _ = table(Job(4, {2: (reason, 40)}), tmp_path, "stragglers")

    first, *others = rows
    assert (first["rank"], first["reason"], first["last"]) == (2, reason, STEPS)
    assert first["collectives"] == STEPS
    assert first["late_ns"] == first["max_late_ns"] == 40 * US
    assert first["total_ns"] == 40 * US * STEPS
    # Of the first step nothing tells when it began.
    assert first[f"{reason}_ns"] == pytest.approx(40 * US, rel=0.1)
    assert [row["last"] for row in others] == [0, 0, 0]


def test_of_two_ranks_one_is_late_by_what_the_other_waits(tmp_path: Path) -> None:
    rows, _ = table(Job(2, {1: ("compute", 40)}), tmp_path, "stragglers")

    assert (rows[0]["rank"], rows[0]["late_ns"], rows[0]["reason"]) == (1, 40 * US, "compute")
    assert rows[0]["compute_ns"] == pytest.approx(40 * US, rel=0.1)
    assert (rows[1]["late"], rows[1]["total_ns"]) == (0, 0)


def test_half_of_the_ranks_are_late_by_what_the_others_wait(tmp_path: Path) -> None:
    job = Job(4, {1: ("loader", 40), 3: ("compute", 40)})
    rows, _ = table(job, tmp_path, "stragglers")
    late = {row["rank"]: (row["late_ns"], row["reason"]) for row in rows if row["late"]}
    assert late == {1: (40 * US, "loader"), 3: (40 * US, "compute")}


def test_clocks_that_are_apart_make_nobody_late(tmp_path: Path) -> None:
    job = Job(4, {2: ("loader", 40)}, ahead_us={0: 3_000, 1: -700, 3: 12_345})

    rows, notes = table(job, tmp_path, "stragglers")

    assert [(row["rank"], row["last"]) for row in rows] == [(2, STEPS), (0, 0), (1, 0), (3, 0)]
    assert rows[0]["reason"] == "loader"
    assert rows[0]["late_ns"] == 40 * US
    assert "clocks of 4 ranks were fitted" in notes


def test_the_summary_says_how_busy_gpus_were_and_who_was_late(tmp_path: Path) -> None:
    with Job(4, {2: ("loader", 40)}).gpu.reader(tmp_path) as reader:
        found = gpu_summary(reader)

    assert found is not None
    lines = list(gpu_lines(found))
    span_us = (STEPS - 1) * STEP_US + 190  # from the first kernel to the end of the last reduction
    compute = round(100 * STEPS * 100 / span_us)
    assert lines[0].startswith(f"4 GPUs: compute {compute} %, communication alone ")
    assert lines[1] == (
        f"Late: rank 2 came late to {STEPS} of {STEPS} collectives, by 40.0 µs: its data loader "
        "takes longer (layerscope table stragglers)"
    )


def test_the_summary_names_nobody_who_is_late_by_chance(tmp_path: Path) -> None:
    with Job(4, {2: ("loader", 2)}).gpu.reader(tmp_path) as reader:
        found = gpu_summary(reader)

    assert found is not None
    assert found.late is None


def test_the_summary_is_silent_without_a_gpu(tmp_path: Path) -> None:
    with GpuRecording().reader(tmp_path) as reader:
        assert gpu_summary(reader) is None


def test_too_few_collectives_fit_no_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.analyse.gpu.test_collectives.STEPS", 9)

    _, notes = table(Job(2, {1: ("compute", 40)}), tmp_path, "collectives")

    assert "taken as they are: fewer than 10 collectives" in notes


def test_ranks_that_call_different_collectives_are_said(tmp_path: Path) -> None:
    job = Job(2, {})
    rows = job.gpu.recording.rows
    of_last = [row for row in rows["spans"] if row["name"] == REDUCE][-1]
    changed = json_with(rows["args"][of_last["args"]]["json"], 7)
    rows["args"].append({"args": len(rows["args"]), "json": changed})
    of_last["args"] = len(rows["args"]) - 1

    _, notes = table(job, tmp_path, "collectives")

    assert f"In 1 of {STEPS} collectives the ranks called different ones" in notes
    assert "all_reduce of 1000000 Float, all_reduce of 7 Float" in notes


def json_with(text: str, elements: int) -> str:
    return text.replace("1000000", str(elements))


def test_a_rank_with_more_collectives_is_said(tmp_path: Path) -> None:
    job = Job(2, {})
    job.gpu.work(10**6, 10, REDUCE, stream=9, arguments=job.arguments)

    rows, notes = table(job, tmp_path, "collectives")

    assert rows[0]["count"] == STEPS
    assert f"The ranks have {STEPS} to {STEPS + 1} collectives in group 0" in notes


@pytest.mark.parametrize(
    ("kernel", "collective", "name"),
    [
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", None, "all_gather"),
        ("ncclDevKernel_Generic", "_allgather_base", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", None, "reduce_scatter"),
        ("ncclDevKernel_SendRecv", "alltoallv", "all_to_all"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", None, "send_recv"),
        ("ncclDevKernel_Broadcast", "broadcast", "broadcast"),
    ],
)
def test_a_collective_has_one_name_whoever_tells_it(
    tmp_path: Path, kernel: str, collective: str | None, name: str
) -> None:
    gpu = GpuRecording(rank=0)
    told = {"Collective name": collective} if collective else {}
    for rank in range(2):
        if rank:
            gpu.next_rank(rank)
        gpu.work(0, 10, kernel, arguments=told)

    with gpu.reader(tmp_path) as reader:
        (row,) = tables.build(reader, "collectives").data.to_pylist()

    assert row["name"] == name


@settings(max_examples=20)
@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_offsets_and_drifts_come_out(ranks: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    true_ns = np.sort(random.uniform(0, 60e9, 200))
    offset_ns = random.uniform(-5e6, 5e6, ranks)
    drift = random.uniform(-20e-6, 20e-6, ranks)
    clocks_ns = true_ns[:, None] + offset_ns + drift * true_ns[:, None]
    jitter_ns = np.abs(random.normal(0, 20e3, clocks_ns.shape))
    end_ns = (clocks_ns + jitter_ns).astype(np.int64)

    fits = fit_clocks([SharedEnds(tuple(range(ranks)), end_ns)])

    on_one = [fits[rank].corrected(clocks_ns[:, rank].astype(np.int64)) for rank in range(ranks)]
    spread_ns = np.ptp(np.stack(on_one), axis=0)
    assert spread_ns.max() < 25e3  # half of the jitter of two ranks


def test_groups_are_chained_by_the_ranks_that_they_share() -> None:
    true_ns = np.arange(20) * 1_000_000
    ahead = {0: 0, 1: 500, 2: -900, 3: 44_000}

    fits = fit_clocks(
        [
            SharedEnds(ranks, np.stack([true_ns + ahead[rank] for rank in ranks], axis=1))
            for ranks in ((0, 1), (1, 2), (2, 3))
        ]
    )

    assert {rank: round(fit.offset_ns) for rank, fit in fits.items()} == {
        0: 0, 1: -500, 2: 900, 3: -44_000,
    }  # fmt: skip


PAIRS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 10)), max_size=8)


def covered(intervals: Intervals) -> set[int]:
    pairs = zip(intervals.start_ns.tolist(), intervals.end_ns.tolist(), strict=True)
    return {ns for first, behind in pairs for ns in range(first, behind)}


def made(pairs: list[tuple[int, int]]) -> Intervals:
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return merged(array[:, 0], array[:, 0] + array[:, 1])


@given(PAIRS, PAIRS, st.integers(0, 60), st.integers(0, 60))
def test_intervals_are_sets_of_moments(
    some: list[tuple[int, int]], others: list[tuple[int, int]], first: int, behind: int
) -> None:
    one, other = made(some), made(others)

    assert covered(one) == {ns for start, dur in some for ns in range(start, start + dur)}
    assert covered(difference(one, other)) == covered(one) - covered(other)
    (within_ns,) = one.in_windows(np.array([first]), np.array([behind]))
    assert within_ns == len(covered(one) & set(range(first, behind)))
    assert one.total_ns == len(covered(one))
