"""XSpace files (`.xplane.pb`) that JAX, TensorFlow and PyTorch/XLA write: work of GPUs by stream,
what threads of the host do, instructions of XLA with the lines of Python that asked for them.

Times are picoseconds since the time of a line, which counts from the beginning of the profile, or
in older files from 1970. They become ns by cutting off.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import GPU, KINDS, OPERATORS, PYTHON_CALL
from layerscope.sources import text_chunks
from layerscope.sources.imported import Imported, ImportedMoments
from layerscope.sources.kineto_meaning import (
    EVENT,
    FUNCTION,
    KERNEL,
    MEMCPY,
    MEMSET,
    kind_of_call,
)
from layerscope.sources.span_rows import MOST_NS, FoundTracks, SpanRows
from layerscope.sources.wire import Wire
from layerscope.sources.xplane_hlo import Instruction, instructions
from layerscope.sources.xplane_planes import Stats, XLine, XPlane

MEANING = "an XSpace of JAX or TensorFlow (.xplane.pb)"
_TASK = KINDS.index("task")
_PLANES, _HOSTS = 1, 4
_FIRST, _NAME_FIELD = b"\x0a", 2
_METADATA, _ENVIRONMENT, _HOST = "/host:metadata", "Task Environment", "/host:CPU"
_DEVICE = re.compile(r"/device:(GPU|TPU):(\d{1,9})\b")
_STREAM = re.compile(r"Stream #(\d{1,18})")
# Lines that the reader of TensorBoard adds to those of a GPU; the one of a TPU that is its work.
_DERIVED = re.compile(
    r"(Steps|XLA Modules|XLA Ops|XLA TraceMe|Async XLA Ops|Source code|Launch Stats|"
    r"(TensorFlow|Framework) (Ops|Name Scope))$"
)
_TPU_WORK = "XLA Ops"
_CALL = re.compile(r"(cuda|cu|hip)[A-Z]\w*")
_COPY = re.compile(r"Memcpy|Copy(Device|Host|Array)To|hipMemcpy", re.IGNORECASE)
_FILL = re.compile(r"Memset|FillBuffer", re.IGNORECASE)
_THREAD = re.compile(r"(.*?)/(-?\d+)$")
# Moments that the thread pools of XLA tell.
_MOMENTS = re.compile(r"(ThreadpoolListener::(Record|StartRegion|StopRegion)|end: .*)$")
_DETAIL = re.compile(r"(\w+):(\S+)")
# What Kineto calls the properties of a GPU.
_PROPERTIES = {
    "numSms": "core_count",
    "totalGlobalMem": "memory_size",
    "computeMajor": "compute_cap_major",
    "computeMinor": "compute_cap_minor",
}
_MOST_BYTES = (1 << 31) - 1
_MOST_REGISTERS = 1 << 16


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is an XSpace: its first plane has a name like a path."""
    if not head.startswith(_FIRST):
        return False
    wire = Wire(head[:4096])
    planes = (value for key, value in wire.fields(0, len(wire.data)) if key == _PLANES)
    first = next(planes, None)
    if not isinstance(first, tuple):
        return False
    names = (wire.text(value) for key, value in wire.fields(*first) if key == _NAME_FIELD)
    name = next(names, "")
    return name.startswith(("/host:", "/device:", "/misc:", _ENVIRONMENT))


def read(path: Path) -> Imported:
    """What is in the file `path`, which may be packed with gzip, and may be cut."""
    return _Space(Wire(_content(path))).imported()


def _content(path: Path) -> bytes:
    """The file, of which a message of protocol buffers cannot have more than 2 GiB."""
    parts, size = [], 0
    for piece in text_chunks.raw_parts(path):
        parts.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise ReadError(
                f"{path} has more than 2 GiB, which no XSpace has: profile fewer steps, or copy "
                "the file again"
            )
    return b"".join(parts)


