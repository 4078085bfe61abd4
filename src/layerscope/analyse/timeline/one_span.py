"""Everything of one span: what it lies in, what lies below it, all of its name (web/src/timeline/
one_span.ts has the definitions).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from layerscope.analyse.timeline.columns import TimelineColumns
from layerscope.analyse.timeline.links import Link, SpanLinks
from layerscope.analyse.timeline.selection import SelectedGroup, SpanFilter, chunks, statistics

# How many of each list the page shows.
MOST, MOST_AROUND, MOST_LINKS = 12, 40, 200
_PRIMITIVES = "primitives"
_ASKED_FOR = "operator_primitive"


class OneSpan(NamedTuple):
    """A span as the page has it; `step`: 1 + the step. `lane`, `place`: where it is drawn, and then
    where with its layers apart, if anybody has asked for that.
    """

    row: int
    track: int
    start: int
    dur: int
    self_ns: int
    cls: int
    depth: int
    step: int
    parent: int
    lane: int
    place: int
    lane_apart: int
    place_apart: int


class NameSum(NamedTuple):
    """Spans of one name and layer: a class that has them, how many, how long, and the first."""

    cls: int
    spans: int
    total_ns: int
    first: OneSpan


class Story(NamedTuple):
    """All of one span. Lists are as long as the page shows them, with how many there are."""

    span: OneSpan
    phase: int
    weight: int
    args: int
    around: list[OneSpan]
    around_count: int
    below: list[NameSum]
    below_count: int
    primitives: list[tuple[OneSpan, int]]
    primitive_count: int
    links: list[tuple[str, bool, OneSpan]]
    partners: list[tuple[str, bool, OneSpan]]
    partner_count: int
    same: SelectedGroup
    same_place: int


class SpanTeller:
    """Tells of single spans."""

    def __init__(
        self,
        columns: TimelineColumns,
        links: SpanLinks,
    ) -> None:
        self._columns = columns
        self._links = links
        self._phase, self._args, self._weight = map(columns.column, ("phase", "args", "weight"))
        layers = columns.about["layers"]
        self._primitives = layers.index(_PRIMITIVES) if _PRIMITIVES in layers else -1

    def one(self, row: int) -> OneSpan:
        """A span."""
        of = self._columns
        track = of.track_of(row)
        lane, place = of.lanes.place(row, track)
        lane_apart, place_apart = -1, -1
        if of.apart is not None:
            lane_apart, place_apart = of.apart.place(row, track)
        times = int(of.start[row]), int(of.dur[row]), int(of.self_ns[row])
        cls, depth, step, parent = (
            int(column[row]) for column in (of.cls, of.depth, of.step, of.parent)
        )
        places = lane, place, lane_apart, place_apart
        return OneSpan(row, track, *times, cls, depth, step, parent, *places)

    def story(self, row: int) -> Story:
        """Everything of a span."""
        links = self._links.of(row)
        around = self._around(row)
        children = self._children(row)
        is_primitive = self._columns.classes[self._columns.cls[children], 2] == self._primitives
        below, below_count = self._by_name(children[~is_primitive])
        asked_for = [link.to_row for link in links if _is_asked_for(link, row)]
        primitives = list(dict.fromkeys([*children[is_primitive].tolist(), *asked_for]))
        partners = [link for link in links if not _is_asked_for(link, row)]
        same, place = self._same(row)
        return Story(
            self.one(row),
            int(self._phase[row]),
            int(self._weight[row]),
            int(self._args[row]),
            [self.one(above) for above in around[-MOST_AROUND:]],
            len(around),
            below,
            below_count,
            [(self.one(own), int(self._args[own])) for own in primitives[:MOST]],
            len(primitives),
            self._partners(row, links[:MOST_LINKS]),
            self._partners(row, partners[:MOST]),
            len(partners),
            same,
            place,
        )

    def _partners(
        self,
        row: int,
        links: Iterable[Link],
    ) -> list[tuple[str, bool, OneSpan]]:
        """Of each link its kind, whether it begins at the span, and where it leads."""
        found = []
        for from_row, to_row, kind in links:
            is_from = from_row == row
            found.append((kind, is_from, self.one(to_row if is_from else from_row)))
        return found

    def _around(
        self,
        row: int,
    ) -> list[int]:
        """The spans around one, the outermost first."""
        found = []
        above = int(self._columns.parent[row])
        while above >= 0:
            found.append(above)
            above = int(self._columns.parent[above])
        return found[::-1]

    def _children(self, row: int) -> np.ndarray:
        """The spans directly below one."""
        of = self._columns
        _, last = of.range(of.track_of(row))
        end_ns = int(of.start[row]) + int(of.dur[row])
        behind = of.start[row + 1 : last]
        limit = row + 1 + int(np.searchsorted(behind, end_ns, "right"))
        found = [np.zeros(0, np.int64)]
        for part in chunks(row + 1, limit):
            inside = np.flatnonzero(of.parent[part] == row)
            found.append(inside + part.start)
        return np.concatenate(found)

    def _by_name(self, rows: np.ndarray) -> tuple[list[NameSum], int]:
        """The first of the spans by name and layer, most time first, and how many names are
        there.
        """
        of = self._columns
        sums: dict[tuple[int, int], list[int]] = {}
        cls, firsts, where = np.unique(
            of.cls[rows],
            return_index=True,
            return_inverse=True,
        )
        counts = np.bincount(where, minlength=len(cls))
        totals = np.zeros(len(cls), np.int64)
        np.add.at(totals, where, of.dur[rows].astype(np.int64))
        for place in np.argsort(firsts).tolist():
            name, _, layer = of.classes[cls[place], :3].tolist()
            new = [int(cls[place]), 0, 0, int(rows[firsts[place]])]
            known = sums.setdefault((name, layer), new)
            known[1] += int(counts[place])
            known[2] += int(totals[place])
        ordered = sorted(sums.values(), key=lambda one: -one[2])
        return self._name_sums(ordered[:MOST]), len(ordered)

    def _name_sums(
        self,
        sums: list[list[int]],
    ) -> list[NameSum]:
        found = []
        for cls, count, total_ns, first in sums:
            found.append(NameSum(cls, count, total_ns, self.one(first)))
        return found

    def _same(
        self,
        row: int,
    ) -> tuple[SelectedGroup, int]:
        """All spans of the same name and layer, and the place of this one among them."""
        of = self._columns
        kept = self.same_filter(row)
        [group] = statistics(of, kept, None, None, "name")
        before = 0
        for part in chunks(0, row + 1):
            before += int(np.count_nonzero(kept.keeps(of, part)))
        return group, before

    def same_filter(self, row: int) -> SpanFilter:
        """What keeps the spans of the same name and layer."""
        classes = self._columns.classes
        own = classes[self._columns.cls[row]]
        is_same = (classes[:, 0] == own[0]) & (classes[:, 2] == own[2])
        return SpanFilter(is_same.astype(np.uint8))


def _is_asked_for(
    link: Link,
    row: int,
) -> bool:
    """Whether it leads to a primitive of the span, which have their own list."""
    return link.kind == _ASKED_FOR and link.from_row == row
