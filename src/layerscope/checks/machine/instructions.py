"""The instructions for each data type: whether fast kernels can run here."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.host.isa import ABSENT, EMULATED, Isa, Support

ORDER = 40

X86 = ("x86_64", "i686", "amd64")
# What speed rests on first.
_DTYPES = ("float32", "bfloat16", "float16", "int8", "float64")
_SLOW = {
    "bfloat16": "Autocast to bfloat16 saves memory but no arithmetic: it may be slower than "
    "float32.",
    "float16": "Slower than float32 on this CPU: bfloat16 or float32 is the better choice.",
    "int8": "Quantized models gain less than their four times smaller weights promise.",
    "float32": "Fast kernels need AVX2 and FMA: what runs in their place is several times slower.",
    "float64": "Products in float64 are slow.",
}
# Of x86, what the slowest of the fast kernels for float32 needs.
_FAST = ("avx2", "fma")


def check(seen: Seen) -> Iterator[Check]:
    """One judgement for each data type."""
    isa = seen.machine.isa
    if not isa.flags:
        where = ""
        if isa.architecture:
            where = f" for {isa.architecture}"
        yield Check("instructions", "instructions", UNSEEN, f"the kernel does not list them{where}")
        return
    given = {support.dtype: support for support in isa.support}
    for name in _DTYPES:
        if name in given:
            yield _dtype(given.pop(name), isa)
    for support in given.values():
        yield _dtype(support, isa)


def _dtype(support: Support, isa: Isa) -> Check:
    name = support.dtype
    is_plain = name == "float32"
    state, evidence = NOTE, "absent"
    lost = _SLOW.get(name, "")
    if support.width_bits:
        instructions = f"{support.by}, {support.width_bits} bits at a time"
    else:
        instructions = support.by
    if support.how == ABSENT:
        if is_plain:
            state = WARNING
    elif support.how == EMULATED:
        evidence = f"emulated: {instructions}"
    else:
        evidence = f"native: {instructions}"
        is_slow = is_plain and isa.architecture in X86 and isa.lacks(_FAST)
        state = WARNING if is_slow else OK
        lost = _SLOW[name] if is_slow else ""
    return Check(f"dtype.{name}", name, state, evidence, lost)
