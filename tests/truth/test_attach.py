"""Programs that run already, recorded from outside: what they do is read right, and they notice
nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from layerscope.model.errors import RunError
from layerscope.session.attach import target
from tests.live.steered import TRAINS, standing_by
from tests.live.test_run_paused import ranges
from tests.live.test_standby import complete
from tests.pythons import python_of
from tests.recorded import Recorded, layerscope
from tests.repeated import also

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]
PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
PATIENCE_S = 30.0
LEFT_OUT = "[frames left out]"
TREE = """
    WITH RECURSIVE below(stack, names, kinds) AS (
        SELECT stack, [f.name], [f.layer] FROM stacks s JOIN frames f USING (frame)
        WHERE s.parent IS NULL
        UNION ALL SELECT s.stack, list_append(b.names, f.name), list_append(b.kinds, f.layer)
        FROM below b JOIN stacks s ON s.parent = b.stack JOIN frames f USING (frame)
    )
"""


@contextmanager
def running(*words: str, python: str = sys.executable) -> Iterator[subprocess.Popen[str]]:
    """A program that has printed its first line and runs until its standard input is closed."""
    program = subprocess.Popen(
        [python, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield program
    finally:
        if program.poll() is None:
            program.kill()
        program.communicate()


def attach(pid: int, folder: Path, *options: str) -> Recorded:
    """Record it from outside."""
    done = layerscope("attach", str(pid), "-o", "attached", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return Recorded(
        open_run(folder / "attached.layerscope"), done.returncode, done.stdout, done.stderr
    )


def chains(recorded: Recorded) -> list[tuple[list[str], int]]:
    """Functions of Python of each sample on a CPU, the outermost first, and its CPU time; a None
    where frames are left out.
    """
    rows = recorded.rows(
        f"{TREE} SELECT names, kinds, sum(weight_ns) AS ns FROM samples JOIN below USING (stack) "
        "WHERE kind = 'cpu' GROUP BY ALL"
    )
    return [
        (
            [
                name if kind == "python" else ""
                for name, kind in zip(row["names"], row["kinds"], strict=True)
                if kind == "python" or name == LEFT_OUT
            ],
            int(row["ns"]),
        )
        for row in rows
    ]


@pytest.mark.alone
def test_nobody_is_called_by_who_does_not_call(tmp_path: Path) -> None:
    with running(str(PROGRAMS / "calling.py")) as program:
        assert program.stdout is not None
        calls = {(caller, callee) for caller, callee in json.loads(program.stdout.readline())}
        recorded = attach(program.pid, tmp_path, "--for", "3", "--rate", "999")
        out, _ = program.communicate("", timeout=PATIENCE_S)
    assert (out, program.returncode) == ("done\n", 0)

    found = chains(recorded)
    wrong = [
        chain
        for chain, _ in found
        for caller, callee in itertools.pairwise(chain)
        if caller and callee and (caller, callee) not in calls
    ]
    assert not wrong
    whole_ns = sum(ns for chain, ns in found if chain[:1] == ["<module>"])
    assert whole_ns > 0.2 * sum(ns for _, ns in found)


@pytest.mark.alone
@pytest.mark.parametrize("version", ["3.12", "3.14", *also(["3.13"])])
def test_no_stack_has_another_caller(version: str, tmp_path: Path) -> None:
    with running(str(PROGRAMS / "one_caller.py"), python=python_of(version)) as program:
        assert program.stdout is not None
        callers = json.loads(program.stdout.readline())
        recorded = attach(program.pid, tmp_path, "--for", "3", "--rate", "999")
        out, _ = program.communicate("", timeout=PATIENCE_S)
    assert (out, program.returncode) == ("done\n", 0)

    found = chains(recorded)
    wrong = [
        (chain, ns)
        for chain, ns in found
        for caller, callee in itertools.pairwise(chain)
        if caller and callers.get(callee, caller) != caller
    ]
    assert not wrong
    outermost = ("<module>", "Thread._bootstrap")
    whole_ns = sum(ns for chain, ns in found if chain[:1] and chain[0] in outermost)
    assert whole_ns > 0.2 * sum(ns for _, ns in found)
    computing = {name for name in callers if name.startswith("of_")}
    assert len(computing & {name for chain, _ in found for name in chain}) > len(computing) / 2


def started(program: subprocess.Popen[str]) -> str:
    """Its first line."""
    assert program.stdout is not None
    return program.stdout.readline()


WAITING = """
import sys, threading
lock = threading.Lock()
lock.acquire()
def kept_waiting():
    lock.acquire()
