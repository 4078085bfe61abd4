"""`diff A B kernels`: work of GPUs of two recordings, by the steps that launched it."""

from __future__ import annotations

from pathlib import Path

from layerscope.analyse import diff
from layerscope.recording.reader import Reader
from tests.analyse.gpu.made import US, GpuRecording


def steps_with_gemm(folder: Path, gemm_us: int, other: str) -> Reader:
    """Five steps of 100 us after a warm-up; a kernel of each runs in the time of the next one."""
    folder.mkdir()
    gpu = GpuRecording()
    for step in range(6):
        gpu.recording.add_step(step, 100 * step * US, (0, 100 * US, 0, 0, 0), warmup=step == 0)
        # One that varies a little.
        for start_us, dur_us, name in ((60, gemm_us + step % 2, "gemm"), (110, 5, other)):
            span = gpu.work(100 * step + start_us, dur_us, name)
            gpu.recording.rows["spans"][span]["step"] = step
    return gpu.reader(folder)


def test_kernels_are_compared_step_by_step(tmp_path: Path) -> None:
    with (
        steps_with_gemm(tmp_path / "a", 20, "copy") as a,
        steps_with_gemm(tmp_path / "b", 30, "bias") as b,
    ):
        made = diff.build(a, b, ("a", "b"), ["kernels"])
        rows = {row["name"]: row for row in made.result("kernels", b.connection()).data.to_pylist()}

    assert {name: row["verdict"] for name, row in rows.items()} == {
        "gemm": diff.SLOWER, "copy": diff.GONE, "bias": diff.ADDED
    }  # fmt: skip
    assert rows["gemm"]["what"] == "kernel"
    assert (rows["gemm"]["a_ns"], rows["gemm"]["b_ns"]) == (21 * US, 31 * US)
    assert rows["gemm"]["a_calls"] == 1
    assert (rows["bias"]["a_ns"], rows["bias"]["b_ns"]) == (0, 5 * US)


def test_recordings_without_gpus_have_nothing_to_compare(tmp_path: Path) -> None:
    readers = []
    for name in "ab":
        gpu = GpuRecording()
        gpu.recording.add_step(0, 0, (0, 100 * US, 0, 0, 0))
        (tmp_path / name).mkdir()
        readers.append(gpu.reader(tmp_path / name))
    a, b = readers
    with a, b:
        made = diff.build(a, b, ("a", "b"), ["kernels"])

    assert "No kernels are compared: A and B have none." in made.notes
