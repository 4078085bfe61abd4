"""Runs the unchanged program once under a setting, and says what that took.

Where the program makes steps (`counting`) these are timed, with our agent inside that marks where
each begins; else the plain process is, and nothing of ours is in it. CPU time is that of the
program and all that it started, as the kernel says it at their end (wait4); memory the most that
all of them held at once, looked at every 0.1 s, and not less than the peak of the largest of them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from layerscope.capture import agent
from layerscope.capture.link import own_command
from layerscope.host import noise
from layerscope.model.errors import RunError, UsageError
from layerscope.tune import counting, guard, output, supervised, tree
from layerscope.tune.measurement import FAILED, HUNG, MEMORY, OTHER_OUTPUT, Measurement
from layerscope.tune.setting import DEFAULT, Setting

# With fewer steps that are not warm-up the process as a whole is timed.
FEWEST_STEPS = 3
# A run may take this much longer than the one by default, and so many seconds more.
LIMIT_TIMES, LIMIT_MORE_S = 3.0, 5.0
# Of the budget, what the first run may take before anything is known.
FIRST_SHARE = 0.25
# What the supervisor may take beyond the limit of the program: to end it, and to read and write.
_SUPERVISOR_S = 30.0
# The rounds of the runs before the race.
_BEFORE = (-2, -1)


class TrialOptions(Struct, frozen=True):
    """`stop_after`: end a run after so many steps, 0: let it end by itself. `metric`: see --metric.
    `any_output`: it may print what it likes.
    """

    program: tuple[str, ...]
    budget_s: float
    stop_after: int = 0
    metric: re.Pattern[str] | None = None
    any_output: bool = False


class Usual(Struct, frozen=True):
    """What the program does by default, from two runs. `libraries`: that all its processes had
    mapped.

    `unseen`: why no steps are known, empty where they are or were not asked for. `notes`: sentences
    about it.
    """

    measurements: tuple[Measurement, ...]
    has_steps: bool
    rule: str
    libraries: tuple[str, ...]
    expected: output.Expected
    unseen: str = ""
    notes: tuple[str, ...] = ()

    @property
    def wall_s(self) -> float:
        """How long a run takes by default."""
        return max(one.wall_s for one in self.measurements)

    @property
    def rss_bytes(self) -> int:
        """The most memory that it took by default."""
        return max(one.rss_bytes for one in self.measurements)


class _Ran(Struct, frozen=True):
    measurement: Measurement
    answer: supervised.TrialAnswer
    text: str
    rule: str
    status: int | None


class Trials:
    """Runs the program; `usual` has to be called first. `environment` is that of the program
    without a setting.
    """

    def __init__(self, asked: TrialOptions, environment: Mapping[str, str] | None = None) -> None:
        self.asked = asked
        self._environment = dict(os.environ if environment is None else environment)
        self._token = secrets.token_hex(8)
        self._usual: Usual | None = None
        # Without our agent the framework's own profiler would take its place in the program, and
        # make it another one.
        self._missing = agent.check()
        self._counts = asked.metric is None and self._missing is None

    def __call__(self, setting: Setting, round_: int) -> Measurement:
        """One run. Raises RunError where we could not run it at all, KeyboardInterrupt when the
        program is ended.
        """
        assert self._usual is not None, "what the program does by default is not known yet"
        limit_s = LIMIT_TIMES * self._usual.wall_s + LIMIT_MORE_S
        ran = self._run(setting, round_, limit_s, guard.made(self._usual.rss_bytes))
        found = ran.measurement
        if found.fault:
            return found
        if self._usual.has_steps and found.steps < FEWEST_STEPS:
            return replace(found, fault=FAILED, why="it made no steps, which it does by default")
        if self.asked.metric is not None and found.metric is None:
            return replace(found, fault=FAILED, why="--metric finds no number in what it printed")
        # With another value of an option it may print something else.
        is_compared = not (found.is_cut or self.asked.any_output or setting.arguments)
        if is_compared and (other := self._usual.expected.difference(ran.text)):
            return replace(found, fault=OTHER_OUTPUT, why=f"{other} (--any-output allows that)")
        return found

    def usual(self) -> Usual:
        """Run the program twice as it is. Raises RunError where it fails or takes too long for the
        budget.
        """
        first = self._default_run(_BEFORE[0], looks=True)
        self._counts = self._counts and first.measurement.steps >= FEWEST_STEPS
        if self.asked.stop_after and not self._counts:
            why = self._unseen(first) or f"only {first.measurement.steps} were counted"
            raise UsageError(
                f"--steps {self.asked.stop_after}: no steps of the program are known: {why}"
            )
        second = self._default_run(_BEFORE[1])
        if self._counts and second.measurement.steps < FEWEST_STEPS:
            raise RunError(
                "the program made steps in one run and none in the next: it cannot be tuned"
            )
        expected = output.expected(first.text, second.text, self.asked.metric)
        # How long it takes when it is not the first time: files are in memory, code is compiled.
        measurements = (
            (first.measurement, second.measurement) if self._counts else (second.measurement,)
        )
        self._usual = Usual(
            measurements,
            self._counts,
            second.rule,
            tuple(first.answer.libraries),
            expected,
            "" if self._counts or self.asked.metric else self._unseen(first) or "it made no steps",
            tuple(_notes(expected, second.measurement, self.asked)),
        )
        return self._usual

    def _unseen(self, ran: _Ran) -> str:
        """Why no steps are known, as far as that is."""
        if self._missing:
            return self._missing.what
        return ran.answer.unseen

    def _default_run(self, round_: int, looks: bool = False) -> _Ran:
        limit_s = max(LIMIT_MORE_S, FIRST_SHARE * self.asked.budget_s)
        ran = self._run(DEFAULT, round_, limit_s, guard.made(0), looks)
        found = ran.measurement
        if found.fault == HUNG:
            raise RunError(
                f"the program did not end within {limit_s:.0f} s, a quarter of the budget: give it "
                "more (--budget MINUTES), or end each run after some steps (--steps N)"
            )
        if found.fault:
            raise RunError(
                f"the program fails without any setting: {found.why}. It must end well to be tuned"
            )
        if self.asked.metric is not None and found.metric is None:
            raise UsageError(
                f"--metric {self.asked.metric.pattern!r} finds no number in what the program prints"
            )
        return ran

    # -- one run -----------------------------------------------------------------------------------

    def _run(
        self,
        setting: Setting,
        round_: int,
        limit_s: float,
        memory: guard.Guard,
        looks: bool = False,
    ) -> _Ran:
        folder = Path(tempfile.mkdtemp(prefix="layerscope-tune-"))
        task = supervised.TrialTask(
            str(folder),
            setting.command(self.asked.program),
            dict(setting.variables),
            list(setting.preload),
            self._counts,
            limit_s,
            self._token,
            _until(self.asked.stop_after),
            memory.most_bytes,
            memory.usual_bytes,
            memory.short_bytes,
            looks,
        )
        try:
            before = noise.facts().pressure_cpu
            answer = supervised_run(task, self._environment)
            after = noise.facts().pressure_cpu
            pressure = max((one for one in (before, after) if one is not None), default=None)
            return self._measured(setting, round_, task, answer, pressure)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _measured(
        self,
        setting: Setting,
        round_: int,
        task: supervised.TrialTask,
        answer: supervised.TrialAnswer,
        pressure: float | None,
    ) -> _Ran:
        folder = Path(task.folder)
        status = None if answer.status is None else os.waitstatus_to_exitcode(answer.status)
        is_cut = answer.ended == supervised.BY_STEPS
        text = output.read(folder / supervised.STDOUT)
        found = Measurement(
            setting.name,
            round_,
            answer.wall_s,
            answer.cpu_s,
            answer.rss_bytes,
            pressure=pressure,
            load=answer.others_cpus,
            status=status,
            output=output.digest(text),
            is_cut=is_cut,
        )
        if self.asked.metric:
            printed = (folder / supervised.STDOUT, folder / supervised.STDERR)
            found = replace(found, metric=output.measured_in(printed, self.asked.metric))
        fault, why = _fault(answer, task, status, is_cut)
        if fault:
            told = output.tail(folder / supervised.STDERR)
            found = replace(
                found, fault=fault, why=f"{why}: {told}" if told and fault == FAILED else why
            )
        counted = counting.read(folder / supervised.RAW) if task.counts and not fault else None
        if counted is not None:
            found = _with_steps(found, counted)
        return _Ran(found, answer, text, counted.rule if counted else "", status)


def supervised_run(
    task: supervised.TrialTask, environment: Mapping[str, str]
) -> supervised.TrialAnswer:
    """Do one task in a process of its own. Whatever happens, nothing that it started is left when
    this returns.
    """
    folder = Path(task.folder)
    file = folder / "task.json"
    file.write_text(json.dumps(to_builtins(task)), encoding="utf-8")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            own_command("layerscope.tune.supervised", str(file)),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=dict(environment),
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        process.wait(task.limit_s + task.grace_s + _SUPERVISOR_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with _undisturbed():
            process.stdin.close()  # it ends the program then, if that still runs
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SUPERVISOR_S)
            if process.returncode != 0:
                process.kill()
                process.wait()
                _end_marked(task.token)
    try:
        return supervised.TrialAnswer(
            **json.loads((folder / supervised.ANSWER).read_text(encoding="utf-8"))
        )
    except (OSError, ValueError, TypeError) as error:
        told = output.tail(folder / "log") or f"status {process.returncode}"
        raise RunError(
            f"what watches over the program ended early ({told}); start again with --resume"
        ) from error


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits until this is done."""
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    )
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_marked(token: str) -> None:
    """Kill what a supervisor that is gone has left."""
    for pid in tree.marked(supervised.MARK, token):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _fault(
    answer: supervised.TrialAnswer, task: supervised.TrialTask, status: int | None, is_cut: bool
) -> tuple[str, str]:
    """Why a run does not count, and that in a sentence; empty where it does."""
    if answer.problem:
        return FAILED, answer.problem
    if answer.ended == supervised.BY_USER:
        raise KeyboardInterrupt
    if answer.ended == supervised.BY_MEMORY:
        return (
            MEMORY,
            f"it was ended when it held {answer.rss_bytes / 1e9:.2f} GB: memory ran short",
        )
    if answer.ended == supervised.BY_LIMIT:
        return HUNG, f"it did not end within {task.limit_s:.0f} s"
    if status and not is_cut:
        ended = (
            f"it was ended by {signal.Signals(-status).name}"
            if status < 0
            else f"it ended with status {status}"
        )
        return FAILED, ended
    return "", ""


def _with_steps(found: Measurement, counted: counting.Counted) -> Measurement:
    dur_ns = np.sort(counted.dur_ns)
    return replace(
        found,
        steps=len(dur_ns),
        step_mean_ns=float(dur_ns.mean()),
        step_p50_ns=float(np.median(dur_ns)),
        # The smallest value that 99 % do not exceed.
        step_p99_ns=float(dur_ns[-(-99 * len(dur_ns) // 100) - 1]),
        step_cpu_ns=counted.cpu_ns,
    )


def _until(steps: int) -> int:
    """After how many steps a run ends of which `steps` shall not be warm-up, which is a tenth at
    most, or one.
    """
    return steps + max(1, steps // 9) + 1 if steps else 0


def _notes(expected: output.Expected, found: Measurement, asked: TrialOptions) -> Iterator[str]:
    if asked.any_output:
        yield "What the program printed was not compared (--any-output)."
    elif found.is_cut:
        yield "What the program printed was not compared: each run was ended after some steps."
    elif not expected.is_compared:
        yield (
            "The program prints differently each time, so what it printed under other settings "
            "was not compared."
        )
