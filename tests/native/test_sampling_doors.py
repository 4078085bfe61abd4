"""How sampling starts, by the door of Python at once and by that of C libraries, and what the end
of a program is.
"""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from layerscope.capture import agent
from tests.native.door import Door
from tests.native.sampled import TIMER, Ticker, areas, open_event, with_children
from tests.native.test_sampling_python import TEXT, VERSIONS
from tests.pythons import python_of
from tests.quick_torch import quick

HZ = 500
TIMEOUT_S = 240


def environment(
    door: Door, folder: Path, ranks: tuple[int, ...] = (), uses_timers: int = 0, **variables: str
) -> dict[str, str]:
    """Of a program that is sampled."""
    stacks = {"hz": HZ, "timers": uses_timers}
    place = agent.make_door(folder / "door", door.name, False, ranks, layers={"stacks": stacks})
    told, problems = agent.without_python({}, door.name, False, ranks, door=place, stacks=stacks)
    assert not problems
    return {**os.environ, **told, "PYTHONPATH": str(place), **variables}


def run(command: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """Its pid, and what it prints; it must say nothing on stderr."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables
    )
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, stderr) == (0, "")
    return process.pid, stdout


LOOKS = """
import signal, sys
print(sorted(sys.modules), signal.getsignal(signal.SIGURG), sys.path)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_without_torch_sees_no_difference(
    version: str, native_agent: Path, tmp_path: Path
) -> None:
    door = Door(tmp_path / "raw", drainer="")
    command = [python_of(version), "-c", LOOKS]
    pid, seen = run(command, environment(door, tmp_path))
    door.close()
    assert seen == run(command, dict(os.environ))[1]
    (area,) = areas(door, pid)
    assert area.number("python") == int(version.split(".")[1])
    assert door.page(pid)["agent_cpu_ns"] > 0


def test_frames_of_the_program_alone(native_agent: Path, tmp_path: Path) -> None:
    """What was sampled before the program's own code is there, and so is all of its own."""
    door = Door(tmp_path / "raw", drainer="")
    file = tmp_path / "program.py"
    text = (
        f"AGENT, SOCKET = {str(native_agent)!r}, {door.name!r}\n"
        + TEXT.read_text()
        + "\ntick()\ndone()\n"
    )
    file.write_text(text.replace("sys.stdin.readline()", ""))
    pid, told = run([python_of("3.11"), str(file)], environment(door, tmp_path))
    door.close()
    (area,) = areas(door, pid)
    (sample,) = area.take()
    assert sample.python() == [tuple(frame) for frame in json.loads(told)[0][2]]


@pytest.mark.parametrize(("rank", "count"), [("0", 1), ("1", 0)])
def test_ranks_that_were_not_chosen_are_left_alone(
    rank: str, count: int, native_agent: Path, tmp_path: Path
) -> None:
    door = Door(tmp_path / "raw", drainer="")
    variables = environment(door, tmp_path, (0,), RANK=rank, WORLD_SIZE="2")
    pid, _ = run([python_of("3.11"), "-c", "pass"], variables)
    door.close()
    assert len(areas(door, pid)) == count


def test_a_program_in_c_is_sampled_when_it_loads_the_agent(
    native_agent: Path, itt_client: Path, tmp_path: Path
) -> None:
    door = Door(tmp_path / "raw", drainer="")
    pid, _ = run([str(itt_client), "steps"], environment(door, tmp_path))
    door.close()
    (area,) = areas(door, pid)
    assert (area.number("python"), area.number("uses_timers")) == (0, 0)


def test_timers_follow_the_threads_of_the_program(native_agent: Path, tmp_path: Path) -> None:
    """The first thread, and by `layerscope.h` or torch each that records; timers come as the
    kernel's ticks do.
    """
    door = Door(tmp_path / "raw", drainer="")
    busy = "import time\nends = time.process_time() + 1\nwhile time.process_time() < ends: pass"
    pid, _ = run([python_of("3.11"), "-c", busy], environment(door, tmp_path, uses_timers=1))
    door.close()
    (area,) = areas(door, pid)
    samples = area.take()
    assert len(samples) > 10
    assert all(sample.flags & TIMER and sample.event == -1 for sample in samples)
    # Ticks are counted for what they are: 500 periods of a second that it ran.
    assert 300 < sum(sample.count for sample in samples) < 700
    assert ["<module>"] in [sample.names() for sample in samples]


TORCH = """
import torch
network = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3))
optimizer = torch.optim.SGD(network.parameters(), 0.01)
for _ in range(30):
    optimizer.zero_grad()
    network(torch.randn(8, 3, 32, 32)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize("uses_timers", [0, 1])
def test_torch_is_recorded_and_sampled(
    uses_timers: int, program_python: str, native_agent: Path, tmp_path: Path
) -> None:
    try:
        os.close(open_event(os.getpid(), HZ))
    except OSError as error:
        pytest.skip(f"perf_event_open is refused here: {error}")
    door = Door(tmp_path / "raw", drainer="")
    file = tmp_path / "train.py"
    file.write_text(quick(TORCH))
    process = subprocess.Popen(
        [program_python, str(file)], stderr=subprocess.PIPE, text=True,
        env=environment(door, tmp_path, uses_timers=uses_timers),
    )  # fmt: skip
    ticker = Ticker(door, lambda: [process.pid], 0 if uses_timers else HZ)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    ticker.close()
    door.close()
    assert (process.returncode, stderr) == (0, "")
    (handed,) = [handed for (pid, _), handed in door.handed.items() if pid == process.pid]
    assert len(handed.pages) == 1
    assert door.page(process.pid)["library"].endswith(b"libtorch_cpu.so")
    assert sum(int(header["published"]) for header in handed.headers()) > 1000
    samples = ticker.samples(process.pid)
    assert "Conv2d.forward" in {name for sample in samples for name in sample.names()}
    # Backward runs on a thread of torch's own, which records.
    assert len({sample.tid for sample in samples}) >= 2


ENDS = """
import threading, time, sys, os
def work():
    while True:
        sorted(range(1000), key=lambda x: -x)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "end", ["", "sys.exit(0)", "os._exit(0)", "os.fork() or os._exit(0); os.wait()"]
)
def test_the_end_of_a_program_is_its_own(
    version: str, end: str, native_agent: Path, tmp_path: Path
) -> None:
    try:
        os.close(open_event(os.getpid(), HZ))
    except OSError as error:
        pytest.skip(f"perf_event_open is refused here: {error}")
    door = Door(tmp_path / "raw", drainer="")
    variables = environment(door, tmp_path)
    for _ in range(3):
        process = subprocess.Popen(
            [python_of(version), "-W", "ignore", "-c", ENDS + end],
            stderr=subprocess.PIPE,
            text=True,
            env=variables,
        )
        ticker = Ticker(door, with_children(process.pid), 5000)
        _, stderr = process.communicate(timeout=TIMEOUT_S)
        ticker.close()
        assert (process.returncode, stderr) == (0, "")
        assert len({sample.tid for sample in ticker.samples(process.pid)}) >= 2
    door.close()


