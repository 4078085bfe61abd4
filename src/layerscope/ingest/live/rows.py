"""The rows of tables of a recording that grows, by what they are called."""

from __future__ import annotations

from msgspec import Struct, field


class RowNumbers(Struct):
    """Numbers that are given out in the order in which labels are first seen; `labels` grows."""

    labels: list[tuple[str, ...]]
    _known: dict[tuple[str, ...], int] = field(default_factory=dict)

    def of(self, *label: str) -> int:
        """The number of the row with these texts, which becomes known if it is not."""
        found = self._known.setdefault(label, len(self.labels))
        if found == len(self.labels):
            self.labels.append(label)
        return found
