"""Folded stacks, as `stackcollapse-*.pl` and many profilers write them: one distinct stack a line,
with a number.

    outermost;inner;innermost 12

The number has no unit: it is taken for ns, times a power of ten where there are fractions. Of two
numbers, as a comparison has them, the last one is taken. Endings of names tell where a function is
(`_[k]` kernel, `_[j]` made while the program ran, `_[i]` inlined), and `name (file.py:12)` is a
line of Python.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from layerscope.model.events import Problem
from layerscope.model.layers import SAMPLE_KINDS, SAMPLE_STATES, STACKS
from layerscope.sources.imported import Imported, ImportedProcess, ImportedStacks, ImportedTrack
from layerscope.sources.stack_tree import JIT, FrameColumns, StackTree
from layerscope.sources.text_chunks import chunks, lines_of, taken, unpacked

MEANING = "folded stacks"
_LINE = re.compile(rb"^(\S.*?)\s+(\d{1,18}(?:\.\d*)?)\s*$")
_NUMBER = r"^\d{1,18}(?:\.\d*)?$"
_COUNT = re.compile(rb"\d+(?:\.\d*)?")
_COMMENT = re.compile(rb"^\s*(#.*|//.*)?$")
_SOURCE = re.compile(r"^(.*) \(([^()]+\.pyx?):(\d+)\)$")
_HEAD_LINES = 1000
# Up to a number's blank: as many digits as fit, and as many behind the point as any tool writes.
_NUMBER_LETTERS = 48
# All numbers together stay below this, and have so many digits behind the point at most.
_MOST, _MOST_DIGITS = float(1 << 62), 9
# Bytes of lines that are compared at a time.
_BLOCK = 64
_CPU, _USER = SAMPLE_KINDS.index("cpu"), SAMPLE_STATES.index("user")
_SPACE, _SEMICOLON = ord(" "), ord(";")


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is folded stacks: two lines of three at least."""
    text = unpacked(head)
    lines = text.split(b"\n", _HEAD_LINES)
    lines = [
        line for line in (lines[:-1] if len(lines) > 1 else lines) if not _COMMENT.match(line)
    ][:_HEAD_LINES]
    good = [line for line in lines if _is_like_one(line)]
    has_stack = (
        any(b";" in line for line in good) and b"_verbose," not in text and b"\0" not in text
    )
    return has_stack and len(good) * 3 >= len(lines) * 2


def _is_like_one(line: bytes) -> bool:
    """Whether a number ends the line, behind a blank and some text without a tab."""
    stack, _, count = line.rstrip(b" ").rpartition(b" ")
    is_text = bool(stack[:1].strip()) and b"\t" not in stack
    return is_text and _COUNT.fullmatch(count) is not None


def read(path: Path) -> Imported:
    """The stacks in the text `path`, which may be packed with gzip. ReadError when it cannot be
    read.
    """
    stacks = _Folded()
    for chunk, _ in chunks(path):
        stacks.add(chunk)
    # What the parts of the text needed goes back, where it is the C library that keeps it
    # (`let_arrow_give_back`).
    pa.default_memory_pool().release_unused()
    return stacks.imported(path.name)


