"""The build-id of an ELF file, against what binutils reads."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.host.libraries import build_id
from tests.native.building import build


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "code.c"
    file.write_text("int answer(void) { return 42; }\nint main(void) { return 0; }\n")
    return file


def by_readelf(file: Path) -> str | None:
    if not shutil.which("readelf"):
        pytest.skip("readelf (binutils) is not here to compare with")
    notes = subprocess.run(
        ["readelf", "-n", str(file)], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", notes)
    return found[1] if found else None


@pytest.mark.parametrize("style", ["sha1", "md5", "uuid", "0x1234567890abcdef"])
@pytest.mark.parametrize("kind", [["-shared", "-fPIC"], []])
def test_it_is_what_readelf_says(tmp_path: Path, source: Path, style: str, kind: list[str]) -> None:
    file = build(tmp_path / "out", [source], f"-Wl,--build-id={style}", *kind)

    assert build_id(file) == by_readelf(file) is not None


def test_a_file_without_one_has_none(tmp_path: Path, source: Path) -> None:
    assert build_id(build(tmp_path / "out", [source], "-Wl,--build-id=none")) is None


def test_the_running_python_agrees_with_readelf() -> None:
    file = Path(sys.executable).resolve()

    assert build_id(file) == by_readelf(file)


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"#!/bin/sh\n" * 20, b"\x7fELF\x01\x01" + bytes(100)]
)
def test_what_is_no_such_file_has_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)

    assert build_id(tmp_path / "file") is None
    assert build_id(tmp_path / "not there") is None
    assert build_id(tmp_path) is None


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "code.c").write_text("int answer(void) { return 42; }\n")
    return build(folder / "out", [folder / "code.c"], "-shared", "-fPIC").read_bytes()


@given(
    st.integers(0, 20_000),
    st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), max_size=6),
)
def test_a_damaged_file_raises_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    content: bytes,
    cut: int,
    changes: list[tuple[int, int]],
) -> None:
    broken = bytearray(content[:cut])
    for at, value in changes:
        if at < len(broken):
            broken[at] = value
    file = tmp_path_factory.mktemp("broken") / "file"
    file.write_bytes(broken)
    found = build_id(file)

    assert found is None or isinstance(found, str)
