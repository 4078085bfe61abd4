"""JSON of rocprofv3 (`--output-format json`): kernels and copies by stream, calls of HIP, HSA and
RCCL by thread, and the ranges of roctx.

Names are numbers: of a kernel into `kernel_symbols`, of a call its kind and operation into
`strings`, of a range its correlation. Times are ns since the machine started. A grid counts work
items.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.model.events import Problem
from layerscope.model.layers import GPU, KINDS
from layerscope.sources.cut_json import read_json
from layerscope.sources.imported import Imported
from layerscope.sources.kineto_meaning import EVENT, KERNEL, MEMCPY
from layerscope.sources.span_rows import MOST_NS, FoundTracks, SpanRows, kinds_of_calls

MEANING = "JSON of rocprofv3"
_RECOGNISED = re.compile(rb'^\s*\{\s*"rocprofiler-sdk-tool"\s*:')
_TASK = KINDS.index("task")
_GPU_AGENT = 2
_CALLS = ("hip_api", "hsa_api", "rccl_api", "rocdecode_api", "rocjpeg_api", "ompt")
_SEPARATE = ("memory_allocation", "scratch_memory")
_ABOUT_KERNEL = ("grid", "block", "registers per thread", "shared memory")
_COPY = "MEMORY_COPY_"
_MOST_NUMBER = 1 << 62


class _Handle(msgspec.Struct, gc=False):
    handle: int = 0


class _Correlation(msgspec.Struct, gc=False):
    internal: int = 0


class _Size(msgspec.Struct, gc=False):
    x: int = 1
    y: int = 1
    z: int = 1


class _Dispatch(msgspec.Struct, gc=False):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    kernel_id: int = 0
    group_segment_size: int = 0
    workgroup_size: _Size = msgspec.field(default_factory=_Size)
    grid_size: _Size = msgspec.field(default_factory=_Size)


class _Record(msgspec.Struct, gc=False):
    start_timestamp: int = 0
    end_timestamp: int = 0
    kind: int = 0
    operation: int = 0
    thread_id: int = 0
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    dispatch_info: _Dispatch | None = None
    stream_id: _Handle | None = None
    dst_agent_id: _Handle | None = None
    src_agent_id: _Handle | None = None
    bytes: int | None = None


class _Kind(msgspec.Struct, gc=False):
    kind: str = ""
    operations: list[str] = []


class _Message(msgspec.Struct, gc=False):
    key: int = 0
    value: str = ""


class _Strings(msgspec.Struct, gc=False):
    buffer_records: list[_Kind] = []
    marker_api: list[_Message] = []


class _Symbol(msgspec.Struct, gc=False):
    kernel_id: int = 0
    formatted_kernel_name: str | int = ""
    kernel_name: str | int = ""
    arch_vgpr_count: int = 0


class _Agent(msgspec.Struct, gc=False):
    id: _Handle = msgspec.field(default_factory=_Handle)
    type: int = 0
    logical_node_type_id: int = 0
    cu_count: int = 0
    wave_front_size: int = 0
    product_name: str = ""
    name: str = ""


class _Node(msgspec.Struct, gc=False):
    hostname: str = ""


class _RocprofMetadata(msgspec.Struct, gc=False):
    node: _Node = msgspec.field(default_factory=_Node)
    pid: int = 0
    command: list[str] = []


class _Tool(msgspec.Struct, gc=False):
    metadata: _RocprofMetadata = msgspec.field(default_factory=_RocprofMetadata)
    agents: list[_Agent] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_Symbol] = []
    buffer_records: dict[str, list[_Record]] = {}


class _RocprofFile(msgspec.Struct, gc=False):
    tools: list[_Tool] = msgspec.field(name="rocprofiler-sdk-tool")


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is of rocprofv3."""
    return _RECOGNISED.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def read(path: Path) -> Imported:
    """What is in the file `path`, which may be packed with gzip, and may be cut."""
    file, is_cut = read_json(path, _RocprofFile)
    rows = _Records()
    for tool in file.tools:
        rows.add(tool)
    found = rows.imported()
    if is_cut:
        what, remedy = "the file was cut", "copy it again; rocprofv3 writes it at the end"
        found.problems.append(Problem(GPU, "trace_cut", what, remedy, "what came behind"))
    if file.tools:
        about = file.tools[0].metadata
        found.host, found.command = about.node.hostname, about.command
    return found