def _last_blanks(octets: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """The last blank of each line, -1 where there is none or a number would be too long."""
    found = np.full(len(start), -1, np.int64)
    rows = np.arange(len(start))
    for letters in range(1, _NUMBER_LETTERS):
        place = stop[rows] - letters
        is_inside = place >= start[rows]
        rows = rows[is_inside]
        place = place[is_inside]
        is_blank = octets[place] == _SPACE
        found[rows[is_blank]] = place[is_blank]
        rows = rows[~is_blank]
        if not len(rows):
            break
    return found


def _fraction(numbers: pa.Array) -> pa.Array:
    """The digits behind the points, without zeros at their ends."""
    behind_point = pc.replace_substring_regex(numbers, r"^\d*\.?", "")
    return pc.utf8_rtrim(behind_point, "0")


def _alike(octets: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """How many bytes at the beginning of each stretch are those of the one before; 0 of the
    first.
    """
    padding = np.zeros(_BLOCK, np.uint8)
    padded = np.append(octets, padding)
    # A block of bytes at each place.
    blocks = np.ndarray(len(octets) + 1, f"V{_BLOCK}", padded.data, strides=(1,))
    length = stop - start
    shorter = np.minimum(length[1:], length[:-1])
    found = np.append(0, shorter)
    rows = np.flatnonzero(found > 0)
    begin = start[rows]
    before = start[rows - 1]
    most = found[rows]
    for compared in range(0, int(most.max(initial=0)), _BLOCK):
        these = blocks[begin + compared].view("<u8")
        those = blocks[before + compared].view("<u8")
        differences = (these ^ those).reshape(-1, _BLOCK // 8)
        is_end = differences.any(axis=1)
        alike = compared + _equal_bytes(differences[is_end])
        found[rows[is_end]] = np.minimum(alike, most[is_end])
        goes_on = ~is_end & (most > compared + _BLOCK)
        rows = rows[goes_on]
        begin = begin[goes_on]
        before = before[goes_on]
        most = most[goes_on]
    return found


def _equal_bytes(differences: np.ndarray) -> np.ndarray:
    """Of rows of words, one of them not 0: how many bytes at the beginning of each row are 0."""
    word = (differences != 0).argmax(axis=1)
    rows = np.arange(len(differences))
    bits = differences[rows, word]
    lowest_bit = bits & (~bits + np.uint64(1))
    # Which byte of the word it is in, by its logarithm.
    byte = (np.log2(lowest_bit) / 8).astype(np.int64)
    equal: np.ndarray = 8 * word + byte
    return equal


class _Folded(Struct):
    """What was read so far. `weight` by stack: what was written times ten to the power of
    `exponent`.

    digits: how many a number has behind its point, at most. total: all numbers together. has_two:
    whether the lines of the file have two numbers, None until it is known.
    """

    frames: FrameColumns = field(default_factory=FrameColumns)
    tree: StackTree = field(default_factory=StackTree)
    weight: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    rejected: int = 0
    example: str = ""
    exponent: int = 0
    digits: int = 0
    total: float = 0.0
    has_two: bool | None = None
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def add(self, chunk: bytes) -> None:
        """Take in whole lines."""
        octets = np.frombuffer(bytearray(chunk), np.uint8)
        start, stop = lines_of(octets)
        behind = _last_blanks(octets, start, stop)
        number = taken(chunk, np.maximum(behind + 1, start), stop)
        good = (behind > start) & pc.match_substring_regex(number, _NUMBER).to_numpy(
            zero_copy_only=False
        )
        if good.any():
            weight = self._weights(number.filter(pa.array(good)))
            first, behind = start[good], behind[good]
            self._add_stacks(
                octets, first, self._before_another(chunk, octets, first, behind), weight
            )
        for line in np.flatnonzero(~good).tolist():
            self._add_other(chunk[start[line] : stop[line]])

    def _before_another(
        self, chunk: bytes, octets: np.ndarray, start: np.ndarray, behind: np.ndarray
    ) -> np.ndarray:
        """Where the names of each line end: `behind`, or before one number more if the lines of the
        file have two.
        """
        if self.has_two is False:
            return behind
        other = _last_blanks(octets, start, behind)
        number = taken(chunk, np.maximum(other + 1, start), behind)
        is_number = (other > start) & pc.match_substring_regex(number, _NUMBER).to_numpy(
            zero_copy_only=False
        )
        if self.has_two is None:
            self.has_two = bool(is_number.all())
        return np.where(is_number, other, behind) if self.has_two else behind

    def _weights(self, number: pa.Array) -> np.ndarray:
        """What these numbers say, in the unit of `weight`, which becomes another one where it
        must.
        """
        text = number.cast(pa.string())
        fraction = None
        if pc.any(pc.match_substring(text, ".")).as_py():
            fraction = _fraction(text)
            text = pc.replace_substring_regex(text, r"\..*", "")
            longest = pc.max(pc.utf8_length(fraction)).as_py()
            self.digits = max(self.digits, longest)
        whole: np.ndarray = text.cast(pa.int64()).to_numpy()
        self.total += float(whole.sum(dtype=np.float64)) + len(whole)
        possible = int(np.floor(np.log10(_MOST / self.total)))
        self._rescale(min(self.digits, _MOST_DIGITS, possible))
        exponent = self.exponent
        if exponent <= 0:
            shortened: np.ndarray = whole // 10**-exponent
            return shortened
        weight: np.ndarray = whole * 10**exponent
        if fraction is not None:
            digits = pc.utf8_slice_codeunits(fraction, 0, exponent)
            digits = pc.utf8_rpad(digits, exponent, "0")
            weight += digits.cast(pa.int64()).to_numpy()
        return weight

    def _rescale(self, exponent: int) -> None:
        """Let `weight` be what was written times another power of ten."""
        more = exponent - self.exponent
        if more > 0:
            self.weight *= 10**more
        elif more < 0:
            self.weight //= 10**-more
        self.exponent = exponent

    def _add_other(self, line: bytes) -> None:
        """Take in a line that has something behind its number, or none."""
        if _COMMENT.match(line):
            return
        parts = _LINE.match(line)
        if not parts:
            self.rejected += 1
            self.example = self.example or line.decode("utf-8", "replace")
            return
        names, number = parts[1], parts[2]
        inner = _LINE.match(names) if self.has_two else None
        if inner:
            names = inner[1]
        stack = np.frombuffer(bytearray(names + b" "), np.uint8)
        weight = self._weights(pa.array([number], pa.binary()))
        first = np.array([0])
        end = np.array([len(stack) - 1])
        self._add_stacks(stack, first, end, weight)

    def _add_stacks(
        self, octets: np.ndarray, start: np.ndarray, stop: np.ndarray, weight: np.ndarray
    ) -> None:
        """Take in the stacks between these places, which ascend. `octets` is written to: each stack
        ends like a name.

        Lines beside each other mostly begin alike: only the names behind that are looked at, the
        last one of a line always.
        """
        octets[stop] = _SEMICOLON
        ends = np.flatnonzero(octets == _SEMICOLON)
        first = np.searchsorted(ends, start)
        last = np.searchsorted(ends, stop)
        differs_at = start + _alike(octets, start, stop + 1)
        fork = np.minimum(np.searchsorted(ends, differs_at), last)
        count = last - fork + 1
        done = np.cumsum(count)
        shift = fork - (done - count)
        name = np.arange(done[-1]) + np.repeat(shift, count)
        depth = name - np.repeat(first, count)
        begins = np.append(0, ends[:-1] + 1)
        begins[first] = start
        names = taken(octets, begins[name], ends[name]).dictionary_encode()
        distinct = names.dictionary.to_pylist()
        known = np.fromiter(map(self._number, distinct), np.int32, len(distinct))
        frames = known[names.indices.to_numpy()]
        stack = self.tree.walk(frames, depth)[done - 1]
        missing = self.tree.count - len(self.weight)
        if missing > 0:
            # By little: twice as much would be the largest of all that is held.
            more = missing + self.tree.count // 8 + (1 << 16)
            self.weight = np.append(self.weight, np.zeros(more, np.int64))
        np.add.at(self.weight, stack, weight)

    def _number(self, text: bytes) -> int:
        """The number of the frame that is called so."""
        try:
            return self._numbers[text]
        except KeyError:
            found = self._numbers[text] = self._frame(text.decode("utf-8", "replace"))
            return found

    def _frame(self, name: str) -> int:
        frames = self.frames
        without_mark, mark = name[:-4], name[-4:]
        if mark == "_[k]":
            return frames.add("kernel", without_mark)
        if mark == "_[j]":
            return frames.add("native", without_mark, object=JIT)
        if mark == "_[i]":
            return frames.add("native", without_mark)
        source = _SOURCE.match(name)
        if source:
            line = int(source[3][:9])
            return frames.add("python", source[1], file=source[2], line=line)
        layer = "kernel" if name == "[kernel]" else "native"
        return frames.add(layer, name)

    def _of_numbers(self) -> list[Problem]:
        """What must be said of numbers that were not taken as they are."""
        problems = []
        if self.has_two:
            what = (
                "each line has two numbers, as a comparison of two recordings has: the last one "
                "is taken"
            )
            problems.append(
                Problem(
                    STACKS,
                    "two_numbers",
                    what,
                    "compare recordings with --diff",
                    "the first number",
                )
            )
        if self.exponent > 0:
            what = (
                "numbers of folded stacks have fractions: all are taken times "
                f"{10**self.exponent:,}"
            )
            problems.append(Problem(STACKS, "fractions", what, "compare shares", ""))
        if self.exponent < 0:
            what = (
                "numbers of folded stacks are too large to add up: all are divided by "
                f"{10**-self.exponent:,}"
            )
            problems.append(
                Problem(STACKS, "too_large", what, "compare shares", "what is smaller than that")
            )
        elif self.digits > self.exponent:
            what = f"numbers of folded stacks have {self.digits:,} digits behind the point"
            lost = f"all but the first {self.exponent:,} of them"
            problems.append(Problem(STACKS, "fractions_cut", what, "compare shares", lost))
        return problems

    def imported(self, name: str) -> Imported:
        """Everything that was read, as a sample for each stack."""
        has_weight = self.weight != 0
        weight, self.weight = self.weight[has_weight], self.weight[:0].copy()
        stack = np.arange(len(has_weight), dtype=np.int32)[has_weight]
        stacks = self.tree.columns()
        count = len(stack)
        # What is the same for all takes no memory.
        same = {"at_ns": 0, "track": 0, "count": 1, "kind": _CPU, "state": _USER, "waker": -1}
        samples: dict[str, np.ndarray] = {
            name: np.broadcast_to(np.int64(value), count) for name, value in same.items()
        }
        samples |= {name: np.broadcast_to(np.bool_(False), count) for name in ("idle", "exact")}
        samples |= {"stack": stack, "weight_ns": weight}
        problems = [
            Problem(
                STACKS,
                "no_unit",
                "folded stacks have neither a unit nor times: their numbers are read as ns",
                "compare shares",
                "times",
            )
        ]
        problems += self._of_numbers()
        if self.rejected:
            lines = "1 line is" if self.rejected == 1 else f"{self.rejected:,} lines are"
            what = f"{lines} no stack with a number, first: {self.example[:200]}"
            problems.append(
                Problem(
                    STACKS, "lines_rejected", what, "look whether the text was cut", "these lines"
                )
            )
        return Imported(
            tracks=[ImportedTrack(0, name)],
            processes=[ImportedProcess(name)],
            problems=problems,
            stacks=ImportedStacks(self.frames.columns, stacks, samples),
        )
