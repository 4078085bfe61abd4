"""What matrix products and copies of memory reach here, by --measure."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.host.isa import DTYPES
from layerscope.model.measured import Measured, fastest
from layerscope.platform.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.platform.phrases import counted, percent
from layerscope.units import three_digits

ORDER = 44

_PLAIN = "float32"
# Narrower types that are meant to be faster than float32, and how much of it makes them worth a word.
_NARROW = ("bfloat16", "float16", "int8")
_SLOWER, _FASTER = 0.9, 1.1
# Of so many threads, at least this share of the sum of single ones; products of this size scale better than that.
_SCALES, _SCALES_BADLY = 0.7, 0.5
# Runs of the better half lie this close together where nobody disturbs.
_UNSTEADY = 0.15


def check(seen: Seen) -> Iterator[Check]:
    """One judgement a data type, then how threads scale, and memory; none where nothing was measured."""
    measured = seen.measured
    if measured is None:
        return
    most = max((rate.threads for rate in measured.rates), default=1)
    found = [check for dtype in DTYPES if (check := _of_type(measured, dtype, most))]
    yield from found
    if most > 1 and found:
        yield _scaling(measured, most)
    yield from _memory(measured)
    yield from _steadiness(measured)
    for number, problem in enumerate(measured.problems, 1):
        what, _, remedy = problem.partition("; ")
        yield Check(f"speed.unmeasured.{number}", "measuring", UNSEEN, what, "", remedy)


def _of_type(measured: Measured, dtype: str, most: int) -> Check | None:
    """How fast products in it are, and against float32."""
    one, all_threads = fastest(measured, dtype, 1), fastest(measured, dtype, most)
    if one is None:
        return None
    by = f"{one.library}, {one.by}" if one.by else one.library
    unit = "GFLOP/s" if dtype != "int8" else "GOP/s"
    what = f"{dtype}: {three_digits(one.gflop_per_s)} {unit} with one thread ({by})"
    if all_threads and most > 1:
        what += f", {three_digits(all_threads.gflop_per_s)} with {most}"
    plain = fastest(measured, _PLAIN, 1)
    code, subject = f"speed.{dtype}", "products"
    if dtype not in _NARROW or plain is None:
        return Check(code, subject, OK, what)
    times = one.gflop_per_s / plain.gflop_per_s
    if times < _SLOWER:
        how = f"{three_digits(1 / times)} times slower" if times < 0.5 else f"{percent(1 - times)} slower"
        return Check(
            code, subject, NOTE, what,
            f"Products in {dtype} are {how} than in float32 here: a narrower type saves memory, not time.",
            f"measure before you cast to {dtype}" if dtype != "float16" else "bfloat16 or float32 on this CPU",
        )  # fmt: skip
    if times < _FASTER:
        return Check(code, subject, OK, f"{what}; as fast as float32")
    return Check(code, subject, OK, f"{what}; {times:.1f} times as fast as float32")


def _scaling(measured: Measured, most: int) -> Check:
    """The best that all threads give of any data type: others may be too small a product for so many."""
    gains = []
    for dtype in DTYPES:
        one, many = fastest(measured, dtype, 1), fastest(measured, dtype, most)
        if one and many:
            gains.append((many.gflop_per_s / one.gflop_per_s, dtype))
    if not gains:
        return Check("speed.threads", "scaling", UNSEEN, f"nothing was measured with {most} threads")
    times, dtype = max(gains)
    what = f"{most} threads give {times:.1f} times the products of one ({dtype})"
    if times >= _SCALES * most:
        return Check("speed.threads", "scaling", OK, what)
    state = WARNING if times < _SCALES_BADLY * most else NOTE
    return Check(
        "speed.threads", "scaling", state, what,
        "Other programs use the cores, threads share a core, or its clock falls when all work: fewer threads may do "
        "as much for less CPU time.",
        f"layerscope tune -- python train.py, or try OMP_NUM_THREADS={max(1, most // 2)}",
    )  # fmt: skip


def _memory(measured: Measured) -> Iterator[Check]:
    if not measured.bandwidths:
        return
    told = [
        f"{three_digits(one.gbyte_per_s)} GB/s with {counted(one.threads, 'thread')}"
        for one in sorted(measured.bandwidths, key=lambda one: one.threads)
    ]  # fmt: skip
    yield Check("speed.memory", "copying", OK, ", ".join(told) + ", read and written")


def _steadiness(measured: Measured) -> Iterator[Check]:
    unsteady = [rate for rate in measured.rates if rate.spread > _UNSTEADY]
    if len(unsteady) * 3 > len(measured.rates):
        worst = max(rate.spread for rate in unsteady)
        yield Check(
            "speed.steadiness", "steadiness", NOTE,
            f"the better runs of {len(unsteady)} of {len(measured.rates)} products differ by up to {percent(worst)}",
            "Somebody else uses the machine: the figures are lower bounds.", "measure again when it is quiet",
        )  # fmt: skip
