"""Folded stacks, as `stackcollapse-*.pl` and many profilers write them: one distinct stack a line, with a number.

    outermost;inner;innermost 12

The number has no unit: it is taken for ns. Endings of names tell where a function is (`_[k]` kernel, `_[j]` made while
the program ran, `_[i]` inlined), and `name (file.py:12)` is a line of Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layerscope.collect.formats.stack_tree import JIT, Frames, StackTree
from layerscope.collect.formats.text_chunks import chunks, lines_of, taken, unpacked
from layerscope.collect.imported import Imported, ImportedProcess, ImportedStacks, ImportedTrack
from layerscope.model.events import Problem
from layerscope.model.layers import SAMPLE_KINDS, SAMPLE_STATES, STACKS

MEANING = "folded stacks"
_LINE = re.compile(rb"^(\S.*?)\s+(\d{1,18})(?:\.\d*)?\s*$")
_NUMBER = r"^\d{1,18}(?:\.\d*)?$"
_LIKE = re.compile(rb"^\S[^\t]*? \d+(?:\.\d*)?[ ]*$")
_COMMENT = re.compile(rb"^\s*(#.*|//.*)?$")
_SOURCE = re.compile(r"^(.*) \(([^()]+\.pyx?):(\d+)\)$")
_HEAD_LINES = 1000
_CPU, _USER = SAMPLE_KINDS.index("cpu"), SAMPLE_STATES.index("user")
_SPACE, _SEMICOLON = ord(" "), ord(";")


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is folded stacks: two lines of three at least."""
    text = unpacked(head)
    lines = text.split(b"\n", _HEAD_LINES)
    lines = [line for line in (lines[:-1] if len(lines) > 1 else lines) if not _COMMENT.match(line)][:_HEAD_LINES]
    good = [line for line in lines if _LIKE.match(line)]
    has_stack = any(b";" in line for line in good) and b"_verbose," not in text and b"\0" not in text
    return has_stack and len(good) * 3 >= len(lines) * 2


def read(path: Path) -> Imported:
    """The stacks in the text `path`, which may be packed with gzip. ReadError when it cannot be read."""
    stacks = _Folded()
    for chunk, _ in chunks(path):
        stacks.add(chunk)
    return stacks.imported(path.name)


@dataclass(slots=True)
class _Folded:
    """What was read so far. `weight` by stack."""

    frames: Frames = field(default_factory=Frames)
    tree: StackTree = field(default_factory=StackTree)
    weight: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    rejected: int = 0
    example: str = ""
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def add(self, chunk: bytes) -> None:
        """Take in whole lines."""
        octets = np.frombuffer(chunk, np.uint8)
        start, stop = lines_of(octets)
        blank = np.append(-1, np.flatnonzero(octets == _SPACE))
        behind = blank[np.searchsorted(blank, stop) - 1]  # the last blank of each line
        number = taken(chunk, np.maximum(behind + 1, start), stop)
        good = (behind > start) & pc.match_substring_regex(number, _NUMBER).to_numpy(zero_copy_only=False)
        for line in np.flatnonzero(~good).tolist():
            self._add_other(chunk[start[line] : stop[line]])
        if good.any():
            digits = pc.replace_substring_regex(number.filter(pa.array(good)), r"\..*", "")
            weight = digits.cast(pa.string()).cast(pa.int64()).to_numpy()
            self._add_stacks(chunk, start[good], behind[good], weight)

    def _add_other(self, line: bytes) -> None:
        """Take in a line that has something behind its number, or none."""
        told = None if _COMMENT.match(line) else _LINE.match(line)
        if told:
            stack = told[1]
            self._add_stacks(stack, np.array([0]), np.array([len(stack)]), np.array([int(told[2])]))
        elif not _COMMENT.match(line):
            self.rejected += 1
            self.example = self.example or line.decode("utf-8", "replace")

    def _add_stacks(self, chunk: bytes, start: np.ndarray, stop: np.ndarray, weight: np.ndarray) -> None:
        """Take in the stacks between these places, which ascend."""
        between = np.flatnonzero(np.frombuffer(chunk, np.uint8) == _SEMICOLON)
        line = np.searchsorted(start, between, side="right") - 1
        between = between[(line >= 0) & (between < stop[line])]
        # Names begin where stacks do and behind each semicolon, and end before it and where stacks do.
        begins, ends = np.sort(np.append(start, between + 1)), np.sort(np.append(between, stop))
        names = taken(chunk, begins, ends).dictionary_encode()
        known = np.array([self._number(name) for name in names.dictionary.to_pylist()], np.int64)
        first = np.searchsorted(begins, start)
        length = np.diff(np.append(first, len(begins)))
        stack = self.tree.add(known[names.indices.to_numpy()], first, length)
        if self.tree.count > len(self.weight):
            self.weight = np.append(self.weight, np.zeros(max(self.tree.count, 1 << 16), np.int64))
        np.add.at(self.weight, stack, weight)

    def _number(self, text: bytes) -> int:
        """The number of the frame that is called so."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = self._frame(text.decode("utf-8", "replace"))
        return found

    def _frame(self, name: str) -> int:
        if name.endswith("_[k]"):
            return self.frames.add("kernel", name[:-4])
        if name.endswith("_[j]"):
            return self.frames.add("native", name[:-4], object=JIT)
        if name.endswith("_[i]"):
            return self.frames.add("native", name[:-4])
        source = _SOURCE.match(name)
        if source:
            return self.frames.add("python", source[1], file=source[2], line=int(source[3][:9]))
        return self.frames.add("kernel" if name == "[kernel]" else "native", name)

    def imported(self, name: str) -> Imported:
        """Everything that was read, as a sample for each stack."""
        stack = np.flatnonzero(self.weight)
        count = len(stack)
        samples = {
            "at_ns": np.zeros(count, np.int64), "track": np.zeros(count, np.int64), "stack": stack,
            "weight_ns": self.weight[stack], "count": np.ones(count, np.int64), "kind": np.full(count, _CPU, np.int8),
            "state": np.full(count, _USER, np.int8), "idle": np.zeros(count, np.bool_),
            "exact": np.zeros(count, np.bool_), "waker": np.full(count, -1, np.int64),
        }  # fmt: skip
        problems = [
            Problem(
                STACKS, "no_unit", "folded stacks say neither what they count nor when: their numbers are taken for ns",
                "compare shares", "times",
            )
        ]  # fmt: skip
        if self.rejected:
            lines = "1 line is" if self.rejected == 1 else f"{self.rejected:,} lines are"
            what = f"{lines} no stack with a number, first: {self.example[:200]}"
            problems.append(Problem(STACKS, "lines_rejected", what, "look whether the text was cut", "these lines"))
        return Imported(
            tracks=[ImportedTrack(0, name)], processes=[ImportedProcess(name)], problems=problems,
            stacks=ImportedStacks(self.frames.columns, self.tree.columns(), samples),
        )  # fmt: skip
