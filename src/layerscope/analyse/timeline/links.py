"""Links between spans by their rows, both ways: in the order of where they begin, and of where they
lead.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from layerscope.analyse.ordered_spans import OrderedSpans
from layerscope.analyse.timeline.mapped import MappedFiles
from layerscope.recording.reader import Reader

_KINDS = "link_kinds.json"
# The columns of what `write_asked` writes.
ASKED = ("asked_primitive", "asked_operator")
# Keys up to so many times the number of spans stand in a table of all of them.
_SPARSE = 4


class Link(NamedTuple):
    """From one row to another, and of which kind."""

    from_row: int
    to_row: int
    kind: str


def write_links(reader: Reader, spans: OrderedSpans, folder: Path) -> None:
    """Write the links of `reader`'s recording into `folder`."""
    read = reader.arrays("links", ["from_span", "to_span", "kind"])
    found = [np.zeros(0, np.int32)] * 2
    if len(read["kind"]):
        keys = spans.column("span")
        found = [_rows_of(read[name], keys) for name in ("from_span", "to_span")]
    is_known = (found[0] >= 0) & (found[1] >= 0)
    from_row, to_row, kind = (values[is_known] for values in (*found, read["kind"]))
    order = np.lexsort((to_row, from_row))
    from_row, to_row = from_row[order], to_row[order]
    by_to = np.argsort(to_row, kind="stable")
    columns = {
        "link_from": from_row.astype(np.int32),
        "link_to": to_row.astype(np.int32),
        "link_kind": kind[order].astype(np.int32),
        "link_by_to": by_to.astype(np.int32),
        "link_to_sorted": to_row[by_to].astype(np.int32),
    }
    for name, values in columns.items():
        np.save(folder / f"{name}.npy", values, allow_pickle=False)
    (folder / _KINDS).write_bytes(msgspec.json.encode(read["kind.names"].tolist()))


def _rows_of(wanted: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The row of each of the spans that are `wanted`; -1: it is not there."""
    if not len(keys):
        return np.full(len(wanted), -1)
    least, most = int(keys.min()), int(keys.max())
    if least < 0 or most > _SPARSE * len(keys):
        return _rows_of_sparse(wanted, keys)
    row_of = np.full(most + 2, -1, np.int32)
    row_of[keys] = np.arange(len(keys), dtype=np.int32)
    is_unknown = (wanted < 0) | (wanted > most)
    return np.asarray(row_of[np.where(is_unknown, most + 1, wanted)])


def _rows_of_sparse(wanted: np.ndarray, keys: np.ndarray) -> np.ndarray:
    rows = np.argsort(keys, kind="stable")
    ordered = keys[rows]
    found = np.searchsorted(ordered, wanted)
    at = np.minimum(found, len(rows) - 1)
    return np.where(ordered[at] == wanted, rows[at], -1)


def write_asked(reader: Reader, spans: OrderedSpans, folder: Path) -> None:
    """Write which primitive was asked for by which operator, in the order of the operators."""
    read = reader.arrays("primitives", ["span", "operator"])
    found = [np.zeros(0, np.int64)] * 2
    if len(read["span"]):
        keys = spans.column("span")
        found = [_rows_of(read[name], keys) for name in ("span", "operator")]
    is_known = (found[0] >= 0) & (found[1] >= 0)
    order = np.argsort(found[1][is_known], kind="stable")
    for name, rows in zip(ASKED, found, strict=True):
        values = rows[is_known][order].astype(np.int32)
        np.save(folder / f"{name}.npy", values, allow_pickle=False)


class SpanLinks:
    """The links that `write_links` has put into a folder."""

    def __init__(self, files: MappedFiles) -> None:
        names = ("link_from", "link_to", "link_kind", "link_by_to", "link_to_sorted")
        self._from, self._to, self._kind, self._by_to, self._to_sorted = (
            files.opened(name, is_searched=True) for name in names
        )
        self._kinds: list[str] = msgspec.json.decode((files.folder / _KINDS).read_bytes())

    def of(self, row: int) -> list[Link]:
        """All links of a span: first those that begin at it."""
        ends = [row, row + 1]
        first, last = np.searchsorted(self._from, ends).tolist()
        begin, end = np.searchsorted(self._to_sorted, ends).tolist()
        leading_here = self._by_to[begin:end].tolist()
        places = [*range(first, last), *leading_here]
        return [self._link(place) for place in places]

    def _link(
        self,
        place: int,
    ) -> Link:
        number = int(self._kind[place])
        from_row = int(self._from[place])
        to_row = int(self._to[place])
        return Link(from_row, to_row, self._kinds[number])
