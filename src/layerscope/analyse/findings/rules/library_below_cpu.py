"""oneDNN uses the instructions of an older CPU than the one it runs on.

**What it looks for.** Convolutions and products of matrices that oneDNN computes with the 128 bits
of SSE4.1, none with more, on a CPU with AVX2. The price is their time less what the wider vectors
need by their width.

**Why it matters.** Vectors of 256 or 512 bits compute two or four times as many numbers at once,
and older code has no fused multiply-add.

**What to do.** Find the variable `ONEDNN_MAX_CPU_ISA` (`DNNL_MAX_CPU_ISA` of old versions) or the
call `dnnl_set_max_cpu_isa`, in the environment and in the program, and remove it.

**When it is wrong.** Where the cap is wanted, to have the same results on older CPUs. A cap at AVX2
on a CPU with AVX-512 is no finding: on CPUs that halve the wide vectors (AMD's Zen 4) it costs
nothing.

Source: oneDNN's documentation of its CPU dispatcher control.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import (
    ENVIRONMENT,
    Finding,
    Limits,
    Remedy,
    Threshold,
    Where,
)
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload

NEEDS = ("primitives",)
THRESHOLDS = (
    Threshold("width", 128.0, "bits", "of the vectors of SSE4.1, which the price compares with"),
)
REMEDIES = (
    Remedy(
        "let oneDNN use all of the CPU; a program that sets the variable itself has to be edited",
        ENVIRONMENT,
        {"ONEDNN_MAX_CPU_ISA": "DEFAULT"},
    ),
)
BY_PROGRAM = (Remedy("remove the line that sets it: it overrides the environment"),)
# Under a cap all of them are narrow, those too whose name does not say it (gemm:jit).
_COMPUTE = """kind = 'execute' AND share_of IS NULL AND is_critical
        AND primitive_kind IN ('convolution', 'deconvolution', 'matmul', 'inner_product')"""
_COUNTS = f"""
    SELECT count(*) FILTER (implementation LIKE '%sse4%') AS narrow,
        count(*) FILTER (implementation LIKE '%avx%') AS wide
    FROM step_primitives WHERE {_COMPUTE}"""
_PRICE = """
    SELECT step, sum(dur_ns) * {excess} AS ns
    FROM step_primitives WHERE {compute} GROUP BY step"""
SET_BY_PROGRAM = """
    SELECT DISTINCT marks.name FROM marks JOIN tracks USING (track)
    WHERE tracks.process = {process} AND marks.kind = 'setting'
        AND regexp_matches(marks.name, '^(ONEDNN|DNNL)_MAX_CPU_ISA=')"""
EVIDENCE = f"""
    SELECT primitive_kind, implementation, dtype, problem, count(*) AS calls,
        sum(dur_ns)::BIGINT AS total_ns
    FROM step_primitives WHERE {_COMPUTE}
    GROUP BY ALL ORDER BY total_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time of narrow code, beyond what the CPU's own would take."""
    counts = workload.rows(_COUNTS)[0]
    if counts["wide"] or not counts["narrow"]:
        return
    bits = vector_bits(workload)
    if bits <= limits["width"]:
        return
    excess = 1 - limits["width"] / bits
    cost = _PRICE.format(excess=excess, compute=_COMPUTE)
    price = price_of_spans(workload, cost)
    module = largest(workload, "step_primitives", "module", _COMPUTE, "dur_ns")
    settings = SET_BY_PROGRAM.format(process=workload.process)
    own = [row["name"] for row in workload.rows(settings)]
    remedies = BY_PROGRAM if own else REMEDIES
    notes = [f"the program itself sets {name}" for name in own]
    yield Finding(
        rule="library_below_cpu",
        title=f"oneDNN computes with vectors of {limits['width']:g} bits, this CPU has {bits:g}",
        price=price,
        where=Where(module=module),
        remedies=remedies,
        notes=tuple(notes),
        evidence=(workload.evidence(EVIDENCE),),
    )


def vector_bits(workload: Workload) -> float:
    """How wide the vectors of the recorded CPU are; 0 where that is not known."""
    isa = workload.reader.run.info.host_fact("isa")
    flags = isa.get("flags", []) if isinstance(isa, dict) else []
    if "avx512f" in flags:
        return 512.0
    return 256.0 if "avx2" in flags else 0.0
