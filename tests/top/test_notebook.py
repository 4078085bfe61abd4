"""`run.live()`: a recording that grows, watched from Python and below the cell of a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import layerscope
from layerscope.model.errors import UsageError
from tests.recorded import ROOT, TIMEOUT_S
from tests.replayed import replay
from tests.top.conftest import Running

# What a front end gets: by line the data, and whether it takes the place of what was there.
CELL = """
import json
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
def publish(data, metadata=None, *, transient=None, update=False, **_):
    print(json.dumps({"html": data["text/html"], "id": transient["display_id"], "update": update}))
shell.display_pub.publish = publish
shell.run_cell("import layerscope").raise_error()
shell.run_cell("with layerscope.open_run('looping') as run: run.live(for_s=1, interval_s=0.2)").raise_error()
"""


def ran(code: str, folder: Path) -> str:
    (folder / "cell.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    environment["IPYTHONDIR"] = str(folder / "ipython")
    done = subprocess.run([sys.executable, "cell.py"], cwd=folder, capture_output=True, text=True,
                          env=environment, timeout=TIMEOUT_S, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def test_below_a_cell_the_newest_screen_takes_the_place_of_the_one_before(program: Running) -> None:
    shown = [json.loads(line) for line in ran(CELL, program.folder).splitlines()]

    assert len(shown) > 2
    assert [one["update"] for one in shown] == [False, *[True] * (len(shown) - 1)]
    assert len({one["id"] for one in shown}) == 1
    assert shown[-1]["html"].startswith("<pre")
    assert "computes (program.py)" in shown[-1]["html"]
    assert f"pid {program.pid}" in shown[-1]["html"]
    assert program.process.poll() is None


def test_in_a_script_screens_are_printed(program: Running) -> None:
    code = (
        "import layerscope\n"
        "with layerscope.open_run('looping') as run:\n"
        "    run.live('threads', for_s=0.1, top=3)\n"
    )
    printed = ran(code, program.folder)

    assert "waiting " in printed
    assert "ready" in printed


def test_when_the_program_ends_so_does_the_screen(short_program: Running) -> None:
    code = (
        "import layerscope, os, signal, sys, threading\n"
        "run = layerscope.open_run('looping')\n"
        f"threading.Timer(1, os.kill, ({short_program.pid}, signal.SIGTERM)).start()\n"
        "run.live()\n"
    )
    printed = ran(code, short_program.folder)

    assert "The program has ended." in printed
    short_program.process.wait(TIMEOUT_S)


def test_a_recording_that_is_complete_is_said_to_be(tmp_path: Path) -> None:
    recorded = replay("threads", tmp_path)
    with (
        layerscope.open_run(str(recorded.run.path)) as run,
        pytest.raises(UsageError, match=r"is complete: its program .* `\.summary\(\)`"),
    ):
        run.live()


def test_a_table_that_there_is_not_is_said(program: Running) -> None:
    with (
        layerscope.open_run(str(program.folder / "looping")) as run,
        pytest.raises(UsageError, match="no table 'spans' of a program that runs; functions"),
    ):
        run.live("spans")
