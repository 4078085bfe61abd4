"""What findings read of spans in one pass is what a question to all spans answers, whoever makes
the pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse.findings import found_once
from layerscope.analyse.findings.workload import Workload
from layerscope.analyse.summary import summarise
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from tests.findings.slow_loader import slow_loader
from tests.replayed import replay

TOTALS = "SELECT * FROM operator_totals ORDER BY ALL"
TOTALS_OF_SPANS = """
    SELECT kind, name, module, phase, count(*) AS count, sum(self_ns)::BIGINT AS self_ns,
        sum(dur_ns)::BIGINT AS dur_ns
    FROM step_spans GROUP BY ALL ORDER BY ALL"""
OPTIMIZERS = """
    SELECT step, track, start_ns, dur_ns, self_ns, name, module, phase FROM {view}
    WHERE kind = 'optimizer' ORDER BY ALL"""
PRIMITIVES = """
    SELECT span, operator_span, operator, operator_ns, kind, start_ns, dur_ns
    FROM step_primitives ORDER BY span"""
PRIMITIVES_OF_SPANS = """
    SELECT spans.span, above.span AS operator_span, above.name AS operator,
        above.dur_ns AS operator_ns, spans.kind, spans.start_ns, spans.dur_ns
    FROM primitives JOIN spans USING (span) LEFT JOIN spans above ON above.span = operator
    WHERE spans.step IN (SELECT step FROM measured_steps) ORDER BY spans.span"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return replay("train", tmp_path_factory.mktemp("trained")).run


@pytest.mark.parametrize(
    ("of_the_pass", "of_all_spans"),
    [
        (TOTALS, TOTALS_OF_SPANS),
        (OPTIMIZERS.format(view="step_optimizers"), OPTIMIZERS.format(view="step_spans")),
        (PRIMITIVES, PRIMITIVES_OF_SPANS),
    ],
)
def test_the_pass_has_what_all_spans_have(
    trained: Run, of_the_pass: str, of_all_spans: str
) -> None:
    with Reader(trained) as reader:
        workload = Workload(reader)

        found = workload.rows(of_the_pass)

        assert found == workload.rows(of_all_spans)
        assert found


def test_the_pass_of_the_summary_finds_the_same_and_is_the_only_one(trained: Run) -> None:
    with Reader(trained) as reader:
        alone = found_once(reader)
    with Reader(trained) as reader:
        passes = count_passes(reader)
        together = summarise(reader).findings

    assert together is not None
    assert (together.found, together.looked_at) == (alone.found, alone.looked_at)
    assert together.problems == []
    assert passes.count("self_ns") == 1


def test_steps_that_were_thinned_away_are_not_in_the_sums(tmp_path: Path) -> None:
    made = slow_loader([10] * 24)
    for row in made.rows["steps"]:
        row["weight"] = 2 if row["step"] % 2 == 0 else 0
    with Reader(made.write(tmp_path / "made.layerscope")) as reader:
        (row,) = Workload(reader).rows("SELECT sum(count)::BIGINT AS loads FROM span_sums")

    assert row["loads"] == 12


def count_passes(reader: Reader) -> list[str]:
    """The columns that are read of all spans, each as often as it is read."""
    passes: list[str] = []
    pieces = reader.pieces

    def counted(table: str, columns: list[str], *others: Any, **more: Any) -> Any:
        passes.extend(columns if table == "spans" else [])
        return pieces(table, columns, *others, **more)

    reader.pieces = counted  # type: ignore[method-assign]
    return passes
