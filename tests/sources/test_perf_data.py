"""`perf.data`: files with a known content, and real ones against what `perf script` says of
them.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.model.errors import ReadError
from layerscope.model.layers import SAMPLE_KINDS, SAMPLE_STATES
from layerscope.sources import perf_data, perf_file, perf_records, perf_threads
from layerscope.sources.imported import Imported
from tests.sources import perf_writer as pw

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "perf"
CPU, OFFCPU, FAULT = range(3)
EXE, LIB, OTHER = b"/nowhere/program", b"/nowhere/libone.so", b"/nowhere/libtwo.so"


def read(tmp_path: Path, content: bytes) -> Imported:
    path = tmp_path / "perf.data"
    path.write_bytes(content)
    return perf_data.read(path)


def stack_names(content: Imported) -> list[list[str]]:
    """The names on the stack of each sample, from the outermost on, in the order of time."""
    assert content.stacks is not None
    frames, stacks = content.stacks.frames, content.stacks.stacks
    found = []
    for stack in content.stacks.samples["stack"].tolist():
        names: list[str] = []
        while stack >= 0:
            names.append(frames["name"][stacks["frame"][stack]])
            assert stacks["parent"][stack] < stack
            stack = int(stacks["parent"][stack])
        found.append(names[::-1])
    return found


def column(content: Imported, name: str) -> list[int]:
    assert content.stacks is not None
    values: list[int] = content.stacks.samples[name].tolist()
    return values


def codes(content: Imported) -> set[str]:
    return {problem.code for problem in content.problems}


def usual() -> pw.Writer:
    """A program with two threads: 3 samples of the first, 2 of the second."""
    writer = pw.Writer()
    writer.event()
    writer.comm(10, 10, b"perf-exec")
    writer.comm(10, 10, b"program", 100, is_exec=True)
    writer.map(10, 0x1000, 0x1000, 0, EXE, 110)
    writer.map(10, 0x8000, 0x1000, 0x2000, LIB, 120, build=bytes(range(20)))
    writer.fork(10, 10, 11, 10, 150)
    for at in range(3):
        writer.sample(200 + at, 10, [pw.USER, 0x8010, 0x1020])
    for at in range(2):
        writer.sample(
            300 + at,
            11,
            [pw.KERNEL, 0xFFFFFFFF81000010, 0xFFFFFFFF81000100, pw.USER, 0x1010],
            pid=10,
            misc=1,
        )
    return writer


# -- known content ---------------------------------------------------------------------------------


def test_samples_threads_and_stacks(tmp_path: Path) -> None:
    content = read(tmp_path, usual().file())
    assert [(track.tid, track.name) for track in content.tracks] == [
        (10, "program"),
        (11, "program"),
    ]
    assert [process.pid for process in content.processes] == [10]
    assert column(content, "track") == [0, 0, 0, 1, 1]
    assert column(content, "at_ns") == [200, 201, 202, 300, 301]
    assert column(content, "weight_ns") == [1_000_000] * 5
    assert [SAMPLE_STATES[state] for state in column(content, "state")] == ["user"] * 3 + [
        "kernel"
    ] * 2
    assert (
        stack_names(content) == [["[program]", "[libone.so]"]] * 3 + [["[program]", "[kernel]"]] * 2
    )
    assert content.problems == []


def test_addresses_are_those_of_instructions(tmp_path: Path) -> None:
    """Where the innermost function is, and where the others have their call: one less than where it
    returns.
    """
    content = read(tmp_path, usual().file())
    assert content.stacks is not None
    frames = content.stacks.frames
    told = {
        name: (place, build)
        for name, place, build in zip(
            frames["name"], frames["address"], frames["build_id"], strict=True
        )
    }
    assert told["[libone.so]"] == (0x2010, bytes(range(20)).hex())
    assert told["[program]"][0] in (0x10, 0x1F)


@pytest.mark.parametrize("as_pipe", [False, True])
@pytest.mark.parametrize("is_packed", [False, True])
def test_file_and_pipe_tell_the_same(tmp_path: Path, as_pipe: bool, is_packed: bool) -> None:
    writer = usual()
    writer.features = {perf_file.HOSTNAME: pw.text("example"), perf_file.VERSION: pw.text("6.1"),
                       perf_file.CMDLINE: struct.pack("<I", 2) + pw.text("perf") + pw.text("record")}  # fmt: skip
    file = writer.pipe() if as_pipe else writer.file()
    content = read(tmp_path, gzip.compress(file) if is_packed else file)
    assert stack_names(content) == stack_names(read(tmp_path, usual().file()))
    assert (content.host, content.versions, content.command) == (
        "example",
        {"perf": "6.1"},
        ["perf", "record"],
    )


def test_a_library_in_place_of_another(tmp_path: Path) -> None:
    """The same address means the one before, the other after."""
    writer = usual()
    writer.map(10, 0x8000, 0x1000, 0, OTHER, 400)
    writer.sample(500, 10, [pw.USER, 0x8010, 0x1020])
    writer.sample(190, 10, [pw.USER, 0x8010, 0x1020])
    found = stack_names(read(tmp_path, writer.file()))
    assert found[0] == ["[program]", "[libone.so]"]
    assert found[-1] == ["[program]", "[libtwo.so]"]


def test_a_child_has_its_parents_mappings_until_it_runs_another_program(tmp_path: Path) -> None:
    writer = usual()
    writer.fork(20, 10, 20, 10, 400)
    writer.sample(410, 20, [pw.USER, 0x1010])
    writer.comm(20, 20, b"child", 420, is_exec=True)
    writer.map(20, 0x1000, 0x1000, 0, OTHER, 430)
    writer.sample(440, 20, [pw.USER, 0x1010])
    content = read(tmp_path, writer.file())
    assert stack_names(content)[-2:] == [["[program]"], ["[libtwo.so]"]]
    assert [(process.pid, process.ppid) for process in content.processes] == [(10, None), (20, 10)]
    assert content.tracks[-1].name == "child"


def test_numbers_that_are_used_again_are_other_threads(tmp_path: Path) -> None:
    writer = usual()
    writer.fork(10, 10, 11, 11, 400, is_exit=True)
    writer.fork(10, 10, 11, 10, 500)
    writer.sample(600, 11, [pw.USER, 0x1010], pid=10)
    content = read(tmp_path, writer.file())
    assert [(track.tid, track.end_ns) for track in content.tracks] == [
        (10, None),
        (11, 400),
        (11, None),
    ]
    assert column(content, "track") == [0, 0, 0, 1, 1, 2]


def test_code_without_a_file_is_jit(tmp_path: Path) -> None:
    writer = usual()
    writer.map(10, 0x20000, 0x1000, 0, b"//anon", 130)
    writer.sample(500, 10, [pw.USER, 0x20010, 0x30000, 0x1020])
    assert stack_names(read(tmp_path, writer.file()))[-1] == ["[program]", "[unknown]", "[jit]"]


def test_without_stacks_the_address_is_the_stack(tmp_path: Path) -> None:
    writer = pw.Writer()
    writer.event(sample_type=pw.IP | pw.TID | pw.TIME | pw.CPU)
    writer.map(10, 0x1000, 0x1000, 0, EXE)
    writer.sample(5, 10, ip=0x1010)
    writer.sample(6, 10, ip=0xFFFFFFFF81000010, misc=1)
    content = read(tmp_path, writer.file())
    assert stack_names(content) == [["[program]"], ["[kernel]"]]
    assert column(content, "weight_ns") == [1_000_000] * 2


def test_values_read_with_a_sample_are_skipped(tmp_path: Path) -> None:
    """A group of two, with both times, ids and lost counts."""
    writer = pw.Writer()
    writer.event(sample_type=pw.USUAL | pw.READ, read_format=31)
    writer.map(10, 0x1000, 0x1000, 0, EXE)
    writer.sample(5, 10, [pw.USER, 0x1010], read=struct.pack("<9Q", 2, 7, 7, 1, 100, 0, 2, 101, 0))
    assert stack_names(read(tmp_path, writer.file())) == [["[program]"]]


def test_of_two_clocks_one_is_the_cpu_time(tmp_path: Path) -> None:
    writer = pw.Writer()
    writer.event((1, 1))
    writer.event(pw.CPU_CLOCK)
    writer.event(pw.FAULTS)
    writer.sample(1, 10, [pw.USER, 1], event=0)
    writer.sample(2, 10, [pw.USER, 1], event=1)
    writer.sample(3, 10, [pw.USER, 1], event=2, period=7)
    content = read(tmp_path, writer.file())
    assert column(content, "at_ns") == [2, 3]
    assert [SAMPLE_KINDS[kind] for kind in column(content, "kind")] == ["cpu", "fault"]
    assert column(content, "count") == [1, 7]
    assert column(content, "weight_ns") == [1_000_000, 0]
    assert "task-clock (1)" in content.problems[0].what


def test_counts_of_another_event_are_shares_of_its_time(tmp_path: Path) -> None:
    """99 a second were asked for: the usual period is 1/99 s, and the short ones of the beginning
    are less.
    """
    writer = pw.Writer()
    writer.event(pw.CYCLES, period=100, flags=pw.SAMPLE_ID_ALL | pw.FREQ)
    for at, period in enumerate([1, 3000, *[3_000_000] * 20]):
        writer.sample(at, 10, [pw.USER, 1], period=period)
    assert column(read(tmp_path, writer.file()), "weight_ns") == [3, 10_000, *[10_000_000] * 20]


USER_ONLY, KERNEL_ONLY = 1 << 5 | 1 << 6, 1 << 4 | 1 << 6
OTHER_CORES = (0, 7 << 32)


@pytest.mark.parametrize(
    ("events", "shown"),
    [([(pw.CYCLES, 0), (pw.CYCLES, USER_ONLY)], {0}),
     ([(pw.CYCLES, USER_ONLY), (pw.CYCLES, 0)], {1}),
     ([(pw.CYCLES, USER_ONLY), (pw.CYCLES, KERNEL_ONLY)], {0, 1}),
     ([(pw.CYCLES, 0), (OTHER_CORES, 0), (OTHER_CORES, USER_ONLY)], {0, 1})],
)  # fmt: skip
def test_cycles_are_counted_once(
    tmp_path: Path, events: list[tuple[tuple[int, int], int]], shown: set[int]
) -> None:
    """On each kind of core, of each side."""
    writer = pw.Writer()
    for kind, flags in events:
        writer.event(kind, period=99, flags=pw.SAMPLE_ID_ALL | pw.FREQ | flags)
    for number in range(len(events)):
        writer.sample(number, 10, [pw.USER, 1], event=number, period=1_000_000)
    content = read(tmp_path, writer.file())
    assert set(column(content, "at_ns")) == shown
    assert codes(content) == ({"perf_events"} if len(shown) < len(events) else set())


def test_what_was_lost_is_counted(tmp_path: Path) -> None:
    writer = usual()
    writer.lost(250, 42)
    assert read(tmp_path, writer.file()).lost == [(250, 42)]


def test_the_clock_of_the_run(tmp_path: Path) -> None:
    writer = pw.Writer()
    writer.event(flags=pw.SAMPLE_ID_ALL | pw.USE_CLOCKID)
    writer.features = {
        perf_file.CLOCK_DATA: struct.pack("<IIQQ", 1, 1, 1_700_000_000_000_000_000, 5_000)
    }
    writer.sample(5_100, 10, [pw.USER, 1])
    content = read(tmp_path, writer.file())
    assert content.environment["clock"] == "CLOCK_MONOTONIC"
    assert (content.realtime_ns, content.realtime_at_ns) == (1_700_000_000_000_000_000, 5_000)
    assert column(content, "at_ns") == [5_100]


# -- what perf unwinds itself ----------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "pointer", "count"), [("x86_64", 8, 17), ("aarch64", 32, 33)])
def test_of_copied_stacks_the_innermost_function_is_known(
    tmp_path: Path, machine: str, pointer: int, count: int
) -> None:
    writer = pw.Writer()
    writer.features = {perf_file.ARCH: pw.text(machine)}
    has = pw.USUAL | pw.REGS_USER | pw.STACK_USER
    writer.event(
        sample_type=has, flags=pw.SAMPLE_ID_ALL | pw.CHAIN_WITHOUT_USER, registers=(1 << count) - 1
    )
    writer.map(10, 0x1000, 0x1000, 0, EXE)
    registers = [0x1234 if place == pointer else 0 for place in range(count)]
    writer.sample(5, 10, [pw.KERNEL, 0xFFFFFFFF81000010], registers=registers, misc=1)
    writer.sample(6, 10, [], ip=0x1010, registers=registers)
    content = read(tmp_path, writer.file())
    assert stack_names(content) == [["[program]", "[kernel]"], ["[program]"]]
    assert codes(content) == {"perf_dwarf"}
    assert "perf script" in content.problems[0].remedy


# -- bad files -------------------------------------------------------------------------------------


def test_a_killed_perf_leaves_a_file_that_opens(tmp_path: Path) -> None:
    content = read(tmp_path, usual().unfinished())
    assert len(column(content, "at_ns")) == 5
    assert codes(content) == {"perf_cut"}


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"2ELIFREP" + bytes(200), "order of bytes"), (b"PERFFILE" + bytes(200), "2012"), (b"PERFILE2", "no whole"),
     (b"PERFILE2" + struct.pack("<Q", 16), "was cut before"), (b"PERFILE2" + bytes(20), "damaged"),
     (b"PERFILE2" + bytes(200), "was cut before")],
)  # fmt: skip
def test_what_cannot_be_read_is_a_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    assert perf_data.recognises(content)
    with pytest.raises(ReadError, match=said):
        read(tmp_path, content)


def test_samples_of_no_event_are_counted(tmp_path: Path) -> None:
    writer = usual()
    writer.event(pw.FAULTS)
    whole = writer.file()
    writer.record(9, 2, struct.pack("<QQiiQ", 999, 0, 10, 10, 5) + bytes(16))
    content = read(tmp_path, writer.file())
    assert codes(content) == {"perf_damaged"}
    assert stack_names(content) == stack_names(read(tmp_path, whole))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_every_cut_opens_up_to_the_cut(tmp_path: Path, data: st.DataObject) -> None:
    for whole in (usual().file(), usual().pipe()):
        cut = data.draw(st.integers(0, len(whole) - 1))
        try:
            content = read(tmp_path, whole[:cut])
        except ReadError:
            assert cut < len(whole) - sum(map(len, usual().records))
            continue
        times = column(content, "at_ns")
        assert times == [200, 201, 202, 300, 301][: len(times)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    st.binary(max_size=40),
    st.integers(0, 10_000),
    st.sampled_from(["usual", "pipe.data", "file.data"]),
)
@pytest.mark.slow
def test_damage_is_never_a_traceback(tmp_path: Path, junk: bytes, place: int, name: str) -> None:
    whole = usual().file() if name == "usual" else (GOLDEN / name).read_bytes()
    place %= len(whole)
    try:
        content = read(tmp_path, whole[:place] + junk + whole[place + len(junk) :])
    except ReadError:
        return
    assert content.stacks is not None
    assert len(stack_names(content)) == len(content.stacks.samples["at_ns"])


# -- real files, and what perf script says of them -------------------------------------------------

Told = Counter[tuple[str, int, str, tuple[str, ...]]]


def told_by_perf(text: str) -> Told:
    """(name of the thread, tid, event, addresses from the innermost on) of each sample in the
    text.
    """
    found: Told = Counter()
    for block in text.strip("\n").split("\n\n"):
        head, *lines = block.split("\n")
        fields = re.fullmatch(r"\s*(.*?)\s+\d+/(\d+)\s+\d+\.\d+:\s+\d+\s+(\S+?):\s*", head)
        assert fields, head
        found[fields[1], int(fields[2]), fields[3], tuple(line.split()[0] for line in lines)] += 1
    return found


def told_by_us(path: Path) -> Told:
    """The same by the reader's own parts; perf prints addresses of a file (and no others) by their
    place in it.
    """
    file = perf_file.open_file(path)
    decoded = perf_records.decoded(file)
    threads = perf_threads.threads(file)
    rows = decoded.samples
    tracks = threads.tracks(rows.tid, rows.pid, rows.time).tolist()
    spaces = threads.spaces_of(rows.pid, rows.time).tolist()
    found: Told = Counter()
    for event, chain, track, space in zip(
        rows.event.tolist(), rows.chain.tolist(), tracks, spaces, strict=True
    ):
        mappings = [one for one in threads.spaces[space].mappings
                    if not one.object.path.startswith(("//anon", "[heap", "[stack", "/dev/zero", "/SYSV"))]  # fmt: skip
        addresses = []
        for word in np.frombuffer(decoded.chains[chain], "<u8").tolist():
            inside = [one for one in mappings if one.start <= word < one.end]
            if word < perf_records.CONTEXTS:
                addresses.append(
                    f"{word - inside[0].start + inside[0].offset if inside else word:x}"
                )
        thread = threads.threads[track]
        found[thread.name, thread.tid, file.events[event].name, tuple(addresses)] += 1
    return found


@pytest.mark.parametrize("name", ["file", "pipe"])
def test_the_same_samples_as_perf_script(name: str) -> None:
    told = told_by_perf((GOLDEN / f"{name}.txt").read_text())
    assert sum(told.values()) > 20
    assert told_by_us(GOLDEN / f"{name}.data") == told


@pytest.mark.slow
@pytest.mark.parametrize("options", [["-g"], ["-g", "-z"], ["-g", "-e", "cpu-clock:u,page-faults:u"], ["-g", "-a"],
                                     ["-g", "--switch-events", "-c", "500000"], ["-g", "--buildid-mmap"]])  # fmt: skip
def test_the_same_samples_as_this_machines_perf(tmp_path: Path, options: list[str]) -> None:
    perf, compiler = shutil.which("perf"), shutil.which("gcc")
    if not perf or not compiler:
        pytest.skip("there is no perf or no gcc on this machine")
    program, file = tmp_path / "known_answer", tmp_path / "perf.data"
    subprocess.run(
        [
            compiler,
            "-O1",
            "-fno-omit-frame-pointer",
            "-pthread",
            "-o",
            program,
            GOLDEN / "known_answer.c",
        ],
        check=True,
    )
    event = [] if "-e" in options else ["-e", "cpu-clock:u"]
    made = subprocess.run(
        [perf, "record", "-q", *event, *options, "-o", file, program],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if made.returncode:
        pytest.skip(f"perf cannot record here: {made.stderr.strip().splitlines()[-1:]}")
    fields = "comm,pid,tid,time,period,event,ip,sym,dso"
    text = subprocess.run(
        [perf, "script", "--no-inline", "--ns", "-F", fields, "-i", file],
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    ours, told = told_by_us(file), told_by_perf(text)
    if "-a" in options:
        # Threads have their last name here, in perf that of the moment; and of a few that end perf
        # prints no stack.
        ours, told = (Counter(("", *key[1:]) for key in one.elements()) for one in (ours, told))
        bare = Counter({key: count for key, count in (told - ours).items() if not key[3]})
        assert sum(bare.values()) < sum(told.values()) / 100
        assert without_stacks(ours) == without_stacks(told)
        ours, told = ours & told, told - bare
    assert ours == told


def without_stacks(samples: Told) -> Counter[tuple[str, int, str]]:
    return Counter(key[:3] for key in samples.elements())


# By MANIFEST.md of the corpus: as perf's own tools count them.
CORPUS = {
    "multi-event-single-process.perf.data": {"cpu-clock": 19789, "task-clock": 19428},
    "single-event-multi-process.perf.data": {"cpu-clock": 19989},
    "single-event-single-process.perf.data": {"cpu-clock": 45937},
    "sleep.compressed.pipe.data": {"cycles:P": 8}, "sleep.compressed.data": {"cycles:P": 8},
    "sleep.compressed2.data": {"cycles:Pu": 7}, "sleep.compressed2.pipe.data": {"cycles:P": 7},
    "sleep.data": {"cycles:Pu": 7}, "fibo.compressed2.pipe.data": {"cycles:P": 547},
}  # fmt: skip


@pytest.mark.parametrize("name", CORPUS)
def test_files_of_others(name: str) -> None:
    path = Path(os.environ.get("LAYERSCOPE_CORPUS", "")) / "perf" / name
    if "LAYERSCOPE_CORPUS" not in os.environ or not path.exists():
        pytest.skip("LAYERSCOPE_CORPUS names no folder with this perf.data")
    file = perf_file.open_file(path)
    decoded = perf_records.decoded(file)
    counts = Counter(file.events[event].name for event in decoded.samples.event.tolist())
    assert counts == CORPUS[name]
    assert (decoded.damaged, decoded.unknown) == (0, 0)
    content = perf_data.read(path)
    assert len(column(content, "at_ns")) == max(CORPUS[name].values())
