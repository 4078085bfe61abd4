"""What a recording cost, in the program and beside it."""

from __future__ import annotations

from msgspec import Struct

from layerscope.model.layers import OPERATORS
from layerscope.recording.run import RunInfo


class Cost(Struct):
    """What recording cost: CPU time of our processes beside the program, also as fractions of its
    own.

    `inside` is the fraction that was spent in the program itself, None where it is not known;
    `of_steps` that of the time of the steps, without samples of stacks.
    """

    inside: float | None
    beside_ns: dict[str, int]
    beside: dict[str, float]
    size_bytes: int
    of_steps: float | None = None


def cost_of(info: RunInfo, spans_per_step: float = 0.0, step_ns: float = 0.0) -> Cost:
    """What recording cost, as the recording states it so far; of the steps, with their average
    spans and duration.
    """
    program_ns = info.program.user_ns + info.program.system_ns
    inside_ns = sum(layer.cpu_ns for layer in info.layers)
    cost = info.cost
    parts = {
        "drainer": cost.drainer_cpu_ns,
        "sampler": cost.sampler_cpu_ns,
        "converter": cost.converter_cpu_ns,
        "session": cost.session_cpu_ns,
    }
    beside_ns = {}
    for name, cpu_ns in parts.items():
        if cpu_ns:
            beside_ns[name] = cpu_ns
    size_bytes = cost.raw_bytes + cost.tables_bytes
    if not program_ns:
        return Cost(None, beside_ns, {}, size_bytes)
    inside = None
    if inside_ns:
        inside = inside_ns / program_ns
    beside = {name: cpu_ns / program_ns for name, cpu_ns in beside_ns.items()}
    of_steps = None
    for layer in info.layers:
        if layer.name == OPERATORS and layer.records and step_ns:
            of_steps = spans_per_step * layer.cpu_ns / layer.records / step_ns
    return Cost(inside, beside_ns, beside, size_bytes, of_steps)
