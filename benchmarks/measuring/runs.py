"""Runs a program without layerscope and with it, and says what both cost."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from layerscope.capture.frameworks.torch import probe
from layerscope.rawfile import raw_file
from layerscope.recording.run import Run
from measuring.watch import Watch

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "programs"
EXAMPLES = HERE.parents[1] / "examples"
TIMEOUT_S = 120
GRACE_S = 5
_TAIL = 1500


class BenchmarkError(Exception):
    """A program that should have run did not."""


@dataclass(frozen=True)
class Setting:
    """Which Pythons, a folder for recordings, and how much of everything."""

    program: str
    folder: Path
    quick: bool = False
    pairs: int = 20
    tool: str = sys.executable
    seconds: float = 0.0  # of a long run; 0: as the benchmark likes
    runs: int = 20  # of a program whose truth is known
    programs: tuple[str, ...] = ()  # those of them that are named; none: all
    busy: int = 0  # processes that compute beside them

    @property
    def environment(self) -> dict[str, str]:
        """Ours, but Python as it is out of the box, and with a cache that only the benchmarks
        use.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**kept, "XDG_CACHE_HOME": str(self.folder / "cache")}


@dataclass(frozen=True)
class Done:
    """A process that ended well: its output, and its resources as the kernel counted them
    (wait4).
    """

    out: str
    cpu_ns: int
    end_ns: int
    wall_ns: int

    @property
    def json(self) -> dict[str, Any]:
        """The last line of the output."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


@dataclass(frozen=True)
class Recorded:
    """A recorded program: its output, the recording, and the CPU of all our processes from start to
    prompt.
    """

    done: Done
    run: Run
    watch: Watch | None

    @property
    def program_cpu_ns(self) -> int:
        """Of the program alone, as wait4 gave it to the session."""
        return self.run.info.program.user_ns + self.run.info.program.system_ns

    @property
    def ours_cpu_ns(self) -> int:
        """Of session, drainer, converter, and a probe if one ran."""
        return self.done.cpu_ns - self.program_cpu_ns

    @property
    def dropped(self) -> int:
        """Records lost."""
        return sum(layer.dropped for layer in self.run.info.layers)

    def rows(self, table: str) -> int:
        """Rows of a table."""
        return next((state.rows for state in self.run.info.tables if state.name == table), 0)


@contextmanager
def computing(count: int) -> Iterator[None]:
    """With so many processes that compute."""
    code = "while True: pass"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def execute(
    setting: Setting,
    command: list[str],
    watch_every_s: float = 0.0,
    path: Path | None = None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Done, Watch | None]:
    """Run `command` to its end, and watch the recording `path`; BenchmarkError when it fails or
    takes too long.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start_ns = time.monotonic_ns()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=setting.environment,
            cwd=setting.folder,
        )
        watch = Watch(process.pid, watch_every_s, path or setting.folder) if watch_every_s else None
        if watch:
            watch.start()
        try:
            in_time = _wait(process.pid, timeout_s)
        except BaseException:
            end_tree(process.pid)
            process.wait()
            raise
        end_ns = time.monotonic_ns()
        if not in_time:
            end_tree(process.pid)
        if watch:
            watch.join()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    if process.returncode or not in_time:
        how = (
            f"ended with status {process.returncode}"
            if in_time
            else f"took more than {timeout_s:g} s"
        )
        raise BenchmarkError(f"{' '.join(command)} {how}: {texts[1][-_TAIL:]}")
    return Done(
        texts[0], round((usage.ru_utime + usage.ru_stime) * 1e9), end_ns, end_ns - start_ns
    ), watch


def _wait(pid: int, timeout_s: float) -> bool:
    """Until the child has ended, which is not reaped yet; False: it takes too long."""
    fd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(fd)


def end_tree(pid: int) -> None:
    """End a child of ours, which nobody has reaped, and what it started."""
    below = psutil.Process(pid).children(recursive=True)
    os.kill(pid, signal.SIGTERM)
    psutil.wait_procs(below, timeout=GRACE_S)
    for child in below:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    os.kill(pid, signal.SIGKILL)


def plain(setting: Setting, program: str, *arguments: str) -> Done:
    """Run one of the benchmarks' programs without layerscope."""
    return execute(setting, [setting.program, str(PROGRAMS / program), *arguments])[0]


@contextmanager
def recorded(
    setting: Setting,
    program: str,
    *arguments: str,
    tsc: bool = True,
    quiet: bool = True,
    watch_every_s: float = 0.0,
    timeout_s: float = TIMEOUT_S,
    options: tuple[str, ...] = (),
) -> Iterator[Recorded]:
    """Run one of the benchmarks' programs, or an example, under layerscope; the recording goes
    afterwards.

    `options` are further ones of `layerscope run`.
    """
    script = PROGRAMS / program if (PROGRAMS / program).exists() else EXAMPLES / program
    path = Path(tempfile.mkdtemp(dir=setting.folder)) / "a.layerscope"
    layerscope = ["-m", "layerscope"] if tsc else [str(HERE / "without_tsc.py")]
    command = [
        setting.tool,
        *layerscope,
        "run",
        "-o",
        str(path),
        *(["-q"] if quiet else []),
        *options,
    ]
    try:
        words = [*command, "--", setting.program, str(script), *arguments]
        done, watch = execute(setting, words, watch_every_s, path, timeout_s)
        yield Recorded(done, Run.open(path), watch)
    finally:
        shutil.rmtree(path.parent, ignore_errors=True)


def last_words(run: Run) -> dict[str, Any]:
    """What the drainer wrote about a program of one process: clock, agent_cpu_ns and more."""
    found: dict[str, Any] = {}
    for path in run.raw.glob("*/spool"):
        for chunk in raw_file.SpoolReader(path).chunks():
            if chunk.kind in (raw_file.PROCESS, raw_file.LOSS):
                found |= json.loads(chunk.payload)
    return found


def warm_up(setting: Setting) -> probe.ProbeAnswer:
    """Record until the probe's answer is complete, as it is in everyday use; returns it."""
    for _ in range(3):
        with recorded(setting, "workload.py", "tiny", "--steps", "50"):
            pass
        for file in (setting.folder / "cache" / "layerscope" / "probe").glob("*.json"):
            kept = json.loads(file.read_text())
            answer = probe.ProbeAnswer(
                **{name: kept[name] for name in probe.ProbeAnswer.__struct_fields__}
            )
            if answer.complete:
                return answer
    raise BenchmarkError("the probe does not come to an answer here, so nothing is recorded")


def interleave(
    arms: dict[str, Callable[[], Any]], pairs: int, budget_s: float
) -> dict[str, list[Any]]:
    """Run every arm `pairs` times, in turns and in alternating order; fewer, but at least 3, when
    time runs out.
    """
    found: dict[str, list[Any]] = {name: [] for name in arms}
    begin = time.monotonic()
    for i in range(pairs):
        if i >= 3 and time.monotonic() - begin > budget_s:
            break
        for name in list(arms) if i % 2 == 0 else reversed(arms):
            found[name].append(arms[name]())
    return found
