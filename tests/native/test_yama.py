"""Who may read the program where Yama asks. A file stands for its setting, a function in place of
the kernel's tells what the agent asks for: few machines with Yama run tests.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.building import build_driver
from tests.native.door import Door

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def scope_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands for /proc/sys/kernel/yama/ptrace_scope; the program lies beside it."""
    folder = tmp_path_factory.mktemp("yama")
    file = folder / "ptrace_scope"
    build_driver(folder, "-Wl,--wrap=prctl", f'-DLS_YAMA="{file}"', driver=HERE / "yama_driver.c")
    return file


@pytest.mark.parametrize(
    "scope", ["0\n", "1\n", "2\n", "3\n", None], ids=["0", "1", "2", "3", "none"]
)
def test_the_recorder_may_read_where_yama_asks(
    scope: str | None, scope_file: Path, tmp_path: Path
) -> None:
    scope_file.unlink(missing_ok=True)
    if scope is not None:
        scope_file.write_text(scope)
    door = Door(tmp_path / "raw", drainer="")
    program = scope_file.with_name("driver")
    done = subprocess.run(
        [program, door.name], capture_output=True, text=True, timeout=60, check=False
    )
    door.close()

    assert (done.returncode, done.stderr) == (0, "")
    us = os.getpid()
    # A child has none of its parent's permission; what was given is taken back.
    expected = [f"parent {us}", f"child {us}", "parent 0"] if scope == "1\n" else []
    assert done.stdout.splitlines() == expected
