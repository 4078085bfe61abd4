"""Transparent huge pages: whether the memory of tensors gets them, and what page faults cost."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.machine.allocator import replacements
from layerscope.checks.phrases import counted, listed

ORDER = 110

_TUNABLE = "glibc.malloc.hugetlb"
_ENABLED = "/sys/kernel/mm/transparent_hugepage/enabled"
# A fault on 4 kB takes the kernel about a microsecond: so many are 0.1 and 5 % of a CPU.
_FEW_FAULTS_PER_S, _MANY_FAULTS_PER_S = 1_000, 50_000
_COST = (
    "Tensors lie in pages of 4 kB, and each new one is a page fault: with malloc's huge pages "
    "(glibc 2.35 or newer) a training step has hundreds of times fewer."
)
_COST_OF_OTHERS = "Tensors lie in pages of 4 kB, and each new one is a page fault."


def check(seen: Seen) -> Iterator[Check]:
    """One judgement."""
    setting, process = seen.machine.memory.thp, seen.machine.process
    if not setting:
        yield Check("thp", "huge pages", UNSEEN, "the kernel does not report it")
        return
    rate = _faults_per_s(seen)
    what = f"transparent huge pages: {setting}"
    told = seen.variables.get("GLIBC_TUNABLES", "")
    # Another allocator serves: it asks for huge pages or does not, whatever glibc is told.
    other = listed(replacements(process.libraries)) if process is not None else ""
    asked = not other and any(
        _is_ours(part) and part[-2:] in ("=1", "=2") for part in told.split(":")
    )
    what += f"; GLIBC_TUNABLES={told}" if asked else ""
    what += "" if rate is None else f"; {counted(round(rate), 'page fault')} a second"
    is_rare = rate is not None and rate < _FEW_FAULTS_PER_S
    if is_rare or setting == "always" or (setting == "madvise" and asked):
        yield Check("thp", "huge pages", OK, what)
        return
    state = WARNING if rate is not None and rate >= _MANY_FAULTS_PER_S else NOTE
    if other:
        what += f"; it is for {other} to ask, not for glibc" * (setting != "never")
        if rate is None and setting != "never":
            yield Check("thp", "huge pages", UNSEEN, f"{what}, and page faults were not counted")
        else:
            yield Check(
                "thp", "huge pages", state, what, _COST_OF_OTHERS, f"echo always > {_ENABLED}"
            )
        return
    lines = [f"echo madvise > {_ENABLED}"] * (setting == "never") + [_line(told)] * (not asked)
    yield Check("thp", "huge pages", state, what, _COST, "; ".join(lines))


def _is_ours(part: str) -> bool:
    name = part.partition("=")[0]
    return name == _TUNABLE


def _line(tunables: str) -> str:
    """What sets the tunable, and keeps the others that GLIBC_TUNABLES has."""
    parts = []
    for part in tunables.split(":"):
        if part and not _is_ours(part):
            parts.append(part)
    parts.append(f"{_TUNABLE}=1")
    value = shlex.quote(":".join(parts))
    return f"export GLIBC_TUNABLES={value}"


def _faults_per_s(seen: Seen) -> float | None:
    watched = seen.watched
    if watched is None:
        return None
    if watched.faults is None or not watched.seconds:
        return None
    return watched.faults / watched.seconds