def test_settings_name_hz_and_timers(tmp_path: Path) -> None:
    told, _ = agent.without_python({}, "name", False, stacks={"hz": 99, "timers": 1})
    assert "stacks=99:1" in told[agent.SETTINGS].split(";")
    door = agent.make_door(
        tmp_path / "door", "name", False, layers={"stacks": {"hz": 99, "timers": 1}}
    )
    assert "'stacks': {'hz': 99, 'timers': 1}" in (door / "sitecustomize.py").read_text()


GREENLETS = """
import greenlet

def other(n):
    tick()
    main.switch(n)
    tick()
    for i in range(n):
        inner = greenlet.greenlet(leaf)
        inner.switch()

def leaf():
    sorted([1, 2], key=lambda x: tick() or x)

main = greenlet.getcurrent()
both = [greenlet.greenlet(other) for _ in range(2)]
for n, one in enumerate(both):
    one.switch(n + 1)
for one in both:
    one.switch()
tick()
done()
"""


def test_greenlets(program_python: str, native_agent: Path, tmp_path: Path) -> None:
    door = Door(tmp_path / "raw", drainer="")
    text = (
        f"AGENT, SOCKET = {str(native_agent)!r}, {door.name!r}\n"
        + TEXT.read_text()
        + textwrap.dedent(GREENLETS)
    )
    pid, told = run(
        [program_python, "-I", "-c", text.replace("sys.stdin.readline()", "")], dict(os.environ)
    )
    door.close()
    (area,) = areas(door, pid)
    ticks = json.loads(told)
    assert len(ticks) == 11
    for sample, (_, _, frames, _) in zip(area.take(), ticks, strict=True):
        assert sample.python() == [tuple(frame) for frame in frames]
        assert sample.flags == 0
