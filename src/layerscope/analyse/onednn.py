"""What a recording tells of oneDNN: its version, its instruction set, and what it was used for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct, field

from layerscope.model.framework import Framework
from layerscope.model.frameworks import frameworks, matching, products

ONEDNN, NOT_ONEDNN = "oneDNN", "not oneDNN"
CONVOLUTIONS, MATRIX_PRODUCTS = "convolutions", "matrix products"
# In versions["onednn"]: this build of the framework has none.
NONE = "none"
_CONVOLVES = matching(lambda framework: framework.backends.convolutions)
_CONVOLVES_BY_ONEDNN = matching(lambda framework: framework.backends.convolutions_by_onednn)
_MULTIPLIES_BY_ONEDNN = matching(lambda framework: framework.backends.products_by_onednn)
# The name of a kind of work (`analyse.work_breakdown`): matrix products (MKL).
_KIND = re.compile(r"(convolutions|matrix products) \((\w+)\)")
_SWITCHED = {"convolutions": CONVOLUTIONS, "products": MATRIX_PRODUCTS}


def called_names(names: np.ndarray, calls: np.ndarray) -> list[str]:
    """The names of what was called in the measured steps."""
    return [str(name) for name in names[np.flatnonzero(calls)]]


class OneDnn(Struct):
    """oneDNN in the program. `cap`: what the program set ONEDNN_MAX_CPU_ISA to; `isa`: what oneDNN
    said it uses.

    `done_by`: by kind of work the libraries that did it, as far as that was recorded, and
    NOT_ONEDNN where only so much is known. `off`: kinds of work for which the framework was told
    not to use it, True: each time they were first called, False: some of the times.
    `framework`: whose build it is part of, where that is known.
    """

    version: str
    isa: str = ""
    cap: str = ""
    done_by: dict[str, list[str]] = field(default_factory=dict)
    off: dict[str, bool] = field(default_factory=dict)
    framework: Framework | None = None

    @property
    def is_missing(self) -> bool:
        """Whether this build of the framework has none."""
        return self.version == NONE


def onednn(
    versions: Mapping[str, str], called: Iterable[str], kinds: Iterable[str]
) -> OneDnn | None:
    """What is known of it; None where nothing is. `called`: names of operators; `kinds`: the kinds
    of work.
    """
    if not versions.get("onednn"):
        return None
    found = OneDnn(
        versions["onednn"], versions.get("onednn_isa", ""), versions.get("onednn_max_cpu_isa", "")
    )
    found.framework = next((one for one in frameworks() if one.name in versions), None)
    for part in filter(None, versions.get("onednn_switch", "").split(", ")):
        work, _, state = part.partition(" ")
        if work in _SWITCHED and state != "on":
            found.off[_SWITCHED[work]] = state == "off"
    done_by: dict[str, set[str]] = {}
    for kind in kinds:
        if kind_of_work := _KIND.fullmatch(kind):
            done_by.setdefault(kind_of_work[1], set()).add(kind_of_work[2])
    names = set(called)
    if any(map(_MULTIPLIES_BY_ONEDNN.match, names)):
        done_by.setdefault(MATRIX_PRODUCTS, set()).add(ONEDNN)
    _conclude(found, names, done_by)
    found.done_by = {
        work: sorted(by, key=lambda one: one != ONEDNN) for work, by in sorted(done_by.items())
    }
    return found


def _conclude(found: OneDnn, names: set[str], done_by: dict[str, set[str]]) -> None:
    """Add what follows from the operators that were called."""
    convolves = any(map(_CONVOLVES.match, names))
    convolves_by_onednn = any(map(_CONVOLVES_BY_ONEDNN.match, names))
    if convolves_by_onednn:
        done_by.setdefault(CONVOLUTIONS, set()).add(ONEDNN)
    elif convolves and CONVOLUTIONS not in done_by:
        done_by[CONVOLUTIONS] = _others(names) or {NOT_ONEDNN}
    is_off = found.off.get(MATRIX_PRODUCTS)
    lacks_it = found.is_missing or is_off
    multiplies = not names.isdisjoint(products())
    if lacks_it and multiplies and MATRIX_PRODUCTS not in done_by:
        done_by[MATRIX_PRODUCTS] = {NOT_ONEDNN}


def _others(names: set[str]) -> set[str]:
    """The libraries that do convolutions, cuDNN for example, by the operators that were called."""
    return {
        library
        for framework in frameworks()
        for pattern, library in framework.backends.convolutions_by_others
        if any(re.match(pattern, name) for name in names)
    }
