"""Runs a small convolutional network of ONNX Runtime again and again, on one thread.

    onnx_runs.py COUNT [PROFILE]

Prints JSON: CPU time of all of its threads in the first half of the runs (`early_cpu_ns`, after a
warm-up) and in the last quarter (`late_cpu_ns`). With PROFILE, a beginning of a name, the session
profiles its first COUNT runs itself, and as many as a quarter of that follow without: then also the
file (`profile`) and how long each run took (`run_ns`).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import onnx_server
import onnxruntime as ort

WARMUP = 100
EARLY = 1_500
SIZE, CHANNELS = 48, 20  # so that a run takes about 0.7 ms


def main() -> None:
    """Make the model, and run it."""
    count = int(sys.argv[1])
    profile = sys.argv[2] if len(sys.argv) > 2 else ""
    onnx_server.SIZE, onnx_server.CHANNELS = SIZE, CHANNELS
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx_server.make_model(path)
        session = ort.InferenceSession(path, options)
    image = np.random.default_rng(0).normal(size=(1, 3, SIZE, SIZE)).astype(np.float32)
    inputs = {"image": image}
    took, cpu = [], []
    for number in range(count):
        if number in (WARMUP, EARLY, count - count // 4):
            cpu.append(time.process_time_ns())
        begin = time.perf_counter_ns()
        session.run(None, inputs)
        took.append(time.perf_counter_ns() - begin)
    cpu.append(time.process_time_ns())
    said = {"early_cpu_ns": cpu[1] - cpu[0], "late_cpu_ns": cpu[3] - cpu[2]}
    said["run_ns"] = sorted(took)[count // 2]
    if profile:
        said["profile"] = session.end_profiling()
        for _ in range(count // 4):
            begin = time.perf_counter_ns()
            session.run(None, inputs)
            took.append(time.perf_counter_ns() - begin)
        said["run_ns"] = took
    print(json.dumps(said))


if __name__ == "__main__":
    main()
