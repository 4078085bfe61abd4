"""`torch.compile` or `jax.jit` compiles the same function again and again.

**What it looks for.** Compilations in measured steps of functions that were compiled before, on the
thread that makes the steps. The price is the time that they take. A program that stops compiling in
the first half of its steps has settled, and is no finding.

**Why it matters.** A compiled function holds for the sizes, types and Python values that it was
compiled for. For others it is compiled once more, which takes 0.1 s without generating code and
many seconds with it. After 8 times (`recompile_limit`) torch leaves it as it is: uncompiled. XLA
has no such limit, and each executable takes memory.

**What to do.** Look at the reason (`layerscope table compilations`). For a size:
`torch.compile(..., dynamic=True)`, `torch._dynamo.mark_dynamic`, or with either framework batches
padded to few sizes. For a number: make a tensor of it, or read it outside of the function; in JAX
take it out of `static_argnums`. Where the arguments are the same, `jax.jit` may be called in a
loop: each function that it is given anew is compiled anew.

**When it is wrong.** A short run meets sizes for the first time that a long one meets again. Code
for all sizes can be slower than code for one: measure it with `--prove`.

Source: PyTorch's documentation of recompilations and of dynamic shapes; JAX's of just-in-time
compilation and caching.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from layerscope.analyse.findings.finding import Finding, Limits, Remedy, Threshold, Where
from layerscope.analyse.findings.places import largest
from layerscope.analyse.findings.span_prices import price_of_spans
from layerscope.analyse.findings.workload import Workload

NEEDS = ("steps", "operators")
THRESHOLDS = (
    Threshold(
        "settled",
        0.5,
        "of the steps",
        "a program that compiles nothing anew after so many of them does not pay for it later on",
    ),
)
FOR_SIZES = Remedy("compile for all sizes at once: `torch.compile(..., dynamic=True)`")
FOR_VALUES = Remedy(
    "hand numbers that change over as tensors, or read them outside of the function"
)
PADDED = Remedy("pad batches to few sizes, and compile for those")
AS_ARRAYS = Remedy("hand numbers that change over as arrays, not as static arguments")
ONCE = Remedy("call `jax.jit` once for each function, outside of the loop")
# Few programs mark ranges at all.
_RANGES = """
    SELECT coalesce(sum(count), 0)::BIGINT AS n FROM span_sums
    WHERE layer = 'ranges' AND track IN (SELECT track FROM critical_tracks)"""
TORCH, XLA = "torch.compile", "jax.jit"
# Of torch: the number of the function, and behind the stroke how often it was compiled before.
_COMPILED = """
    SELECT step, name, self_ns, json_extract_string(json, '$.domain') AS domain,
        coalesce(json_extract_string(json, '$.line'), '') AS line,
        regexp_replace(coalesce(json_extract_string(json, '$.reason'), ''), '^[0-9/]+: ', '')
            AS reason
    FROM spans JOIN args USING (args)
    WHERE layer = 'ranges' AND {in_steps} AND track IN (SELECT track FROM critical_tracks)
        AND CASE json_extract_string(json, '$.domain')
            WHEN 'torch.compile' THEN json_extract_string(json, '$.number') SIMILAR TO '.*/[1-9].*'
            WHEN 'compilation' THEN json_extract_string(json, '$.number') <> '0'
            ELSE false END"""
_COUNTS = """
    SELECT count(*) AS compiled, count(DISTINCT step) AS steps,
        (SELECT avg((step <= last)::INTEGER) FROM measured_steps) AS settled
    FROM ({compiled}), (SELECT max(step) AS last FROM ({compiled})) GROUP BY last"""
_PRICE = "SELECT step, sum(self_ns) AS ns FROM ({compiled}) GROUP BY step"
_EVIDENCE = """
    SELECT name, line, domain, count(*) AS compiled, count(DISTINCT step) AS steps,
        sum(self_ns)::BIGINT AS total_ns, arg_max(reason, self_ns) AS reason
    FROM ({compiled}) GROUP BY name, line, domain ORDER BY total_ns DESC LIMIT 10"""
# What torch says of sizes, and types whose sizes differ (`sources/raw/profile_tasks.py`).
_IS_OF_SIZE = r"size mismatch|shape|stride|size\(|\[[0-9,]*\] → "
_IS_THE_SAME = "the same arguments"


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """What the thread that makes the steps compiles in them that was compiled before."""
    if not workload.rows(_RANGES)[0]["n"]:
        return
    compiled = _COMPILED.format(in_steps=workload.in_steps("spans"))
    question = _COUNTS.format(compiled=compiled)
    rows = workload.rows(question)
    if not rows:
        return
    counts = rows[0]
    cost = _PRICE.format(compiled=compiled)
    price = price_of_spans(workload, cost)
    evidence = workload.evidence(_EVIDENCE.format(compiled=compiled))
    most = evidence.rows.to_pylist()[0]
    of_size = f"regexp_matches(reason, '{_IS_OF_SIZE}')"
    is_of_size = largest(workload, f"({compiled})", of_size, "true", "self_ns") == "True"
    notes = [f"the reason: {most['reason']}"] if most["reason"] else []
    many = f"{counts['compiled']:,} times in {len(workload.step):,} steps"
    who = TORCH if most["domain"] == TORCH else XLA
    yield Finding(
        rule="recompilations",
        title=f"{who} compiles {many} what it had compiled before",
        price=price,
        where=Where(operator=most["name"], line=most["line"]),
        remedies=_remedies(most, is_of_size),
        evidence=(evidence,),
        notes=tuple(notes),
        is_below=counts["settled"] <= limits["settled"],
    )


def _remedies(most: dict[str, Any], is_of_size: bool) -> tuple[Remedy, ...]:
    """What helps: `most` is what takes the most time."""
    if most["domain"] == TORCH:
        return (FOR_SIZES, FOR_VALUES) if is_of_size else (FOR_VALUES, FOR_SIZES)
    if _IS_THE_SAME in most["reason"]:
        return ONCE, AS_ARRAYS
    return (PADDED, AS_ARRAYS) if is_of_size else (AS_ARRAYS, PADDED)
