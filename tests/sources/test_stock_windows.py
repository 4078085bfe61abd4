"""Where the agent cannot record: windows of PyTorch's own profiler, which the program does not
notice.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layerscope.capture import agent
from layerscope.ingest.open import open_run
from layerscope.model.events import Problem
from layerscope.rawfile.log_files import WINDOWS
from layerscope.sources.raw import stock_windows
from layerscope.sources.raw.folder import RawFolder
from tests.differential import PROGRAMS, SOURCE, environment
from tests.handed_faults import HANDED
from tests.quick_torch import WITHOUT_COMPILER, quick
from tests.recorded import Recorded
from tests.repeated import also

pytestmark = pytest.mark.slow

TIMEOUT_S = 240
# `layerscope` without an agent, or with a probe that refuses whatever it is asked about.
WITHOUT_AGENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv.pop(1))
from layerscope.capture import agent
agent.{what} = Path({path!r})
from layerscope.cli import main
sys.exit(main())
"""
REFUSES = """#!/bin/sh
echo '{"state": "refused", "why": "it is odd", "sequence_offset": -1}'
"""

KNOWN = """
import sys, threading, torch
x = torch.ones(4)
for _ in range(100):
    torch.hypot(x, x)
def work():
    for _ in range(30):
        torch.atan2(x, x)
thread = threading.Thread(target=work)
thread.start()
thread.join()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    with torch.autograd.profiler.record_function("forward"):
        loss = model(x).sum()
    loss.backward()
    optimizer.step()
print(loss.item())
sys.exit(7)
"""


