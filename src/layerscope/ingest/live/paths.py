"""What sampled stacks say, at the level of functions, of a file of a sampler that grows.

Addresses make many stacks of few paths of functions. Only stacks that samples have are looked at,
each once.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from layerscope.ingest import waiting
from layerscope.ingest.file_frames import FileFrames
from layerscope.ingest.frames import KERNEL, OF_KERNEL, PYTHON, FrameNames
from layerscope.ingest.live.rows import RowNumbers
from layerscope.rawfile import sampler_file
from layerscope.sources.raw.stacks import SampledFile

OUTSIDE_PYTHON, OUTSIDE_NATIVE, UNKNOWN = "outside Python", "outside native code", "not known"
_NONE = -1


class FramePlace(NamedTuple):
    """A frame as rows of the tables of functions and of symbols (-1: in none), and its evidence."""

    function: int
    symbol: int
    evidence: int


class Path(NamedTuple):
    """The functions on a stack: rows of the tables of functions and of symbols, each once; of its
    innermost ones the row that has the time; and what they tell of a wait.
    """

    functions: tuple[int, ...]
    function: int
    symbols: tuple[int, ...]
    symbol: int
    evidence: int


class PathTable:
    """Every path by its number, of all files of samplers."""

    def __init__(self, frames: FrameNames, functions: RowNumbers, symbols: RowNumbers) -> None:
        self.frames = frames
        self.paths: list[Path] = []
        self._functions, self._symbols = functions, symbols
        self._outside = functions.of(OUTSIDE_PYTHON, ""), symbols.of(OUTSIDE_NATIVE, "")
        self._unknown = functions.of(UNKNOWN, ""), symbols.of(UNKNOWN, "")
        self._kernel = symbols.of(KERNEL, "")
        self._number: dict[Path, int] = {}
        self._both: dict[tuple[int, int], int] = {}
        self._in_kernel: dict[int, int] = {}
        self._of_kernel = {self._kernel}  # symbols
        self._works: set[int] = set()  # symbols that do more than wait
        self._places: list[FramePlace] = []
        function, symbol = self._unknown
        self.unknown = self.number(Path((function,), function, (symbol,), symbol, 0))

    def number(self, path: Path) -> int:
        """The number of a path."""
        found = self._number.setdefault(path, len(self.paths))
        if found == len(self.paths):
            self.paths.append(path)
        return found

    def in_kernel(self, number: int) -> int:
        """The path of time in the kernel of which the sampler does not know more: the same where
        the kernel is innermost already.
        """
        found = self._in_kernel.get(number)
        if found is None:
            path = self.paths[number]
            if path.symbol not in self._of_kernel:
                outside = self._outside[1], self._unknown[1]
                others = tuple(one for one in path.symbols if one not in outside)
                path = path._replace(symbols=(*others, self._kernel), symbol=self._kernel)
            found = self._in_kernel[number] = self.number(path)
        return found

    def waits_in(self, number: int) -> str:
        """The function that a thread with this path waits in: the innermost one of Python, else of
        native code the innermost one that does not only wait.
        """
        path = self.paths[number]
        if path.function not in (self._outside[0], self._unknown[0]):
            return self._functions.labels[path.function][0]
        for symbol in reversed(path.symbols):
            if symbol in self._works:
                return self._symbols.labels[symbol][0]
        return self._symbols.labels[path.symbol][0]

    def place(self, key: int) -> FramePlace:
        """What is known of a frame, by its key."""
        while key >= len(self._places):
            self._places.append(self._place(len(self._places)))
        return self._places[key]

    def _place(self, key: int) -> FramePlace:
        layer, name, file, library = self.frames.about(key)
        evidence = self.frames.meaning_of(key).evidence
        if layer == PYTHON:
            return FramePlace(self._functions.of(name, file or ""), _NONE, evidence)
        if layer == OF_KERNEL:
            symbol = self._symbols.of(name, "")
            self._of_kernel.add(symbol)
            return FramePlace(_NONE, symbol, evidence)
        symbol = self._symbols.of(name, library or "")
        if evidence & waiting.WORK:
            self._works.add(symbol)
        return FramePlace(_NONE, symbol, evidence)

    def of_frames(self, keys: list[int], inlined: list[bool]) -> int:
        """The path of a stack with these frames, from the outside in."""
        functions: dict[int, None] = {}
        symbols: dict[int, None] = {}
        place = FramePlace(_NONE, _NONE, 0)
        function, evidence, is_seen = _NONE, 0, False
        for key, is_inlined in zip(keys, inlined, strict=True):
            place = self.place(key)
            if place.function >= 0:
                function = place.function
                functions[function] = None
            else:
                symbols[place.symbol] = None
            is_seen |= place.symbol not in self._of_kernel
            # A helper that a compiler has inlined into `take_gil` is no work of its own.
            own = place.evidence & ~waiting.WORK if is_inlined else place.evidence
            evidence = self._deeper(evidence, own)
        if not keys:
            return self.unknown
        if function < 0:
            function = (self._outside if is_seen else self._unknown)[0]
            functions[function] = None
        symbol = place.symbol if place.function < 0 else self._outside[1]
        symbols[symbol] = None
        return self.number(Path(tuple(functions), function, tuple(symbols), symbol, evidence))

    def _deeper(self, around: int, own: int) -> int:
        found = self._both.get((around, own))
        if found is None:
            found = self._both[around, own] = waiting.deeper(around, own)
        return found


class FilePaths:
    """The paths of the stacks of one file of a sampler, which counts stacks by itself."""

    def __init__(self, file: SampledFile, frames: FileFrames, table: PathTable) -> None:
        self._file = file
        self._frames = frames
        self._table = table
        self._parent = array("I")
        self._frame = array("I")
        self._path_of = np.zeros(0, np.int64)

    def advance(self) -> None:
        """Read and name what is new."""
        self._frames.add(self._file.take(sampler_file.FRAMES))
        self._frames.name()
        rows = self._file.take(sampler_file.STACKS)
        self._parent.frombytes(rows["parent"].tobytes())
        self._frame.frombytes(rows["frame"].tobytes())

    def of(self, stacks: np.ndarray) -> np.ndarray:
        """The number of the path of each stack; one that the file does not have is not known."""
        more = len(self._parent) + 1 - len(self._path_of)
        if more > 0:
            self._path_of = np.pad(self._path_of, (0, more * 2), constant_values=_NONE)
        place = np.minimum(stacks.astype(np.int64), len(self._parent))
        self._path_of[len(self._parent)] = self._table.unknown
        found = self._path_of[place]
        missing = np.unique(place[found < 0])
        for stack in missing.tolist():
            self._path_of[stack] = self._look_up(stack)
        found = self._path_of[place]
        self._path_of[len(self._parent)] = _NONE
        return found

    def _look_up(self, stack: int) -> int:
        keys: list[int] = []
        inlined: list[bool] = []
        while stack < len(self._parent):  # else it is none
            number = self._frame[stack]
            inside = self._frames.inlined.get(number, ())
            keys += [*inside[::-1], self._frames.keys[number]]
            inlined += [True] * len(inside) + [False]
            stack = self._parent[stack]
        return self._table.of_frames(keys[::-1], inlined[::-1])
