"""Symbols and lines that lie beside a file: debug files of the system, and tables packed inside."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import numpy as np
import pytest

from layerscope.symbols import Named, Symbols, separate
from tests.symbols.elf_programs import addresses_in, output, program, tool


def ask(file: Path, addresses: np.ndarray) -> Named:
    with Symbols(None) as symbols:
        found = symbols.native(str(file), b"", addresses)
        assert symbols.problems == []
        return found


def same(one: Named, other: Named) -> bool:
    return (one.name, one.file, one.line.tolist()) == (other.name, other.file, other.line.tolist())


Builds = dict[tuple[str, str], Path]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    """Two builds of a program, each with and without a build id."""
    return {
        (level, identity): program(tmp_path_factory.mktemp("build"), level, "-g", f"-Wl,--build-id={identity}")
        for level in ("-O1", "-O2") for identity in ("sha1", "none")
    }  # fmt: skip


@pytest.fixture
def whole(builds: Builds) -> Path:
    return builds["-O1", "sha1"]


def split(whole: Path, stripped: Path, debug: Path) -> Path:
    """Makes of `whole` a copy without symbols and lines, and `debug`, which has them."""
    debug.parent.mkdir(parents=True, exist_ok=True)
    output(tool("objcopy"), "--only-keep-debug", str(whole), str(debug))
    output(tool("objcopy"), "--strip-all", str(whole), str(stripped))
    return stripped


def test_a_stripped_program_has_no_names(whole: Path, tmp_path: Path) -> None:
    addresses = addresses_in(whole)
    found = ask(split(whole, tmp_path / "stripped", tmp_path / "elsewhere"), addresses)

    assert "outer::apply(std::vector<int, std::allocator<int>> const&)" not in found.name
    assert set(found.file) == {None}


def test_debug_files_by_build_id(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = addresses_in(whole)
    notes = output(tool("readelf"), "-nW", str(whole))
    identity = notes.partition("Build ID: ")[2].split()[0]
    monkeypatch.setattr(separate, "DEBUG", tmp_path / "debug")
    stripped = split(
        whole,
        tmp_path / "stripped",
        tmp_path / "debug" / ".build-id" / identity[:2] / f"{identity[2:]}.debug",
    )

    assert same(ask(stripped, addresses), ask(whole, addresses))


@pytest.mark.parametrize("place", ["", ".debug", "debug"])
@pytest.mark.parametrize("identity", ["sha1", "none"])
def test_debug_files_by_link(
    builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, identity: str
) -> None:
    whole = builds["-O1", identity]
    addresses = addresses_in(whole)
    monkeypatch.setattr(separate, "DEBUG", tmp_path / "debug")
    folder = (
        tmp_path / "debug" / str(tmp_path).lstrip("/") if place == "debug" else tmp_path / place
    )
    debug = folder / "stripped.debug"
    stripped = split(whole, tmp_path / "stripped", debug)
    output(tool("objcopy"), f"--add-gnu-debuglink={debug}", str(stripped))

    assert same(ask(stripped, addresses), ask(whole, addresses))

    # Another build, in its place.
    output(tool("objcopy"), "--only-keep-debug", str(builds["-O2", identity]), str(debug))
    assert set(ask(stripped, addresses).file) == {None}


def test_a_file_that_names_itself_as_its_debug_file(whole: Path, tmp_path: Path) -> None:
    addresses = addresses_in(whole)
    stripped = split(whole, tmp_path / "stripped", tmp_path / "stripped.debug")
    output(tool("objcopy"), f"--add-gnu-debuglink={tmp_path / 'stripped.debug'}", str(stripped))
    (tmp_path / "stripped.debug").unlink()
    stripped.rename(tmp_path / "stripped.debug")

    assert set(ask(tmp_path / "stripped.debug", addresses).file) == {None}


def test_symbols_that_are_packed_inside(whole: Path, tmp_path: Path) -> None:
    """As Fedora's builds have them: a file without code and with the table of symbols alone, packed
    with xz.
    """
    addresses = addresses_in(whole)
    stripped = split(whole, tmp_path / "stripped", tmp_path / "whole.debug")
    output(tool("objcopy"), "-S", "--remove-section", ".gnu_debuglink", str(stripped))
    mini = tmp_path / "mini"
    output(tool("objcopy"), "--strip-debug", str(tmp_path / "whole.debug"), str(mini))
    (tmp_path / "mini.xz").write_bytes(lzma.compress(mini.read_bytes()))
    packed = tmp_path / "packed"
    output(
        tool("objcopy"),
        f"--add-section=.gnu_debugdata={tmp_path / 'mini.xz'}",
        str(stripped),
        str(packed),
    )

    assert ask(packed, addresses).name == ask(whole, addresses).name


@pytest.mark.slow
def test_packed_symbols_that_are_damaged_or_unpack_to_too_much(whole: Path, tmp_path: Path) -> None:
    addresses = addresses_in(whole)
    stripped = split(whole, tmp_path / "stripped", tmp_path / "whole.debug")
    for content in (b"no xz", lzma.compress(b"no ELF file"), lzma.compress(bytes(100 << 20))):
        (tmp_path / "mini.xz").write_bytes(content)
        packed = tmp_path / "packed"
        shutil.copy(stripped, packed)
        output(tool("objcopy"), f"--add-section=.gnu_debugdata={tmp_path / 'mini.xz'}", str(packed))
        named = [name.replace("packed+", "stripped+") for name in ask(packed, addresses).name]
        assert named == ask(stripped, addresses).name


def test_openmp_of_a_wheel_has_names_of_its_barriers(program_python: str) -> None:
    """The libgomp in PyTorch's wheel has packed symbols only."""
    where = output(
        program_python, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"
    ).strip()
    found = sorted((Path(where).parent / "lib").glob("libgomp*"))
    if not found or ".gnu_debugdata" not in output(tool("readelf"), "-SW", str(found[0])):
        pytest.skip("this PyTorch has no libgomp with packed symbols")
    names = set(ask(found[0], np.arange(0x8000, 0x38000, 16, dtype=np.uint64)).name)

    assert {
        "gomp_team_barrier_wait_end",
        "gomp_thread_start",
        "GOMP_parallel",
        "malloc@plt",
    } <= names
