"""What costs the program time, what removing it can save at most, and what shows it."""

from __future__ import annotations

from typing import Any

from layerscope.analyse import findings
from layerscope.analyse.findings import RunFindings
from layerscope.analyse.findings.finding import Evidence, Finding
from layerscope.recording.reader import Reader
from layerscope.show import findings_text

TITLE = "Findings"
ORDER = 15


def data(reader: Reader) -> dict[str, Any]:
    """All of `layerscope findings`."""
    found = findings.found_once(reader)
    return {
        "found": [_finding(found, one) for one in found.found],
        "notes": findings_text.notes(found),
    }


def _finding(every: RunFindings, one: Finding) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "title": one.title,
        "where": one.where.words(every.folder),
        "line": one.where.line,
        "price": findings_text.price_words(one.price),
        "share": one.price.share,
        "certainty": one.certainty,
        "proven": one.proven,
        "notes": list(one.notes),
        "remedies": [findings_text.remedy_words(remedy) for remedy in one.remedies],
        "evidence": [_evidence(shown) for shown in one.evidence],
    }


def _evidence(shown: Evidence) -> dict[str, Any]:
    rows = []
    for row in shown.rows.to_pylist():
        values = row.values()
        rows.append([findings_text.cell(value) for value in values])
    return {
        "sql": shown.sql,
        "columns": shown.rows.schema.names,
        "rows": rows,
    }
