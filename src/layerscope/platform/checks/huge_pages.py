"""Transparent huge pages: whether the memory of tensors gets them, and what page faults cost."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.platform.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.platform.checks.allocator import replacements
from layerscope.platform.phrases import counted, listed

ORDER = 110

_TUNABLE = "glibc.malloc.hugetlb"
_LINE = f"export GLIBC_TUNABLES={_TUNABLE}=1"
# A fault on 4 kB takes the kernel about a microsecond: so many are 0.1 and 5 % of a CPU.
_FEW_FAULTS_PER_S, _MANY_FAULTS_PER_S = 1_000, 50_000
_COST = (
    "Tensors lie in pages of 4 kB, and each new one is a page fault: with malloc's huge pages (glibc 2.35 or newer) a "
    "training step has hundreds of times fewer."
)


def check(seen: Seen) -> Iterator[Check]:
    """One judgement."""
    setting, process = seen.machine.memory.thp, seen.machine.process
    if not setting:
        yield Check("thp", "huge pages", UNSEEN, "the kernel does not tell")
        return
    rate = _faults_per_s(seen)
    what = f"transparent huge pages: {setting}"
    told = seen.variables.get("GLIBC_TUNABLES", "")
    asked = any(part.partition("=")[::2] in ((_TUNABLE, "1"), (_TUNABLE, "2")) for part in told.split(":"))
    what += f"; GLIBC_TUNABLES={told}" if asked else ""
    what += "" if rate is None else f"; {counted(round(rate), 'page fault')} a second"
    is_rare = rate is not None and rate < _FEW_FAULTS_PER_S
    if is_rare or setting == "always" or (setting == "madvise" and asked):
        yield Check("thp", "huge pages", OK, what)
        return
    state = WARNING if rate is not None and rate >= _MANY_FAULTS_PER_S else NOTE
    if setting == "never":
        remedy = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        yield Check("thp", "huge pages", state, what, _COST, remedy if asked else f"{remedy}; {_LINE}")
    elif process is not None and (other := replacements(process.libraries)):
        yield Check("thp", "huge pages", OK, f"{what}; it is for {listed(other)} to ask, not for glibc")
    else:
        yield Check("thp", "huge pages", state, what, _COST, _LINE)


def _faults_per_s(seen: Seen) -> float | None:
    watched = seen.watched
    if watched is None or watched.faults is None or not watched.seconds:
        return None
    return watched.faults / watched.seconds
