"""Runs a program once and says what it took: a process of its own, above the program and all that
it starts.

usage: supervised.py TASK    TASK: a JSON file, see `TrialTask`; the answer is written beside it,
see `ANSWER`

It ends what it started, daemons too, when the time or the memory is over, when enough steps were
counted, and when its standard input closes: then nobody waits for the answer any more. A program
that was told to end and goes on is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import sys
import threading
import time
from pathlib import Path

from msgspec import Struct, field, to_builtins

from layerscope.capture.program import ProcessUsage, Program
from layerscope.host import noise
from layerscope.model.errors import RunError
from layerscope.tune import guard, tree
from layerscope.tune.setting import Setting

# By this variable all that a trial started can be found again when its supervisor is gone.
MARK = "LAYERSCOPE_TRIAL"
ANSWER, RAW, STDOUT, STDERR = "answer.json", "raw", "stdout", "stderr"
# Why the program did not come to its own end.
BY_LIMIT, BY_MEMORY, BY_STEPS, BY_USER = "limit", "memory", "steps", "user"
# In the beginning it is looked at more often, for a program that ends soon.
_LOOK_S, _FIRST_LOOK_S = 0.1, 0.005
# What costs a file for each thread is looked at less often.
_OF_ALL_THREADS_EVERY = 10


class TrialTask(Struct, frozen=True):
    """`variables` are set, `preload` comes first in LD_PRELOAD. `counts`: steps are marked, by our
    agent inside.

    `stop_after`: end it after so many steps, 0: never. `most_bytes`, `usual_bytes`, `short_bytes`:
    see `guard.Guard`. `looks`: also see which libraries it has. `grace_s`: it alone is told to end
    first, and has so long to end the rest by itself.
    """

    folder: str
    command: list[str]
    variables: dict[str, str]
    preload: list[str]
    counts: bool
    limit_s: float
    token: str
    stop_after: int = 0
    most_bytes: int | None = None
    usual_bytes: int = 0
    short_bytes: int = 0
    looks: bool = False
    grace_s: float = 0.0


class TrialAnswer(Struct):
    """`status` as wait4 says it. `others_cpus`: CPUs that others used meanwhile, on average; None:
    not told.

    `ended`: one of BY_..., empty where it ended by itself. `problem`: why it could not be started;
    `error` is then its status. `unseen`: why its steps cannot be known, if so. `left`: processes
    that could not be ended.
    """

    status: int | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    rss_bytes: int = 0
    ended: str = ""
    others_cpus: float | None = None
    libraries: list[str] = field(default_factory=list)
    problem: str = ""
    error: int = 0
    unseen: str = ""
    left: list[int] = field(default_factory=list)


class Watcher(threading.Thread):
    """Looks at the program while it runs, and ends it when it has to."""

    def __init__(self, task: TrialTask, program: Program, answer: TrialAnswer) -> None:
        super().__init__(daemon=True)
        self._task = task
        self._program = program
        self._answer = answer
        self._over = threading.Event()
        self._begin = time.monotonic()
        self._guard = guard.Guard(task.most_bytes, task.usual_bytes, task.short_bytes)
        self._steps = None
        if task.stop_after:
            from layerscope.tune.counting import LiveSteps

            self._steps = LiveSteps(Path(task.folder) / RAW)

    def run(self) -> None:
        """Until the program has ended."""
        signal.pthread_sigmask(
            signal.SIG_BLOCK, signal.valid_signals()
        )  # they are for the thread that waits for it
        looks = 0
        while not self._over.is_set():
            is_alone = bool(
                select.select([sys.stdin], [], [], min(_LOOK_S, _FIRST_LOOK_S * (looks + 1)))[0]
            )
            if not self._program.pid:
                if is_alone:
                    os._exit(1)
                continue
            looks += 1
            why = (
                BY_USER
                if is_alone
                else self._why_end(of_all_threads=looks % _OF_ALL_THREADS_EVERY == 1)
            )
            if why:
                self._answer.ended = why
                self._end()
                return

    def finish(self) -> None:
        """The program has ended: so does this, when it has ended the rest."""
        self._over.set()
        self.join()

    def _end(self) -> None:
        grace_s = self._task.grace_s
        if grace_s:
            self._ask_to_end()
            if self._over.wait(grace_s):
                return
        self._answer.left = tree.end(self._roots)

    def _ask_to_end(self) -> None:
        pid = self._program.pid
        children = tree.children(os.getpid())
        if pid in children:
            os.kill(pid, signal.SIGTERM)

    def _roots(self) -> list[int]:
        """The program, and what it left: beside processes that help us to record."""
        program = self._program.pid
        mark = f"{MARK}={self._task.token}".encode()
        found = []
        for pid in tree.children(os.getpid()):
            is_root = pid == program or _has(pid, mark)
            if is_root:
                found.append(pid)
        return found

    def _why_end(self, of_all_threads: bool) -> str:
        pids = tree.below(self._roots() if of_all_threads else [self._program.pid], of_all_threads)
        used_bytes = tree.resident_bytes(pids)
        self._answer.rss_bytes = max(self._answer.rss_bytes, used_bytes)
        if self._task.looks:
            self._look(pids)
        if time.monotonic() - self._begin > self._task.limit_s:
            return BY_LIMIT
        if self._guard.objects_to(used_bytes, guard.memory_left):
            return BY_MEMORY
        if self._steps is not None and self._steps.count() > self._task.stop_after:
            return BY_STEPS
        return ""

    def _look(self, pids: list[int]) -> None:
        answer = self._answer
        libraries = set(answer.libraries)
        for pid in pids:
            mapped = tree.mapped_libraries(pid)
            libraries.update(mapped)
        answer.libraries = sorted(libraries)


def _has(pid: int, variable: bytes) -> bool:
    """Whether it was started by the program: a process that helps to record has not got the
    variable.
    """
    with contextlib.suppress(OSError):
        return variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def supervise(task: TrialTask) -> TrialAnswer:
    """Run the program to its end, or to ours."""
    answer = TrialAnswer()
    tree.become_reaper()
    busy_s, begin = _busy_s(), time.monotonic()
    try:
        usage = _recorded(task, answer) if task.counts else _plain(task, answer)
    except RunError as error:
        answer.problem, answer.error = str(error), error.status
        return answer
    _reap_the_rest(usage, answer)
    answer.cpu_s = (usage.user_ns + usage.system_ns) / 1e9 + answer.cpu_s
    answer.rss_bytes = max(answer.rss_bytes, usage.max_rss_bytes)
    now_s = _busy_s()
    if busy_s is not None and now_s is not None:
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        ours_s = sum(one.ru_utime + one.ru_stime for one in used)
        answer.others_cpus = max(
            0.0, (now_s - busy_s - ours_s) / max(time.monotonic() - begin, 1e-3)
        )
    return answer


def _busy_s() -> float | None:
    """CPU time that everybody has used of the CPUs that we may use, since the machine started; what
    was stolen too.
    """
    told = noise.cpu_time(cpus=os.sched_getaffinity(0))
    return None if told is None else (told.total - told.idle) / os.sysconf("SC_CLK_TCK")


def _plain(task: TrialTask, answer: TrialAnswer) -> ProcessUsage:
    """Without our recorder."""
    program = Program(task.command, _environment(task, dict(os.environ)))
    watcher = _attach(task, program, answer)
    begin = time.monotonic()
    program.start()
    program.wait(lambda: None)
    answer.wall_s = time.monotonic() - begin
    watcher.finish()
    _, answer.status, usage = os.wait4(program.pid, 0)
    program.release()
    return program.own_usage(usage)


def _recorded(task: TrialTask, answer: TrialAnswer) -> ProcessUsage:
    """With marks where steps begin, and nothing else of our recorder."""
    from layerscope.session.session import Session
    from layerscope.tune.counting import EVERY_STEP, without_collectors

    raw = Path(task.folder) / RAW
    raw.mkdir()
    session = Session(raw)
    session.window = EVERY_STEP.for_agent("")
    environment = without_collectors(session.open_door(), os.environ)
    program = Program(task.command, _environment(task, environment))
    watcher = _attach(task, program, answer)
    try:
        session.link.start()
        ended = session.run(program)
    except RunError:
        session.close()
        raise
    answer.status, answer.wall_s = ended.status, ended.wall_ns / 1e9
    watcher.finish()
    session.explain(task.command)
    answer.unseen = next((problem.what for problem in session.problems if problem.lost), "")
    return ProcessUsage(
        ended.user_ns,
        ended.system_ns,
        ended.max_rss_bytes,
        ended.faults_minor,
        ended.faults_major,
        0,
        0,
        0,
        0,
    )


def _environment(task: TrialTask, environment: dict[str, str]) -> dict[str, str]:
    preload = tuple(task.preload)
    setting = Setting("", task.variables, preload)
    varied = setting.environment(environment)
    return varied | {MARK: task.token}


def _attach(task: TrialTask, program: Program, answer: TrialAnswer) -> Watcher:
    """Give the program its streams and a watcher."""
    folder = Path(task.folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    program.streams = {
        0: os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC),
        1: os.open(folder / STDOUT, flags, 0o600),
        2: os.open(folder / STDERR, flags, 0o600),
    }
    watcher = Watcher(task, program, answer)
    watcher.start()
    return watcher


def _reap_the_rest(usage: ProcessUsage, answer: TrialAnswer) -> None:
    """End what the program left behind, and add what it used to the answer."""
    answer.left += tree.end(lambda: tree.children(os.getpid()))
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, _, used = os.wait4(-1, os.WNOHANG if answer.left else 0)
            if not pid:
                return
            answer.cpu_s += used.ru_utime + used.ru_stime


def main() -> None:
    """Do the task, and write the answer."""
    task = TrialTask(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    answer = supervise(task)
    path = Path(task.folder) / ANSWER
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(to_builtins(answer)), encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    main()
