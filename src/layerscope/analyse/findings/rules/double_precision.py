"""The program computes in double precision.

**What it looks for.** CPU time of the thread that makes the steps in operators whose kernels are
those for double: `dgemm` and the like of BLAS, and kernels compiled for the type.

**Why it matters.** A vector of the CPU holds half as many numbers, and they take twice the memory.
Arrays of NumPy are double unless they are made otherwise, and so is a tensor made of one.

**What to do.** Make the data float32 where it enters: `torch.tensor(array, dtype=torch.float32)`,
`array.astype(numpy.float32)`.

**When it is wrong.** Where the results need the precision. The price is three quarters of the
operators' time: products take half of it in float32, by the width of the vectors, and functions
such as `tanh` a quarter, which need fewer terms for fewer digits.

Source: the widths of vectors in the CPU's manual; `torch.set_default_dtype`.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings.finding import LIKELY, Finding, Limits, Remedy, Threshold
from layerscope.analyse.findings.places import place_of_samples
from layerscope.analyse.findings.workload import Workload
from layerscope.model.units import percent

NEEDS = ("samples",)
THRESHOLDS = (
    Threshold(
        "share",
        0.3,
        "of an operator's samples",
        "below it an operator takes a few numbers in double, and most in another type",
    ),
    Threshold("saved", 0.75, "of the operators' time", "functions such as tanh save so much"),
    Threshold("least", 0.67, "of that", "products save half of the operators' time"),
)

REMEDIES = (Remedy("compute in float32: convert the data where it enters the program"),)
# A scalar argument is a double in all kernels.
_NAMES = r"_d(gemm|gemv|syrk|trsm|axpy)|vml_kernel_d[A-Z]|Vectorized<double>|<double[,>]"
_IN_DOUBLE = f"""
    stack IN (SELECT stack FROM stacks JOIN frames USING (frame) WHERE regexp_matches(
        replace(coalesce(signature, name), 'optional<double>', ''), '{_NAMES}'))"""
_MINE = "is_critical AND kind = 'cpu' AND operator <> ''"
_OPERATORS = f"""
    SELECT operator FROM step_samples WHERE {_MINE}
    GROUP BY operator HAVING count(*) FILTER ({_IN_DOUBLE}) >= {{share}} * count(*)
        AND count(*) FILTER ({_IN_DOUBLE}) > 0"""
_PRICE = """
    SELECT step, sum(weight_ns) * {saved} AS ns, count(*) AS samples
    FROM step_samples WHERE {condition} GROUP BY step"""
_EVIDENCE = f"""
    SELECT operator, symbol, sum(weight_ns)::BIGINT AS cpu_ns, count(*) AS samples
    FROM step_samples WHERE is_critical AND kind = 'cpu' AND {_IN_DOUBLE}
    GROUP BY ALL ORDER BY cpu_ns DESC LIMIT 10"""


def find(workload: Workload, limits: Limits) -> Iterator[Finding]:
    """The time in operators that compute in double."""
    operators = _OPERATORS.format(share=limits["share"])
    condition = f"{_MINE} AND operator IN ({operators})"
    sql = _PRICE.format(saved=limits["saved"], condition=condition)
    price = workload.price(sql, limits["least"])
    if not price.value_ns:
        return
    in_double = price.cost_share / limits["saved"]
    yield Finding(
        rule="double_precision",
        title=f"{percent(in_double)} of a {workload.per} computes in double precision",
        price=price,
        where=place_of_samples(workload, condition),
        remedies=REMEDIES,
        evidence=(workload.evidence(_EVIDENCE),),
        certainty=LIKELY,
    )