class _Space(Struct):
    """Puts the planes of a file into `spans`. `lines`: numbers of names by those of spans."""

    wire: Wire
    spans: SpanRows = field(default_factory=SpanRows)
    tracks: FoundTracks = field(default_factory=FoundTracks)
    host: str = ""
    began_ns: int = 0
    steps: set[str] = field(default_factory=set)
    devices: list[Stats] = field(default_factory=list)
    _programs: dict[str, tuple[int, int]] = field(default_factory=dict)
    _instructions: dict[str, dict[str, Instruction]] = field(default_factory=dict)
    _moments: list[tuple[np.ndarray, ...]] = field(default_factory=list)

    def imported(self) -> Imported:
        """All of it."""
        planes = self._planes()
        for plane in planes:
            if plane.name == _METADATA:
                self._programs = plane.raw_stats("Hlo Proto")
            elif plane.name == _ENVIRONMENT:
                told = plane.told.get("profile_start_time")
                self.began_ns = told if isinstance(told, int) and 0 < told < MOST_NS else 0
        process = self.tracks.process(0)
        for plane in planes:
            self._add_plane(plane, process)
        return self._finished()

    def _planes(self) -> list[XPlane]:
        planes = []
        for key, value in self.wire.fields(0, len(self.wire.data)):
            if key == _PLANES and isinstance(value, tuple):
                planes.append(XPlane.read(self.wire, *value))
            elif key == _HOSTS:
                self.host = self.host or self.wire.text(value)
        return planes

    def _finished(self) -> Imported:
        first_ns = self.spans.first_ns()
        found = self.spans.imported(self.tracks, first_ns)
        if self._moments:
            at_ns, track, name = map(np.concatenate, zip(*self._moments, strict=True))
            none = np.zeros(len(at_ns), np.int64)
            found.moments = ImportedMoments(at_ns - first_ns, track, name, none, none == 0)
        is_of_1970 = first_ns > 10**18
        found.realtime_ns = (
            first_ns + self.began_ns if self.began_ns else first_ns if is_of_1970 else None
        )
        found.host = self.host
        found.problems += self._problems()
        if len(self.steps) == 1:
            found.step_mark = next(iter(self.steps))
        about = None
        if self.devices:
            about = json.dumps({"deviceProperties": self.devices})
        found.processes[0] = replace(found.processes[0], rank=0, about=about)
        return found

    def _problems(self) -> list[Problem]:
        found = []
        remedy = "copy it again, or profile again"
        if self.wire.is_cut:
            lost = "what stood behind the cut, and names of what stood before it"
            found.append(Problem(OPERATORS, "trace_cut", "the file was cut", remedy, lost))
        if self.wire.is_damaged:
            what = "parts of the file are no protocol buffers"
            found.append(Problem(OPERATORS, "events_damaged", what, remedy, "these parts"))
        if not (len(self.spans.names) or self._moments):
            what = "the profile has no event"
            found.append(Problem(GPU, "no_events", what, "profile again", "everything"))
        return found

    def _add_plane(self, plane: XPlane, process: int) -> None:
        device = _DEVICE.match(plane.name)
        if device:
            self._note_device(plane, int(device[2]))
        for line in plane.lines():
            if not len(line.scanned.row):
                continue
            if device and self._is_work(line, device[1]):
                self._add_line(plane, line, self._stream(process, int(device[2]), line), True)
            elif plane.name == _HOST:
                self._add_line(plane, line, self._thread(process, line), False)
            else:
                name = f"{plane.name}: {line.name or line.number}"
                track = self.tracks.other(process, (plane.name, line.number), name)
                self._add_line(plane, line, track, False)

    def _is_work(self, line: XLine, device: str) -> bool:
        if device == "TPU":
            return line.name == _TPU_WORK
        return _DERIVED.match(line.name) is None

    def _note_device(self, plane: XPlane, number: int) -> None:
        told = plane.told
        about = {
            key: told[name] for key, name in _PROPERTIES.items() if isinstance(told.get(name), int)
        }
        vendor = told.get("device_type_string") or told.get("device_vendor") or "device"
        self.devices.append({"id": number, "name": str(vendor), **about})

    def _stream(self, process: int, device: int, line: XLine) -> int:
        """The track of a stream, by the number in its name."""
        told = _STREAM.search(line.name)
        if told:
            number = int(told[1])
            return self.tracks.stream(process, device, number)
        return self.tracks.stream(process, device, line.number, line.name)

    def _thread(self, process: int, line: XLine) -> int:
        """A thread's number is one of XLA, but for those of ROCm."""
        told = _THREAD.match(line.name)
        if told and told[1] == "Host Threads":
            return self.tracks.thread(process, int(told[2]))
        name = told[1] if told else line.name
        if not name:
            name = f"thread {line.number}"
        return self.tracks.other(process, line.number, name)

    def _add_line(self, plane: XPlane, line: XLine, track: int, is_work: bool) -> None:
        scanned = line.scanned
        offset_ps, duration_ps = scanned.offset_ps, scanned.duration_ps
        start_ns = line.at_ns + offset_ps // 1000
        is_possible = np.abs(offset_ps) < MOST_NS
        is_possible &= np.abs(duration_ps) < MOST_NS
        is_possible &= abs(line.at_ns) < MOST_NS
        end_ns = line.at_ns + (offset_ps + duration_ps) // 1000
        end_ns = np.where(is_possible, end_ns, MOST_NS)
        rows, place = scanned.rows, scanned.row
        kinds, names, args, lines = [], [], [], []
        for key, number, has_call in rows:
            name = plane.names.get(key) or f"event {key}"
            told = plane.stats[number]
            kind = _kind_of_work(name, told) if is_work else self._kind(name, told, has_call)
            about, source = self._about(told)
            kinds.append(kind)
            names.append(self.spans.name(name.removeprefix("$")))
            args.append(self.spans.argument(about))
            lines.append(self.spans.name(source) + 1 if source else 0)
            is_moment = not is_work and _MOMENTS.match(name)
            kinds[-1] = -1 if is_moment else kind
        of_row = [np.array(one, np.int64)[place] for one in (kinds, names, args, lines)]
        kind_of, name_of, args_of, line_of = of_row
        where = np.full(len(place), track)
        python = np.flatnonzero(kind_of == PYTHON_CALL)
        if len(python):
            where[python] = self._python_track(track)
        is_span = kind_of >= 0
        rows_of = np.flatnonzero(is_span)
        self.spans.add(
            start_ns[rows_of],
            end_ns[rows_of],
            kind=kind_of[rows_of],
            track=where[rows_of],
            name=name_of[rows_of],
            args=args_of[rows_of],
            correlation=scanned.correlation[rows_of],
            line=line_of[rows_of],
        )
        marks = np.flatnonzero(~is_span & is_possible)
        if len(marks):
            self._moments.append((start_ns[marks], where[marks], name_of[marks]))

    def _python_track(self, track: int) -> int:
        """The one beside a thread's, for its functions of Python."""
        of = self.tracks.tracks[track]
        name = f"{of.name}: Python"
        return self.tracks.other(of.process, ("Python", track), name)

    def _kind(self, name: str, told: Stats, has_call: bool) -> int:
        """What something on the host is."""
        if name.startswith("$"):
            return PYTHON_CALL
        if _CALL.fullmatch(name) or has_call:
            return kind_of_call(name)
        if "step_num" in told:
            self.steps.add(name)
            return _TASK
        return FUNCTION if "hlo_op" in told else EVENT

    def _about(self, told: Stats) -> tuple[dict[str, Any], str]:
        """Arguments of an event, and the line that asked for it."""
        about: dict[str, Any] = {}
        for name, value in told.items():
            if name in ("kernel_details", "memcpy_details", "memset_details"):
                about.update(_details(str(value)))
            elif value not in (None, ""):
                about[name] = value
        instruction = self._instruction(told)
        if instruction is None:
            return about, ""
        if instruction.op_name:
            about["op_name"] = instruction.op_name
        about["opcode"] = instruction.opcode
        return about, instruction.line

    def _instruction(self, told: Stats) -> Instruction | None:
        module, name = told.get("hlo_module"), told.get("hlo_op")
        if not module or not name:
            return None
        key = f"{module}({told.get('program_id')})"
        if key not in self._programs:
            key = str(module)
        if key not in self._instructions:
            place = self._programs.get(key)
            known = instructions(self.wire, *place) if place else {}
            self._instructions[key] = known
        return self._instructions[key].get(str(name))


