"""`platform --pid`: live processes, and what cannot be looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.model import units
from tests.cpu_groups import CpuGroup, spinning

PATIENCE_S = 60.0


def told(capfd: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert cli.main(["platform", "--json", *words]) == status
    found = json.loads(capfd.readouterr().out)
    names = [column["name"] for column in found["columns"]]
    found["checks"] = {row[0]: dict(zip(names, row, strict=True)) for row in found["rows"]}
    return dict(found)


@pytest.fixture
def one_cpu() -> Iterator[CpuGroup]:
    with CpuGroup(1.0) as group:
        yield group


@pytest.mark.slow
def test_64_threads_on_one_cpu_are_called_throttled_with_the_numbers_of_the_kernel(
    one_cpu: CpuGroup, capfd: pytest.CaptureFixture[str]
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("with one CPU a limit of one CPU holds nobody back")
    with spinning(64, one_cpu) as pid:
        before = one_cpu.counted()
        found = told(capfd, "--pid", str(pid), "--watch", "5", "--fail-on", "warning", status=1)
        after = one_cpu.counted()

    watched, machine, checks = found["watched"], found["machine"], found["checks"]
    assert (
        machine["cpu"]["granted"],
        machine["cgroup"]["cpus"],
        machine["process"]["threads"],
    ) == (1.0, 1.0, 64)
    assert watched["throttled"] > 0
    # Read a moment before and after, the kernel's own counts enclose what was watched.
    for name, least, most in zip(
        ("periods", "throttled", "throttled_ns"), before, after, strict=True
    ):
        assert 0 < watched[name] <= most - least
        assert watched[name] >= (most - least) * watched["seconds"] / (watched["seconds"] + 3) - 10
    assert checks["throttling"]["state"] in ("warning", "error")
    held = units.duration(watched["throttled_ns"])
    said = f"throttled in {watched['throttled']:,} of {watched['periods']:,} periods, {held} of CPU time held back in "
    assert said in checks["throttling"]["evidence"]
    assert checks["throttling"]["remedy"] == "export OMP_NUM_THREADS=1"
    assert checks["threads"]["evidence"].startswith("64 of its 64 threads worked, on 1 CPU granted")
    assert checks["threads"]["remedy"] == "export OMP_NUM_THREADS=1"


def test_a_process_without_limits_is_not_called_throttled(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with spinning(1) as pid:
        found = told(capfd, "--pid", str(pid), "--watch", "0")
    assert found["watched"] is None
    assert found["machine"]["process"]["pid"] == pid
    assert {"threads", "openmp", "allocator"} <= set(found["checks"])
    assert found["checks"]["allocator"]["evidence"] in ("malloc of the C library", "musl")


def test_variables_are_those_of_the_process(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with spinning(1, env={**os.environ, "KMP_BLOCKTIME": "0", "OMP_NUM_THREADS": "1"}) as pid:
        found = told(capfd, "--pid", str(pid), "--watch", "0")
    assert found["variables"]["KMP_BLOCKTIME"] == "0"
    assert found["variables"]["OMP_NUM_THREADS"] == "1"
    assert found["checks"]["variables.kmp_blocktime"]["state"] == "warning"
    assert "KMP_BLOCKTIME" not in told(capfd)["variables"]


def refused(capfd: pytest.CaptureFixture[str], pid: int) -> str:
    """What is said of a process that cannot be looked at: one sentence."""
    assert cli.main(["platform", "--pid", str(pid)]) == 125
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("layerscope: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_what_has_ended_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    child = subprocess.Popen(["/bin/true"])
    end = time.monotonic() + PATIENCE_S
    while "Z" not in Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[:1]:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert f"process {child.pid} has ended" in refused(capfd, child.pid)
    child.wait()
    assert f"there is no process {child.pid}" in refused(capfd, child.pid)
    assert "there is no process 0" in refused(capfd, 0)
    assert "there is no process -7" in refused(capfd, -7)


def test_a_process_that_ends_while_it_is_watched_is_no_failure(
    capfd: pytest.CaptureFixture[str],
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"])
    try:
        found = told(capfd, "--pid", str(child.pid), "--watch", "1.5")
    finally:
        child.wait()
    assert found["watched"]["seconds"] > 1
    assert found["checks"]["threads"]["state"] == "ok"


def test_a_thread_of_the_kernel_has_no_libraries(capfd: pytest.CaptureFixture[str]) -> None:
    if Path("/proc/2/comm").exists() is False or Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("no threads of the kernel are visible in this process namespace")
    found = told(capfd, "--pid", "2", "--watch", "0")
    assert found["machine"]["process"]["libraries"] == []
    assert found["checks"]["openmp"]["state"] == "unseen"


def test_of_a_strangers_process_is_said_what_may_not_be_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    with spinning(1) as pid:
        command = [sys.executable, "-c", _AS_NOBODY, str(pid)]
        environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=environment,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    checks = {row[0]: row for row in found["rows"]}
    assert found["machine"]["process"]["libraries"] == []
    assert checks["openmp"][2] == "unseen"
    assert "it belongs to user root" in checks["openmp"][3]
    assert checks["openmp"][5] == "run this as root, or as its user"
    assert checks["threads"][2] == "ok"


# Everything is imported before the rights are given up: the files may be readable by root alone.
_AS_NOBODY = """
import ctypes, os, sys  # ctypes is asked for AMX; the folder of our Python may be closed to nobody
from layerscope import cli
from layerscope.model import units
from layerscope.cli import platform
from layerscope.checks import document, judge
from layerscope.show import json_output, terminal
from layerscope.host import watch, machine
from layerscope.analyse import result
judge.modules()
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(cli.main(["platform", "--json", "--pid", sys.argv[1], "--watch", "0"]))
"""


def test_a_process_in_a_namespace_has_two_numbers(capfd: pytest.CaptureFixture[str]) -> None:
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        sys.executable,
        "-c",
        "print(1, flush=True); input()",
    ]
    try:
        parent = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare(1) here")
    try:
        assert parent.stdout is not None
        assert parent.stderr is not None
        if parent.stdout.readline() != "1\n":
            pytest.skip(f"no process namespace can be made: {parent.stderr.read().strip()}")
        child = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0]
        found = told(capfd, "--pid", child, "--watch", "0")
        assert cli.main(["platform", "--pid", child, "--watch", "0"]) == 0
    finally:
        parent.communicate("\n", timeout=PATIENCE_S)
    assert found["machine"]["process"]["namespace_pid"] == 1
    assert f"process {child} (1 in its container): {sys.executable[:5]}" in capfd.readouterr().out
