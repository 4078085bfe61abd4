"""The kernel is busy with page faults: memory that is given back and taken anew in every step.

**What it looks for.** Samples of the thread that makes the steps in the kernel below its handler of
page faults, and how many faults a step has.

**Why it matters.** Large tensors are mapped anew by the allocator of the C library each time: each
first touch of 4 KiB is a fault that clears a page, 0.1 to 1 µs.

**What to do.** Have the allocator keep the memory: `MALLOC_TRIM_THRESHOLD_` and
`MALLOC_MMAP_THRESHOLD_` for glibc, or preload jemalloc or tcmalloc. `layerscope tune` tries all
three.

**When it is wrong.** Memory that grows because the program needs more is touched once only. With
huge pages a fault clears 2 MiB, and few faults can take long.

Source: facts about faults as `getrusage(2)` counts them; glibc's `mallopt(3)`.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import ENVIRONMENT, Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("samples",)
THRESHOLDS = (
    Threshold(
        "faults",
        20.0,
        "faults in a step",
        "fewer are no pattern of an allocator, whatever they take",
    ),
)
REMEDIES = (
    Remedy(
        "let glibc keep freed memory",
        ENVIRONMENT,
        {"MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_MMAP_THRESHOLD_": "4294967296"},
    ),
)
# What the kernel does for memory that comes and goes.
_PAGING = """
    stack IN (SELECT stack FROM stack_frames JOIN frames USING (frame)
        WHERE layer = 'kernel' AND regexp_matches(name, '{names}'))"""
_NAMES = r"page_fault|^(__x64_)?sys_(munmap|mmap|brk|madvise|mremap)$|^zap_pte_range$"
PAGING = _PAGING.format(names=_NAMES)
PRICE = f"""
    SELECT step, sum(weight_ns) AS ns, count(*) AS samples FROM step_samples
    WHERE is_critical AND kind = 'cpu' AND {PAGING} GROUP BY step"""
EVIDENCE = f"""
    SELECT line, operator, coalesce(sum(count) FILTER (kind = 'fault'), 0)::BIGINT AS faults,
        coalesce(sum(weight_ns) FILTER (kind = 'cpu'), 0)::BIGINT AS kernel_ns
    FROM step_samples WHERE is_critical AND (kind = 'fault' OR (kind = 'cpu' AND {PAGING}))
    GROUP BY ALL ORDER BY kernel_ns DESC, faults DESC LIMIT 10"""
FAULTS = (
    "SELECT coalesce(sum(count), 0) AS n FROM step_samples WHERE is_critical AND kind = 'fault'"
)


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time in the kernel's handler of page faults."""
    faults = float(workload.rows(FAULTS)[0]["n"]) / len(workload.step)
    if faults < limits["faults"]:
        return
    price = workload.price(PRICE)
    share = f"{percent(price.cost_share)} of a {workload.per}"
    yield Finding(
        rule="page_fault_time",
        title=f"{share} goes into page faults, {faults:,.0f} of them",
        price=price,
        where=place_of_samples(workload, "is_critical AND kind = 'fault'", "count"),
        remedies=REMEDIES,
        evidence=(workload.evidence(EVIDENCE),),
    )
