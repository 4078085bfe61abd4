"""layerscope.h and layerscope.hpp: what they promise to compilers, and that they say the same as
the rest.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import layerscope
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.profiler.objects import MARKER_SCOPES
from tests.native.building import ROOT, compiler
from tests.native_interface.driven import alone

INCLUDE = ROOT / "native" / "include"
HERE = Path(__file__).parent
FLAGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-I", str(INCLUDE)]


def cpp_compiler() -> str:
    """A C++ compiler; the test is skipped where there is none."""
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return found
    pytest.skip("there is no C++ compiler (tried c++, g++, clang++)")


def compiled(target: Path, source: Path, command: str, *flags: str) -> Path:
    command_line = [command, *FLAGS, "-o", str(target), str(source), *flags, "-lpthread"]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
def test_ranges_in_cpp_end_with_their_block(interface: Path, tmp_path: Path, standard: str) -> None:
    link = ["-L", str(interface.parent), f"-Wl,-rpath,{interface.parent}", "-llayerscope"]
    program = compiled(
        tmp_path / "ranges", HERE / "ranges.cpp", cpp_compiler(), f"-std={standard}", *link
    )
    driven = alone(program, tmp_path)
    driven.name = "ranges"
    assert (driven.status, driven.stdout, driven.stderr) == (0, "-4 7\n", "")
    spans = driven.spans()
    assert [(span["name"], span["domain"], span["parent_name"]) for span in spans] == [
        ("epoch", "network", None), ("outer", None, "epoch"), ("inner", "network", "outer"), ("carried", None, "epoch"),
        ("replaced", None, "epoch"), ("replacement", "network", "replaced"),
        ("ended by an exception", "network", "replacement"),
    ]  # fmt: skip
    assert not any(span["unfinished"] for span in spans)
    assert driven.counted("images") == [5, 6, -4]
    assert driven.counted("plain") == [7]
    assert driven.marks() == [
        ("marker", "in thread"),
        ("marker", "saved"),
        ("step", "step"),
        ("paused", "profiler"),
    ]


def test_with_disable_a_program_needs_no_library_and_does_nothing(tmp_path: Path) -> None:
    ranges = compiled(
        tmp_path / "ranges",
        HERE / "ranges.cpp",
        cpp_compiler(),
        "-std=c++11",
        "-DLAYERSCOPE_DISABLE",
    )
    driver = compiled(
        tmp_path / "driver", HERE / "driver.c", compiler(), "-std=gnu99", "-DLAYERSCOPE_DISABLE"
    )
    (tmp_path / "empty").mkdir()
    assert alone(ranges, tmp_path / "empty").stdout == "-4 7\n"
    done = alone(
        driver,
        tmp_path / "empty",
        "state run",
        "push a b",
        "pop",
        "pop",
        "counter a b 1",
        "say",
        "dump 1",
    )
    assert (done.status, done.stdout) == (0, "\n")
    assert list((tmp_path / "empty").iterdir()) == []


def test_the_headers_are_installed_as_they_are(interface: Path) -> None:
    for header in INCLUDE.iterdir():
        assert (interface.parent / "include" / header.name).read_bytes() == header.read_bytes()


def test_only_the_functions_of_the_header_are_visible(interface: Path) -> None:
    if not shutil.which("nm"):
        pytest.skip("there is no nm (binutils)")
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(interface)], capture_output=True, text=True, check=True
    )
    visible = {line.split()[-1] for line in listed.stdout.splitlines()}
    declared = set(re.findall(r"\b(layerscope_\w+)\(", (INCLUDE / "layerscope.h").read_text()))
    ours = {name for name in visible if name.startswith("layerscope")}
    assert ours == declared
    assert not {
        name
        for name in visible - ours
        if not name.startswith(("__itt_api_", "InitializeInjectionNvtx"))
    }


def test_numbers_are_the_same_everywhere() -> None:
    header = (INCLUDE / "layerscope.h").read_text()
    assert f'#define LAYERSCOPE_VERSION "{layerscope.__version__}"' in header
    scopes = re.findall(r"LAYERSCOPE_(\w+) = (\d)", header)
    assert [(name.lower(), int(number)) for name, number in scopes] == [
        (name, number) for number, name in enumerate(MARKER_SCOPES)
    ]
    own = (ROOT / "native" / "interface" / "interface.h").read_text()
    assert f"#define LI_SCHEMA {SCHEMA_VERSION} " in own


def test_chunks_have_the_numbers_of_the_raw_format() -> None:
    from layerscope.rawfile import raw_file

    own = (ROOT / "native" / "interface" / "interface.h").read_text()
    kinds = {
        name: int(number)
        for name, number in re.findall(r"LI_(\w+) = (\d+)", own)
        if hasattr(raw_file, name)
    }
    assert len(kinds) == 11
    assert kinds == {name: getattr(raw_file, name) for name in kinds}
