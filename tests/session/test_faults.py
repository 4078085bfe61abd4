"""Our own processes are stopped and killed, and so is the program: it never minds, and what is lost
is counted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from layerscope.capture import agent
from tests.differential import Differential, Outcome, Recorded, environment, program
from tests.repeated import also

PATIENCE_S = 60
PER_ROUND = {"outer": 1, "middle": 1, "aten::hypot": 50}
pytestmark = pytest.mark.slow


class Busy:
    """busy.py under the recorder, and the processes beside it."""

    def __init__(self, differential: Differential, python: str) -> None:
        self.differential = differential
        self.python = python.encode() + b"\0"
        self.process = subprocess.Popen(
            [*differential.recorder(), *program(python, "busy.py")], cwd=differential.work, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
        )  # fmt: skip
        assert self.process.stdout
        assert self.process.stdout.readline() == b"ready\n"

    def drainer(self, other_than: int = 0) -> int:
        """The pid of the drainer, once there is one."""
        return self.beside(b"layerscope.capture.drainer", other_than)

    def beside(self, words: bytes, other_than: int = 0) -> int:
        """The pid of the process beside it with these words in its command line, once there is
        one.
        """
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for pid in children(self.process.pid):
                if words in command_line(pid) and pid != other_than:
                    return pid
            time.sleep(0.05)
        raise AssertionError(f"no process with {words!r}")

    def program(self) -> int:
        return next(
            pid for pid in children(self.process.pid) if command_line(pid).startswith(self.python)
        )

    def operators(self) -> int:
        """How many operators a table of the recording has."""
        shown = subprocess.run(
            [*self.differential.layerscope, "table", str(self.differential.recording), "operators", "--csv"],
            capture_output=True, text=True, check=False, env=environment(),
        )  # fmt: skip
        assert shown.returncode == 0, shown.stderr
        return next(
            int(line.split(",")[1])
            for line in shown.stdout.splitlines()
            if line.startswith("aten::hypot,")
        )

    def end(self) -> int:
        """Let the program end; how many operators it says it made."""
        out, err = self.process.communicate(b"\n", timeout=PATIENCE_S)
        assert (err, self.process.returncode) == (b"", 0)
        return int(out)

    def recorded(self) -> Recorded:
        return self.differential.recorded()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def busy(tmp_path: Path, program_python: str, native_agent: Path) -> Iterator[Busy]:
    one = Busy(Differential(tmp_path), program_python)
    yield one
    if one.process.poll() is None:
        for pid in children(one.process.pid):
            os.kill(pid, signal.SIGKILL)
        one.process.kill()
    for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
        assert stream
        stream.close()
    one.process.wait()


def check_parents(recorded: Recorded) -> None:
    """No span has a parent that it cannot have; none of the loops has a wrong one."""
    wrong = recorded.rows(
        "SELECT c.name AS child, p.name AS parent, count(*) AS n FROM spans c LEFT JOIN spans p ON c.parent = p.span "
        "WHERE c.name IN ('outer', 'middle', 'aten::hypot') AND p.span IS NOT NULL AND (c.track <> p.track "
        "OR c.start_ns < p.start_ns OR c.start_ns + c.dur_ns > p.start_ns + p.dur_ns OR c.depth <= p.depth "
        "OR (c.name = 'outer') OR (c.name = 'middle' AND p.name <> 'outer') "
        "OR (c.name = 'aten::hypot' AND p.name NOT IN ('middle', 'outer'))) GROUP BY ALL"
    )
    assert wrong == []


def made_and_lost(recorded: Recorded) -> tuple[int, int]:
    """Spans of the loops that are there, and the number of those that are counted as lost."""
    names = ", ".join(f"'{name}'" for name in PER_ROUND)
    rows = recorded.rows(
        f"SELECT count(*) AS n FROM spans WHERE name IN ({names}) AND NOT unfinished"
    )
    return rows[0]["n"], sum(
        lost or 0 for lost in recorded.gaps().values()
    )  # of stacks none is known


def expected(made: int) -> int:
    return made // 50 * sum(PER_ROUND.values())


def test_nothing_is_lost_when_nothing_happens(busy: Busy) -> None:
    time.sleep(1)
    made = busy.end()

    recorded = busy.recorded()
    assert made_and_lost(recorded) == (expected(made), 0)
    assert recorded.problems() == {}
    check_parents(recorded)


def test_a_drainer_that_is_stopped_for_a_while_loses_what_is_counted(busy: Busy) -> None:
    drainer = busy.drainer()
    os.kill(drainer, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(drainer, signal.SIGCONT)
    time.sleep(0.5)
    made = busy.end()

    recorded = busy.recorded()
    kept, lost = made_and_lost(recorded)
    assert kept + lost == expected(made)
    assert lost > 0
    assert set(recorded.gaps()) == {"ring_full"}
    check_parents(recorded)


def check_replaced(busy: Busy) -> None:
    """After the program's end: another drainer went on, and nothing is missing without being
    counted.
    """
    made = busy.end()

    recorded = busy.recorded()
    kept, lost = made_and_lost(recorded)
    assert kept + lost == expected(made)
    assert "drainer_restarted" in recorded.problems()
    check_parents(recorded)


def test_a_drainer_that_is_killed_is_replaced(busy: Busy) -> None:
    first = busy.drainer()
    time.sleep(0.3)
    os.kill(first, signal.SIGKILL)
    busy.drainer(other_than=first)
    time.sleep(0.5)
    check_replaced(busy)


@pytest.mark.stress
def test_a_drainer_that_is_stopped_for_ever_is_replaced_at_the_end(busy: Busy) -> None:
    time.sleep(0.3)
    os.kill(busy.drainer(), signal.SIGSTOP)
    time.sleep(0.3)
    check_replaced(busy)


def test_drainers_that_are_killed_again_and_again_lose_what_is_counted(busy: Busy) -> None:
    """The third within some seconds is not replaced at once; the rings are emptied at the end all
    the same.
    """
    last = 0
    for _ in range(3):
        last = busy.drainer(other_than=last)
        time.sleep(0.5)
        os.kill(last, signal.SIGKILL)
    time.sleep(1)
    check_replaced(busy)


def test_a_session_that_is_killed_leaves_the_program_and_its_whole_recording(busy: Busy) -> None:
    """What the program prints and how it ends can no longer be seen by us; the drainer and the
    converter go on.
    """
    time.sleep(0.3)
    pid = busy.program()
    ours = [child for child in children(busy.process.pid) if child != pid]
    busy.process.kill()
    busy.process.wait()
    time.sleep(0.5)
    assert busy.operators() > 0  # of a recording that grows still
    assert busy.process.stdin
    busy.process.stdin.write(b"\n")
    busy.process.stdin.flush()
    assert busy.process.stdout
    made = int(busy.process.stdout.read())
    end = time.monotonic() + PATIENCE_S
    while any(b"layerscope" in command_line(child) for child in ours) and time.monotonic() < end:
        time.sleep(0.05)

    assert busy.operators() == made
    recorded = busy.recorded()
    assert made_and_lost(recorded) == (expected(made), 0)
    assert recorded.problems()["session_killed"].endswith("its other processes went on")
    check_parents(recorded)


# Of a program that does nothing but small operators: many thousands of them, behind all names.
WRITTEN_BYTES = 200_000


def written(recording: Path) -> int:
    """Bytes in the raw files of a recording."""
    return sum(file.stat().st_size for file in recording.glob("raw/*/spool"))


def test_the_whole_group_is_killed(tmp_path: Path, program_python: str, native_agent: Path) -> None:
    """As `kill -9 %1` does: the program, the session, all in their group. Drainer and converter
    still write.
    """
    differential = Differential(tmp_path)
    process = subprocess.Popen(
        [*differential.recorder(), *program(program_python, "busy.py")], cwd=differential.work, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=environment(), process_group=0,
    )  # fmt: skip
    with process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        # On a busy machine it takes a while until the memory of the program has reached the
        # drainer.
        give_up = time.monotonic() + PATIENCE_S
        while written(differential.recording) < WRITTEN_BYTES and time.monotonic() < give_up:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)

    shown = subprocess.run(
        [*differential.layerscope, "table", str(differential.recording), "operators", "--csv"],
        capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "\naten::hypot," in shown.stdout
    check_parents(differential.recorded())


def test_the_program_and_the_drainer_are_killed_together(busy: Busy) -> None:
    """Only the last poll may be missing, and it is not: another drainer finds it in the memory that
    we hold.
    """
    time.sleep(0.5)
    for pid in (busy.drainer(), busy.program()):
        os.kill(pid, signal.SIGKILL)
    busy.process.wait(PATIENCE_S)

    assert busy.process.returncode == -signal.SIGKILL
    recorded = busy.recorded()
    assert recorded.count("aten::hypot") > 1000
    assert recorded.run.info.state == "finished"
    check_parents(recorded)


def test_a_converter_that_is_killed_costs_only_time(busy: Busy) -> None:
    os.kill(busy.beside(b"\0_convert\0"), signal.SIGKILL)
    time.sleep(0.5)  # it may not have made any operator yet
    made = busy.end()

    recorded = busy.recorded()
    assert recorded.run.info.exit.code == 0
    said = "no summary: the converter was ended by signal 9; the raw files are kept: any `layerscope table`"
    assert said in (recorded.run.path / "summary.txt").read_text()
    shown = subprocess.run(
        [*busy.differential.layerscope, "table", str(busy.differential.recording), "operators", "--csv"],
        capture_output=True, text=True, check=False, env=environment(),
    )  # fmt: skip
    assert f"\naten::hypot,{made}," in shown.stdout, shown


def test_a_crash_inside_an_operator_names_what_every_thread_was_in(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    differential = Differential(tmp_path)
    command = program(program_python, "crashes.py", "crash")

    without = differential.run(command)
    with_us = differential.record(command, quiet=False)

    assert without.status == with_us.status == -signal.SIGSEGV
    recorded = differential.recorded()
    assert recorded.unfinished() == [
        ["main waits"],
        ["other 0", "Slow"],
        ["other 1", "Slow"],
        ["outer range", "inner range", "Broken"],
    ]
    assert recorded.count("aten::hypot") == 1
    for name in ("outer range", "inner range", "Broken", "Slow", "main waits"):
        assert name.encode() in with_us.stderr, with_us.stderr.decode()


def test_a_daemon_that_outlives_the_program_is_not_waited_for(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    differential = Differential(tmp_path)

    outcome = differential.record(program(program_python, "daemon.py"))

    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, b"main is done\n", b"")
    assert "daemon.txt" not in outcome.files
    end = time.monotonic() + PATIENCE_S
    while not (differential.work / "daemon.txt").exists() and time.monotonic() < end:
        time.sleep(0.1)
    assert (differential.work / "daemon.txt").read_text() == "done"
    assert differential.recorded().per_process()[0] == 100


def test_threads_that_outlive_the_main_one_end_with_it(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    differential = Differential(tmp_path)

    differential.same(program(program_python, "threads.py", "daemon"))

    assert differential.recorded().per_process() == [220]


def test_a_stopped_drainer_and_more_threads_than_its_socket_holds(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    """Every thread hands its memory over while nobody takes it: neither the program nor the prompt
    waits for ever.
    """
    differential = Differential(tmp_path)
    process = subprocess.Popen(
        [*differential.recorder(), *program(program_python, "threads_at_once.py", "400")], cwd=differential.work,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    try:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        drainer = next(
            pid
            for pid in children(process.pid)
            if b"layerscope.capture.drainer" in command_line(pid)
        )
        os.kill(drainer, signal.SIGSTOP)
        out, err = process.communicate(b"\n", timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert (out, err, process.returncode) == (b"done\n", b"", 0)
    assert differential.recorded().per_process() == [400]


@pytest.fixture(scope="module")
def exits_with_3(program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What a program does without us."""
    differential = Differential(tmp_path_factory.mktemp("bare"))
    return differential.run(program(program_python, "exit_status.py", "3"))


