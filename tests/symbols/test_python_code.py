"""Lines of Python code, against what CPython itself says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.symbols import LineTable, code_lines, lines_in_codes, python_code

# For every function of the standard library: its first line, its table, and the line of each
# instruction.
DUMP = """
import json, os, sys, types, warnings
warnings.simplefilter("ignore")
def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)
for folder, folders, files in os.walk(os.path.dirname(os.__file__)):
    folders[:] = sorted(set(folders) - {"site-packages", "__pycache__", "test", "lib2to3"})
    for file in sorted(files):
        if file.endswith(".py"):
            with open(os.path.join(folder, file), "rb") as source:
                whole = compile(source.read(), file, "exec")
            for code in codes(whole):
                lines = [position[0] for position in code.co_positions()]
                print(json.dumps([code.co_firstlineno, code.co_linetable.hex(), lines]))
"""


def pythons() -> list[str]:
    """A Python of each version whose tables are known, as far as they are here."""
    found = {sys.version_info[1]: sys.executable}
    roots = [Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"]
    for minor in (11, 12, 13, 14):
        installed = [
            str(path) for root in roots for path in sorted(root.glob(f"3.{minor}.*/bin/python"))
        ]
        for python in [*installed, *filter(None, [shutil.which(f"python3.{minor}")])]:
            found.setdefault(minor, python)
    return [f"{minor}={python}" for minor, python in sorted(found.items()) if minor >= 11]


@pytest.mark.slow
@pytest.mark.parametrize("python", pythons(), ids=lambda python: python.split("=")[0])
def test_every_function_of_the_standard_library(python: str) -> None:
    minor, _, program = python.partition("=")
    done = subprocess.run(
        [program, "-I", "-c", DUMP], capture_output=True, text=True, timeout=250, check=True
    )
    checked = 0
    for row in done.stdout.splitlines():
        first_line, table, lines = json.loads(row)
        expected = [-1 if line is None else line for line in lines]
        places = np.arange(0, 2 * len(lines), 2)
        assert code_lines(int(minor), first_line, bytes.fromhex(table), places).tolist() == expected
        checked += 1
    assert checked > 5000


def test_this_function_has_its_lines() -> None:
    code = pythons.__code__
    for start, end, line in code.co_lines():
        found = code_lines(
            sys.version_info[1], code.co_firstlineno, code.co_linetable, np.arange(start, end)
        )
        assert found.tolist() == [line if line is not None else -1] * (end - start)


def test_what_lies_outside_has_no_line() -> None:
    table = bytes([0x80 | 10 << 3 | 1, 0, 0])  # one entry of two instructions, in the first line
    assert code_lines(11, 5, table, np.array([-2, 0, 2, 3, 4, 1 << 40])).tolist() == [
        -1,
        5,
        5,
        5,
        -1,
        -1,
    ]
    assert code_lines(11, 5, b"", np.array([0])).tolist() == [-1]
    assert code_lines(11, 5, b"", np.zeros(0, np.int64)).tolist() == []


@pytest.mark.parametrize("python", [0, 10, 15])
def test_of_other_pythons_nothing_is_known(python: int) -> None:
    assert code_lines(python, 1, bytes([0x80, 0]), np.array([0])).tolist() == [-1]


@given(st.binary(max_size=200), st.integers(-(1 << 40), 1 << 40))
def test_damaged_tables(table: bytes, first_line: int) -> None:
    for python in (11, 14):
        assert len(code_lines(python, first_line, table, np.arange(0, 50))) == 50


def test_tables_that_are_decoded_together_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [
        one.__code__ for one in (pythons, test_damaged_tables, test_what_lies_outside_has_no_line)
    ]
    tables = [LineTable(11, code.co_firstlineno, code.co_linetable) for code in codes]
    tables.insert(1, LineTable(10, 1, tables[0].content))
    tables.insert(2, LineTable(11, 1, b"\x00" + tables[0].content))
    which, places = (part.ravel() for part in np.mgrid[0 : len(tables), -2:400])
    expected = [
        line for table in tables for line in code_lines(*table, np.arange(-2, 400)).tolist()
    ]

    assert lines_in_codes(tables, which, places).tolist() == expected
    monkeypatch.setattr(python_code, "_PIECE_BYTES", 100)
    assert lines_in_codes(tables, which, places).tolist() == expected
