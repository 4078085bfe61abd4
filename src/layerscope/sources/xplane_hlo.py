"""Programs that XLA compiled, as an XSpace has them (HLO protos): what each instruction computes
and which line of Python asked for it. Used by `xplane`.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct, field

from layerscope.sources.wire import Wire, number

# Numbers of fields.
_HLO_MODULE = 1
_COMPUTATIONS, _FRAME_INDEX = 3, 17
_INSTRUCTIONS = 2
_NAME, _OPCODE, _METADATA = 1, 2, 7
_OP_NAME, _SOURCE_FILE, _SOURCE_LINE, _FRAME = 2, 3, 4, 15
_FILES, _FUNCTIONS, _LOCATIONS, _FRAMES = 1, 2, 3, 4
_FILE_OF, _LINE_OF, _LOCATION_OF = 1, 3, 1


class Instruction(NamedTuple):
    """What is known of an instruction; `line`: "file:line", "" where it is not told."""

    opcode: str
    op_name: str
    line: str


class _FrameIndex(Struct):
    """The lines that instructions name by the number of a frame, from 1 on."""

    files: list[str] = field(default_factory=list)
    locations: list[tuple[int, int]] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)

    def line(self, frame: int) -> str:
        """ "file:line" of a frame."""
        if not 0 < frame <= len(self.frames):
            return ""
        location = self.frames[frame - 1]
        if not 0 < location <= len(self.locations):
            return ""
        file, line = self.locations[location - 1]
        return f"{self.files[file - 1]}:{line}" if 0 < file <= len(self.files) else ""


def instructions(wire: Wire, begin: int, end: int) -> dict[str, Instruction]:
    """The instructions of a program by their names; the program lies between these places."""
    found: dict[str, Instruction] = {}
    for key, value in wire.fields(begin, end):
        if key == _HLO_MODULE and isinstance(value, tuple):
            inner = _of_module(wire, *value)
            found.update(inner)
    return found


def _of_module(wire: Wire, begin: int, end: int) -> dict[str, Instruction]:
    computations, index = [], _FrameIndex()
    for key, value in wire.fields(begin, end):
        if not isinstance(value, tuple):
            continue
        if key == _COMPUTATIONS:
            computations.append(value)
        elif key == _FRAME_INDEX:
            index = _frame_index(wire, *value)
    found = {}
    for place in computations:
        for key, value in wire.fields(*place):
            if key == _INSTRUCTIONS and isinstance(value, tuple):
                name, instruction = _instruction(wire, value, index)
                found[name] = instruction
    return found


def _frame_index(wire: Wire, begin: int, end: int) -> _FrameIndex:
    index = _FrameIndex()
    for key, value in wire.fields(begin, end):
        if not isinstance(value, tuple):
            continue
        if key == _FILES:
            index.files.append(wire.text(value))
        elif key == _LOCATIONS:
            told = wire.message(*value)
            location = number(told.get(_FILE_OF)), number(told.get(_LINE_OF))
            index.locations.append(location)
        elif key == _FRAMES:
            told = wire.message(*value)
            frame = number(told.get(_LOCATION_OF))
            index.frames.append(frame)
    return index


def _instruction(wire: Wire, place: tuple[int, int], index: _FrameIndex) -> tuple[str, Instruction]:
    """The name of an instruction, and what is known of it."""
    told = wire.message(*place)
    metadata = told.get(_METADATA)
    about = wire.message(*metadata) if isinstance(metadata, tuple) else {}
    file = wire.text(about.get(_SOURCE_FILE))
    line = number(about.get(_SOURCE_LINE))
    frame = number(about.get(_FRAME))
    where = f"{file}:{line}"
    if not file:
        where = index.line(frame)
    name = wire.text(told.get(_NAME))
    opcode = wire.text(told.get(_OPCODE))
    op_name = wire.text(about.get(_OP_NAME))
    return name, Instruction(opcode, op_name, where)
