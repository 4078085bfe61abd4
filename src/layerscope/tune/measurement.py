"""What one run of the program under one setting took."""

from __future__ import annotations

from msgspec import Struct

# Why a measurement does not count.
FAILED, HUNG, OTHER_OUTPUT, MEMORY = "failed", "hung", "other output", "memory"


class Measurement(Struct, frozen=True):
    """`wall_s`, `cpu_s`, `rss_bytes` are of the whole process tree, `cpu_s` user and kernel
    together.

    Of the `steps` that are not warm-up: mean, median and 99th percentile of their time, and CPU
    time of all threads divided by their number; 0 steps: none known. `metric`: what --metric found.
    `pressure`: highest of some-CPU-pressure before and after, percent; `load`: CPUs that others
    used meanwhile, on average. `fault` is empty, or one of the words above, and then `why` says it
    in a sentence. `output`: a hash of what it printed; `is_cut`: we ended it after enough steps.
    """

    setting: str
    round: int
    wall_s: float
    cpu_s: float
    rss_bytes: int
    steps: int = 0
    step_mean_ns: float = 0.0
    step_p50_ns: float = 0.0
    step_p99_ns: float = 0.0
    step_cpu_ns: float = 0.0
    metric: float | None = None
    pressure: float | None = None
    load: float | None = None
    status: int | None = None
    output: str = ""
    is_cut: bool = False
    fault: str = ""
    why: str = ""
    recording: str = ""
