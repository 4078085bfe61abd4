"""A recording of a training loop with a known answer, for tests of the report."""

from __future__ import annotations

from tests.recordings import MS, Recording

STEPS = 6
STEP_MS = 20
_MODULES = (("Net", "Net", None), ("Net.conv", "Conv2d", 0), ("Net.fc", "Linear", 0))


def trained() -> Recording:
    """Six steps of 20 ms, the first one warm-up of 40 and the fourth an outlier of 60: forward with
    a convolution and its primitive, backward, an optimizer step; CPU samples, a wait, a counter.
    """
    recording = Recording()
    recording.rows["modules"] = [
        {"module": number, "parent": parent, "path": path, "class": kind, "line": "net.py:5"}
        for number, (path, kind, parent) in enumerate(_MODULES)
    ]
    start_ms = 100
    for step in range(STEPS):
        whole_ms = {0: 40, 3: 60}.get(step, STEP_MS)
        _step(recording, step, start_ms * MS, whole_ms)
        start_ms += whole_ms
    recording.add_counter(
        recording.process, "rss_bytes", [(at * 50 * MS, at * 1_000_000) for at in range(6)], "bytes"
    )
    return recording


def _step(recording: Recording, step: int, start_ns: int, whole_ms: int) -> None:
    of_step = {"step": step}
    other_ms = whole_ms - 19
    phases = (2 * MS, 8 * MS, 7 * MS, 2 * MS, other_ms * MS)
    recording.add_step(step, start_ns, phases, warmup=step == 0)
    at_ns = start_ns + 2 * MS
    net = recording.add_span(
        "Net", at_ns, 8 * MS, layer="modules", kind="module", module=0, phase="forward", **of_step
    )
    conv = recording.add_span(
        "aten::conv2d", at_ns + MS, 5 * MS, net, module=1, phase="forward", line="net.py:9"
    )
    recording.add_primitive(
        "convolution", at_ns + 2 * MS, 3 * MS, conv, {"implementation": "jit:avx2"}
    )
    recording.add_span("aten::mm", at_ns + 6 * MS, MS + step, net, module=2, phase="forward")
    back = recording.add_span(
        "ConvolutionBackward0",
        start_ns + 10 * MS,
        7 * MS,
        kind="backward",
        module=1,
        phase="backward",
        **of_step,
    )
    recording.add_span(
        "aten::convolution_backward", start_ns + 11 * MS, 6 * MS, back, module=1, phase="backward"
    )
    recording.add_span(
        "Optimizer.step#SGD.step",
        start_ns + 17 * MS,
        2 * MS,
        kind="optimizer",
        phase="optimizer",
        **of_step,
    )
    stack = recording.add_stack(
        "python <module> train.py:9", "python step train.py:5", "operators aten::conv2d"
    )
    for sample in range(2):
        recording.add_sample(stack, 10 * MS, start_ns + (3 + 8 * sample) * MS, **of_step)
    recording.add_sample(stack, 3 * MS, start_ns + 18 * MS, kind="offcpu", state="lock", **of_step)
