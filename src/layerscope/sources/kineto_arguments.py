"""Arguments of spans of Kineto as texts of JSON, each once. Used by `kineto_spans`."""

from __future__ import annotations

import numpy as np

from layerscope.model.distinct import distinct
from layerscope.sources.kineto_meaning import operator_arguments

_UNFINISHED = '"finished"'


class Arguments:
    """`texts`: those that are asked for by `numbers`. `known`: the arguments of all events."""

    def __init__(self, known: list[str]) -> None:
        """None is asked for so far."""
        self.texts: list[str] = []
        self._known = known
        self._place_of: dict[str, int] = {}

    def are_unfinished(self, codes: np.ndarray) -> np.ndarray:
        """Whether these arguments say that the span did not end."""
        told = []
        for code, text in enumerate(self._known):
            _, is_there, behind = text.partition(_UNFINISHED)
            value = behind[:10]
            if is_there and "false" in value:
                told.append(code)
        if not told:
            return np.zeros(len(codes), np.bool_)
        return np.isin(codes, told)

    def numbers(self, codes: np.ndarray, *of_operators: np.ndarray) -> np.ndarray:
        """The place of each span's arguments among `texts`, -1: none. `of_operators`: whether each
        is an operator, whose inputs are told as layer `operators` has them.
        """
        is_operator = np.any(of_operators, axis=0)
        found = np.full(len(codes), -1, np.int32)
        for rows in (np.flatnonzero(is_operator), np.flatnonzero(~is_operator)):
            place = np.full(len(self._known) + 1, -1, np.int32)  # the last entry is for -1
            used = distinct(codes[rows])
            for code in used[used >= 0].tolist():
                text = self._known[code]
                if len(rows) and is_operator[rows[0]]:
                    text = operator_arguments(text)
                place[code] = self._place(text)
            found[rows] = place[codes[rows]]
        return found

    def _place(self, text: str) -> int:
        """Its place among the texts, which may grow."""
        fresh = len(self.texts)
        place = self._place_of.setdefault(text, fresh)
        if place == len(self.texts):
            self.texts.append(text)
        return place
