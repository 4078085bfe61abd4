"""A recording made from inside: it is what `layerscope run` would have made, and the program is
left alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.model.layers import STACKS
from tests.profiler import library
from tests.profiler.library import NETWORK, SHAPE
from tests.recorded import TIMEOUT_S, record

pytestmark = pytest.mark.slow
FIRST = "from layerscope import profiler\nprofiler.set_state('run')\n"


def test_a_profile_taken_by_the_library_equals_one_taken_by_run(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    ours, theirs = tmp_path / "library", tmp_path / "run"
    ours.mkdir()
    theirs.mkdir()

    library.run(program_python, FIRST + NETWORK, ours)
    by_library = library.recorded(ours / "program.layerscope")
    by_run = record(program_python, NETWORK, theirs)

    assert by_library.rows(SHAPE) == by_run.rows(SHAPE)
    assert (
        by_library.value("SELECT count(*) FROM spans WHERE name = 'Optimizer.step#SGD.step'") == 3
    )
    steps = "SELECT step, rule, warmup FROM steps ORDER BY step"
    assert by_library.rows(steps) == by_run.rows(steps)
    assert by_library.rows("SELECT path, class FROM modules ORDER BY path") == by_run.rows(
        "SELECT path, class FROM modules ORDER BY path"
    )
    assert by_library.rows("SELECT * FROM gaps") == by_library.rows("SELECT * FROM problems") == []
    assert by_library.run.info.command[-1] == "program.py"
    assert {layer.name: layer.state for layer in by_library.run.info.layers} == {
        layer.name: layer.state for layer in by_run.run.info.layers if layer.name != STACKS
    }  # a program that runs already is not sampled


def test_what_runs_while_the_profiler_is_stopped_is_not_there_and_not_lost(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = NETWORK
    text += (
        "from layerscope import profiler\n"
        "profiler.set_config(filename='out/profile_output.json')\n"
        "profiler.set_state('run'); train(2); profiler.pause(); train(50); profiler.resume(); train(4)\n"
        "profiler.set_state('stop'); train(50)\n"
    )
    library.run(program_python, text, tmp_path)

    found = library.recorded(tmp_path / "profile_output.layerscope")
    assert found.value("SELECT count(*) FROM spans WHERE name = 'Optimizer.step#SGD.step'") == 6
    assert found.value("SELECT count(*) FROM spans WHERE kind = 'module' AND depth = 0") == 6
    marks = [
        row["kind"]
        for row in found.rows("SELECT kind FROM marks WHERE kind <> 'setting' ORDER BY at_ns")
    ]
    assert marks == ["paused", "resumed", "paused"]
    assert found.rows("SELECT * FROM gaps") == found.rows("SELECT * FROM problems") == []


def test_the_program_notices_nothing_of_its_recorder(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    """No child to wait for, no descriptor, no variable; nothing printed; Ctrl-C is not the
    recorder's.
    """
    text = """
import os, signal
def seen():
    fds = {name: os.readlink("/proc/self/fd/" + name) for name in os.listdir("/proc/self/fd") if int(name) < 100
           and os.path.exists("/proc/self/fd/" + name)}
    return fds, dict(os.environ), os.getcwd(), signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(0, [])
from layerscope import profiler
before = seen()
profiler.set_state("run")
assert seen() == before, (seen(), before)
try:
    os.wait()
except ChildProcessError:
    print("no child")
