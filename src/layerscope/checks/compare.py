"""What differs between two machines, of what may explain that a program is slower on one of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from layerscope.checks.check import UNSEEN, Check
from layerscope.checks.phrases import counted, cpu_list, listed, percent
from layerscope.host.machine import Machine
from layerscope.model import units
from layerscope.model.measured import Measured

# A tenth of a rate is what neighbours and the clock do to it.
_SAME_RATE = 0.10
# Memory that the firmware takes differs from one boot to the next.
_SAME_SIZE = 0.05
# A flag of /proc/cpuinfo that speed of numbers depends on.
_OF_NUMBERS = (
    "avx",
    "amx",
    "fma",
    "f16c",
    "sse4",
    "sve",
    "sme",
    "asimd",
    "bf16",
    "i8mm",
    "svebf16",
)


class Difference(Struct, frozen=True):
    """`subject` is `here` on this machine and `there` on the other; `why`: what it does to
    speed.
    """

    subject: str
    here: str
    there: str
    why: str = ""


class Side(Struct, frozen=True):
    """One machine with what was measured on it and what the checks say."""

    machine: Machine
    checks: tuple[Check, ...]
    measured: Measured | None = None


def differences(here: Side, there: Side) -> list[Difference]:
    """What differs, what matters most first; empty where nothing does."""
    facts = _facts(here.machine, there.machine)
    rates = _rates(here, there)
    states = _states(here, there)
    return [*facts, *rates, *states]


class _Fact(Struct, frozen=True):
    """`word` of a machine is compared; an empty one is not told, and no difference."""

    subject: str
    word: Callable[[Machine], str]
    why: str


def _how(dtype: str, machine: Machine) -> str:
    for support in machine.isa.support:
        if support.dtype != dtype:
            continue
        words = f"{support.how} {support.by}".strip()
        if support.width_bits:
            words += f", {support.width_bits} bits"
        return words
    return ""


def _limit(machine: Machine) -> str:
    if not machine.cgroup.version:
        return ""
    if machine.cgroup.cpus is None:
        return "" if machine.cgroup.is_hidden else "none"
    held = machine.cgroup.throttled, machine.cgroup.periods
    throttled = (
        f", throttled in {percent(held[0] / held[1])} of its periods" if held[0] and held[1] else ""
    )
    return counted(machine.cgroup.cpus, "CPU") + throttled


def _memory_limit(machine: Machine) -> str:
    cgroup = machine.cgroup
    most_bytes = cgroup.memory_most_bytes
    if not cgroup.version:
        return ""
    if most_bytes is None:
        return "" if cgroup.is_memory_hidden else "none"
    return units.size(most_bytes)


def _amx(machine: Machine) -> str:
    isa = machine.isa
    if isa.architecture != "x86_64" or not isa.flags:
        return ""
    return isa.amx


def _cache(name: str, machine: Machine) -> str:
    size_bytes = machine.cpu.caches.get(name)
    if size_bytes is None:
        return ""
    return units.size(size_bytes)


_FACTS = (
    _Fact("CPU", lambda m: m.cpu.model, "another processor"),
    _Fact(
        "architecture", lambda m: m.isa.architecture, "other kernels, other builds of the libraries"
    ),
    _Fact(
        "CPUs granted",
        lambda m: f"{m.cpu.granted:.3g}" if m.cpu.allowed else "",
        "how many threads run at once",
    ),
    _Fact(
        "CPUs allowed",
        lambda m: str(len(m.cpu.allowed) or ""),
        "how many threads libraries start by themselves",
    ),
    _Fact("CPUs online", lambda m: str(len(m.cpu.online) or ""), "what os.cpu_count() returns"),
    _Fact("cores", lambda m: str(m.cpu.cores or ""), "how much arithmetic there is"),
    _Fact("sockets", lambda m: str(m.cpu.sockets or ""), "memory of the other socket is slower"),
    _Fact("NUMA nodes", lambda m: str(len(m.numa) or ""), "memory of another node is slower"),
    _Fact("faster CPUs", lambda m: cpu_list(m.cpu.faster), "OpenMP waits for the slower cores"),
    _Fact("SMT", lambda m: m.cpu.smt, "two threads share the arithmetic of a core"),
    *(
        _Fact(dtype, partial(_how, dtype), "instructions for this data type")
        for dtype in ("float32", "bfloat16", "float16", "int8", "float64")
    ),
    _Fact("AMX", _amx, "fast bfloat16 and int8"),
    _Fact(
        "highest clock", lambda m: f"{m.cpu.most_mhz} MHz" if m.cpu.most_mhz else "", "everything"
    ),
    _Fact("governor", lambda m: m.cpu.governor, "how soon the clock rises"),
    _Fact(
        "boost",
        lambda m: "" if m.cpu.boost is None else "on" if m.cpu.boost else "off",
        "the highest clock",
    ),
    *(
        _Fact(f"cache {name}", partial(_cache, name), "how much stays near the core")
        for name in ("L1d", "L2", "L3")
    ),
    _Fact(
        "virtual machine",
        lambda m: ("yes" if m.cpu.is_virtual else "no") if m.cpu.model else "",
        "shared hardware",
    ),
    _Fact("clock", lambda m: m.cpu.clocksource, "what a look at the time costs"),
    _Fact("huge pages", lambda m: m.memory.thp, "page faults of new tensors"),
    _Fact("limit of CPU time", _limit, "threads are held back"),
    _Fact("limit of memory", _memory_limit, "how much fits"),
    _Fact("kernel", lambda m: m.kernel.release, ""),
    _Fact(
        "GPU",
        lambda m: listed(gpu.name for gpu in m.gpus.devices) or "none",
        "where the program computes",
    ),
    _Fact("GPU driver", lambda m: m.gpus.driver, "which CUDA runs"),
)


def _facts(here: Machine, there: Machine) -> Iterator[Difference]:
    for fact in _FACTS:
        word_here = fact.word(here)
        word_there = fact.word(there)
        if word_here and word_there and word_here != word_there:
            yield Difference(fact.subject, word_here, word_there, fact.why)
    yield from _memory(here.memory.total_bytes, there.memory.total_bytes)
    yield from _instructions(here, there)


def _memory(here_bytes: int | None, there_bytes: int | None) -> Iterator[Difference]:
    if not (here_bytes and there_bytes):
        return
    larger_bytes = max(here_bytes, there_bytes)
    difference_bytes = abs(here_bytes - there_bytes)
    if difference_bytes > _SAME_SIZE * larger_bytes:
        size_here = units.size(here_bytes)
        size_there = units.size(there_bytes)
        yield Difference("memory", size_here, size_there, "how much fits")


def _instructions(here: Machine, there: Machine) -> Iterator[Difference]:
    if here.isa.architecture != there.isa.architecture:
        return
    if not (here.isa.flags and there.isa.flags):
        return
    more = _more_flags(here, there), _more_flags(there, here)
    if any(more):
        words = [", ".join(flags) or "none more" for flags in more]
        yield Difference("instructions", words[0], words[1], "only on that side")


def _more_flags(one: Machine, other: Machine) -> list[str]:
    """The extensions for computing that only the first machine has."""
    only = set(one.isa.flags).difference(other.isa.flags)
    for_numbers = []
    for flag in only:
        if flag.startswith(_OF_NUMBERS):
            for_numbers.append(flag)
    return sorted(for_numbers)


def _rates(here: Side, there: Side) -> Iterator[Difference]:
    """What was measured on both, where it differs by more than noise does."""
    rates_here = here.measured
    rates_there = there.measured
    if rates_here is None or rates_there is None:
        return
    yield from _products(rates_here, rates_there)
    yield from _bandwidths(rates_here, rates_there)
    yield from _libraries(rates_here, rates_there)


def _products(here: Measured, there: Measured) -> Iterator[Difference]:
    rates_here = _rates_of_products(here)
    rates_there = _rates_of_products(there)
    products = rates_here.keys() & rates_there.keys()
    for product in sorted(products):
        library, dtype, threads = product
        pair = rates_here[product], rates_there[product]
        subject = f"{library} {dtype}, {counted(threads, 'thread')}"
        yield from _figures(subject, pair, "GFLOP/s")


def _rates_of_products(side: Measured) -> dict[tuple[str, str, int], float]:
    found = {}
    for rate in side.rates:
        product = rate.library, rate.dtype, rate.threads
        found[product] = rate.gflop_per_s
    return found


def _bandwidths(here: Measured, there: Measured) -> Iterator[Difference]:
    here_by_threads = _bandwidth_by_threads(here)
    there_by_threads = _bandwidth_by_threads(there)
    for threads in sorted(here_by_threads.keys() & there_by_threads.keys()):
        pair = here_by_threads[threads], there_by_threads[threads]
        subject = f"copying memory, {counted(threads, 'thread')}"
        yield from _figures(subject, pair, "GB/s")


def _bandwidth_by_threads(side: Measured) -> dict[int, float]:
    found = {}
    for bandwidth in side.bandwidths:
        found[bandwidth.threads] = bandwidth.gbyte_per_s
    return found


def _libraries(here: Measured, there: Measured) -> Iterator[Difference]:
    what = "its version and the instructions that it chose"
    versions_here = _versions(here)
    versions_there = _versions(there)
    for name in sorted(versions_here.keys() & versions_there.keys()):
        version_here, version_there = versions_here[name], versions_there[name]
        if version_here != version_there:
            yield Difference(name, version_here, version_there, what)


def _versions(side: Measured) -> dict[str, str]:
    """Of each library its version, and the code that it chose."""
    found = {}
    for library in side.libraries:
        words = f"{library.version} {library.chose}"
        found[library.name] = words.strip()
    return found


def _figures(subject: str, pair: tuple[float, float], unit: str) -> Iterator[Difference]:
    slow, fast = sorted(pair)
    if slow <= 0 or fast <= (1 + _SAME_RATE) * slow:
        return
    here, there = (units.three_digits(value) for value in pair)
    faster = "here" if pair[0] == fast else "there"
    times = fast / slow
    why = f"measured: {faster} {times:.1f} times as fast"
    yield Difference(subject, f"{here} {unit}", f"{there} {unit}", why)


def _states(here: Side, there: Side) -> Iterator[Difference]:
    """Checks that stand differently; what the sides have in common in facts is said there."""
    checks_there = {check.code: check for check in there.checks}
    checks_here = {check.code: check for check in here.checks}
    for code, check in checks_here.items():
        other = checks_there.get(code)
        if other is None or other.state == check.state:
            continue
        if UNSEEN in (check.state, other.state):
            continue
        worse = other
        if check.consequence:
            worse = check
        yield Difference(
            f"check: {check.subject}",
            f"{check.state}: {check.evidence}",
            f"{other.state}: {other.evidence}",
            worse.consequence,
        )
