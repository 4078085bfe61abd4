"""Files and lines of native code, against addr2line."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from layerscope.symbols import Named, Symbols, dwarf_lines
from tests.symbols.elf_programs import addresses_in, lines, output, program, rows, tool

BUILDS = [
    ("-O0", "-gdwarf-5"), ("-O2", "-gdwarf-4"),
    ("-O0", "-gdwarf-2"), ("-O0", "-gdwarf-3"), ("-O0", "-gdwarf-4"), ("-O2", "-gdwarf-2"), ("-O2", "-gdwarf-5"),
    ("-O2", "-g", "-gz=zlib"), ("-O2", "-g1"), ("-O2", "-g", "-flto"),
    ("-O1", "-gdwarf-4", "-gsplit-dwarf"), ("-O1", "-gdwarf-5", "-gsplit-dwarf"),
    ("-O2", "-g", "-ffunction-sections", "-Wl,--gc-sections"), ("-O1", "-gdwarf64", "-gdwarf-5"),
]  # fmt: skip


def found(file: Path, addresses: np.ndarray) -> list[tuple[str | None, int]]:
    with Symbols(None) as symbols:
        named = symbols.native(str(file), b"", addresses)
        assert symbols.problems == []
    return innermost(named)


def innermost(named: Named) -> list[tuple[str | None, int]]:
    """The file and line of each address, of the innermost function if some are inlined."""
    places = list(zip(named.file, named.line.tolist(), strict=True))
    for row, chain in named.inlined.items():
        places[row] = chain[-1].file, chain[-1].line
    return places


@pytest.mark.parametrize(
    "flags",
    [*BUILDS[:2], *(pytest.param(build, marks=pytest.mark.slow) for build in BUILDS[2:])],
    ids=" ".join,
)
def test_lines_are_those_of_addr2line(tmp_path: Path, flags: tuple[str, ...]) -> None:
    file = program(tmp_path, *flags)
    addresses = addresses_in(file)
    mine, expected = found(file, addresses), lines(file, addresses)

    if not {"-gdwarf64", "-gdwarf-5 -gsplit-dwarf"} & {
        *flags,
        " ".join(flags[1:]),
    }:  # addr2line does not know these
        assert [line for _, line in mine] == [line for _, line in expected]
    assert [(Path(name or "").name, line) for name, line in mine] == rows(file, addresses)
    if "-gdwarf-4" in flags:
        assert mine == expected
    assert {str(tmp_path / "main.cpp"), str(tmp_path / "part/sum.h")} <= {name for name, _ in mine}


def test_lines_of_a_file_that_does_not_say_which_unit_has_an_address(tmp_path: Path) -> None:
    file = program(tmp_path, "-O1", "-g")
    addresses = addresses_in(file)
    expected = found(file, addresses)
    output(tool("objcopy"), "--remove-section", ".debug_aranges", str(file))

    assert found(file, addresses) == expected


@pytest.mark.parametrize("kind", ["zlib", "zstd"])
def test_lines_that_are_packed(tmp_path: Path, kind: str) -> None:
    file = program(tmp_path, "-O1", "-g")
    addresses = addresses_in(file)
    expected = found(file, addresses)
    command = [tool("objcopy"), f"--compress-debug-sections={kind}", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"objcopy cannot pack with {kind}: {done.stderr.strip()}")

    assert found(file, addresses) == expected


def test_more_lines_than_are_read_are_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = program(tmp_path, "-O1", "-g")
    addresses = addresses_in(file)
    monkeypatch.setattr(dwarf_lines, "PROGRAM_BYTES", 10)
    with Symbols(None) as symbols:
        named = symbols.native(str(file), b"", addresses)

    assert all(named.name)
    assert set(named.file) == {None}
    assert [problem.code for problem in symbols.problems] == ["lines_left_out"]


def test_lines_are_the_same_whatever_was_asked_before(tmp_path: Path) -> None:
    file = program(tmp_path, "-O1", "-g")
    addresses = addresses_in(file)
    expected = found(file, addresses)
    with Symbols(None) as symbols:
        one_by_one = [
            symbols.native(str(file), b"", addresses[i : i + 1]) for i in range(len(addresses))
        ]

    assert [place for named in one_by_one for place in innermost(named)] == expected


@pytest.mark.slow
@pytest.mark.stress
def test_lines_of_python_itself() -> None:
    python = Path(sysconfig.get_config_var("LIBDIR")) / str(sysconfig.get_config_var("LDLIBRARY"))
    if not python.exists() or not Path(os.path.realpath(python)).name.startswith("libpython"):
        pytest.skip(f"{python} is no shared library")
    if ".debug_line" not in output(tool("readelf"), "-SW", str(python)):
        pytest.skip(f"{python} has no lines")
    addresses = addresses_in(python)
    mine = found(python, addresses)

    assert [line for _, line in mine] == [line for _, line in lines(python, addresses)]
    assert [(Path(name or "").name, line) for name, line in mine] == rows(python, addresses)
