"""XSpace files, made byte by byte, and those of the corpus."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layerscope import sources
from layerscope.analyse.gpu.breakdown import breakdown
from layerscope.analyse.gpu.work import devices_of, read_work
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.model.layers import KINDS
from layerscope.recording.reader import Reader
from layerscope.sources import trace_scan, xplane
from tests.corpus import corpus

BEGAN_NS = 1_757_516_928_000_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def message(*fields: tuple[int, int | bytes | str]) -> bytes:
    """Fields with their numbers."""
    found = b""
    for key, value in fields:
        if isinstance(value, int):
            found += varint(key << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            found += varint(key << 3 | 2) + varint(len(content)) + content
    return found


class Plane:
    """Writes a plane; names get numbers as they come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[bytes] = []
        self.own: list[bytes] = []
        self.raw: dict[str, bytes] = {}
        self.names: dict[str, int] = {}
        self.stats: dict[str, int] = {}

    def stat(self, name: str, value: int | str | bytes) -> bytes:
        key = self.stats.setdefault(name, len(self.stats) + 1)
        kind = 4 if isinstance(value, int) else 5 if isinstance(value, str) else 6
        return message((1, key), (kind, value))

    def event(self, name: str, start_ns: int, dur_ns: int, **stats: int | str) -> bytes:
        key = self.names.setdefault(name, len(self.names) + 1)
        told = [(4, self.stat(one, value)) for one, value in stats.items()]
        return message((1, key), (2, start_ns * 1000), (3, dur_ns * 1000), *told)

    def line(self, number: int, name: str, at_ns: int, *events: bytes) -> None:
        self.lines.append(
            message((1, number), (2, name), (3, at_ns), *((4, one) for one in events))
        )

    def content(self) -> bytes:
        events = []
        for name, key in self.names.items():
            raw = [(5, self.stat("Hlo Proto", self.raw[name]))] if name in self.raw else []
            events.append((4, message((1, key), (2, message((1, key), (2, name), *raw)))))
        stats = [
            (5, message((1, key), (2, message((1, key), (2, name)))))
            for name, key in self.stats.items()
        ]
        own = [(6, one) for one in self.own]
        return message((2, self.name), *((3, one) for one in self.lines), *events, *stats, *own)


def space() -> bytes:
    """A kernel, its call, a step, a function of Python and the program that XLA made."""
    programs = Plane("/host:metadata")
    index = message(
        (1, "train.py"), (2, "loss"), (3, message((1, 1), (2, 1), (3, 12))), (4, message((1, 1)))
    )
    metadata = message((2, "jit(loss)/dot"), (15, 1))
    instruction = message((1, "dot.3"), (2, "fusion"), (7, metadata))
    module = message((1, "jit_loss"), (3, message((2, instruction))), (17, index))
    programs.names["jit_loss(7)"] = 1
    programs.raw["jit_loss(7)"] = message((1, module))
    gpu = Plane("/device:GPU:1")
    hlo = {"hlo_op": "dot.3", "hlo_module": "jit_loss", "program_id": 7}
    details = "regs:32 static_shared:8 dynamic_shared:4 grid:4,2,1 block:64,1,1 occ_pct:50"
    kernel = gpu.event("gemm", 50, 40, correlation_id=9, kernel_details=details, **hlo)
    copy = gpu.event("MemcpyD2H", 95, 5, memcpy_details="kind:Pageable size:64 dest:0 async:1")
    gpu.line(3, "Stream #3(Kernel)", 1_000, kernel, copy)
    gpu.line(4, "XLA Ops", 1_000, gpu.event("dot.3", 50, 40))
    gpu.own.append(gpu.stat("core_count", 132))
    host = Plane("/host:CPU")
    host.line(
        77,
        "python",
        1_000,
        host.event("train", 0, 100, step_num=3),
        host.event("$train.py:12 loss", 1, 98),
        host.event("cuLaunchKernel", 10, 5, correlation_id=9, run_id=1),
        host.event("ThreadpoolListener::StartRegion", 20, 0),
    )
    host.line(78, "tf_XLAEigen/-5", 1_000, host.event("dot.3", 30, 7, run_id=5, **hlo))
    environment = Plane("Task Environment")
    environment.own.append(environment.stat("profile_start_time", BEGAN_NS))
    planes = [(1, one.content()) for one in (programs, gpu, host, environment)]
    return message(*planes, (4, "machine"))


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with Reader(open_run(path)) as reader:
        found = reader.query(query)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


