"""The time of work on GPUs by operator, however the spans are divided into pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyse.gpu.of_operators import gpu_times

LAYERS = np.array(["operators", "gpu", "ranges"], object)
KINDS = np.array(["function", "operator_gpu"], object)
NAMES = np.array(["aten::mm", "aten::linear", "block"], object)


class Spans:
    """What `gpu_times` asks a reader for. A parent comes before what lies in it, or behind it."""

    def __init__(self, rows: list[tuple[int, int, int, int]], sizes: list[int]) -> None:
        """By span: its parent or -1, its layer, its name, and how long it took."""
        self.rows = rows
        self.sizes = sizes
        of_work = [number for number, (_, layer, _, _) in enumerate(rows) if layer == 1]
        # Work is asked for by the span before it.
        self.links = [(number - 1, number) for number in of_work if number]

    def arrays(self, table: str, columns: list[str]) -> dict[str, np.ndarray]:
        pairs = np.array(self.links, np.int64).reshape(-1, 2)
        kind = np.ones(len(pairs), np.int32)
        return {"from_span": pairs[:, 0], "to_span": pairs[:, 1], "kind": kind, "kind.names": KINDS}

    def pieces(
        self, table: str, columns: list[str], newest_first: bool = False
    ) -> Iterator[dict[str, np.ndarray]]:
        numbers = np.arange(len(self.rows))
        parts = [part for part in np.split(numbers, np.cumsum(self.sizes)) if len(part)]
        for part in reversed(parts) if newest_first else parts:
            parent, layer, name, dur_ns = np.array([self.rows[at] for at in part], np.int64).T
            yield {
                "span": part,
                "parent": parent,
                "layer": layer,
                "layer.names": LAYERS,
                "kind": np.zeros(len(part), np.int32),
                "kind.names": KINDS,
                "name": name,
                "name.names": NAMES,
                "dur_ns": dur_ns,
            }

    def expected(self) -> dict[str, int]:
        """The same, one piece of work after the other."""
        found: Counter[str] = Counter()
        for at, work in self.links:
            while at >= 0:
                parent, layer, name, _ = self.rows[at]
                if LAYERS[layer] == "operators":
                    found[NAMES[name]] += self.rows[work][3]
                at = parent
        return {name: dur_ns for name, dur_ns in found.items() if dur_ns}


@st.composite
def spans(draw: st.DrawFn) -> Spans:
    count = draw(st.integers(1, 12))
    order = draw(st.permutations(range(count)))
    rows: list[Any] = [None] * count
    for place, number in enumerate(order):
        parent = draw(st.sampled_from([-1, *order[:place]]))
        rows[number] = (parent, draw(st.integers(0, 2)), draw(st.integers(0, 2)), number + 1)
    return Spans(rows, draw(st.lists(st.integers(0, 4), max_size=5)))


@given(spans())
def test_work_counts_for_all_operators_around_the_one_that_asked_for_it(made: Spans) -> None:
    found = gpu_times(made)  # type: ignore[arg-type]
    rows = [] if found is None else found.to_pylist()
    assert {row["called"]: row["gpu_ns"] for row in rows} == made.expected()
