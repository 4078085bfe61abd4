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
# The state of a stack of which no frame was looked at yet.
OUTERMOST = 0


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


class _State(NamedTuple):
    """What is known of a stack whose inner frames were not looked at yet: the functions and symbols
    on it, the innermost function, the symbol of the innermost frame (-1: it is none of native
    code), what they tell of a wait, and whether any function outside of the kernel is known.
    """

    functions: tuple[int, ...]
    function: int
    symbols: tuple[int, ...]
    symbol: int
    evidence: int
    is_seen: bool


class PathTable:
    """Every path by its number, of all files of samplers."""

    def __init__(self, frames: FrameNames, functions: RowNumbers, symbols: RowNumbers) -> None:
        self.frames = frames
        self.paths: list[Path] = []
        self._functions, self._symbols = functions, symbols
        self._outside = functions.of(OUTSIDE_PYTHON, ""), symbols.of(OUTSIDE_NATIVE, "")
        function, symbol = functions.of(UNKNOWN, ""), symbols.of(UNKNOWN, "")
        self._unknown = function, symbol
        self._kernel = symbols.of(KERNEL, "")
        self._number: dict[Path, int] = {}
        self._states: list[_State] = []
        self._state_of: dict[_State, int] = {}
        self._path_of: list[int] = []  # by state
        self._deeper: dict[tuple[int, int, bool], int] = {}
        self._in_kernel: dict[int, int] = {}
        self._of_kernel = {self._kernel}  # symbols
        self._works: set[int] = set()  # symbols that do more than wait
        self._places: list[FramePlace] = []
        unknown = Path((function,), function, (symbol,), symbol, 0)
        self.unknown = self.number(unknown)
        outermost = _State((), _NONE, (), _NONE, 0, False)
        self._state_number(outermost)

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

    def deeper(self, state: int, key: int, is_inlined: bool) -> int:
        """The state of a stack with one frame more than one with this state has."""
        step = (state, key, is_inlined)
        found = self._deeper.get(step)
        if found is None:
            found = self._deeper[step] = self._state(self._states[state], key, is_inlined)
        return found

    def _state(self, around: _State, key: int, is_inlined: bool) -> int:
        place = self.place(key)
        # A helper that a compiler has inlined into `take_gil` is no work of its own.
        own = place.evidence & ~waiting.WORK if is_inlined else place.evidence
        return self._state_number(
            _State(
                _with(around.functions, place.function),
                place.function if place.function >= 0 else around.function,
                _with(around.symbols, place.symbol),
                place.symbol,
                waiting.deeper(around.evidence, own),
                around.is_seen or place.symbol not in self._of_kernel,
            )
        )

    def _state_number(self, state: _State) -> int:
        found = self._state_of.setdefault(state, len(self._states))
        if found == len(self._states):
            self._states.append(state)
            self._path_of.append(self._path(state))
        return found

    def _path(self, state: _State) -> int:
        """The path of a stack that is in this state at its innermost frame."""
        function = state.function
        if function < 0:
            function = (self._outside if state.is_seen else self._unknown)[0]
        symbol = state.symbol if state.symbol >= 0 else self._outside[1]
        return self.number(
            Path(
                _with(state.functions, function),
                function,
                _with(state.symbols, symbol),
                symbol,
                state.evidence,
            )
        )

    def path_of(self, state: int) -> int:
        """The number of the path of stacks in this state."""
        return self._path_of[state]


def _with(rows: tuple[int, ...], row: int) -> tuple[int, ...]:
    """These rows and another one, which may be none or among them."""
    is_there = row < 0 or row in rows
    if is_there:
        return rows
    return (*rows, row)


class FilePaths:
    """The paths of the stacks of one file of a sampler, which counts stacks by itself."""

    def __init__(self, file: SampledFile, frames: FileFrames, table: PathTable) -> None:
        self._file = file
        self._frames = frames
        self._table = table
        self._parent = array("I")
        self._frame = array("I")
        self._states = array("i")  # by stack, NONE where nobody has asked

    def advance(self) -> None:
        """Read and name what is new."""
        self._frames.add(self._file.take(sampler_file.FRAMES))
        self._frames.name()
        rows = self._file.take(sampler_file.STACKS)
        self._parent.frombytes(rows["parent"].tobytes())
        self._frame.frombytes(rows["frame"].tobytes())

    def of(self, stacks: np.ndarray) -> np.ndarray:
        """The number of the path of each stack; one that the file does not have is not known."""
        found, inverse = np.unique(stacks, return_inverse=True)
        paths = [self._path(stack) for stack in found.tolist()]
        of_found = np.array(paths, np.int64)
        return of_found[inverse]

    def _path(self, stack: int) -> int:
        if stack >= len(self._parent):
            return self._table.unknown
        return self._table.path_of(self._state(stack))

    def _state(self, stack: int) -> int:
        """The state of a stack, by that of the nearest one around it that was looked at."""
        self._states.extend([_NONE] * (len(self._parent) - len(self._states)))
        new = []
        while stack < len(self._parent) and self._states[stack] < 0:
            new.append(stack)
            stack = self._parent[stack]
        state = self._states[stack] if stack < len(self._parent) else OUTERMOST
        for stack in reversed(new):
            number = self._frame[stack]
            state = self._table.deeper(state, self._frames.keys[number], is_inlined=False)
            for key in self._frames.inlined.get(number, ()):
                state = self._table.deeper(state, key, is_inlined=True)
            self._states[stack] = state
        return state