class _Records(Struct):
    """Puts the records of processes into `spans`. `unread`: records of other kinds, by kind."""

    spans: SpanRows = field(default_factory=SpanRows)
    tracks: FoundTracks = field(default_factory=FoundTracks)
    devices: dict[int, int] = field(default_factory=dict)
    about: list[dict[str, Any]] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)

    def add(self, tool: _Tool) -> None:
        """Take in a process."""
        process = self.tracks.process(tool.metadata.pid, tool.metadata.pid)
        self._note_devices(tool.agents)
        records = tool.buffer_records
        for name, of_kind in records.items():
            if not of_kind:
                continue
            if name == "kernel_dispatch":
                self._add_kernels(process, tool, of_kind)
            elif name == "memory_copy":
                self._add_copies(process, tool, of_kind)
            elif name == "marker_api":
                self._add_ranges(process, tool, of_kind)
            elif name in _CALLS:
                names = [_operation(tool, one) for one in of_kind]
                self._add_calls(process, of_kind, names, kinds_of_calls(names))
            elif name in _SEPARATE:
                names = [_operation(tool, one) for one in of_kind]
                track = self.tracks.other(process, name, name.replace("_", " "))
                where = np.full(len(of_kind), track)
                self._add(of_kind, kind=EVENT, track=where, name=self.spans.named(names))
            else:
                self.unread[name] += len(of_kind)

    def imported(self) -> Imported:
        """All of them."""
        found = self.spans.imported(self.tracks)
        if self.unread:
            told = ", ".join(f"{name} ({count:,})" for name, count in self.unread.items())
            what = f"records of the file are not read: {told}"
            remedy = "open what rocprofv3 writes for Perfetto: --output-format pftrace"
            found.problems.append(Problem(GPU, "records_unread", what, remedy, "these records"))
        rank = 0 if len(found.processes) == 1 else None
        found.processes = [replace(one, rank=rank) for one in found.processes]
        if self.about:
            told = json.dumps({"deviceProperties": self.about})
            found.processes[0] = replace(found.processes[0], about=told)
        return found

    def _note_devices(self, agents: list[_Agent]) -> None:
        for agent in agents:
            if agent.type != _GPU_AGENT or agent.id.handle in self.devices:
                continue
            self.devices[agent.id.handle] = agent.logical_node_type_id
            name = agent.product_name or agent.name
            about = {"id": agent.logical_node_type_id, "name": name, "numSms": agent.cu_count}
            self.about.append({**about, "warpSize": agent.wave_front_size})

    def _add(self, records: list[_Record], **more: Any) -> None:
        start, end, correlation = [
            _numbers(values)
            for values in (
                [one.start_timestamp for one in records],
                [one.end_timestamp for one in records],
                [one.correlation_id.internal for one in records],
            )
        ]
        self.spans.add(start, end, correlation=np.maximum(correlation, 0), **more)

    def _stream(self, process: int, agent: int, stream: int | None, queue: int) -> int:
        """The track of a stream; where none is told, of a queue."""
        device = self.devices.get(agent, -1)
        if stream is None:
            return self.tracks.stream(process, device, ~queue, f"queue {queue}")
        return self.tracks.stream(process, device, stream)

    def _add_kernels(self, process: int, tool: _Tool, records: list[_Record]) -> None:
        symbols = {symbol.kernel_id: symbol for symbol in tool.kernel_symbols}
        # Where only queues are told, all streams are 0.
        has_streams = any(one.stream_id and one.stream_id.handle for one in records)
        tracks, names, grids, blocks, registers, shared = ([] for _ in range(6))
        for one in records:
            info = one.dispatch_info or _Dispatch()
            stream = None
            if has_streams and one.stream_id:
                stream = one.stream_id.handle
            agent = info.agent_id.handle
            queue = info.queue_id.handle
            track = self._stream(process, agent, stream, queue)
            tracks.append(track)
            symbol = symbols.get(info.kernel_id, _Symbol(info.kernel_id))
            names.append(_name(symbol))
            size = info.workgroup_size
            grid = _blocks(info.grid_size, size)
            grids.append(grid)
            block = size.x, size.y, size.z
            blocks.append(block)
            registers.append(symbol.arch_vgpr_count or None)
            shared.append(info.group_segment_size)
        columns = (grids, blocks, registers, shared)
        args = self.spans.arguments(_ABOUT_KERNEL, columns)
        where = np.array(tracks, np.int32)
        numbers = self.spans.named(names)
        self._add(records, kind=KERNEL, track=where, name=numbers, args=args)

    def _add_copies(self, process: int, tool: _Tool, records: list[_Record]) -> None:
        tracks, names, sizes = [], [], []
        for one in records:
            agent = self._agent_of(one)
            stream = one.stream_id.handle if one.stream_id else 0
            track = self._stream(process, agent, stream, 0)
            tracks.append(track)
            what = _operation(tool, one)
            short = _short(what.removeprefix(_COPY))
            names.append(f"Memcpy {short}")
            sizes.append(one.bytes)
        args = self.spans.arguments(("bytes",), (sizes,))
        where = np.array(tracks, np.int32)
        self._add(records, kind=MEMCPY, track=where, name=self.spans.named(names), args=args)

    def _agent_of(self, copy: _Record) -> int:
        """The GPU that a copy leads to, else the one that it comes from; 0: none."""
        for agent in (copy.dst_agent_id, copy.src_agent_id):
            if agent and agent.handle in self.devices:
                return agent.handle
        return 0

    def _add_calls(
        self, process: int, records: list[_Record], names: list[str], kinds: np.ndarray
    ) -> None:
        track = [self.tracks.thread(process, one.thread_id) for one in records]
        where = np.array(track, np.int32)
        numbers = self.spans.named(names)
        self._add(records, kind=kinds, track=where, name=numbers)

    def _add_ranges(self, process: int, tool: _Tool, records: list[_Record]) -> None:
        """A range is told by its correlation."""
        texts = {message.key: message.value for message in tool.strings.marker_api}
        names = []
        for one in records:
            text = texts.get(one.correlation_id.internal)
            names.append(text or _operation(tool, one))
        kinds = np.full(len(records), _TASK)
        self._add_calls(process, records, names, kinds)


