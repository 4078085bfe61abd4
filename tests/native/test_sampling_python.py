"""The frames of Python in samples: what the interpreter says of itself at the same moment, in each
version.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.native.door import Door
from tests.native.sampled import (
    FRAMES_CUT,
    LEFT_OUT,
    MORE_CODE,
    Area,
    Code,
    Sample,
    Ticker,
    areas,
    open_event,
)
from tests.pythons import python_of

TEXT = Path(__file__).parent / "python_program.py"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TIMEOUT_S = 120


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    """An interpreter of each version that is understood."""
    return python_of(request.param)


@dataclass
class Sampled:
    """A Python that has ended, its samples, and what it said of each moment."""

    area: Area
    samples: list[Sample]
    ticks: list[Any]
    areas_of: Callable[[int], list[Area]]

    def check(self, groups: bool = True) -> None:
        """The samples are those of the moments, in their order."""
        assert len(self.samples) == len(self.ticks) > 0
        for sample, (tid, evaluations, frames, _) in zip(self.samples, self.ticks, strict=True):
            assert sample.python() == [tuple(frame) for frame in frames]
            assert (sample.tid, sample.flags) == (tid, 0)
            if groups and evaluations:  # 0: where the interpreter has pieces without names
                assert sum(is_entry for _, _, is_entry in sample.frames) == evaluations


Run = Callable[[str], Sampled]


@pytest.fixture
def run(python: str, native_agent: Path, tmp_path: Path) -> Run:
    def start(lines: str) -> Sampled:
        door = Door(tmp_path / "raw", drainer="")
        text = (
            f"AGENT, SOCKET = {str(native_agent)!r}, {door.name!r}\n"
            + TEXT.read_text()
            + textwrap.dedent(lines)
        )
        file = tmp_path / "program.py"
        file.write_text(text + "\ndone()\n")
        process = subprocess.run(
            [python, "-I", str(file)],
            input="\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        door.close()
        assert (process.returncode, process.stderr) == (0, "")
        found = {pid: areas(door, pid) for pid, _ in door.handed}
        (area,) = found[min(found)]
        return Sampled(
            area, area.take(), json.loads(process.stdout.splitlines()[-1]), lambda pid: found[pid]
        )

    return start


def test_calls_of_functions(run: Run) -> None:
    sampled = run(
        """
        def recursive(n):
            return recursive(n - 1) if n else tick()

        class Holder:
            tick()

            def method(self):
                def inner():
                    tick()
                inner()

        recursive(20)
        Holder().method()
        tick()
        """
    )
    sampled.check()
    # The class body, then the function that its method made.
    assert sampled.samples[0].names() == ["tick", "Holder", "<module>"]
    assert sampled.samples[2].names() == [
        "tick",
        "Holder.method.<locals>.inner",
        "Holder.method",
        "<module>",
    ]
    assert sampled.samples[3].frames[-1][2], (
        "the outermost frame is where a C frame of the interpreter begins"
    )


def test_calls_through_c(run: Run) -> None:
    sampled = run(
        """
        import functools
        sorted([2, 1], key=lambda x: tick() or x)
        list(map(lambda x: tick(), [1, 2]))
        functools.reduce(lambda a, b: tick(), [1, 2, 3])
        functools.partial(lambda x: tick(), 1)()
        exec(compile("def of_text(): tick()\\nof_text()", "<text of a test>", "exec"))
        eval("tick()")
        """
    )
    sampled.check()
    assert [entry for _, _, entry in sampled.samples[0].frames] == [False, True, True]
    assert ("of_text", "<text of a test>", 1) in sampled.samples[7].python()


def test_frames_that_the_interpreter_makes_for_itself(run: Run) -> None:
    sampled = run(
        """
        class Made:
            def __init__(self, is_last):
                if is_last:
                    tick()

        for i in range(200):  # the interpreter specialises what it does often
            Made(i == 199)
        """
    )
    sampled.check()
    assert sampled.samples[0].names() == ["tick", "Made.__init__", "<module>"]


def test_generators_and_coroutines(run: Run) -> None:
    sampled = run(
        """
        import asyncio

        def generator():
            tick()
            yield 1
            yield from inner()

        def inner():
            tick()
            yield 2

        async def leaf():
            tick()
            await asyncio.sleep(0)
            tick()

        async def root():
            await asyncio.gather(leaf(), leaf())
            async for _ in asynchronous():
                tick()

        async def asynchronous():
            for i in range(2):
                tick()
                yield i

        for _ in range(20):  # the interpreter specialises what it does often
            list(generator())
            for _ in generator():
                pass
        asyncio.run(root())
        """
    )
    sampled.check()


def test_threads(run: Run) -> None:
    sampled = run(
        """
        def work(n):
            for _ in range(3):
                tick()

        def start(n):
            thread = threading.Thread(target=work, args=(n,), name=str(n))
            thread.start()
            thread.join()

        for n in range(20):
            start(n)
        """
    )
    sampled.check()
    assert len({sample.tid for sample in sampled.samples}) == 20


def test_with_and_without_the_lock_of_python(run: Run) -> None:
    sampled = run(
        """
        tick()
        syscall = ctypes.PyDLL(None).syscall  # the other one lets the lock go
        tick()
        """
    )
    sampled.check()


@pytest.mark.parametrize("calls", [2000, 6000])
def test_deep_recursion_keeps_both_ends(run: Run, calls: int) -> None:
    sampled = run(
        f"""
        import sys

        def recursive(n):
            return recursive(n - 1) if n else tick()

        sys.setrecursionlimit(10_000)
        recursive({calls})
        """
    )
    (sample,) = sampled.samples
    frames = [tuple(frame) for frame in sampled.ticks[0][2]]
    places = [i for i, (code, _, _) in enumerate(sample.frames) if code == LEFT_OUT]
    if calls == 2000:
        assert (places, sample.python()) == ([], frames)
    else:
        inner, outer = places[0], len(sample.frames) - places[0] - 1
        assert len(sample.frames) == 2560
        assert sample.frames[inner][1] == len(frames) - inner - outer
        assert sample.python()[:inner] == frames[:inner]
        assert sample.python()[inner + 1 :] == frames[-outer:]
    assert not sample.flags & FRAMES_CUT


def test_code_that_is_gone_leaves_its_name_to_nobody(run: Run) -> None:
    """Code of the same size comes to lie where it was, with the same addresses in it."""
    sampled = run(
        """
        for i in range(300):  # whose names nobody keeps
            exec(f"def made_{i:03}(): send()\\nmade_{i:03}()", globals())
            del globals()[f"made_{i:03}"]
        """
    )
    assert [sample.names()[1] for sample in sampled.samples] == [f"made_{i:03}" for i in range(300)]


def test_names_of_all_scripts(run: Run) -> None:
    names = ["na\u00efve", "\u0436\u0434\u0438", "\u5909\u6570", "\U00020000\U00020001", "x" * 2000]
    sampled = run(
        f"""
        for name in {names!r}:
            space = dict(tick=tick)
            exec(compile(f"def {{name}}(): tick()\\n{{name}}()", f"<{{name}}>", "exec"), space)
        """
    )
    for sample, (_, _, frames, _) in zip(sampled.samples, sampled.ticks, strict=True):
        wanted, file, line = frames[1]
        assert sample.python()[1] == (wanted[:1024], file[:1024], line)
    assert {frames[1][0] for _, _, frames, _ in sampled.ticks} == set(names)


def test_more_code_than_is_kept(run: Run) -> None:
    """The table has room for 32,768; what comes later has no name, and nothing else is lost."""
    sampled = run(
        """
        text = "tick()"
        kept = []
        ticks = []

        def tick():
            send()

        for i in range(34000):
            kept.append(compile("\\n" * (i % 7) + "send()", f"<{i}>", "exec"))
        for i in range(0, len(kept), 100):
            exec(kept[i])
        agent.ls_sampling_stop()
        """
    )
    assert MORE_CODE not in sampled.samples[0].names()
    assert len(sampled.samples) == 340


@pytest.mark.parametrize("version", VERSIONS)
def test_a_forked_child_says_its_own(version: str, native_agent: Path, tmp_path: Path) -> None:
    door = Door(tmp_path / "raw", drainer="")
    lines = """
    def in_child():
        tick()
        tick()
        print(json.dumps(ticks), flush=True)
        os._exit(0)

    import warnings
    warnings.simplefilter("ignore")
    tick()
    ticks.clear()
    child = os.fork()
    if not child:
        in_child()
    os.waitpid(child, 0)
    print(child)
    """
    text = (
        f"AGENT, SOCKET = {str(native_agent)!r}, {door.name!r}\n"
        + TEXT.read_text()
        + textwrap.dedent(lines)
    )
    done = subprocess.run(
        [python_of(version), "-I", "-c", text],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    door.close()
    assert (done.returncode, done.stderr) == (0, "")
    told, child = done.stdout.splitlines()
    (area,) = areas(door, int(child))
    Sampled(area, area.take(), json.loads(told), lambda pid: []).check(groups=False)
    assert area.number("python") == int(version.split(".")[1])


CHURN = """
import itertools
import time
ends = time.monotonic() + 2

