"""What matrix products and copies of memory reach here, by --measure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import counted, percent
from layerscope.host.isa import DTYPES
from layerscope.model.measured import Measured, fastest, times_as_fast
from layerscope.model.units import three_digits

ORDER = 44

_PLAIN = "float32"
# Narrower types that are meant to be faster than float32, and how much of it makes them worth a
# word.
_NARROW = ("bfloat16", "float16", "int8")
_SLOWER, _FASTER = 0.9, 1.1
# Of so many threads, at least this share of the sum of single ones; products of this size scale
# better than that.
_SCALES, _SCALES_BADLY = 0.7, 0.5
# Runs of the better half lie this close together where nobody disturbs.
_UNSTEADY = 0.15


def check(seen: Seen) -> Iterator[Check]:
    """One judgement a data type, then how threads scale, and memory; none where nothing was
    measured.
    """
    measured = seen.measured
    if measured is None:
        return
    counts = sorted({rate.threads for rate in measured.rates} - {1})
    found = []
    for dtype in DTYPES:
        one = _of_type(measured, dtype, counts)
        if one is not None:
            found.append(one)
    yield from found
    if counts and found:
        yield _scaling(measured, counts[0], counts[-1])
    yield from _memory(measured)
    yield from _steadiness(measured)
    for number, problem in enumerate(measured.problems, 1):
        what, _, remedy = problem.partition("; ")
        yield Check(f"speed.unmeasured.{number}", "measuring", UNSEEN, what, "", remedy)


def _of_type(measured: Measured, dtype: str, counts: Iterable[int]) -> Check | None:
    """How fast products in it are, and against float32."""
    one = fastest(measured, dtype, 1)
    if one is None:
        return None
    by = f"{one.library}, {one.by}" if one.by else one.library
    unit = "GFLOP/s" if dtype != "int8" else "GOP/s"
    what = f"{dtype}: {three_digits(one.gflop_per_s)} {unit} with one thread ({by})"
    for count in counts:
        if several := fastest(measured, dtype, count):
            what += f", {three_digits(several.gflop_per_s)} with {count}"
    plain = fastest(measured, _PLAIN, 1)
    code, subject = f"speed.{dtype}", "products"
    if dtype not in _NARROW or plain is None:
        return Check(code, subject, OK, what)
    times = times_as_fast(one, plain)
    if times is None:
        return Check(code, subject, OK, what)  # it varies by more than it differs
    if times < _SLOWER:
        how = (
            f"{three_digits(1 / times)} times slower"
            if times < 0.5
            else f"{percent(1 - times)} slower"
        )
        return Check(
            code,
            subject,
            NOTE,
            what,
            f"Products in {dtype} are {how} than in float32 here: a narrower type saves memory, "
            "not time.",
            f"measure before you cast to {dtype}"
            if dtype != "float16"
            else "bfloat16 or float32 on this CPU",
        )
    if times < _FASTER:
        return Check(code, subject, OK, f"{what}; as fast as float32")
    return Check(code, subject, OK, f"{what}; {times:.1f} times as fast as float32")


def _scaling(measured: Measured, cores: int, most: int) -> Check:
    """Judged with one thread on each of the `cores`: a second one in a core adds next to nothing to
    products, on the best of machines. Without such a point all there are stand for them.
    """
    gain = _gain(measured, cores)
    if gain is None:
        return Check(
            "speed.threads", "scaling", UNSEEN, f"nothing was measured with {cores} threads"
        )
    times, dtype = gain
    what = f"{cores} threads give {times:.1f} times the products of one ({dtype})"
    if most > cores and (all_threads := _gain(measured, most)):
        what += f", {most}, which share cores, {all_threads[0]:.1f} times"
    if times >= _SCALES * cores:
        return Check("speed.threads", "scaling", OK, what)
    state = WARNING if times < _SCALES_BADLY * cores else NOTE
    shared = "" if most > cores else "threads share a core, "
    return Check(
        "speed.threads",
        "scaling",
        state,
        what,
        f"Other programs use the cores, {shared}or the clock falls when all work: fewer threads "
        "may do as much for less CPU time. Which number is best layerscope tune finds out.",
        f"export OMP_NUM_THREADS={max(1, cores // 2)}",
    )


def _gain(measured: Measured, threads: int) -> tuple[float, str] | None:
    """The best that so many give of any data type, and which: others may be too small a product for
    so many.
    """
    pairs = (
        (dtype, fastest(measured, dtype, 1), fastest(measured, dtype, threads)) for dtype in DTYPES
    )
    gains = (
        (many.gflop_per_s / one.gflop_per_s, dtype) for dtype, one, many in pairs if one and many
    )
    return max(gains, default=None)


def _memory(measured: Measured) -> Iterator[Check]:
    """How fast memory is copied, by so many threads."""
    if not measured.bandwidths:
        return
    rates = []
    by_threads = sorted(measured.bandwidths, key=lambda one: one.threads)
    for bandwidth in by_threads:
        rate = three_digits(bandwidth.gbyte_per_s)
        threads = counted(bandwidth.threads, "thread")
        rates.append(f"{rate} GB/s with {threads}")
    evidence = ", ".join(rates) + ", read and written"
    yield Check("speed.memory", "copying", OK, evidence)


def _steadiness(measured: Measured) -> Iterator[Check]:
    unsteady = [rate for rate in measured.rates if rate.spread > _UNSTEADY]
    if len(unsteady) * 3 > len(measured.rates):
        worst = max(rate.spread for rate in unsteady)
        yield Check(
            "speed.steadiness",
            "steadiness",
            NOTE,
            f"the better runs of {len(unsteady)} of {len(measured.rates)} products differ by up to "
            f"{percent(worst)}",
            "Somebody else uses the machine: the figures are lower bounds.",
            "measure again when it is quiet",
        )
