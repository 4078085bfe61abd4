"""Which findings of one recording the other does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from layerscope.analyse import findings
from layerscope.analyse.worth_a_try import MOST_SPANS

if TYPE_CHECKING:
    from layerscope.analyse.findings import RunFindings
    from layerscope.recording.reader import Reader


def sentences(sides: Sequence[Reader]) -> list[str]:
    """What came and what went; nothing where both have the same, or one cannot be judged."""
    spans = max(side.rows("spans") for side in sides)
    if spans > MOST_SPANS:
        return []
    before, after = (findings.found_once(side) for side in sides)
    came = _only_in(after, before)
    went = _only_in(before, after)
    said = []
    if went:
        said.append(f"Findings that are gone in B: {went}.")
    if came:
        said.append(f"Findings that B has and A has not: {came}.")
    return said


def _only_in(these: RunFindings, others: RunFindings) -> str:
    """The rules that found something here and could have there, but did not."""
    known = set(others.skipped)
    for one in others.found:
        known.add(one.rule)
    rules: dict[str, None] = {}
    for one in these.found:
        if one.rule not in known:
            rules[one.rule] = None
    return ", ".join(rules)
