"""The critical path of a step: by hand, and of real traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.analyse.gpu.stream_waits import read_stream_waits
from layerscope.ingest.open import open_run
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from tests.analyse.gpu.made import US, GpuRecording
from tests.corpus import corpus

HTA = "kineto/hta"
STREAMS = "SELECT track, process, name FROM tracks WHERE kind = 'stream'"


def rows(reader: Reader, by: str | None = None, step: int | None = None) -> list[dict[str, Any]]:
    options = {} if step is None else {"step": step}
    found: list[dict[str, Any]] = tables.build(
        reader, "critical", by, options=options
    ).data.to_pylist()
    return found


def pieces(reader: Reader, step: int | None = None) -> list[tuple[str, str, float, float]]:
    """Class, name, start and duration in microseconds."""
    return [
        (row["class"], row["name"], row["start_ns"] / US, row["total_ns"] / US)
        for row in rows(reader, "piece", step)
    ]


def add_step(gpu: GpuRecording, step: int, start_us: int, dur_us: int) -> None:
    gpu.recording.add_step(step, start_us * US, (0, dur_us * US, 0, 0, 0))


def test_the_path_goes_over_threads_and_streams(tmp_path: Path) -> None:
    """The second kernel is queued behind the first, and the thread waits for it."""
    gpu = GpuRecording()
    add = gpu.recording.add_span
    add_step(gpu, 1, 0, 100)
    add("aten::mm", 0, 10 * US, step=1)
    first = gpu.call("cudaLaunchKernel", 2, 2)
    add("aten::add", 11 * US, 4 * US, step=1)
    second = gpu.call("cudaLaunchKernel", 12, 2)
    add("cudaDeviceSynchronize", 20 * US, 45 * US, layer="runtime", kind="sync", step=1)
    add("aten::item", 70 * US, 30 * US, step=1)
    for start, end, name, call in ((6, 30, "gemm", first), (32, 60, "bias", second)):
        span = gpu.work(start, end - start, name, launched_by=call)
        gpu.recording.rows["spans"][span]["step"] = 1

    with gpu.reader(tmp_path) as reader:
        found = pieces(reader)
        sums = {row["class"]: row["total_ns"] / US for row in rows(reader, "class")}

    assert found == [
        ("cpu", "aten::mm", 0, 2),
        ("launch latency", "cudaLaunchKernel", 2, 4),
        ("compute", "gemm", 6, 24),
        ("kernel gap", "bias", 30, 2),
        ("compute", "bias", 32, 28),
        ("synchronisation", "cudaDeviceSynchronize", 60, 5),
        ("cpu", "between operators", 65, 5),
        ("cpu", "aten::item", 70, 30),
    ]
    assert sums == {
        "compute": 52, "cpu": 37, "synchronisation": 5, "launch latency": 4, "kernel gap": 2
    }  # fmt: skip


def test_a_thread_that_does_nothing_waited_for_another_one(tmp_path: Path) -> None:
    """The backward pass runs on a thread of its own; the loader is a class of its own."""
    gpu = GpuRecording()
    recording = gpu.recording
    backward = recording.add_thread(recording.process, 101, "backward")
    add_step(gpu, 1, 0, 100)
    recording.add_span("next", 0, 20 * US, kind="loader")
    recording.add_span("forward", 20 * US, 20 * US)
    recording.add_span("MulBackward", 45 * US, 35 * US, track=backward)
    recording.add_span("step", 90 * US, 10 * US)

    with gpu.reader(tmp_path) as reader:
        found = pieces(reader)

    assert found == [
        ("data loading", "next", 0, 20),
        ("cpu", "forward", 20, 20),
        ("cpu", "between operators", 40, 5),
        ("cpu", "MulBackward", 45, 35),
        ("cpu", "between operators", 80, 10),
        ("cpu", "step", 90, 10),
    ]


def test_work_that_waits_for_the_step_before_begins_the_path(tmp_path: Path) -> None:
    gpu = GpuRecording()
    add_step(gpu, 1, 0, 10)
    add_step(gpu, 2, 10, 20)
    for step, (launch, start, end) in enumerate(((0, 5, 50), (12, 52, 80)), 1):
        call = gpu.call("cudaLaunchKernel", launch, 1)
        span = gpu.work(start, end - start, launched_by=call)
        gpu.recording.rows["spans"][span]["step"] = step

    with gpu.reader(tmp_path) as reader:
        assert pieces(reader) == [("compute", "gemm", 52, 28)]
        assert [piece[0] for piece in pieces(reader, 1)] == ["launch latency", "compute"]


def stream_wait(gpu: GpuRecording, recorded_us: float, asked_us: float, stream: int) -> None:
    """That `stream` waits for what stream 7 was given before `recorded_us`."""
    record = gpu.call("cudaEventRecord", recorded_us, 1)
    ask = gpu.call("cudaStreamWaitEvent", asked_us, 1)
    told = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 500 + record}
    spans = gpu.recording.rows["spans"]
    for span in (record, ask):
        spans[span] |= {"correlation": 500 + span, "kind": "runtime"}
    # As torch.profiler has it: on the stream that waits, when the host asked for it.
    event = gpu.work(asked_us, 1, "Stream Wait Event", stream=stream, arguments=told)
    spans[event] |= {"layer": "runtime", "kind": "sync", "correlation": 500 + ask}


@pytest.mark.parametrize("is_told", [True, False])
def test_work_that_waits_for_another_stream_follows_its_work(tmp_path: Path, is_told: bool) -> None:
    """A reduction on its own stream begins when the gradients on the other one are there, although
    work was launched there afterwards.
    """
    gpu = GpuRecording()
    add_step(gpu, 1, 0, 10)
    launches = [gpu.call("cudaLaunchKernel", at_us, 1) for at_us in (1, 3, 7)]
    if is_told:
        stream_wait(gpu, recorded_us=4, asked_us=5, stream=9)
    works = (("first", 6, 20, 7), ("gradients", 27, 50, 7), ("next", 52, 60, 7))
    for (name, start, end, stream), call in zip(works, launches, strict=True):
        span = gpu.work(start, end - start, name, stream=stream, launched_by=call)
        gpu.recording.rows["spans"][span]["step"] = 1
    call = gpu.call("cudaLaunchKernel", 8, 1)
    span = gpu.work(51, 40, "ncclDevKernel_AllReduce", stream=9, launched_by=call)
    gpu.recording.rows["spans"][span]["step"] = 1

    with gpu.reader(tmp_path) as reader:
        found = pieces(reader)

    if not is_told:
        assert [kind for kind, *_ in found][-2:] == ["launch latency", "communication"]
        return
    assert found == [
        ("launch latency", "cudaLaunchKernel", 1, 5),
        ("compute", "first", 6, 14),
        ("kernel gap", "gradients", 20, 7),
        ("compute", "gradients", 27, 23),
        ("stream wait", "ncclDevKernel_AllReduce", 50, 1),
        ("communication", "ncclDevKernel_AllReduce", 51, 40),
    ]


def test_a_real_wait_of_a_stream_is_read(tmp_path: Path) -> None:
    folder = corpus(f"{HTA}/critical_path/cuda_event_sync_multi_stream")
    (path,) = folder.iterdir()
    with Reader(open_run(path)) as reader:
        (process,) = {row["process"] for row in reader.query(STREAMS).to_pylist()}
        (wait,) = read_stream_waits(reader, process)
        names = {row["track"]: row["name"] for row in reader.query(STREAMS).to_pylist()}

    assert (names[wait.track], names[wait.awaited]) == ("stream 24", "stream 20")
    assert wait.asked_ns - wait.recorded_ns == 16 * US


def test_a_step_that_is_not_there_is_refused(tmp_path: Path) -> None:
    gpu = GpuRecording()
    add_step(gpu, 1, 0, 10)
    with gpu.reader(tmp_path) as reader, pytest.raises(UsageError, match="there is no step 7"):
        rows(reader, step=7)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize(
    ("trace", "step"),
    [("critical_path/cuda_event_sync", 0), ("amd_trace", None), ("ns_resolution_trace", 1)],
)
def test_pieces_follow_each_other_and_are_not_longer_than_the_step(
    trace: str, step: int | None
) -> None:
    (path,) = (one for one in corpus(f"{HTA}/{trace}").iterdir() if one.is_file())
    with Reader(open_run(path)) as reader:
        found = pieces(reader, step)
        (window,) = reader.query(
            "SELECT min(start_ns) AS first, max(start_ns + dur_ns) AS last FROM spans"
        ).to_pylist()

    ends = [round(start + lasted, 3) for _, _, start, lasted in found]
    assert ends[:-1] == [round(start, 3) for _, _, start, _ in found[1:]]
    assert sum(lasted for *_, lasted in found) <= (window["last"] - window["first"]) / US


def test_a_step_that_is_bound_by_its_gpu_is_what_hta_says() -> None:
    """95,735 us, of which HTA counts copies as computing; it rounds each piece to microseconds."""
    (path,) = (one for one in corpus(f"{HTA}/ns_resolution_trace").iterdir() if one.is_file())
    with Reader(open_run(path)) as reader:
        found = {row["class"]: row for row in rows(reader, "class", 1)}

    assert found.keys() == {"compute", "copy", "kernel gap"}
    assert sum(row["total_ns"] for row in found.values()) == pytest.approx(95_735 * US, abs=2 * US)
    assert found["compute"]["count"] + found["copy"]["count"] == 1219
    assert found["kernel gap"]["count"] == 1218
