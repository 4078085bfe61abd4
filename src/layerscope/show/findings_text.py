"""Findings as people read them: what, where, what it costs at most, and what to try."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator

from layerscope.analyse.findings import RunFindings
from layerscope.analyse.findings.finding import CERTAIN, Finding, Price, Remedy
from layerscope.model import units
from layerscope.model.units import percent
from layerscope.show.summary_words import WIDTH, plural
from layerscope.show.terminal import shortened

_INDENT = "   "
# Of the summary.
MOST_IN_SUMMARY, _TITLE = 3, 62
NOTHING = "Nothing worth changing here."
UNJUDGED = "No rule could judge this recording."


def text(findings: RunFindings) -> str:
    """All of them, what was looked at beside them, and what could not be judged."""
    lines: list[str] = []
    for sentence in _head(findings):
        lines += _wrapped(sentence)
    for number, one in enumerate(findings.found, 1):
        lines += ["", *_finding(findings, number, one)]
    lines.append("")
    for sentence in (*_looked_at(findings), *_skipped(findings)):
        lines += _wrapped(sentence)
    return "\n".join(lines).strip("\n") + "\n"


def notes(findings: RunFindings) -> list[str]:
    """What is said beside the findings, as sentences."""
    said = [*_head(findings)]
    said += _looked_at(findings)
    said += _skipped(findings)
    said += [problem.what for problem in findings.problems]
    return said


def worth_a_try(findings: RunFindings) -> list[str]:
    """The few lines of the summary."""
    found = findings.found
    if not found:
        return [f"{NOTHING} What was looked at: layerscope findings"] if findings.looked_at else []
    per = found[0].price.per
    heading = "Worth a try"
    lines = [f"{heading:<66}saves at most, of a {per}"]
    for one in found[:MOST_IN_SUMMARY]:
        lines += _short(findings, one)
    more = len(found) - MOST_IN_SUMMARY
    if more > 0:
        lines.append(f"  {more} more: layerscope findings")
    return lines


def _short(findings: RunFindings, one: Finding) -> Iterator[str]:
    """One finding in two lines."""
    sure = "" if one.certainty == CERTAIN else f" ({one.certainty})"
    title = shortened(one.title, _TITLE).ljust(_TITLE)
    yield f"  {title}  {_interval(one.price)}{sure}"
    answer = one.proven
    if one.remedies and not answer:
        answer = remedy_words(one.remedies[0])
    words = one.where.words(findings.folder)
    parts = filter(None, [words, answer])
    both = ": ".join(parts)
    yield shortened(f"    {both}", WIDTH)


def _interval(price: Price) -> str:
    value = units.duration(price.value_ns)
    return f"{value} {_limits(price)}"


def _limits(price: Price) -> str:
    low = units.duration(price.low_ns)
    high = units.duration(price.high_ns)
    return f"[{low}, {high}]"


def price_words(price: Price) -> str:
    """What it can save, with its interval."""
    value = units.duration(price.value_ns)
    share = percent(price.share)
    return f"at most {value} of a {price.per} {_limits(price)}, {share}"


def remedy_words(remedy: Remedy) -> str:
    """What to try."""
    words = [f"{name}={shlex.quote(value)}" for name, value in remedy.variables.items()]
    words += [shlex.quote(word) for word in remedy.arguments]
    if not words:
        return remedy.what
    return f"{remedy.what}: {' '.join(words)}"


def _head(findings: RunFindings) -> Iterator[str]:
    yield from filter(None, [findings.about])
    if findings.contention and findings.contention.is_busy:
        yield f"Recorded {findings.contention.sentence}: nothing here is certain."
    if not findings.found:
        yield NOTHING if findings.looked_at else UNJUDGED


def _finding(findings: RunFindings, number: int, one: Finding) -> Iterator[str]:
    yield from _wrapped(f"{number}  {one.title}")
    words = one.where.words(findings.folder)
    place = f" at {words}" if words else ""
    yield from _wrapped(f"{_INDENT}{one.rule}{place}")
    sure = "" if one.certainty == CERTAIN else f"; {one.certainty}"
    yield from _wrapped(f"{_INDENT}saves {price_words(one.price)}{sure}")
    if one.proven:
        yield from _wrapped(f"{_INDENT}{one.proven}")
    for note in one.notes:
        yield from _wrapped(f"{_INDENT}{note}")
    for remedy in one.remedies:
        yield from _wrapped(f"{_INDENT}try: {remedy_words(remedy)}")


def _looked_at(findings: RunFindings) -> Iterator[str]:
    for proof in findings.refuted:
        yield f"{proof.rule}: {proof.words} ({proof.change})."
    largest = sorted(findings.looked_at, key=lambda one: -one.share)
    seen = []
    for one in largest:
        if one.share > 0:
            seen.append(f"{one.rule} {percent(one.share)}")
    none = len(largest) - len(seen)
    if none:
        others = f"{none} other" if seen else f"{none}"
        seen.append(f"{others} {plural('rule', none)} found nothing")
    if seen:
        yield f"Looked at, too small or too uncertain to show: {', '.join(seen)}."


def _skipped(findings: RunFindings) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for rule, reason in findings.skipped.items():
        rules = reasons.setdefault(reason, [])
        rules.append(rule)
    for reason, rules in reasons.items():
        listed = ", ".join(rules)
        yield f"Not looked for, as {reason}: {listed}."


def _wrapped(line: str) -> Iterable[str]:
    """One line as wide as a terminal, the following ones indented."""
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=_INDENT, break_long_words=False, drop_whitespace=False
    )


def evidence(findings: RunFindings) -> str:
    """The question that shows each finding, and its answer."""
    lines = []
    for number, one in enumerate(findings.found, 1):
        lines += [*_finding(findings, number, one), ""]
        for shown in one.evidence:
            lines += [*_indented(textwrap.dedent("    " + shown.sql)), ""]
            lines += [*_indented(_answer(shown.rows.to_pylist())), ""]
    return "\n".join(lines or [NOTHING]) + "\n"


def _answer(rows: list[dict[str, object]]) -> str:
    """A few rows with their columns below each other."""
    if not rows:
        return "(no rows)"
    cells = [list(rows[0])]
    for row in rows:
        values = row.values()
        cells.append([cell(value) for value in values])
    columns = zip(*cells, strict=True)
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for texts in cells:
        pairs = zip(texts, widths, strict=True)
        line = "  ".join(text.ljust(width) for text, width in pairs)
        lines.append(line.rstrip())
    return "\n".join(lines)


def cell(value: object) -> str:
    """One value of an answer."""
    if value is None:
        return ""
    return f"{value:,.3f}" if isinstance(value, float) else f"{value}"


def _indented(block: str) -> Iterator[str]:
    for line in block.splitlines():
        yield f"{_INDENT}{line}".rstrip()