SPANS = """SELECT s.name, s.layer, s.kind, t.name, s.start_ns - (SELECT min(start_ns) FROM spans),
    s.dur_ns FROM spans s JOIN tracks t USING (track) ORDER BY s.start_ns, t.name"""


@pytest.mark.parametrize("is_packed", [False, True])
def test_work_calls_steps_and_instructions_of_a_space(tmp_path: Path, is_packed: bool) -> None:
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(gzip.compress(space()) if is_packed else space())
    assert rows(path, SPANS) == [
        ("train", "ranges", "task", "python", 0, 100),
        ("train.py:12 loss", "python", "call", "python: Python", 1, 98),
        ("cuLaunchKernel", "runtime", "launch", "python", 10, 5),
        ("dot.3", "operators", "function", "tf_XLAEigen", 30, 7),
        ("dot.3", "ranges", "event", "/device:GPU:1: XLA Ops", 50, 40),
        ("gemm", "gpu", "kernel", "stream 3", 50, 40),
        ("MemcpyD2H", "gpu", "memcpy", "stream 3", 95, 5),
    ]
    links = """SELECT l.kind, a.name, b.name FROM links l JOIN spans a ON a.span = l.from_span
        JOIN spans b ON b.span = l.to_span"""
    assert rows(path, links) == [("launch_gpu", "cuLaunchKernel", "gemm")]
    assert rows(path, "SELECT name, line FROM spans WHERE line IS NOT NULL ORDER BY name") == [
        ("dot.3", "train.py:12"),
        ("gemm", "train.py:12"),
    ]
    told = json.loads(
        rows(path, "SELECT json FROM spans JOIN args USING (args) WHERE name = 'gemm'")[0][0]
    )
    assert told == {
        "grid": [4, 2, 1],
        "block": [64, 1, 1],
        "registers per thread": 32,
        "shared memory": 12,
        "est. achieved occupancy %": 50.0,
        "hlo_op": "dot.3",
        "hlo_module": "jit_loss",
        "program_id": 7,
        "op_name": "jit(loss)/dot",
        "opcode": "fusion",
    }
    assert rows(path, "SELECT device FROM tracks WHERE kind = 'stream'") == [(1,)]
    assert rows(path, "SELECT name FROM marks WHERE kind = 'marker'") == [
        ("ThreadpoolListener::StartRegion",)
    ]


def test_a_space_tells_its_host_its_steps_and_when_it_began(tmp_path: Path) -> None:
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(space())
    found = xplane.read(path)
    assert (found.host, found.step_mark) == ("machine", "train")
    assert found.realtime_ns == BEGAN_NS + 1_000
    assert json.loads(str(found.processes[0].about)) == {
        "deviceProperties": [{"id": 1, "name": "device", "numSms": 132}]
    }


def test_a_space_is_recognised_by_its_first_plane() -> None:
    def recognised(head: bytes) -> list[str]:
        known = [one for one in sources.known() if one.recognises(head)]
        return [one.__name__.rpartition(".")[2] for one in known]

    assert recognised(space()[:200]) == ["xplane"]
    assert recognised(message((1, message((2, "a name"))))) == []


def test_a_space_that_is_cut_anywhere_opens_to_the_cut(tmp_path: Path) -> None:
    whole = space()
    path = tmp_path / "cut.xplane.pb"
    counts = []
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        found = xplane.read(path)
        counts.append(len(found.start_ns) + len(found.moments.at_ns))
    assert counts == sorted(counts)
    assert counts[-1] == 8
    assert "trace_cut" in {problem.code for problem in found.problems}


def test_mutated_spaces_open(tmp_path: Path) -> None:
    whole = space()
    path = tmp_path / "mutated.xplane.pb"
    chance = random.Random(7)
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(chance.choice((1, 3, 30))):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content)
        assert len(xplane.read(path).start_ns) < 1000


