"""A recording of oneDNN's verbose log whose session is killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from layerscope.ingest.open import is_growing, open_run
from tests.cli.test_run_verbose import NETWORK, VERBOSE
from tests.differential import environment
from tests.recorded import Recorded

SURVIVES = (
    NETWORK
    + """
import os, time
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.05)
net(torch.randn(4, 3, 16, 16))
"""
)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Until it is so, a minute at most."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def processes_of(folder: Path) -> list[bytes]:
    """The command lines of processes that name something in `folder`."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines.append((process / "cmdline").read_bytes())
    return [line for line in lines if bytes(folder) in line]


@pytest.mark.slow
def test_lines_are_merged_where_the_session_was_killed(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(SURVIVES)
    variables = environment(ONEDNN_ITT_TASK_LEVEL="0", OMP_NUM_THREADS="1")
    command = [sys.executable, "-m", "layerscope", "run", "-q", "-o", "recording", *VERBOSE]
    folder = tmp_path / "recording.layerscope"
    # Standard output is a file: of its end nobody is told.
    with (
        (tmp_path / "printed").open("wb") as printed,
        subprocess.Popen(
            [*command, "--", program_python, "program.py"],
            cwd=tmp_path,
            env=variables,
            stdout=printed,
        ) as session,
    ):
        try:
            wait_until((tmp_path / "ready").exists)
            # It comes two seconds after the program; without it the next command converts.
            wait_until(lambda: is_growing(folder / "raw"))
            assert b"verbose_tap" in b"".join(processes_of(tmp_path))
        finally:
            session.kill()
            (tmp_path / "go").touch()
    # The program, the tap and the converter go on.
    wait_until(lambda: not is_growing(folder / "raw"))
    run = Recorded(open_run(folder), 0, "", "")
    by_operator = (
        "SELECT count(*) FROM primitives p JOIN spans o ON o.span = p.operator "
        "WHERE primitive_kind = 'convolution' AND cache_hit IS NULL AND o.name = 'aten::mkldnn_convolution'"
    )
    assert run.value(by_operator) == 5
    assert run.value("SELECT count(*) FROM problems WHERE code = 'session_killed'") == 1
    # Nothing of ours is left.
    wait_until(lambda: not processes_of(tmp_path))
