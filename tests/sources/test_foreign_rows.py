"""Columns of a file of others as rows of spans, compiled and with NumPy; what formats look at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layerscope import sources
from layerscope.model.distinct import first_rows, with_places
from layerscope.sources import foreign_spans, kineto, span_depths
from layerscope.sources.foreign import ForeignFile
from layerscope.sources.process import SPAN
from layerscope.sources.span_depths import depths
from layerscope.sources.text_chunks import with_short_lines
from tests.stress.mutating import bounded

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "gpu"


def spans(path: Path) -> list[tuple[object, ...]]:
    """The rows of all processes of a trace, as they are given out."""
    (process,) = ForeignFile(kineto.read(path)).new_processes()
    rows = []
    for _ in process.pieces():
        for _, batch in process.events.batches():
            rows += batch[[*SPAN.names]].tolist()
    return rows


@pytest.mark.parametrize("name", ["kineto_steps", "kineto_stacks", "kineto_graphs"])
def test_spans_are_the_same_without_a_compiler(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = GOLDEN / f"{name}.json.gz"
    compiled = spans(path)
    assert len(compiled) > 40
    for module in (foreign_spans, span_depths):
        monkeypatch.setattr(module, "compiled", lambda: None)
    assert spans(path) == compiled


def test_depths_are_the_same_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(3)
    found = []
    for is_compiled in (True, False):
        if not is_compiled:
            monkeypatch.setattr(span_depths, "compiled", lambda: None)
        chance = np.random.default_rng(3)
        for length in (1, 5, 30):  # short ones nest or are empty, long ones cross
            track = np.sort(chance.integers(0, 3, 200))
            start = chance.integers(0, 300, 200)
            end = start + chance.integers(0, length, 200)
            order = np.lexsort((-end, start, track))
            columns = (values[order] for values in (track, start, end))
            found.append(depths(*columns).tolist())
    assert found[:3] == found[3:]


def test_different_values_are_those_of_numpy() -> None:
    values = np.random.default_rng(1).integers(-5, 5, 200)
    different, place = np.unique(values, return_inverse=True)
    found, places = with_places(values)
    assert (found.tolist(), places.tolist()) == (different.tolist(), place.tolist())
    _, first = np.unique(values, return_index=True)
    assert first_rows(values).tolist() == first.tolist()
    nothing = np.zeros(0, np.int64)
    assert [len(part) for part in (*with_places(nothing), first_rows(nothing))] == [0, 0, 0]


def test_a_very_long_line_is_looked_at_in_part() -> None:
    assert (
        with_short_lines(b"\na" + b"b" * 5000 + b"\n\n\n\nc\n") == b"a" + b"b" * 4095 + b"\n\nc\n"
    )


@pytest.mark.parametrize("long", [b" ", b"9", b"\n", b"\t"])
def test_what_a_file_with_an_endless_line_is_becomes_known(long: bytes) -> None:
    with bounded():  # the pattern of perf script tried all pairs of places, for hours
        assert sources.format_of(b"stress 7/7 [001] 17: " + long * (1 << 20)) is None