def _kind_of_work(name: str, told: Stats) -> int:
    """What a GPU does."""
    if "memcpy_details" in told:
        return MEMCPY
    if "memset_details" in told:
        return MEMSET
    if "kernel_details" in told or "hlo_op" in told:
        return KERNEL
    if _COPY.match(name):
        return MEMCPY
    return MEMSET if _FILL.match(name) else KERNEL


def _details(text: str) -> dict[str, Any]:
    """What a kernel or a copy says of itself, with the words of Kineto."""
    told = dict(_DETAIL.findall(text))
    found: dict[str, Any] = {}
    for key in ("grid", "block"):
        numbers = told.get(key, "").split(",")
        if all(one.isdecimal() for one in numbers):
            found[key] = [int(one[:18]) for one in numbers]
    registers = told.get("regs", "")
    if registers.isdecimal() and len(registers) < 9 and int(registers) < _MOST_REGISTERS:
        found["registers per thread"] = int(registers)
    shared = [told.get(key, "") for key in ("static_shared", "dynamic_shared")]
    if all(one.isdecimal() and len(one) < 18 for one in shared):
        found["shared memory"] = sum(map(int, shared))
    size = told.get("size", "")
    if size.isdecimal() and len(size) < 18:
        found["bytes"] = int(size)
    occupancy = told.get("occ_pct", "")
    if occupancy.replace(".", "", 1).isdecimal() and float(occupancy) > 0:
        found["est. achieved occupancy %"] = float(occupancy)
    for key in ("kind", "async", "dest"):
        if key in told:
            found[key] = told[key]
    return found