threading.Thread(target=kept_waiting, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
print("done")
"""


@pytest.mark.alone
def test_waits_have_their_reasons_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "waiting.py"
    path.write_text(WAITING)
    with running(str(path)) as program:
        started(program)
        recorded = attach(program.pid, tmp_path, "--for", "1")
        out, _ = program.communicate("", timeout=PATIENCE_S)

    assert (out, program.returncode) == ("done\n", 0)
    waits = recorded.rows(
        f"{TREE} SELECT state, names, sum(weight_ns) AS ns FROM samples JOIN below USING (stack) "
        "WHERE kind = 'offcpu' GROUP BY ALL"
    )
    long = {row["state"]: row["names"] for row in waits if row["ns"] > 500_000_000}
    assert "kept_waiting" in long["lock"]
    assert "<module>" in long["pipe"]


CHILDREN = """
import os, subprocess, sys
def burn():
    x = 0
    while True:
        for i in range(1000):
            x += i
child = os.fork()
if not child:
    burn()
other = subprocess.Popen([sys.executable, "-c", "while True: sum(range(1000))"])
print(child, other.pid, flush=True)
sys.stdin.read()
os.kill(child, 9)
os.waitpid(child, 0)
other.kill()
other.wait()
"""


@pytest.mark.alone
@pytest.mark.parametrize("tree", [True, False])
def test_children_are_recorded_if_they_are_asked_for(tmp_path: Path, tree: bool) -> None:
    path = tmp_path / "children.py"
    path.write_text(CHILDREN)
    with running(str(path)) as program:
        pids = {int(word) for word in started(program).split()}
        recorded = attach(program.pid, tmp_path, "--for", "1.5", *["--tree"] * tree)
        program.communicate("", timeout=PATIENCE_S)

    found = {row["pid"] for row in recorded.rows("SELECT pid FROM processes")}
    assert found == {program.pid, *(pids if tree else ())}
    names = {name for chain, _ in chains(recorded) for name in chain}
    assert ("burn" in names) == tree


def test_a_program_that_ends_ends_the_recording(tmp_path: Path) -> None:
    with running("-c", "import time; print(1, flush=True); time.sleep(1.5)") as program:
        started(program)
        recorded = attach(program.pid, tmp_path)

    assert program.returncode == 0
    assert recorded.run.info.state == "finished"
    assert recorded.value("SELECT count(*) FROM samples WHERE kind = 'offcpu'") > 0


def test_a_killed_recorder_leaves_the_program_and_what_it_had(tmp_path: Path) -> None:
    with running(str(PROGRAMS / "calling.py")) as program:
        started(program)
        words = [sys.executable, "-m", "layerscope", "attach", str(program.pid), "-o", "attached"]
        recorder = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert recorder.stderr is not None
        assert "recording process" in recorder.stderr.readline()
        stacks = tmp_path / "attached.layerscope" / "raw" / "stacks"
        wait_until(lambda: stacks.exists() and stacks.stat().st_size > 20_000)
        recorder.kill()
        recorder.communicate()
        out, _ = program.communicate("", timeout=PATIENCE_S)

    assert (out, program.returncode) == ("done\n", 0)
    recorded = Recorded(open_run(tmp_path / "attached.layerscope"), 0, "", "")
    assert recorded.value("SELECT count(*) FROM samples WHERE kind = 'cpu'") > 10


ENDING_THREADS = """
import sys, threading, time
for seconds in (0.3, 0.6, 0.9, 1.2):
    threading.Thread(target=time.sleep, args=[seconds]).start()
held = bytearray(50_000_000)
burnt = sum(range(10_000_000))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.alone
def test_threads_that_end_soon_and_what_was_before(tmp_path: Path) -> None:
    path = tmp_path / "ending.py"
    path.write_text(ENDING_THREADS)
    with running(str(path)) as program:
        started(program)
        recorded = attach(program.pid, tmp_path, "--for", "1.5")
        program.communicate("", timeout=PATIENCE_S)

    assert "still running" in recorded.stderr
    (row,) = recorded.rows("SELECT sum(cpu_ns) AS cpu_ns, sum(faults_minor) AS faults FROM tracks")
    assert row["cpu_ns"] < 100_000_000  # what it computed was before
    assert (row["faults"] or 0) < 1000
    counters = recorded.rows("SELECT name, min(value) AS least FROM counters GROUP BY name")
    least = {row["name"]: row["least"] for row in counters}
    assert (least["cpu_ns"], least["faults_minor"]) == (0, 0) or least["cpu_ns"] < 50_000_000


def test_nothing_of_ours_outlives_the_recorder(tmp_path: Path) -> None:
    with running(str(PROGRAMS / "calling.py")) as program:
        started(program)
        words = [sys.executable, "-m", "layerscope", "attach", str(program.pid), "-o", "attached"]
        recorder = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert recorder.stderr is not None
        assert "recording process" in recorder.stderr.readline()
        children = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()
        assert len(children) >= 2
        recorder.kill()
        recorder.communicate()
        wait_until(lambda: not any(is_ours(int(child), tmp_path) for child in children))
        program.communicate("", timeout=PATIENCE_S)


def is_ours(pid: int, folder: Path) -> bool:
    """Whether this process still works for a recording in the folder."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return str(folder) in words


def test_an_interrupt_ends_the_recording_and_not_the_program(tmp_path: Path) -> None:
    with running(str(PROGRAMS / "calling.py")) as program:
        started(program)
        words = [sys.executable, "-m", "layerscope", "attach", str(program.pid), "-o", "attached"]
        recorder = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert recorder.stderr is not None
        assert "recording process" in recorder.stderr.readline()
        recorder.send_signal(signal.SIGINT)
        _, told = recorder.communicate(timeout=PATIENCE_S)
        assert recorder.returncode == 0
        out, _ = program.communicate("", timeout=PATIENCE_S)

    assert (out, program.returncode) == ("done\n", 0)
    assert "Next: layerscope" in told
    assert open_run(tmp_path / "attached.layerscope").info.state == "finished"


def test_a_stopped_program_is_recorded_and_a_second_recorder_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with running(str(PROGRAMS / "calling.py")) as program:
        started(program)
        words = [sys.executable, "-m", "layerscope", "attach", str(program.pid), "-q", "--for", "2"]
        other = subprocess.Popen([*words, "-o", "attached"], cwd=first)
        until = time.monotonic() + PATIENCE_S
        while not (first / "attached.layerscope" / "raw" / "stacks").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        refused = layerscope("attach", str(program.pid), "-q", "--for", "1", cwd=second)
        program.send_signal(signal.SIGSTOP)
        assert other.wait(PATIENCE_S) == 0
        again = layerscope("attach", str(program.pid), "-q", "--for", "0.5", cwd=first)
        program.send_signal(signal.SIGCONT)
        out, _ = program.communicate("", timeout=PATIENCE_S)

    assert (out, program.returncode) == ("done\n", 0)
    assert refused.returncode == 125
    assert "is being recorded already" in refused.stderr
    assert again.returncode == 0, again.stderr
    recorded = Recorded(open_run(first / "attached.layerscope"), 0, "", "")
    assert recorded.value("SELECT count(*) FROM samples WHERE kind = 'cpu'")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["0"], "0 is no number of a process"),
        (["train.py"], "train.py is no number of a process"),
        (["4194304"], "there is no process 4194304"),
        (["1", "--for", "soon"], "--for soon: give seconds"),
        (["1", "--rate", "0"], "--rate 0: give a whole number"),
        ([], "PID"),
        ([str(os.getpid()), "--max-size", "1K"], "is too small"),
    ],
)
def test_what_cannot_be_meant_is_said(tmp_path: Path, words: list[str], sentence: str) -> None:
    done = layerscope("attach", *words, cwd=tmp_path)

    assert done.returncode != 0
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*.layerscope"))


def test_the_program_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with running("-c", "print(1, flush=True); input()") as program:
        started(program)
        with pytest.raises(RunError, match=r"cannot be recorded: it belongs to .*as its user"):
            target(program.pid)


def test_a_program_on_standby_is_recorded_with_its_operators(
    program_python: str, tmp_path: Path
) -> None:
    with standing_by(program_python, TRAINS, tmp_path) as program:
        words = [sys.executable, "-m", "layerscope", "attach", str(program.pid), "-o", "recording"]
        recorder = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert recorder.stderr is not None
        assert "recording process" in recorder.stderr.readline()
        program.tell("steps", 3)
        again = layerscope("attach", str(program.pid), cwd=tmp_path)
        recorder.send_signal(signal.SIGINT)
        _, told = recorder.communicate(timeout=PATIENCE_S)
        program.tell("steps", 2)
        second = layerscope("attach", str(program.pid), "--for", "0.1", "--tree", cwd=tmp_path)
        program.end()
        complete(program.path)
        recorded = program.end()

    assert recorder.returncode == 0
    assert "has the operators of process" in told
    assert "is being recorded already, into recording.layerscope" in again.stderr
    assert "`layerscope stop " in again.stderr
    assert second.returncode == 0
    assert "are as they were then\n" in second.stderr
    assert "that begin from now on" in second.stderr
    assert ranges(recorded, "step") == ["step 0", "step 1", "step 2"]


def wait_until(condition: Callable[[], bool]) -> None:
    """Fails where it never holds."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