@pytest.mark.parametrize(
    "broken",
    [
        "layerscope.analyse.summary.summarise",
        "layerscope.session.finish.finish",
        "layerscope.capture.link.DrainerLink.pump",
        "layerscope.capture.frameworks.torch.prober.TorchProber.take",
        *also(
            [
                "layerscope.show.summary.text",
                "layerscope.capture.link.DrainerLink.watch",
                "layerscope.capture.link.DrainerLink.end",
                "layerscope.capture.link.DrainerLink.keep",
                "layerscope.capture.frameworks.torch.prober.TorchProber.publish",
                "layerscope.capture.frameworks.torch.prober.TorchProber.finish",
            ]
        ),
    ],
)
def test_a_fault_of_ours_is_never_one_of_the_program(
    broken: str, exits_with_3: Outcome, tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    differential = Differential(tmp_path)
    script = Path(differential.layerscope[-1])
    breaks = f"""
import functools, importlib
def boom(*_, **__): raise RuntimeError("broken on purpose")
*path, last = {broken!r}.split(".")
depth = len(path) - (path[-1][0].isupper())
holder = functools.reduce(getattr, path[depth:], importlib.import_module(".".join(path[:depth])))
setattr(holder, last, boom)
"""
    start, _, end = script.read_text().partition("from layerscope.cli")
    script.write_text(f"{start}{breaks}from layerscope.cli{end}")

    assert differential.record(program(program_python, "exit_status.py", "3")) == exits_with_3


def test_an_answer_that_comes_too_late_is_said(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    differential = Differential(tmp_path)
    slow = tmp_path / "slow-probe"
    slow.write_text(f'#!/bin/sh\nsleep 4\nexec {agent.PROBE} "$@"\n')
    slow.chmod(0o755)
    script = Path(differential.layerscope[-1])
    start, _, end = script.read_text().partition("from layerscope.cli")
    patch = f"import pathlib\nimport layerscope.capture.agent as agent\nagent.PROBE = pathlib.Path({str(slow)!r})\n"
    script.write_text(f"{start}{patch}from layerscope.cli{end}")

    variables = environment(XDG_CACHE_HOME=str(tmp_path / "empty"))
    without = differential.same(program(program_python, "exit_status.py", "3"), env=variables)

    assert set(differential.recorded().problems()) == {"probe_late"}
    again = differential.record(program(program_python, "exit_status.py", "3"), env=variables)
    assert again == without
    assert differential.recorded().per_process() == [100]
