"""The OpenMP runtimes and BLAS libraries that the process has loaded, each with its threads."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from layerscope.checks import rights
from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import listed
from layerscope.host import runtimes
from layerscope.host.runtimes import BLAS, OPENMP, Runtime

ORDER = 25

# In front of all others, these serve programs that were made for GNU's runtime too.
_FIRST = ("libiomp5", "libomp", "libgomp")
# These have the functions of each other.
_SERVING = ("libiomp5", "libomp")
_POOLS = (
    "Each starts threads for all CPUs and spins on its own: together they are more than the CPUs. "
    "A second libgomp made one PyTorch program 3 times slower (pytorch issue 98836)."
)


def check(seen: Seen) -> Iterator[Check]:
    """OpenMP, then BLAS; of a live process alone."""
    process = seen.machine.process
    if process is None:
        return
    if not process.libraries:
        reason = next(
            (word for word in process.unread if word.startswith("maps")), "no library is loaded"
        )
        remedy = rights.see_process() if process.unread else ""
        yield Check(
            "openmp",
            "OpenMP",
            UNSEEN,
            f"the libraries of process {process.pid}: {reason}",
            "",
            remedy,
        )
        return
    found = runtimes.told_apart(process.libraries)
    yield _openmp(runtimes.of_kind(found, OPENMP), seen.variables.get("LD_PRELOAD", ""))
    copies = runtimes.of_kind(found, BLAS)
    if copies:
        yield _blas(copies)


def _openmp(found: tuple[Runtime, ...], preload: str) -> Check:
    if len(found) < 2:
        what = "none is loaded as a library of its own"
        if found:
            what = found[0].path
        return Check("openmp", "OpenMP", OK, what)
    best = min(found, key=_preference)
    what = f"{len(found)} runtimes: {listed(one.path for one in found)}"
    words = preload.replace(":", " ").split()
    # By name: the word is often a link to what is loaded.
    first = ""
    preloaded = runtimes.of_kind(runtimes.told_apart(words), OPENMP)
    if preloaded:
        first = preloaded[0].name
    if first == best.name or (first in _SERVING and best.name in _SERVING):
        return Check(
            "openmp", "OpenMP", OK, f"{what}; LD_PRELOAD has {first} serve in place of all"
        )
    line = ":".join([best.path, *words])
    remedy = f"export LD_PRELOAD={shlex.quote(line)}"
    return Check("openmp", "OpenMP", WARNING, what, _POOLS, remedy)


def _preference(runtime: Runtime) -> tuple[int, int, str]:
    """Of copies with and without a hash in their names the plain one comes with what is the larger
    program.
    """
    place = len(_FIRST)
    if runtime.name in _FIRST:
        place = _FIRST.index(runtime.name)
    file_name = os.path.basename(runtime.path)
    return place, len(file_name), runtime.path


def _blas(found: tuple[Runtime, ...]) -> Check:
    # MKL comes in parts; of the others each file is a copy.
    copies = {one.name if one.name == "MKL" else one.path for one in found}
    if len(copies) < 2:
        return Check("blas", "BLAS", OK, next(iter(copies)))
    return Check(
        "blas",
        "BLAS",
        NOTE,
        f"{len(copies)} libraries: {listed(sorted(map(os.path.basename, copies)))}",
        "Each has a pool of threads of its own.",
    )
