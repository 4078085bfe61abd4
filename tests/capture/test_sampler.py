"""The session's end of the sampler: what it checks, what it says when the sampler is gone, and
whole recordings.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from layerscope.capture import sampler as module
from layerscope.capture.sampler import Sampler
from layerscope.ingest.open import open_run
from layerscope.model.events import Problem
from layerscope.rawfile import raw_file, sampler_file
from layerscope.rawfile.layout import SEND_SAMPLES
from layerscope.sources.raw.stacks import SampledFile
from tests.attempts import once_in_three
from tests.native_sampler.sampling import Sampled, check, check_sums
from tests.recorded import ROOT, ask, layerscope

REFUSES = ROOT / "tests" / "programs" / "refuses.py"
PERF_EVENT_OPEN = 298
PATIENCE_S = 60
BURN = """
import time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(500))
"""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def started(raw: Path, problems: list[Problem]) -> tuple[Sampler, int]:
    """A sampler that runs, and its pid."""
    sampler = Sampler(raw, problems)
    before = set(children())
    assert sampler.start()
    (pid,) = set(children()) - before
    return sampler, pid


def children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        found += [int(word) for word in task.read_text().split()]
    return found


def test_nothing_is_said_where_all_can_be_recorded(
    perf_events: None, tmp_path: Path, program
) -> None:
    problems: list[Problem] = []
    sampler, _ = started(tmp_path, problems)
    assert sampler.settings == {"hz": 99, "timers": 0}
    sampler.begin(program.pid, time.clock_gettime_ns(time.CLOCK_MONOTONIC))

    sampler.end()
    assert problems == []
    assert sampler.cpu_ns > 0
    file = SampledFile(tmp_path / raw_file.SAMPLER_FILE)
    file.advance()
    assert file.ended
    assert [int(row["pid"]) for row in file.processes.values()] == [program.pid]
    assert file.settings["switches"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_sampler_that_is_gone_is_told(
    perf_events: None, tmp_path: Path, monkeypatch, program, number
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.5)
    problems: list[Problem] = []
    sampler, pid = started(tmp_path, problems)
    os.kill(pid, number)
    sampler.begin(program.pid, 1)
    for _ in range(500):
        area = os.memfd_create("area")
        sampler.keep(
            {"type": SEND_SAMPLES, "pid": program.pid, "index": 0, "process_start": 1}, area
        )

    sampler.end()
    assert [problem.code for problem in problems] == ["sampler_lost"]
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(area)


def samples_of(path: Path) -> Sampled:
    """What a sampler has written so far."""
    return Sampled(SampledFile(path), {})


def wait_for(path: Path, condition: Callable[[Sampled], bool]) -> None:
    """Until what the file holds is as it should be."""
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        if path.exists() and condition(samples_of(path)):
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} has not become what was waited for")


def has_stacks(found: Sampled) -> bool:
    return bool((found.samples["stack"] != sampler_file.NONE).any())


@pytest.mark.slow
def test_a_sampler_that_is_killed_is_replaced(perf_events: None, tmp_path: Path) -> None:
    """Another one goes on in a file of its own; the time between is a gap, and no CPU time is told
    twice.
    """
    problems: list[Problem] = []
    sampler, pid = started(tmp_path, problems)
    burning = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        sampler.begin(burning.pid, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        wait_for(tmp_path / "stacks", has_stacks)
        sampler.set_rate(49)
        os.kill(pid, signal.SIGKILL)
        give_up = time.monotonic() + PATIENCE_S
        while sampler.samplers < 2 and time.monotonic() < give_up:
            sampler.watch()
            time.sleep(0.05)
        wait_for(tmp_path / "stacks.1", has_stacks)
    finally:
        burning.kill()
        _, burning.returncode, usage = os.wait4(burning.pid, 0)
    sampler.end()

    assert [problem.code for problem in problems] == ["sampler_restarted"]
    assert [path.name for path, _ in sampler_file.files(tmp_path)] == ["stacks", "stacks.1"]
    first, second = (samples_of(path) for path, _ in sampler_file.files(tmp_path))
    assert first.file.ended
    assert second.file.ended
    assert (first.file.settings["hz"], second.file.settings["hz"]) == (99, 49)
    gap_ns = second.file.gap_ns
    assert gap_ns
    assert first.file.gap_ns is None
    assert gap_ns[0] < gap_ns[1]
    sums = [
        int(one.samples["weight_ns"][one.samples["kind"] == sampler_file.CPU].sum())
        for one in (first, second)
    ]
    used_ns = (usage.ru_utime + usage.ru_stime) * 1e9
    # Without the correction the second file would tell the time of the first once more.
    assert abs(sum(sums) - used_ns) < min(sums) / 2
    (one,), (other,) = (found.file.processes.values() for found in (first, second))
    assert (one["pid"], one["start_ns"]) == (other["pid"], other["start_ns"])


@pytest.mark.slow
@once_in_three
def test_a_recording_with_a_sampler_that_was_killed(
    perf_events: None, program_python: str, tmp_path: Path
) -> None:
    """The frames of Python that only the first sampler was told of have their names in what the
    second one saw.
    """
    (tmp_path / "program.py").write_text(
        BURN + "import os, pathlib, signal\n"
        "def of_program(seconds): burn(seconds)\n"
        "of_program(1)\n"
        "for process in pathlib.Path('/proc').glob('[0-9]*'):\n"
        "    try:\n"
        "        words = (process / 'cmdline').read_bytes().split(b'\\0')\n"
        "    except OSError:\n"
        "        continue\n"
        "    if b'layerscope-sampler' in words[0] and os.getcwd().encode() in words[2]:\n"
        "        os.kill(int(process.name), signal.SIGKILL)\n"
        "of_program(1.5)\n"
    )
    done = layerscope("run", "-q", "--layers", "+stacks", "-o", "recording", "--", program_python, "program.py",
                      cwd=tmp_path)  # fmt: skip

    assert done.returncode == 0, done.stderr
    folder = tmp_path / "recording.layerscope"
    second = samples_of(folder / "raw" / "stacks.1")
    check(second)
    rows = second.samples[
        (second.samples["kind"] == sampler_file.CPU)
        & (second.samples["stack"] != sampler_file.NONE)
    ]
    inside = ["of_program" in python(second, row) for row in rows]
    assert sum(inside) > 0.8 * len(rows)
    run = open_run(folder)
    assert [
        row["code"] for row in ask(run, "SELECT code FROM problems WHERE layer = 'stacks'")
    ] == ["sampler_restarted"]
    (gap,) = ask(run, "SELECT start_ns, end_ns, reason FROM gaps")
    assert gap["reason"] == "no_sampler"
    assert gap["end_ns"] > gap["start_ns"]
    (threads,) = ask(run, "SELECT count(*) AS n FROM tracks WHERE kind = 'thread'")
    assert threads["n"] == 1
    (cpu,) = ask(run, "SELECT sum(weight_ns) AS ns FROM samples WHERE kind = 'cpu'")
    (told,) = ask(run, "SELECT cpu_ns AS ns FROM tracks WHERE kind = 'thread'")
    assert abs(cpu["ns"] - told["ns"]) < 0.02 * told["ns"]


@pytest.mark.slow
def test_a_sampler_that_was_stopped_goes_on(perf_events: None, tmp_path: Path) -> None:
    problems: list[Problem] = []
    sampler, pid = started(tmp_path, problems)
    burning = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        sampler.begin(burning.pid, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        wait_for(tmp_path / "stacks", has_stacks)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1)
        sampler.watch()
        os.kill(pid, signal.SIGCONT)
        before = len(samples_of(tmp_path / "stacks").samples)
        wait_for(tmp_path / "stacks", lambda found: len(found.samples) > before + 20)
    finally:
        burning.kill()
        burning.wait()
    sampler.end()

    assert problems == []
    found = samples_of(tmp_path / "stacks")
    check(found)
    check_sums(found)


def test_without_its_program_there_are_no_stacks(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "BINARY", tmp_path / "nothing")
    problems: list[Problem] = []
    sampler = Sampler(tmp_path, problems)

    assert not sampler.start()
    sampler.end()
    assert [problem.code for problem in problems] == ["no_sampler"]


def recorded(folder: Path) -> Sampled:
    found = Sampled(
        SampledFile(folder / "recording.layerscope" / "raw" / raw_file.SAMPLER_FILE), {}
    )
    check(found)
    return found


@pytest.mark.slow
def test_a_program_in_python_with_children(
    perf_events: None, program_python: str, tmp_path: Path
) -> None:
    """A forked child, one that executes, and what becomes another program: all have their
    stacks.
    """
    (tmp_path / "program.py").write_text(
        BURN + "import os, subprocess, sys, threading\n"
        "def of_child(): burn(0.4)\ndef of_thread(): burn(0.4)\ndef of_main(): burn(0.4)\n"
        "def of_new(): burn(0.4)\n"
        "if len(sys.argv) > 1:\n    of_new()\n    sys.exit(3)\n"
        "pid = os.fork()\nif not pid:\n    of_child()\n    os._exit(0)\nos.waitpid(pid, 0)\n"
        "thread = threading.Thread(target=of_thread)\nthread.start()\nthread.join()\nof_main()\n"
        "subprocess.run([sys.executable, __file__, 'x'])\n"
        "os.execv(sys.executable, [sys.executable, __file__, 'x'])\n"
    )
    done = layerscope("run", "-q", "--layers", "+stacks", "-o", "recording", "--", program_python, "program.py",
                      cwd=tmp_path)  # fmt: skip

    assert done.returncode == 3, done.stderr
    found = recorded(tmp_path)
    assert found.codes() == set()
    rows = found.samples[
        (found.samples["kind"] == sampler_file.CPU) & (found.samples["stack"] != sampler_file.NONE)
    ]
    inner = np.array(
        [
            next((n for n in chain if n.startswith("of_")), "")
            for chain in (python(found, r) for r in rows)
        ]
    )
    process = np.array([found.file.threads[int(t)]["process"] for t in rows["thread"]])
    weights = {
        name: int(rows["weight_ns"][inner == name].sum())
        for name in ("of_child", "of_thread", "of_main")
    }
    assert all(ns > 300e6 for ns in weights.values()), weights
    assert int(rows["weight_ns"][inner == "of_new"].sum()) > 600e6
    assert len(set(process[inner == "of_new"])) == 2
    assert not set(process[inner == "of_child"]) & set(process[inner == "of_main"])
    quality = found.file.quality
    assert quality["to_root"] >= 0.95 * quality["samples"]
    assert quality["spliced"] >= 0.97 * quality["python"]


def python(found: Sampled, row: np.void) -> list[str]:
    """The functions of Python in the stack of a sample, the innermost first."""
    chain = [
        frame for frame in found.chain(int(row["stack"])) if frame["kind"] == sampler_file.PYTHON
    ]
    return [found.file.codes[frame["of"]].name for frame in chain]


@pytest.mark.slow
def test_where_the_kernel_gives_no_events_timers_take_their_place(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(BURN + "burn(1)\ntime.sleep(0.7)\n")
    own = [sys.executable, str(REFUSES), str(PERF_EVENT_OPEN), str(errno.EPERM)]
    command = [*own, sys.executable, "-m", "layerscope", "run", "-q", "--layers", "+stacks", "-o", "recording", "--",
               program_python, "program.py"]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    found = recorded(tmp_path)
    rows = found.samples[
        (found.samples["kind"] == sampler_file.CPU) & (found.samples["stack"] != sampler_file.NONE)
    ]
    inside = ["burn" in python(found, row) for row in rows]
    assert rows["weight_ns"][inside].sum() > 500e6
    waits = found.samples[found.samples["kind"] == sampler_file.OFFCPU]
    assert (waits["flags"] & sampler_file.EXACT == 0).all()
    assert waits["weight_ns"][waits["system_call"] == 230].sum() > 200e6
    run = open_run(tmp_path / "recording.layerscope")
    said = {row["code"]: row for row in ask(run, "SELECT * FROM problems WHERE layer = 'stacks'")}
    assert "sysctl" in said["events_refused"]["remedy"]
    assert said["events_refused"]["lost"]


def test_sums_hold_for_a_short_program(
    perf_events: None, program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(BURN + "burn(0.3)\n")
    layerscope(
        "run",
        "-q",
        "--layers",
        "+stacks",
        "-o",
        "recording",
        "--",
        program_python,
        "program.py",
        cwd=tmp_path,
    )

    check_sums(recorded(tmp_path))


@pytest.mark.slow
@once_in_three
def test_a_program_that_keeps_the_agent_out(
    perf_events: None, program_python: str, tmp_path: Path
) -> None:
    """`python -I` takes no door: its samples have native frames, those of a library too, and those
    of Python as they are read from outside.
    """
    (tmp_path / "program.py").write_text(BURN + "burn(1)\ntime.sleep(0.5)\n")
    layerscope(
        "run",
        "-q",
        "-o",
        "recording",
        "--",
        "sh",
        "-c",
        f"{program_python} -I program.py; exit 3",
        cwd=tmp_path,
    )

    found = recorded(tmp_path)
    assert found.codes() <= {"python_torn"}
    rows = found.samples[
        (found.samples["kind"] == sampler_file.CPU) & (found.samples["stack"] != sampler_file.NONE)
    ]
    known = [
        any(frame["kind"] == sampler_file.NATIVE for frame in found.chain(int(row["stack"])))
        for row in rows
    ]
    assert rows["weight_ns"][np.array(known, bool)].sum() > 500e6
    quality = found.file.quality
    assert quality["to_root"] >= 0.95 * quality["samples"]
    run = open_run(tmp_path / "recording.layerscope")
    (evaluates,) = ask(
        run,
        "SELECT count(*) AS n FROM frames WHERE layer = 'native' AND name LIKE '%PyEval%'",
    )
    assert evaluates["n"] > 0
    (burns,) = ask(
        run, "SELECT count(*) AS n FROM frames WHERE layer = 'python' AND name LIKE '%burn'"
    )
    assert burns["n"] > 0
    (slept,) = ask(run, "SELECT sum(weight_ns) AS ns FROM samples WHERE state = 'sleep'")
    assert slept["ns"] > 400e6


@pytest.mark.parametrize("rate", ["0", "1001", "ten", "-5", "9.5"])
def test_a_rate_that_cannot_be_is_refused(tmp_path: Path, rate: str) -> None:
    done = layerscope("run", f"--rate={rate}", "true", cwd=tmp_path)

    assert done.returncode == 125
    assert "a whole number from 1 to 1000" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_rate_without_stacks_is_refused(tmp_path: Path) -> None:
    done = layerscope("run", "--rate", "200", "--without", "stacks", "true", cwd=tmp_path)

    assert done.returncode == 125
    assert "no samples" in done.stderr


@once_in_three
def test_the_rate_is_as_asked(perf_events: None, tmp_path: Path) -> None:
    program = tmp_path / "burn.sh"
    program.write_text("i=0\nwhile [ $i -lt 300000 ]; do i=$((i+1)); done\n")
    layerscope(
        "run", "-q", "--rate", "997", "-o", "recording", "--", "sh", str(program), cwd=tmp_path
    )

    found = recorded(tmp_path)
    assert found.file.settings["hz"] == 997
    rows = found.samples[
        (found.samples["kind"] == sampler_file.CPU) & (found.samples["stack"] != sampler_file.NONE)
    ]
    user_ns = rows["weight_ns"] - rows["kernel_ns"]
    assert len(rows) > 0.4 * user_ns.sum() / 1e9 * 997
    layers = {
        layer.name: layer for layer in open_run(tmp_path / "recording.layerscope").info.layers
    }
    assert layers["stacks"].rate_hz == 997