def _numbers(values: list[int]) -> np.ndarray:
    """Numbers that fit; others are beyond all times."""
    fitting = [one if abs(one) < _MOST_NUMBER else MOST_NS for one in values]
    return np.array(fitting, np.int64)


def _operation(tool: _Tool, record: _Record) -> str:
    """What a record is called."""
    kinds = tool.strings.buffer_records
    known = kinds[record.kind].operations if 0 <= record.kind < len(kinds) else []
    if 0 <= record.operation < len(known):
        return known[record.operation]
    return f"operation {record.operation} of kind {record.kind}"


def _name(symbol: _Symbol) -> str:
    for name in (symbol.formatted_kernel_name, symbol.kernel_name):
        if isinstance(name, str) and name:
            return name.removesuffix(".kd")
    return f"kernel {symbol.kernel_id}"


def _blocks(grid: _Size, block: _Size) -> tuple[int, int, int]:
    """How many blocks a grid has."""
    x = _parts(grid.x, block.x)
    y = _parts(grid.y, block.y)
    z = _parts(grid.z, block.z)
    return x, y, z


def _parts(items: int, size: int) -> int:
    """How many parts of a size there are, of which the last may be smaller."""
    if size <= 0:
        return items
    return -(-items // size)


def _short(what: str) -> str:
    """HOST_TO_DEVICE as Kineto has it: HtoD."""
    source, _, target = what.partition("_TO_")
    return f"{source[:1]}to{target[:1]}" if target else what.lower()
