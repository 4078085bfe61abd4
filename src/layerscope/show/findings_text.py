"""RunFindings as people read them: what, where, what it costs at most, and what to try."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator

from layerscope.analyse.findings import RunFindings
from layerscope.analyse.findings.finding import CERTAIN, Finding, Price, Remedy
from layerscope.model import units
from layerscope.show.summary_words import WIDTH, percent

_INDENT = "   "
NOTHING = "Nothing worth changing here."


def text(findings: RunFindings) -> str:
    """All of them, what was looked at beside them, and what could not be judged."""
    lines = [*_head(findings)]
    for number, one in enumerate(findings.found, 1):
        lines += ["", *_finding(number, one)]
    lines += ["", *_looked_at(findings), *_skipped(findings)]
    lines += [f"{problem.what}" for problem in findings.problems]
    return "\n".join(lines).strip("\n") + "\n"


def price_words(price: Price) -> str:
    """What it can save, with its interval."""
    low, high = units.duration(price.low_ns), units.duration(price.high_ns)
    return (
        f"at most {units.duration(price.value_ns)} of a {price.per} [{low}, {high}], "
        f"{percent(price.share)}"
    )


def remedy_words(remedy: Remedy) -> str:
    """What to try."""
    pairs = " ".join(f"{name}={shlex.quote(value)}" for name, value in remedy.variables.items())
    return ": ".join(filter(None, (remedy.what, pairs)))


def _head(findings: RunFindings) -> Iterator[str]:
    yield from filter(None, [findings.about])
    if findings.contention and findings.contention.is_busy:
        yield from _wrapped(f"Recorded {findings.contention.sentence}: nothing here is certain.")
    if not findings.found:
        yield NOTHING


def _finding(number: int, one: Finding) -> Iterator[str]:
    yield from _wrapped(f"{number}  {one.title}")
    place = f" at {one.where.words}" if one.where.words else ""
    yield from _wrapped(f"{_INDENT}{one.rule}{place}")
    sure = "" if one.certainty == CERTAIN else f"; {one.certainty}"
    yield from _wrapped(f"{_INDENT}saves {price_words(one.price)}{sure}")
    for note in one.notes:
        yield from _wrapped(f"{_INDENT}{note}")
    for remedy in one.remedies:
        yield from _wrapped(f"{_INDENT}try: {remedy_words(remedy)}")


def _looked_at(findings: RunFindings) -> Iterator[str]:
    largest = sorted(findings.looked_at, key=lambda one: -one.share)
    seen = [f"{one.rule} {percent(one.share)}" for one in largest if one.share > 0]
    none = sum(not one.share for one in largest)
    if none:
        seen.append(f"{none} other rules found nothing" if seen else f"{none} rules found nothing")
    if seen:
        yield from _wrapped(f"Looked at, below 2 %: {', '.join(seen)}.")


def _skipped(findings: RunFindings) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for rule, reason in findings.skipped.items():
        reasons.setdefault(reason, []).append(rule)
    for reason, rules in reasons.items():
        yield from _wrapped(f"Not looked for, as {reason}: {', '.join(rules)}.")


def _wrapped(line: str) -> Iterable[str]:
    """One line as wide as a terminal, the following ones indented."""
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=_INDENT, break_long_words=False, drop_whitespace=False
    )


def evidence(findings: RunFindings) -> str:
    """The question that shows each finding, and its answer."""
    lines = []
    for number, one in enumerate(findings.found, 1):
        lines += [*_finding(number, one), ""]
        for shown in one.evidence:
            lines += [*_indented(textwrap.dedent("    " + shown.sql)), ""]
            lines += [*_indented(_answer(shown.rows.to_pylist())), ""]
    return "\n".join(lines or [NOTHING]) + "\n"


def _answer(rows: list[dict[str, object]]) -> str:
    """A few rows with their columns below each other."""
    if not rows:
        return "(no rows)"
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,.3f}" if isinstance(value, float) else f"{value}"


def _indented(block: str) -> Iterator[str]:
    for line in block.splitlines():
        yield f"{_INDENT}{line}".rstrip()