os.killpg(0, signal.SIGINT)
""".replace(
        "import os, signal",
        "import os, signal\nsignal.signal(signal.SIGINT, lambda *_: None)\nos.setpgrp()",
        1,
    )
    done = library.run(program_python, text + "with profiler.Event('after'): pass\n", tmp_path)

    assert (done.stdout, done.stderr) == ("no child\n", "")
    found = library.recorded(tmp_path / "program.layerscope")
    assert found.rows("SELECT name, kind FROM spans") == [{"name": "after", "kind": "event"}]


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), 9)", "os._exit(3)", "raise ValueError"])
def test_nothing_is_lost_however_the_program_ends(
    ending: str, tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = f"import os\nfrom layerscope import profiler\n{NETWORK}\nprofiler.set_state('run')\ntrain(7)\n{ending}\n"
    (tmp_path / "program.py").write_text(text)
    done = subprocess.run(
        [program_python, "program.py"], cwd=tmp_path, env=library.variables(), capture_output=True, check=False,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    assert (
        done.returncode == {"o": -9, "_": 3, "r": 1}[ending[3] if "_exit" in ending else ending[0]]
    )

    found = library.recorded(tmp_path / "program.layerscope")
    assert found.value("SELECT count(*) FROM spans WHERE name = 'Optimizer.step#SGD.step'") == 7
    assert found.rows("SELECT * FROM gaps") == []
    assert found.run.info.exit.code is found.run.info.exit.signal is None


def test_set_state_before_torch_is_imported(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    """Ranges come before it, operators with it; the answer about this torch comes while it is
    imported.
    """
    text = FIRST + "with profiler.Domain('mine').new_task('before'):\n    pass\n" + NETWORK
    library.run(program_python, text, tmp_path)

    found = library.recorded(tmp_path / "program.layerscope")
    assert found.value("SELECT count(*) FROM spans WHERE name = 'before'") == 1
    assert found.value("SELECT count(*) FROM spans WHERE name = 'Optimizer.step#SGD.step'") == 3
    assert found.rows("SELECT * FROM problems") == []


def test_a_forked_child_is_recorded_too(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = FIRST + NETWORK
    text += (
        "import os\n"
        "with profiler.Event('parent'):\n    pass\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    with profiler.Event('child'):\n        torch.hypot(torch.ones(2), torch.ones(2))\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    library.run(program_python, text, tmp_path)

    found = library.recorded(tmp_path / "program.layerscope")
    rows = found.rows(
        "SELECT s.name, pid = (SELECT min(pid) FROM processes) AS parent FROM spans s JOIN tracks USING (track) "
        "JOIN processes USING (process) WHERE s.name IN ('parent', 'child', 'aten::hypot') ORDER BY s.start_ns"
    )
    assert [(row["name"], row["parent"]) for row in rows] == [
        ("parent", True), ("child", False), ("aten::hypot", False)
    ]  # fmt: skip


def test_without_a_recorder_there_is_one_warning_and_the_program_goes_on(
    tmp_path: Path, program_python: str
) -> None:
    text = NETWORK
    text += (
        "from layerscope import profiler\n"
        "for _ in range(3):\n    profiler.set_state('run')\n    train()\n    profiler.set_state('stop')\n"
        "counter = profiler.Domain('d').new_counter('c', 1)\ncounter += 2\n"
        "with profiler.Event('e'):\n    print(counter.value)\n"
        "print(profiler.dumps())\n"
    )
    done = library.run(program_python, text, tmp_path, LAYERSCOPE_PYTHON=None, PATH="/usr/bin:/bin")

    assert done.stderr.count("RuntimeWarning") == 1
    assert "LAYERSCOPE_PYTHON" in done.stderr
    assert done.stdout.startswith("3\n\nProfile Statistics:")
    assert sorted(os.listdir(tmp_path)) == ["program.py"]


def test_a_recorder_that_is_killed_is_one_warning(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = FIRST + NETWORK
    text += (
        "import json, os, sys\n"
        "pid = json.load(open('program.layerscope/run.json'))['session_pid']\n"
        "os.kill(pid, 9)\n"
        "while os.path.exists(f'/proc/{pid}/exe'):\n    pass\n"
        "train(); print(profiler.dumps()); profiler.dump(); profiler.set_state('stop'); print('end')\n"
    )
    done = library.run(program_python, text, tmp_path)

    assert done.stderr.count("RuntimeWarning") == 1
    assert "is kept in" in done.stderr
    assert done.stdout.endswith("end\n")


def test_a_second_recording_takes_another_name(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    for expected in ("program.layerscope", "program-2.layerscope"):
        library.run(program_python, FIRST, tmp_path)
        library.finished(tmp_path / expected)


def test_signals_to_the_group_do_not_end_the_recorder(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = FIRST + NETWORK + "print('ready', flush=True)\nwhile True:\n    train()\n"
    (tmp_path / "program.py").write_text(text)
    program = subprocess.Popen(
        [program_python, "program.py"], cwd=tmp_path, env=library.variables(), stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    with program:
        assert program.stdout
        assert program.stdout.readline() == b"ready\n"
        os.killpg(program.pid, signal.SIGINT)
        assert program.wait(TIMEOUT_S) == -signal.SIGINT

    found = library.recorded(tmp_path / "program.layerscope")
    assert found.value("SELECT count(*) FROM steps") >= 3


def test_an_environment_whose_numpy_is_too_old_for_our_libraries_records_too(
    tmp_path: Path, old_numpy_python: str, native_agent: Path
) -> None:
    """The recorder is found by the `layerscope` command on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "layerscope").write_text(f"#!{sys.executable}\n")
    (folder / "layerscope").chmod(0o755)
    changes = {"LAYERSCOPE_PYTHON": None, "PATH": f"{folder}:{os.environ['PATH']}"}
    text = FIRST + NETWORK + "print(profiler.dumps(sort_by='count'))\n"

    done = library.run(old_numpy_python, text, tmp_path, **changes)

    assert done.stderr == ""
    assert "Optimizer.step#SGD.step" in done.stdout
    found = library.recorded(tmp_path / "program.layerscope")
    assert found.value("SELECT count(*) FROM spans WHERE name = 'Optimizer.step#SGD.step'") == 3