def leaf(n):
    return sum(i * i for i in range(n % 20))

def generator(n):
    for i in range(n % 5):
        yield leaf(i)

def recursive(n):
    return recursive(n - 1) + leaf(n) if n else list(generator(7))[0]

class Held:
    def __eq__(self, other):
        return leaf(3) == 0
    __hash__ = object.__hash__

def made(n):
    space = {}
    exec(f"def made_{n % 10}(x): return x + 1\\nfor i in range(5): made_{n % 10}(i)", space)

def work():
    n = 0
    while time.monotonic() < ends:
        n += 1
        recursive(n % 30)
        sorted(range(5), key=leaf)
        Held() in [Held(), Held()]
        made(n)

threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
work()
for thread in threads:
    thread.join()
"""
KNOWN = re.compile(
    r"leaf(\.<locals>\.<genexpr>)?|generator|recursive|Held(\.__eq__)?|made(_\d)?|<module>|<listcomp>|work|walk|tick|done|send|evaluations"
)


def is_known(code: Code) -> bool:
    """Whether there is such a function: in the text above, or in a file."""
    if code.file.startswith("/"):
        return Path(code.file).exists()
    return bool(KNOWN.fullmatch(code.name)) or code.file.startswith("<frozen ")


@pytest.mark.slow
def test_frames_at_any_moment(python: str, native_agent: Path, tmp_path: Path) -> None:
    try:
        os.close(open_event(os.getpid(), 1000))
    except OSError as error:
        pytest.skip(f"perf_event_open is refused here: {error}")
    door = Door(tmp_path / "raw", drainer="")
    text = f"AGENT, SOCKET = {str(native_agent)!r}, {door.name!r}\n" + TEXT.read_text() + CHURN
    process = subprocess.Popen(
        [python, "-I", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    ticker = Ticker(door, lambda: [process.pid], 2000)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    ticker.close()
    door.close()
    assert (process.returncode, stderr) == (0, b"")
    samples = ticker.samples(process.pid)
    # None are known while a C frame of the interpreter of 3.11 and 3.12 begins: some instructions.
    known = [sample for sample in samples if sample.frames]
    assert len(known) > 100
    assert len(known) > 0.9 * len(samples)
    for sample in known:
        assert [code for code, _, _ in sample.frames if not is_known(code)] == []
        assert sample.flags & FRAMES_CUT == 0
        outermost = sample.frames[-1][
            0
        ]  # else one of Python's own: of a thread, of its end, of a weak reference
        assert outermost.name == "<module>" or outermost.file != "<string>"
        assert sample.frames[-1][2]
