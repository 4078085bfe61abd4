"""`record`, `open_run` and the notebook: what was recorded is at hand in the same Python, stretch
by stretch.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import layerscope
from layerscope.model.errors import ReadError, UsageError
from tests.profiler import library
from tests.recorded import TIMEOUT_S

pytestmark = pytest.mark.slow
BLOCKS = """
import layerscope
from layerscope import profiler

def work(name):
    with profiler.Event(name):
        pass

with layerscope.record("named") as first:
    work("a"); work("b")
work("between")
with layerscope.record() as second:
    work("c")
    with layerscope.record():
        work("d")
    work("e")
for block in (first, second):
    with block.open() as opened:
        print([row["name"] for row in opened.table("spans").to_pylist()], opened.table("spans").column_names[:3])
        print(opened.query("SELECT count(*) AS n FROM spans").to_pylist())
print(first.path == second.path, first)
"""


def test_blocks_are_stretches_of_one_recording(tmp_path: Path, native_agent: Path) -> None:
    done = library.run(sys.executable, BLOCKS, tmp_path)

    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "['a', 'b'] ['name', 'kind', 'thread']"
    assert lines[1] == "[{'n': 2}]"
    assert lines[2].startswith("['c', 'd', 'e']") or sorted(re.findall(r"'(\w)'", lines[2])) == [
        "c",
        "d",
        "e",
    ]
    assert lines[4].startswith("True ")
    library.finished(tmp_path / "named.layerscope")


def test_a_finished_recording_opens_whole(tmp_path: Path, native_agent: Path) -> None:
    library.run(sys.executable, BLOCKS, tmp_path)
    library.finished(tmp_path / "named.layerscope")

    with layerscope.open_run(str(tmp_path / "named")) as opened:
        assert sorted(opened.query("SELECT name FROM spans")["name"].to_pylist()) == [
            "a",
            "b",
            "c",
            "d",
            "e",
        ]
        assert opened.summary() == (tmp_path / "named.layerscope" / "summary.txt").read_text()
        assert opened._repr_html_().startswith('<iframe title="layerscope: named" sandbox=')
        with pytest.raises(UsageError):
            opened.table("no such table")
        with pytest.raises(ReadError):
            opened.query("SELECT nonsense")


def test_what_is_no_recording_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no recording"):
        layerscope.open_run(str(tmp_path / "nothing"))
    with pytest.raises(ReadError, match="is not a layerscope recording"):
        layerscope.open_run(str(tmp_path))


def test_without_a_recorder_a_block_runs_and_says_so(tmp_path: Path, program_python: str) -> None:
    text = (
        "import layerscope\nwith layerscope.record() as recorded:\n    print('ran')\nprint(repr(recorded.path))\n"
        "try:\n    recorded.open()\nexcept RuntimeError as error:\n    print(error)\n"
        "try:\n    layerscope.open_run('x')\nexcept ImportError as error:\n    print(error)\n"
    )
    done = library.run(program_python, text, tmp_path, LAYERSCOPE_PYTHON=None, PATH="/usr/bin:/bin")

    assert done.stdout.splitlines()[:2] == ["ran", "''"]
    assert done.stdout.splitlines()[2].startswith("nothing was recorded")
    assert done.stdout.splitlines()[3].startswith(
        "this Python cannot read recordings: No module named"
    )
    assert done.stderr.count("RuntimeWarning") == 1


CELLS = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("%load_ext layerscope").raise_error()
shell.run_cell("from layerscope import profiler").raise_error()
for name in ("<first>", "second"):
    cell = f"%%layerscope\\nvalue = 6 * 7\\nwith profiler.Event({name!r}):\\n    print(value)"
    shell.run_cell(cell).raise_error()
    opened = shell.user_ns["_"]
    print([row["name"] for row in opened.table("spans").to_pylist()])
    print(opened._repr_html_()[:60])
print(shell.user_ns["value"])
"""


def test_a_cell_of_a_notebook_records_itself(tmp_path: Path, native_agent: Path) -> None:
    (tmp_path / "cells.py").write_text(CELLS)
    done = subprocess.run(
        [sys.executable, "cells.py"], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env=library.variables(IPYTHONDIR=str(tmp_path / "ipython")),
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    printed = re.sub(r"<layerscope recording .*>|Out\[\d+\]: ", "", done.stdout)
    assert [line for line in printed.splitlines() if line and not line.startswith("<iframe")] == [
        "42", "['<first>']", "42", "['second']", "42"
    ]  # fmt: skip
    assert library.finished(tmp_path / "cells.layerscope")
    assert list((tmp_path / "cells.layerscope" / "raw").glob("snapshot-*")) == []
    assert done.stdout.count('<iframe title="layerscope: cells" sandbox=') == 2
