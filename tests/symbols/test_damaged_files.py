"""Files that are damaged, gone, replaced or no files: names are missing then, and why is said;
nothing is raised.
"""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.symbols import Symbols, dwarf_units, line_program
from layerscope.symbols.elf_file import Content, Damaged, Elf
from layerscope.symbols.line_program import LINE
from tests.symbols.elf_programs import addresses_in, output, program, tool


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("whole"), "-O1", "-g", "-Wl,--build-id=sha1", "-gz=none")


@pytest.fixture(scope="module", params=[4, 5])
def inlining(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A program in which the compiler has inlined functions, in this version of DWARF."""
    folder = tmp_path_factory.mktemp("inlining")
    return program(folder, "-O2", f"-gdwarf-{request.param}", "-gz=none")


@pytest.fixture(scope="module")
def asked(whole: Path) -> np.ndarray:
    return addresses_in(whole, 60)


@pytest.fixture(scope="module")
def shared() -> Symbols:
    return Symbols(None)


def codes(symbols: Symbols) -> list[str]:
    return [problem.code for problem in symbols.problems]


def identity(file: Path) -> bytes:
    notes = output(tool("readelf"), "-nW", str(file))
    return bytes.fromhex(notes.partition("Build ID: ")[2].split()[0])


def test_the_build_that_ran(whole: Path, asked: np.ndarray) -> None:
    with Symbols(None) as symbols:
        assert all(symbols.native(str(whole), identity(whole), asked).name)
        assert symbols.problems == []


def test_another_build_has_no_names_and_that_is_said_once(whole: Path, asked: np.ndarray) -> None:
    with Symbols(None) as symbols:
        for _ in range(2):
            found = symbols.native(str(whole), bytes(20), asked)
            assert (set(found.name), set(found.file), set(found.line.tolist())) == (
                {""},
                {None},
                {-1},
            )
        assert codes(symbols) == ["object_changed"]


def test_a_file_without_a_build_id_is_known_by_its_time(
    whole: Path, asked: np.ndarray, tmp_path: Path
) -> None:
    file = program(tmp_path, "-O1", "-g", "-Wl,--build-id=none")
    mtime_ns = file.stat().st_mtime_ns
    with Symbols(None) as symbols:
        assert all(symbols.native(str(file), b"", addresses_in(file), mtime_ns).name)
        os.utime(file, ns=(0, mtime_ns + 1))
        assert set(symbols.native(str(file), b"", addresses_in(file), mtime_ns).name) == {""}
        assert codes(symbols) == ["object_changed"]


def test_a_file_that_is_replaced_between_two_questions(
    whole: Path, asked: np.ndarray, tmp_path: Path
) -> None:
    file = Path(shutil.copy(whole, tmp_path / "file"))
    with Symbols(None) as symbols:
        before = symbols.native(str(file), b"", asked)
        file.unlink()
        other = program(tmp_path, "-O0")
        other.rename(file)
        after = symbols.native(str(file), b"", asked)
        assert after.name != before.name
        assert symbols.native(str(file), identity(whole), asked).name == [""] * len(asked)
        assert codes(symbols) == ["object_changed"]


def test_no_files_at_all(whole: Path, asked: np.ndarray, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("text\n" * 100)
    (tmp_path / "empty").touch()
    paths = [
        tmp_path / "gone",
        tmp_path / "pipe",
        tmp_path,
        tmp_path / "text",
        tmp_path / "empty",
        Path("/dev/zero"),
    ]
    with Symbols(None) as symbols:
        for path in [*map(str, paths), "[heap]", "", "relative", f"{whole} (deleted)"]:
            assert symbols.native(path, b"", asked).name == [""] * len(asked)
        assert codes(symbols) == [
            "object_gone", "object_unreadable", "object_unreadable", "object_damaged", "object_damaged",
            "object_unreadable", "object_gone",
        ]  # fmt: skip


def test_a_path_that_no_file_can_have(asked: np.ndarray) -> None:
    with Symbols(None) as symbols:
        for path in ("/a\0b", "/" + "a" * 5000, "/\udcff", "/\ud800"):
            assert symbols.native(path, b"", asked).name == [""] * len(asked)


def test_nothing_is_asked(whole: Path) -> None:
    with Symbols(None) as symbols:
        found = symbols.native(str(whole), b"", np.zeros(0, np.uint64))
        assert (found.name, found.file, found.line.tolist()) == ([], [], [])


def test_odd_addresses(whole: Path) -> None:
    with Symbols(None) as symbols:
        found = symbols.native(str(whole), b"", np.array([0, 1, (1 << 64) - 1, 1 << 63], np.uint64))
        assert found.name == [""] * 4


QUIET = settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
ANYWHERE = st.lists(
    st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=9)), max_size=12
)


INLINED = {".debug_info", ".debug_abbrev", ".debug_rnglists", ".debug_ranges", ".debug_str"}


def broken(whole: Path, changes: list[tuple[int, bytes]], first: int, end: int, cut: int) -> bytes:
    """The bytes of `whole` with changes between `first` and `end`, and cut."""
    content = bytearray(whole.read_bytes())
    for at, new in changes:
        at = first + at % max(1, end - first)
        content[at : at + len(new)] = new
    return bytes(content[:cut]) if cut else bytes(content)


def ask_broken(shared: Symbols, folder: Path, content: bytes, asked: np.ndarray) -> None:
    file = folder / "broken"
    file.unlink(missing_ok=True)
    file.write_bytes(content)
    found = shared.native(str(file), b"", asked)
    assert len(found.name) == len(found.file) == len(found.line) == len(asked)
    shared._objects.clear()


@QUIET
@given(ANYWHERE, st.integers(0, 40_000))
def test_damage_anywhere(
    shared: Symbols,
    whole: Path,
    asked: np.ndarray,
    tmp_path: Path,
    changes: list[tuple[int, bytes]],
    cut: int,
) -> None:
    ask_broken(
        shared,
        tmp_path,
        broken(whole, changes, 0, whole.stat().st_size, cut if cut > 64 else 0),
        asked,
    )


def places(whole: Path) -> dict[str, tuple[int, int]]:
    """Where the parts of the file lie that are read."""
    with whole.open("rb") as file:
        elf = Elf(Content(file.fileno()))
    found = {
        each.name: (each.offset, each.offset + each.size) for each in elf.sections if each.size
    }
    wanted = (
        ".symtab",
        ".strtab",
        ".debug_info",
        ".debug_abbrev",
        ".debug_line",
        ".debug_aranges",
        ".debug_rnglists",
        ".debug_ranges",
        ".debug_str",
        ".rela.plt",
    )
    size = whole.stat().st_size
    (headers,) = struct.unpack_from("<Q", whole.read_bytes(), 40)
    return {
        "header": (0, 64),
        "sections": (headers, size),
        **{name: found[name] for name in wanted if name in found},
    }


@QUIET
@given(st.data())
def test_damage_where_it_hurts(
    shared: Symbols, whole: Path, asked: np.ndarray, tmp_path: Path, data: st.DataObject
) -> None:
    parts = places(whole)
    assert {".symtab", ".debug_line", ".debug_abbrev", ".debug_aranges"} <= set(parts)
    first, end = parts[data.draw(st.sampled_from(sorted(parts)))]
    ask_broken(shared, tmp_path, broken(whole, data.draw(ANYWHERE), first, end, 0), asked)


@QUIET
@given(data=st.data())
def test_damage_where_inlined_functions_are(
    shared: Symbols, inlining: Path, tmp_path: Path, data: st.DataObject
) -> None:
    parts = {name: part for name, part in places(inlining).items() if name in INLINED}
    assert {".debug_info", ".debug_abbrev", ".debug_str"} < set(parts)
    first, end = parts[data.draw(st.sampled_from(sorted(parts)))]
    content = broken(inlining, data.draw(ANYWHERE), first, end, 0)
    ask_broken(shared, tmp_path, content, addresses_in(inlining, 60))


@pytest.mark.parametrize("name", [".debug_info", ".debug_abbrev", ".debug_rnglists"])
def test_sections_that_are_cut(shared: Symbols, inlining: Path, tmp_path: Path, name: str) -> None:
    """Zeros from somewhere on: entries, declarations and lists end where they should go on."""
    part = places(inlining).get(name)
    if part is None:
        pytest.skip(f"a program of this version has no {name}")
    first, end = part
    for at in np.linspace(first, end, 40, endpoint=False, dtype=int).tolist():
        content = broken(inlining, [(at - first, bytes(end - at))], first, end, 0)
        ask_broken(shared, tmp_path, content, addresses_in(inlining, 60))


@given(st.binary(max_size=300))
def test_line_programs_of_noise(program_bytes: bytes) -> None:
    head = (
        bytes([1, 1, 1, 0xFB, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])
        + b"\0"
        + b"file\0\0\0\0\0"
    )
    body = struct.pack("<HI", 4, len(head)) + head + program_bytes
    table = line_program.rows(
        line_program.header(struct.pack("<I", len(body)) + body, lambda name, at: b"")
    )
    assert table.dtype == LINE
    assert np.all(np.diff(table["address"].astype(object)) >= 0)


@given(st.binary(max_size=200))
def test_headers_of_noise(noise: bytes) -> None:
    for version in (2, 4, 5):
        data = struct.pack("<IH", len(noise) + 2, version) + noise
        for read in (
            lambda data=data: line_program.header(data, lambda name, at: b""),
            lambda data=data: dwarf_units.unit(data, noise, lambda name, at: b""),
        ):
            try:
                read()
            except Damaged:
                continue
        dwarf_units.ranges(data)
        dwarf_units.ranges(noise)
