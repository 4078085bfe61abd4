"""The memory allocator that the process has loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from layerscope.checks import rights
from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import listed
from layerscope.host import runtimes

ORDER = 100

# Otherwise jemalloc gives freed memory back within 10 s: tensors of each step are made of new
# pages.
_KEEP = (
    "export MALLOC_CONF=background_thread:true,metadata_thp:auto,"
    "dirty_decay_ms:-1,muzzy_decay_ms:-1"
)


def check(seen: Seen) -> Iterator[Check]:
    """One judgement of a live process; without one there is nothing to look at."""
    process = seen.machine.process
    if process is None:
        return
    if not process.libraries:
        yield Check(
            "allocator", "allocator", UNSEEN, _unread(process.unread), "", rights.see_process()
        )
        return
    missing = _not_loaded(seen.variables.get("LD_PRELOAD", ""), process.libraries)
    found = replacements(process.libraries)
    if missing:
        yield Check(
            "preload",
            "LD_PRELOAD",
            WARNING,
            f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} not loaded",
            "The loader says so once and goes on without: the path is wrong, or of another "
            "architecture.",
            f"ls -lL {' '.join(missing)}",
        )
    if len(found) > 1:
        yield Check(
            "allocator",
            "allocator",
            WARNING,
            f"{listed(found)} are loaded at the same time",
            "Only the first serves the program; the others keep memory and threads of their own.",
            "unset LD_PRELOAD",
        )
    elif found == ["jemalloc"] and "MALLOC_CONF" not in seen.variables:
        yield Check(
            "allocator",
            "allocator",
            NOTE,
            "jemalloc with its defaults",
            "It gives freed memory back to the kernel soon: tensors of the next step cost page "
            "faults again.",
            _KEEP,
        )
    else:
        yield Check("allocator", "allocator", OK, found[0] if found else "malloc of the C library")


def replacements(libraries: Iterable[str]) -> list[str]:
    """Names of the allocators that stand in for malloc of the C library."""
    told = runtimes.of_kind(runtimes.told_apart(libraries), runtimes.ALLOCATOR)
    # Of oneTBB's two libraries one only serves who asks it.
    return sorted(
        {
            one.name
            for one in told
            if one.name not in ("glibc", "musl")
            and (one.name != "tbbmalloc" or "proxy" in one.path)
        }
    )


def _unread(unread: tuple[str, ...]) -> str:
    return next(
        (reason for reason in unread if reason.startswith("maps")), "its libraries are not known"
    )


def _not_loaded(preload: str, libraries: tuple[str, ...]) -> list[str]:
    """Words of LD_PRELOAD of which no version is loaded (a name without one is often a link to one
    with it).
    """
    loaded = {_stem(path) for path in libraries}
    words = preload.replace(":", " ").split()
    missing = []
    for word in words:
        if _stem(word) not in loaded:
            missing.append(word)
    return missing


def _stem(path: str) -> str:
    """The name of a library without version and suffix."""
    name = os.path.basename(path)
    stem, _, _ = name.partition(".so")
    return stem
