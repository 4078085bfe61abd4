"""Small recordings that every command takes: one with raw files, one that has tables alone."""

from __future__ import annotations

import json
from pathlib import Path

from layerscope.ingest.open import convert
from layerscope.recording.run import Run
from tests.ingest.raw_file import LOADER, OPTIMIZER, RawFile
from tests.recordings import Recording, run_info

STEPS = 4
STEP_NS = 4_000
END_NS = 50_000


def write_with_raw(path: Path) -> Run:
    """A recording of four steps, its raw files, and the tables made of them."""
    run = Run.create(path, run_info())
    file = RawFile(run.raw, 100)
    file.poll(0)
    rows = file.thread_begin(0, 100, 1)
    for at in range(0, STEPS * STEP_NS, STEP_NS):
        rows += file.span(at, at + 500, 0, "enumerate(DataLoader)#_Iter.__next__", LOADER)
        rows += file.span(at + 700, at + 1100, 1, "aten::convolution", seq=at)
        rows += file.span(at + 600, at + 1200, 0, "aten::conv2d")
        rows += file.span(
            at + 3000, at + 3600, 0, "Optimizer.step#SGD.step", OPTIMIZER, optimizer=1
        )
    file.records(0, rows)
    file.threads({100: "python"})
    file.end(END_NS)
    session = {"pid": 100, "end_ns": END_NS, "exit": 0, "problems": []}
    (run.raw / "session.json").write_text(json.dumps(session))
    (run.raw / "options.json").write_text(json.dumps({"max_size": 2_000_000_000, "step_mark": ""}))
    convert(run)
    return run


def write_tables_only(path: Path) -> Run:
    """A recording of one step with stacks, a wait, a primitive and a counter, whose raw files are
    gone.
    """
    recording = Recording()
    recording.add_step(0, 0, (500, 600, 1000, 600, 1300))
    conv = recording.add_span("aten::conv2d", 600, 600, step=0, phase="forward")
    recording.add_primitive("convolution", 700, 400, conv)
    stack = recording.add_stack(
        "python train train.py:12", "operators aten::conv2d", "native gemm libtorch.so"
    )
    recording.add_sample(stack, at_ns=700, step=0)
    recording.add_sample(stack, at_ns=900, kind="offcpu", weight_ns=200)
    recording.add_counter(recording.process, "rss_bytes", [(0, 1000), (4000, 2000)], "bytes")
    return recording.write(path)
