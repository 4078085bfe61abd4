"""Waits of a thread that trains on a GPU: their reason and their phase."""

from __future__ import annotations

from pathlib import Path

from tests.ingest.sampler_file import SamplerFile
from tests.ingest.test_convert import Converted
from tests.ingest.test_convert_stacks import FUTEX, MAIN, samples, training


def test_a_wait_for_the_backward_pass_is_of_it_and_one_for_the_gpu_of_when_it_began(
    tmp_path: Path,
) -> None:
    """Both begin in the forward pass of the second step; the last behind all steps."""
    raw = tmp_path / "raw"
    raw.mkdir()
    training(raw)
    stacks = SamplerFile(raw, MAIN)
    stacks.thread(0, MAIN, 400)
    backward = stacks.stack("py:train", "made:Engine::execute", "made:ReadyQueue::pop")
    gpu = stacks.stack("py:train", "made:cudaStreamSynchronize", "wait")
    stacks.wait(6650, 0, backward, 50, FUTEX)
    stacks.wait(6700, 0, gpu, 60, FUTEX)
    stacks.wait(19_000, 0, backward, 70, FUTEX)
    stacks.end(20_000)

    found = [(row["state"], row["step"], row["phase"]) for row in samples(Converted(raw))]
    assert found == [("backward", 1, "backward"), ("gpu", 1, "forward"), ("backward", None, None)]
