"""What cannot be looked at: one sentence with the remedy."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from layerscope.running import processes
from tests.cli.test_run_places import as_nobody
from tests.dump.dumped import running
from tests.recorded import ROOT, layerscope

pytestmark = pytest.mark.usefixtures("native_agent")
WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"


def refused(pid: int, folder: Path) -> str:
    done = layerscope("dump", str(pid), cwd=folder)
    assert (done.returncode, done.stdout) == (125, "")
    (sentence,) = done.stderr.splitlines()
    return sentence


def test_a_process_that_is_not_there(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert f"there is no process {ended.pid}. `ps -e` lists" in refused(ended.pid, tmp_path)
    assert "0 is no number of a process" in refused(0, tmp_path)


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert f"process {ended.pid} has ended" in refused(ended.pid, tmp_path)
    ended.wait()


def test_a_thread_leads_to_its_process(tmp_path: Path) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert thread.native_id is not None
        assert f"layerscope dump {os.getpid()}" in refused(thread.native_id, tmp_path)
    finally:
        end.set()
        thread.join()


def test_a_thread_of_the_kernel(tmp_path: Path) -> None:
    status = Path("/proc/2/status")
    if not status.exists() or "Name:\tkthreadd" not in status.read_text():
        pytest.skip("no threads of the kernel are shown here")
    assert "process 2 is a thread of the kernel" in refused(2, tmp_path)


def test_a_process_of_another_user(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    with running([sys.executable], WAITS) as process:
        done = subprocess.run(
            [*as_nobody(), sys.executable, "-m", "layerscope", "dump", str(process.pid)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert "it belongs to another user. Run this as that user, or as root (sudo)" in done.stdout
    assert done.returncode == 0, done.stderr


def _has_capabilities() -> bool:
    """SYS_PTRACE, and SETPCAP to give it up."""
    (word,) = re.findall(r"^CapEff:\s+(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    wanted = 1 << 19 | 1 << 8
    return os.geteuid() == 0 and int(word, 16) & wanted == wanted


def test_root_without_the_capability_is_not_told_to_be_root(tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    if not _has_capabilities() or setpriv is None:
        pytest.skip("needs root with its capabilities, and setpriv")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    without = [setpriv, "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    with running([sys.executable], WAITS) as process:
        done = subprocess.run(
            [*without, sys.executable, "-m", "layerscope", "dump", str(process.pid)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert "does not let even root read it here" in done.stdout
    assert "no function could be read" not in done.stdout
    assert done.stderr == ""


def test_what_has_ended_meanwhile_is_said_to_have() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert processes.refused(ended.pid, errno.ESRCH) == "it has ended meanwhile"


def test_what_is_no_number(tmp_path: Path) -> None:
    done = layerscope("dump", "train.py", cwd=tmp_path)
    assert done.returncode == 125
    assert "train.py is no number of a process. `ps -e` lists those that run" in done.stderr


def test_a_python_that_is_not_read_is_said_with_the_remedy() -> None:
    sentence = processes.unread("it is a debug build")
    assert "it is a debug build" in sentence
    assert "native functions are shown" in sentence
    assert "CPython 3.11" in sentence
    assert processes.unread("") == ""
