"""Operators that a framework executed several of as one: how much of the time is theirs, and how to
see each alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.columns import has_name
from layerscope.model.frameworks import frameworks
from layerscope.model.layers import OPERATORS

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# Below this share of all self time they are not worth a sentence.
_NOTABLE = 0.05


def bulk_note(reader: Reader) -> str:
    """What is to be said of them; empty where they are few, and of the file of another program:
    its parser says it.
    """
    if reader.run.info.imported_from:
        return ""
    columns = reader.arrays("totals", ["layer", "kind", "name", "self_ns"])
    rows = has_name(columns, "layer", OPERATORS)
    whole_ns = max(int(columns["self_ns"][rows].sum()), 1)
    names = columns["name.names"].tolist()
    functions = rows & has_name(columns, "kind", "function")  # ranges have the program's names
    for framework in frameworks():
        called, chosen = [], np.zeros(len(names), bool)
        for pattern, text in framework.bulks:
            fits = [bool(re.fullmatch(pattern, str(name), re.DOTALL)) for name in names]
            if any(fits):
                called.append(text)
                chosen |= np.array(fits, bool)
        if not called:
            continue
        share = int(columns["self_ns"][functions & chosen[columns["name"]]].sum()) / whole_ns
        if share >= _NOTABLE:
            return _sentence(framework.title, ", or ".join(called), share)
    return ""


def _sentence(title: str, called: str, share: float) -> str:
    comma = "," if ", or " in called else ""
    subject = f"{called[0].upper()}{called[1:]}{comma}"
    return (
        f"{subject} stands for several operators that {title} executed as one, "
        f"{100 * share:.0f} % of all self time: layerscope run --granularity operator records "
        "each alone, but the program then runs in another way, and slower."
    )
