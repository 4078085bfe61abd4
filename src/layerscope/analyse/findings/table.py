"""Findings as a table, for machines, and their evidence as another."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.findings import RunFindings
from layerscope.analyse.findings.finding import Evidence, Finding
from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn, of_rows
from layerscope.model.events import Problem

COLUMNS = (
    ResultColumn("number", "int64", COUNT, "its place: the largest lower end of a price first"),
    ResultColumn("rule", "string", "", "what the program has"),
    ResultColumn("title", "string", "", "the same in one sentence"),
    ResultColumn("where", "string", "", "line, operator, module or thread; empty: not one place"),
    ResultColumn("price_ns", "int64", NS, "the most that removing it can save"),
    ResultColumn("low_ns", "int64", NS, "the price lies with 95 % between this"),
    ResultColumn("high_ns", "int64", NS, "and this"),
    ResultColumn("share", "float64", SHARE, "price_ns as a fraction of the step, or of the run"),
    ResultColumn("per", "string", "", "what the price is of: step or run"),
    ResultColumn("certainty", "string", "", "certain, likely or low"),
    ResultColumn("proven", "string", "", "what --prove measured; empty: not tried"),
    ResultColumn("remedy", "string", "", "what to try first"),
)
EVIDENCE_COLUMNS = (
    ResultColumn("number", "int64", COUNT, "the finding"),
    ResultColumn("rule", "string", "", "its rule"),
    ResultColumn("row", "int64", COUNT, "row of the answer, from 1"),
    ResultColumn("column", "string", "", "column of the answer, its unit at the end of its name"),
    ResultColumn("value", "string", "", "what stands there"),
)
EMPTY = "Nothing worth changing here."
NOT_JUDGED = "not_judged"


def result(findings: RunFindings, origin_ns: int) -> Result:
    """One row for each finding; what the rules could not judge is a problem beside them."""
    rows = [_row(findings, number, one) for number, one in enumerate(findings.found, 1)]
    notes = tuple(filter(None, (findings.about, *_looked_at(findings))))
    return of_rows(
        "findings",
        COLUMNS,
        rows,
        notes=notes,
        problems=(*findings.problems, *_skipped(findings)),
        origin_ns=origin_ns,
        empty=EMPTY,
    )


def evidence(findings: RunFindings, origin_ns: int) -> Result:
    """The answers that show the findings, one row for each value."""
    rows: list[tuple[object, ...]] = []
    for number, one in enumerate(findings.found, 1):
        for shown in one.evidence:
            rows += _values(number, one.rule, shown)
    return of_rows("evidence", EVIDENCE_COLUMNS, rows, origin_ns=origin_ns, empty=EMPTY)


def _values(number: int, rule: str, shown: Evidence) -> Iterator[tuple[object, ...]]:
    """Every value of an answer, as text."""
    answer = shown.rows.to_pylist()
    for place, row in enumerate(answer, 1):
        for name, value in row.items():
            text = "" if value is None else str(value)
            yield number, rule, place, name, text


def _row(findings: RunFindings, number: int, one: Finding) -> tuple[object, ...]:
    price = one.price
    return (
        number,
        one.rule,
        one.title,
        one.where.words(findings.folder),
        round(price.value_ns),
        round(price.low_ns),
        round(price.high_ns),
        price.share,
        price.per,
        one.certainty,
        one.proven,
        one.remedies[0].what if one.remedies else "",
    )


def _looked_at(findings: RunFindings) -> list[str]:
    """What was refuted, and what is too little, with the largest share of each."""
    notes = []
    for proof in findings.refuted:
        notes.append(f"{proof.rule}: {proof.words} ({proof.change})")
    for one in findings.looked_at:
        notes.append(f"{one.rule}: {one.share:.1%} of a step at most")
    return notes


def _skipped(findings: RunFindings) -> list[Problem]:
    """The rules that could not judge."""
    return [
        Problem("findings", NOT_JUDGED, f"{rule} was not looked for: {reason}", "", rule)
        for rule, reason in findings.skipped.items()
    ]
