"""The events of a snapshot's history by the compiled reader (native/tables/pickles.c), which knows
how they usually look. What it does not know `plain_pickle` reads, so both come to the same. Used by
`snapshot_records`.

The reader has a number for each entry of the pickle's memo: what a text means as a key or as an
action, and of a stack or a frame its line and how good that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from layerscope.model.compiled import Compiled
from layerscope.sources.plain_pickle import TAKEN

# In the order of the columns; the reader's number of the first one is 1.
KEYS = ("action", "addr", "size", "time_us", "frames", "device_free")
# As native/tables/tables.h has them.
OTHER, TEXT, _FIRST_ACTION, _FRESH_TEXT = 0, 7, 16, 256
_IS_STACK, _PLACE_SHIFT, _RANKS = 4, 3, 3
_ROWS = 1 << 13
_ENTRIES = 1 << 16
_NUMBER_OF_KEY = {key: number for number, key in enumerate(KEYS, 1)}


def number_of_text(text: str, actions: dict[str, int]) -> int:
    """The reader's number of a text in the memo; `actions`: the numbers of actions."""
    if text in actions:
        return _FIRST_ACTION + actions[text]
    return _NUMBER_OF_KEY.get(text, TEXT)


def number_of_place(line: int, rank: int, is_stack: bool) -> int:
    """The reader's number of a stack, or of a frame, with its line and how good that is."""
    return ~((line + 1) << _PLACE_SHIFT | is_stack * _IS_STACK | rank)


def line_and_rank(number: int) -> tuple[int, int]:
    """What `number_of_place` was given."""
    return (~number >> _PLACE_SHIFT) - 1, ~number & _RANKS


class QuickEvents:
    """Reads events on from a place in the pickle. `number_of`: that of an entry of the memo;
    `entry_of`: what stands in the memo for the number of a stack; `text_of`: for the bytes of a
    text.
    """

    def __init__(
        self,
        library: Compiled,
        number_of: Callable[[Any], int],
        entry_of: Callable[[int], Any],
        text_of: Callable[[bytes], str],
    ) -> None:
        self._library = library
        self._number_of = number_of
        self._entry_of = entry_of
        self._text_of = text_of
        self._numbers = np.zeros(_ENTRIES, np.int32)
        self._known = 0
        self._rows = np.zeros((_ROWS, len(KEYS)), np.int64)

    def read(self, data: bytes, at: int, memo: list[Any]) -> tuple[np.ndarray, int]:
        """The next events, a column for each of KEYS, and where they end. The memo gets what they
        put there.
        """
        self._learn(memo)
        octets = np.frombuffer(data, np.uint8)[at:]
        reached = np.array([0, self._known], np.int64)
        count = self._library.call(
            "events",
            octets,
            len(octets),
            self._numbers,
            len(self._numbers),
            self._rows,
            _ROWS,
            reached,
        )
        size, entries = reached.tolist()
        fresh = self._numbers[self._known : entries]
        memo += [self._entry_of(number) if number < 0 else TAKEN for number in fresh.tolist()]
        self._make_texts(data, at, memo, self._known + np.flatnonzero(fresh >= _FRESH_TEXT))
        self._known = entries
        return self._rows[:count].T.copy(), at + size

    def _make_texts(self, data: bytes, at: int, memo: list[Any], entries: np.ndarray) -> None:
        """These entries of the memo are texts that stand in the data, behind `at`."""
        behind = self._numbers[entries] - _FRESH_TEXT
        places, which = np.unique(behind, return_inverse=True)
        texts = self._texts_at(data, at + places)
        meanings = np.array([self._number_of(text) for text in texts], np.int32)
        self._numbers[entries] = meanings[which]
        placed = zip(entries.tolist(), which.tolist(), strict=True)
        for entry, number in placed:
            memo[entry] = texts[number]

    def _texts_at(self, data: bytes, places: np.ndarray) -> list[str]:
        """The texts that stand in these places; equal ones are one object."""
        octets = [_short_text(data, place) for place in places.tolist()]
        made = {one: self._text_of(one) for one in set(octets)}
        return [made[one] for one in octets]

    def _learn(self, memo: list[Any]) -> None:
        """The numbers of what came into the memo, and room for what events put there."""
        fresh = list(map(self._number_of, memo[self._known :]))
        room = len(memo) + len(KEYS) * _ROWS
        if room > len(self._numbers):
            self._numbers = np.append(self._numbers, np.zeros(room, np.int32))
        self._numbers[self._known : len(memo)] = fresh
        self._known = len(memo)


def _short_text(data: bytes, at: int) -> bytes:
    """What stands behind a code and a length."""
    length = data[at + 1]
    start = at + 2
    return data[start : start + length]
