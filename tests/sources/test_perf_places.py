"""Where the addresses in `perf.data` lie: mappings, segments of files, and the kernel."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

import pytest

from layerscope.rawfile import jit_maps
from layerscope.sources import perf_data, perf_file
from layerscope.sources.imported import Imported
from tests.sources import perf_writer as pw
from tests.sources.test_perf_data import EXE, LIB, OTHER, read, stack_names

BUILD = bytes(range(20))


def address(content: Imported) -> int:
    """The address of the innermost frame of the first sample, as the symbols of its file count."""
    assert content.stacks is not None
    found: int = content.stacks.frames["address"][
        content.stacks.stacks["frame"][content.stacks.samples["stack"][0]]
    ]
    return found


# -- mappings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outer", "inner", "offset", "expected"),
    [(LIB, OTHER, 0, ["[libone.so]", "[libtwo.so]", "[libone.so]"]),
     (LIB, LIB, 0x2000, ["[libone.so]"] * 3),
     (LIB, b"//anon", 0, ["[libone.so]", "[jit]", "[libone.so]"]),
     (b"//anon", LIB, 0, ["[jit]", "[libone.so]", "[jit]"])],
)  # fmt: skip
def test_around_a_mapping_inside_another_one_stays(
    tmp_path: Path, outer: bytes, inner: bytes, offset: int, expected: list[str]
) -> None:
    writer = pw.Writer()
    writer.event()
    writer.map(10, 0x10000, 0x9000, 0, outer, 10)
    writer.map(10, 0x12000, 0x1000, offset, inner, 20)
    for at, place in enumerate((0x11000, 0x12500, 0x15000)):
        writer.sample(30 + at, 10, [pw.USER, place])
    assert stack_names(read(tmp_path, writer.file())) == [[name] for name in expected]


@pytest.mark.parametrize(
    ("place", "expected"), [(0x11FFF, 0x4FFF), (0x13000, 0x6000), (0x18FFF, 0xBFFF)]
)
def test_the_rest_of_a_mapping_shows_the_same_of_its_file(
    tmp_path: Path, place: int, expected: int
) -> None:
    writer = pw.Writer()
    writer.event()
    writer.map(10, 0x10000, 0x9000, 0x3000, LIB, 10)
    writer.map(10, 0x12000, 0x1000, 0, OTHER, 20)
    writer.sample(30, 10, [pw.USER, place])
    assert address(read(tmp_path, writer.file())) == expected


def test_a_mapping_over_several_leaves_their_ends(tmp_path: Path) -> None:
    """And one that comes twice, or is shorter than it was, changes nothing."""
    writer = pw.Writer()
    writer.event()
    for start, path in ((0x10000, EXE), (0x12000, LIB), (0x14000, EXE)):
        for size in (0x2000, 0x2000, 0x1000):
            writer.map(10, start, size, 0, path, 10)
    writer.map(10, 0x11000, 0x4000, 0, OTHER, 20)
    places = (0x10FFF, 0x11000, 0x13000, 0x14FFF, 0x15000, 0x16000)
    for at in (15, 30):
        for place in places:
            writer.sample(at, 10, [pw.USER, place])
    names = stack_names(read(tmp_path, writer.file()))
    program, one, two = ["[program]"], ["[libone.so]"], ["[libtwo.so]"]
    assert names == [
        program, program, one, program, program, ["[unknown]"], program, two, two, two, program, ["[unknown]"],
    ]  # fmt: skip


def jit_names(tmp_path: Path, start_ns: int, features: dict[int, bytes]) -> list[str]:
    """The stack of a sample in code that lies in no file, of a process that began at this time."""
    writer = pw.Writer()
    writer.event(flags=pw.SAMPLE_ID_ALL | pw.USE_CLOCKID)
    writer.features = features
    writer.fork(4242, 1, 4242, 1, start_ns)
    writer.map(4242, 0x20000, 0x1000, 0, b"//anon", start_ns + 1)
    writer.sample(start_ns + SECOND_NS, 4242, [pw.USER, 0x20010])
    [names] = stack_names(read(tmp_path, writer.file()))
    return names


SECOND_NS, BEGAN_S = 1_000_000_000, 1_700_000_000


@pytest.mark.parametrize(
    ("written_s", "owner", "is_link", "expected"),
    [
        (101, 0, False, "made"),
        (99, 0, False, "[jit]"),
        (101, 1, False, "[jit]"),
        (101, 0, True, "[jit]"),
    ],
)
def test_only_an_own_map_of_the_process_names_its_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written_s: int,
    owner: int,
    is_link: bool,
    expected: str,
) -> None:
    """Others may write there, and a process before may have had its number. This one began 100 s
    after the clock.
    """
    monkeypatch.setattr(jit_maps, "_MAPS", tmp_path)
    path = tmp_path / "perf-4242.map"
    names = tmp_path / "elsewhere" if is_link else path
    names.write_text("20000 100 made\n")
    os.utime(names, (BEGAN_S + written_s,) * 2)
    if is_link:
        path.symlink_to(names)
    own = names.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: own + owner)
    clock = struct.pack("<IIQQ", 1, 1, BEGAN_S * SECOND_NS, 0)
    assert jit_names(tmp_path, 100 * SECOND_NS, {perf_file.CLOCK_DATA: clock}) == [expected]


@pytest.mark.parametrize(("age_s", "expected"), [(10, "made"), (3600, "[jit]")])
def test_without_a_clock_the_file_tells_when_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: int, expected: str
) -> None:
    """It was written when the last sample had been taken, or a little later."""
    monkeypatch.setattr(jit_maps, "_MAPS", tmp_path)
    path = tmp_path / "perf-4242.map"
    path.write_text("20000 100 made\n")
    os.utime(path, (time.time() - age_s,) * 2)
    assert jit_names(tmp_path, 100 * SECOND_NS, {}) == [expected]


def test_a_mapping_ends_with_the_addresses(tmp_path: Path) -> None:
    writer = pw.Writer()
    writer.event()
    writer.map(10, (1 << 64) - 0x10000, 0x100000, 0, EXE)
    writer.map(10, (1 << 64) - 0x8000, 0x100000, (1 << 64) - 0x1000, LIB)
    for at, place in enumerate((0x10000, 0x8000)):
        writer.sample(at, 10, [pw.USER, (1 << 64) - place])
    assert stack_names(read(tmp_path, writer.file())) == [["[program]"], ["[libone.so]"]]


# -- the kernel ------------------------------------------------------------------------------------

SYMBOLS = """ffffffff91000000 T _text
ffffffff91000100 t do_idle
ffffffff92000000 T _etext
ffffffffc0200000 t ext4_read\t[ext4]
ffffffffc0300000 t nv_ioctl\t[nvidia]
ffffffffc0400000 t kvm_run\t[kvm]
"""


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        (0xFFFFFFFF81000000, ["[kernel]"] * 2),
        (0xFFFFFFFF91000000, ["ext4_read [ext4]", "nv_ioctl [nvidia]"]),
    ],
)
def test_of_an_earlier_boot_only_the_kernel_itself_is_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: int, modules: list[str]
) -> None:
    """Not its modules: their addresses are those of other modules now."""
    (tmp_path / "kallsyms").write_text(SYMBOLS)
    monkeypatch.setattr("layerscope.symbols.kernel_table.KALLSYMS", tmp_path / "kallsyms")
    monkeypatch.setattr("layerscope.sources.perf_kernel._RUNNING", tmp_path / "kallsyms")
    monkeypatch.setattr("layerscope.sources.perf_kernel._is_running", lambda *_: True)
    writer = pw.Writer()
    writer.event()
    writer.map(-1, text, 0x1000000, text, b"[kernel.kallsyms]_text", misc=1)
    writer.map(-1, 0xFFFFFFFFC0200000, 0x10000, 0, b"/lib/modules/6.1/ext4.ko", misc=1)
    for at, place in enumerate((text + 0x110, 0xFFFFFFFFC0200010, 0xFFFFFFFFC0300010)):
        writer.sample(at, 10, [pw.KERNEL, place], misc=1)
    assert stack_names(read(tmp_path, writer.file())) == [[name] for name in ("do_idle", *modules)]


@pytest.mark.parametrize("beside", ["{name}.kallsyms", "kallsyms"])
def test_the_kernel_of_another_machine_has_names_by_a_list_of_symbols_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.setattr("layerscope.sources.perf_kernel._is_running", lambda *_: False)
    writer = kernel_samples()
    assert stack_names(read(tmp_path, writer.file())) == [["[kernel]"]]
    (written,) = [path for path in tmp_path.iterdir() if path.is_file()]
    (tmp_path / beside.format(name=written.name)).write_text(SYMBOLS)
    assert stack_names(perf_data.read(written)) == [["do_idle"]]


def test_a_list_of_symbols_in_the_cache_of_perf_names_the_build_that_it_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layerscope.sources.perf_kernel._is_running", lambda *_: False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    build = bytes(range(20))
    monkeypatch.setattr(
        "layerscope.sources.perf_kernel.builds_of", lambda _: {"[kernel.kallsyms]": build.hex()}
    )
    of_other = tmp_path / "home" / ".debug" / "[kernel.kallsyms]" / "00" / "kallsyms"
    of_other.parent.mkdir(parents=True)
    of_other.write_text(SYMBOLS)
    assert stack_names(read(tmp_path, kernel_samples().file())) == [["[kernel]"]]
    own = of_other.parent.with_name(build.hex()) / "kallsyms"
    own.parent.mkdir()
    own.write_text(SYMBOLS)
    assert stack_names(read(tmp_path, kernel_samples().file())) == [["do_idle"]]


def kernel_samples() -> pw.Writer:
    """A file with a sample in do_idle of a kernel that lies elsewhere than in SYMBOLS."""
    text = 0xFFFFFFFF81000000
    writer = pw.Writer()
    writer.event()
    writer.map(-1, text, 0x1000000, text, b"[kernel.kallsyms]_text", misc=1)
    writer.sample(0, 10, [pw.KERNEL, text + 0x110], misc=1)
    return writer


# -- segments of files -----------------------------------------------------------------------------

READ_EXECUTE, READ_WRITE = 5, 6


def library(path: Path, *segments: tuple[int, int, int, int]) -> bytes:
    """Make an ELF file with these segments (flags, offset, address, bytes) and a build; its
    path.
    """
    note = struct.pack("<III4s", 4, len(BUILD), 3, b"GNU") + BUILD
    rows = [(4, 4, 0x800, 0x800, len(note)), *((1, *segment) for segment in segments)]
    table = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, at, address, address, size, size, 4096)
        for kind, flags, at, address, size in rows
    )
    head = (
        b"\x7fELF\x02\x01".ljust(32, b"\0")
        + struct.pack("<Q", 64)
        + bytes(14)
        + struct.pack("<HH", 56, len(rows))
    )
    path.write_bytes((head.ljust(64, b"\0") + table).ljust(0x800, b"\0") + note)
    return str(path).encode()


@pytest.mark.parametrize(
    ("place", "expected"), [(0x100, 0x2100), (0x1000, 0x3000), (0x13FF, 0x33FF)]
)
def test_the_last_page_of_code_is_not_that_of_the_data_behind_it(
    tmp_path: Path, place: int, expected: int
) -> None:
    """As lld lays files out: the code ends and the data begins in one page."""
    segments = (READ_EXECUTE, 0x1100, 0x2100, 0x1300), (READ_WRITE, 0x2400, 0x4400, 0x1000)
    writer = pw.Writer()
    writer.event()
    writer.map(10, 0x10000, 0x2000, 0x1000, library(tmp_path / "libone.so", *segments), build=BUILD)
    writer.sample(1, 10, [pw.USER, 0x10000 + place])
    assert address(read(tmp_path, writer.file())) == expected