def test_nothing_that_cannot_be_ends_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "odd.xplane.pb"
    plane = Plane("/device:GPU:0")
    plane.line(1, "Stream #1", (1 << 63) - 1, plane.event("late", 5, 5))
    plane.line(2, "Stream #99999999999999999999", 0, plane.event("long", 0, (1 << 62) // 1000))
    for content in (b"", b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0f"):
        path.write_bytes(message((1, plane.content())) + content)
        found = xplane.read(path)
        assert (found.dur_ns >= 0).all()
        assert "events_rejected" in {problem.code for problem in found.problems}


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Another reading of the wire format."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value += (byte % 128) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key % 8 == 0:
            yield key // 8, number()
        elif key % 8 == 2:
            length = number()
            at += length
            yield key // 8, data[at - length : at]
        else:
            size = 8 if key % 8 == 1 else 4
            at += size
            yield key // 8, data[at - size : at]


@pytest.mark.parametrize(
    "name",
    [
        "jax_conv_minimal_legacy.chi-mi300x-013.xplane.pb",
        "jax_te_fused_attn.934987a2fc2f.xplane.pb",
    ],
)
def test_counts_of_the_corpus_are_those_of_another_reading(name: str) -> None:
    path = corpus(f"xplane/{name}")
    found = xplane.read(path)
    counts: Counter[str] = Counter()
    work_ns = 0
    for key, plane in fields(path.read_bytes()):
        told = list(fields(plane)) if key == 1 else []
        is_gpu = any(one == 2 and value.startswith(b"/device:GPU") for one, value in told)
        names = {}
        for one, value in told:
            if one == 4:
                entry = dict(fields(value))
                names[entry[1]] = dict(fields(entry[2])).get(2, b"").decode()
        for one, value in told:
            events = (
                [dict(fields(two)) for kind, two in fields(value) if kind == 4] if one == 3 else []
            )
            counts.update(names[event[1]].removeprefix("$") for event in events)
            if is_gpu:
                work_ns += sum(event[3] for event in events) // 1000
    ours = Counter(found.names[one] for one in found.name.tolist())
    ours.update(found.names[one] for one in found.moments.name.tolist())
    assert ours == counts
    is_work = sum(found.kind == KINDS.index(kind) for kind in ("kernel", "memcpy", "memset")) > 0
    assert int(found.dur_ns[is_work].sum()) == work_ns


def test_without_the_compiled_part_the_remedy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(space())
    monkeypatch.setattr(trace_scan, "LIBRARY", tmp_path / "none.so")
    trace_scan.compiled_scan.cache_clear()
    try:
        with pytest.raises(ReadError, match="install a C compiler"):
            xplane.read(path)
    finally:
        trace_scan.compiled_scan.cache_clear()


def test_events_that_differ_in_nothing_that_is_kept_have_their_arguments_once(
    tmp_path: Path,
) -> None:
    plane = Plane("/host:CPU")
    events = [
        plane.event("dot.3", n, 1, hlo_op="dot.3", run_id=n, _flow=n, correlation_id=n + 1)
        for n in range(50)
    ]
    plane.line(1, "python", 0, *events)
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(message((1, plane.content())))
    found = xplane.read(path)
    assert found.args_texts == ['{"hlo_op": "dot.3"}']
    assert found.start_ns.tolist() == list(range(50))


def test_a_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xplane, "_MOST_BYTES", 100)
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(space())
    with pytest.raises(ReadError, match="more than 2 GiB"):
        xplane.read(path)


def test_times_of_the_gpus_are_those_of_tracelens() -> None:
    path = corpus("xplane/jax_conv_minimal_legacy.chi-mi300x-013.xplane.pb")
    golden = corpus("golden/tracelens/jax_conv_minimal/gpu_timeline.csv")
    told: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(golden.read_text().splitlines()):
        # It numbers what it read from 1 on.
        of_gpu = told.setdefault(int(row["gpu_pid"]) - 1, {})
        of_gpu[row["type"]] = float(row["time ms"])
    with Reader(open_run(path)) as reader:
        parts = devices_of(read_work(reader))
    assert {device for _, device, _ in parts} == told.keys()
    for _, device, work in parts:
        times = breakdown(work.chosen(work.is_launched))
        of_gpu = told[device]
        for ours_ns, name in (
            (times.span_ns, "total_time"),
            (times.busy_ns, "busy_time"),
            (times.idle_ns, "idle_time"),
            (times.compute_ns, "computation_time"),
            (times.exposed_copy_ns, "exposed_memcpy_time"),
        ):
            assert ours_ns / 1e6 == pytest.approx(of_gpu[name], abs=1e-4)