def record(
    python: str,
    program: str,
    folder: Path,
    what: str = "LIBRARY",
    path: str = "/none.so",
    *options: str,
) -> Recorded:
    """Record a program's text with one file of the agent replaced."""
    (folder / "program.py").write_text(quick(program))
    script = WITHOUT_AGENT.format(what=what, path=path)
    command = [sys.executable, "-c", script, str(SOURCE), "run", "-o", "recording", *options, "--"]
    command += [python, "program.py"]
    done = subprocess.run(
        command, cwd=folder, env=environment(XDG_CACHE_HOME=str(folder / "cache")), capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    return Recorded(
        open_run(folder / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )


@pytest.fixture(scope="module")
def has_windows(program_python: str) -> None:
    """Windows are recorded of this PyTorch; of an old one they are not, and that is tested too."""
    tries = "import torch; torch._C._profiler._ExperimentalConfig(profile_all_threads=True)"
    if subprocess.run([program_python, "-c", tries], capture_output=True, check=False).returncode:
        pytest.skip("the profiler of this PyTorch is too old for windows")


def check_known(recorded: Recorded) -> None:
    """What is in the program `KNOWN` is in its recording, as far as windows can hold it."""
    assert (recorded.status, recorded.stderr.count("Traceback")) == (7, 0), recorded.stderr
    hypot = recorded.rows(
        "SELECT depth, kind, count(*) AS n FROM spans WHERE name = 'aten::hypot' GROUP BY ALL"
    )
    assert hypot == [{"depth": 0, "kind": "function", "n": 100}]
    assert recorded.value("SELECT count(*) FROM spans WHERE name = 'aten::atan2'") == 30
    (problem,) = recorded.rows("SELECT * FROM problems WHERE code = 'stock_windows'")
    assert "only windows of PyTorch's own profiler could be recorded" in problem["what"]
    marks = recorded.rows("SELECT kind, name FROM marks ORDER BY at_ns")
    assert marks[:2] == [{"kind": "opened", "name": "window"}, {"kind": "closed", "name": "window"}]
    assert "Not recorded: operators outside of the windows" in recorded.stderr


def test_without_an_agent_windows_are_recorded(
    has_windows: None, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, KNOWN, tmp_path)
    check_known(recorded)
    assert recorded.value("SELECT count(*) FROM problems WHERE code = 'agent_not_built'") == 1
    assert recorded.value("SELECT count(*) FROM processes") == 1


def test_where_the_probe_refuses_windows_are_recorded(
    has_windows: None, native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    probe = tmp_path / "probe"
    probe.write_text(REFUSES)
    probe.chmod(0o755)
    # A little work behind the import: the answer of the probe is looked for at the next import.
    program = "import torch, time\ntime.sleep(3)\nimport colorsys\n" + KNOWN
    recorded = record(program_python, program, tmp_path, "PROBE", str(probe))
    check_known(recorded)
    assert "it is odd" in recorded.value(
        "SELECT what FROM problems WHERE code = 'torch_not_understood'"
    )
    assert recorded.value("SELECT count(*) FROM processes") == 1


def test_a_loop_has_its_steps_its_links_and_its_parents(
    has_windows: None, program_python: str, tmp_path: Path
) -> None:
    # All that makes memory grow happens before the loop, and the windows after it have found their
    # feet.
    program = (
        WITHOUT_COMPILER
        + """
import time, torch
model, x = torch.nn.Linear(4, 1), torch.ones(2, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    with torch.autograd.profiler.record_function("forward"):
        loss = model(x).sum()
    loss.backward()
    optimizer.step()
step()
until = time.monotonic() + 6
while time.monotonic() < until:
    step()
    time.sleep(0.005)
"""
    )
    recorded = record(program_python, program, tmp_path)
    assert recorded.status == 0, recorded.stderr
    assert recorded.value("SELECT count(*) FROM steps") > 20
    assert recorded.value("SELECT DISTINCT rule FROM steps") == "optimizer"
    links = recorded.rows(
        "SELECT DISTINCT f.name AS forward, b.name AS backward FROM links "
        "JOIN spans f ON f.span = from_span JOIN spans b ON b.span = to_span"
    )
    assert {"forward": "aten::addmm", "backward": "AddmmBackward0"} in links
    around = "SELECT count(*) FROM spans s JOIN spans p ON p.span = s.parent WHERE s.name = 'aten::linear' AND p.name = "
    linear = recorded.value("SELECT count(*) FROM spans WHERE name = 'aten::linear'")
    assert linear - 2 <= recorded.value(around + "'forward'") <= linear
    assert recorded.value("SELECT count(*) FROM spans WHERE self_ns < 0 OR self_ns > dur_ns") == 0


# --- The program notices nothing ---


class Door:
    """Runs programs with a door behind which nobody listens, and without."""

    def __init__(self, folder: Path) -> None:
        self.raw = folder / "raw"
        self.raw.mkdir()
        self.door = agent.make_door(self.raw / "door", "", False, raw=self.raw)

    def run(self, *command: str, with_door: bool = True) -> tuple[int, str, str]:
        """Status, output and errors: without the times of libkineto's messages, and without those
        of its first use, which is ours.
        """
        variables = environment(PYTHONPATH=str(self.door) if with_door else None)
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        errors = re.sub(r"\d\d:\d\d:\d\d \d+:\d+", "TIME", done.stderr)
        return (
            done.returncode,
            done.stdout,
            re.sub(r"(?m)^ERROR:.*(gpuGetDeviceCount|registerClient).*\n", "", errors),
        )

    def lines(self) -> list[dict[str, object]]:
        """What the windows said of themselves."""
        found = sorted(self.raw.glob(f"*/{WINDOWS}"))
        return [json.loads(line) for path in found for line in path.read_text().splitlines()]


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


@pytest.mark.parametrize("which", ["kineto", *also(["none", "legacy", "itt"])])
def test_a_profiler_of_the_program_finds_what_it_finds_without_us(
    program_python: str, door: Door, which: str
) -> None:
    command = [program_python, str(PROGRAMS / "profiles_itself.py"), which]
    assert door.run(*command) == door.run(*command, with_door=False)
    said = door.lines()
    if {"over": "old_profiler"} in said:
        return
    assert any("file" in line for line in said)
    assert ({"over": "profiler"} in said) == (which != "none")


def test_a_profiler_on_another_thread_with_stacks_and_a_schedule_is_complete(
    program_python: str, door: Door
) -> None:
    program = """
import sys, threading, torch
from torch.profiler import ProfilerActivity, profile, schedule
def work():
    turns = schedule(wait=1, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, schedule=turns) as p:
        for _ in range(5):
            torch.hypot(torch.ones(2), torch.ones(2))
            p.step()
    names = sorted(row.key for row in p.key_averages())
    print([name for name in names if name.endswith("::hypot") or "layerscope" in name])
    print(sum(event.name == "aten::hypot" for event in p.events()))
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(torch.autograd.profiler._enable_profiler is torch._C._autograd._enable_profiler)
"""
    with_door = door.run(program_python, "-c", program)
    assert with_door == door.run(program_python, "-c", program, with_door=False)
    assert with_door[1].splitlines() == ["['aten::hypot']", "2", "True"]


def test_forked_children_are_as_without_us(program_python: str, door: Door) -> None:
    program = """
import multiprocessing, os, torch
def child(queue):
    x = torch.ones(3)
    for _ in range(1000):
        x = x + 1
    with torch.profiler.profile() as found:
        x = x + 1
    queue.put([x.tolist(), torch.autograd._profiler_enabled(), [row.key for row in found.key_averages()]])
torch.hypot(torch.ones(2), torch.ones(2))
context = multiprocessing.get_context("fork")
queue = context.Queue()
processes = [context.Process(target=child, args=(queue,)) for _ in range(3)]
[process.start() for process in processes]
print(sorted(queue.get() for _ in processes), [process.join() for process in processes])
pid = os.fork()
if not pid:
    os._exit(3)
print(os.waitpid(pid, 0)[1])
"""
    assert (
        door.run(program_python, "-c", program)[:2]
        == door.run(program_python, "-c", program, with_door=False)[:2]
    )
    assert {"over": "profiler"} not in door.lines()
    assert {"fork", None} & {line.get("why") for line in door.lines()}
    assert len({line["pid"] for line in door.lines() if "pid" in line}) == 1


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(5)",
        "1 / 0",
        *also(["os.kill(os.getpid(), 9)", "raise SystemExit(4)", "os.abort()"]),
    ],
)
def test_every_end_of_a_program_is_its_own(program_python: str, door: Door, end: str) -> None:
    program = f"import os, torch\ntorch.hypot(torch.ones(2), torch.ones(2))\nprint('here', flush=True)\n{end}\n"
    assert door.run(program_python, "-c", program) == door.run(
        program_python, "-c", program, with_door=False
    )


def test_all_processes_together_write_so_much_and_no_more(program_python: str, door: Door) -> None:
    other = door.raw / "host-1-1" / "kineto-0.json"
    other.parent.mkdir()
    with other.open("wb") as file:
        file.truncate(513 << 20)
    program = "import torch\nprint(torch.hypot(torch.ones(2), torch.ones(2)))"
    assert door.run(program_python, "-c", program) == door.run(
        program_python, "-c", program, with_door=False
    )
    assert not [line for line in door.lines() if "file" in line]


def test_a_place_that_cannot_be_written_costs_the_program_nothing(
    program_python: str, tmp_path: Path
) -> None:
    door = Door(tmp_path)
    (tmp_path / "file").write_text("")
    agent.make_door(door.raw / "door", "", False, raw=tmp_path / "file" / "raw")
    program = "import torch\nprint(torch.hypot(torch.ones(2), torch.ones(2)))"
    assert door.run(program_python, "-c", program) == door.run(
        program_python, "-c", program, with_door=False
    )


def test_a_process_that_outlives_the_recording_writes_nothing_into_it(
    program_python: str, door: Door
) -> None:
    (door.raw / "session.json").write_text("{}")
    assert door.run(program_python, "-c", "import torch; print(torch.ones(1))")[0] == 0
    assert door.lines() == []


@pytest.mark.stress
def test_a_daemon_that_may_profile_at_any_time_has_the_profiler_for_itself(
    program_python: str, door: Door
) -> None:
    program = "import os; os.environ['KINETO_USE_DAEMON'] = '1'\nimport torch\nprint(torch.ones(1))"
    assert door.run(program_python, "-c", program)[0] == 0
    assert door.lines() == []


def test_a_gpu_that_the_program_does_not_use_yet_is_left_alone(tmp_path: Path) -> None:
    hook: dict[str, Any] = {"__name__": "hook", "faults": HANDED}
    exec((agent.FRAMEWORKS / "torch" / "inside" / "windows.py").read_text(), hook)
    hook["GPUS"] = (("cuda", str(tmp_path), "cuda"),)
    profiler = hook["Profiler"].__new__(hook["Profiler"])

    def usable(build: str | None, is_initialized: bool) -> bool:
        cuda = SimpleNamespace(is_initialized=lambda: is_initialized)
        profiler.torch = SimpleNamespace(version=SimpleNamespace(cuda=build), cuda=cuda)
        return bool(profiler.is_usable())

    assert [usable("13.0", False), usable("13.0", True), usable(None, False)] == [False, True, True]
    hook["GPUS"] = (("cuda", str(tmp_path / "none"), "cuda"),)
    assert usable("13.0", False)


@pytest.mark.parametrize(
    ("known", "chosen"),
    [
        ({"profile_all_threads", "trace_only"}, {"profile_all_threads", "trace_only"}),
        ({"profile_all_threads"}, {"profile_all_threads"}),
        (set(), None),
    ],
)
def test_a_profiler_is_used_if_it_sees_all_threads_whatever_else_it_knows(
    tmp_path: Path, known: set[str], chosen: set[str] | None
) -> None:
    """PyTorch 2.11 knows no `trace_only`; one that sees a single thread is refused."""
    hook: dict[str, Any] = {"__name__": "hook", "faults": HANDED}
    exec((agent.FRAMEWORKS / "torch" / "inside" / "windows.py").read_text(), hook)

    def experimental(**options: bool) -> set[str]:
        if options.keys() - known:
            raise TypeError("incompatible constructor arguments")
        return set(options)

    profiler = SimpleNamespace(
        ProfilerActivity=SimpleNamespace(CPU=0),
        ProfilerState=SimpleNamespace(KINETO=1),
        ProfilerConfig=lambda *arguments: arguments[6],
        _ExperimentalConfig=experimental,
    )
    functions = dict.fromkeys((*hook["STARTS"], "_disable_profiler"), print)
    torch = SimpleNamespace(
        __file__=str(tmp_path / "__init__.py"),
        autograd=SimpleNamespace(**functions),
        _C=SimpleNamespace(_profiler=profiler),
    )
    if chosen is None:
        with pytest.raises(TypeError):
            hook["Profiler"](torch)
    else:
        assert hook["Profiler"](torch).config == chosen


# --- What is read ---


def problems(raw: Path) -> list[Problem]:
    """What has to be said about the windows below `raw`."""
    folder = RawFolder(raw)
    folder.finish(None, is_windowed=False)
    return folder.problems


def codes(raw: Path) -> list[str]:
    return [problem.code for problem in problems(raw)]


def test_a_damaged_window_is_a_problem_each_time_that_it_is_read(
    has_windows: None, program_python: str, door: Door
) -> None:
    program = "import torch\nfor _ in range(20): torch.hypot(torch.ones(2), torch.ones(2))"
    assert door.run(program_python, "-c", program)[0] == 0
    (trace,) = door.raw.glob("*/kineto-0.json")
    trace.write_bytes(trace.read_bytes()[:-40])
    assert codes(door.raw) == ["window_damaged", "stock_windows"]
    assert codes(door.raw) == ["window_damaged", "stock_windows"]


def test_secrets_of_the_command_line_are_not_written(program_python: str, door: Door) -> None:
    program = "import torch; print(torch.hypot(torch.ones(2), torch.ones(2)))"
    assert door.run(program_python, "-c", program, "--password", "hunter2")[0] == 0
    files = [file for file in door.raw.rglob("*") if file.is_file()]
    assert len(files) >= 2
    assert not any(b"hunter2" in file.read_bytes() for file in files)
    assert "--password ***" in " ".join(
        next(line["argv"] for line in door.lines() if "argv" in line)
    )


def test_a_profiler_that_is_too_old_is_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "machine-4-17"
    folder.mkdir()
    about = {"pid": 4, "ppid": 1, "start_ns": 17, "argv": ["python"], "torch": "2.5.1", "tid": 4}
    (folder / WINDOWS).write_text(json.dumps(about) + '\n{"over": "old_profiler"}\n')
    (problem,) = problems(tmp_path)
    assert (problem.code, "PyTorch 2.5.1" in problem.what) == ("no_stock_windows", True)


def test_what_a_killed_program_left_unfinished_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / f"machine-{os.getpid()}-17"
    folder.mkdir()
    about = {"pid": 4, "ppid": 1, "start_ns": 17, "argv": ["python"], "torch": "2.13.0", "tid": 4}
    (folder / WINDOWS).write_text(json.dumps(about) + '\n{"file": "kine')
    (problem,) = problems(tmp_path)
    assert (problem.code, problem.lost) == ("no_stock_windows", stock_windows.EVERYTHING)
    assert problem.what == "no window of PyTorch's own profiler had ended when the program did"


@pytest.mark.stress
def test_a_window_that_was_asked_for_is_not_said_to_be_recorded(
    has_windows: None, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, KNOWN, tmp_path, "LIBRARY", "/none.so", "--steps", "3:5")
    check_known(recorded)
    assert recorded.value(
        "SELECT lost FROM problems WHERE code = 'window_not_as_asked'"
    ).startswith("the window as")
    assert "Only a window was recorded" not in recorded.stderr
    assert recorded.run.info.window == ""
