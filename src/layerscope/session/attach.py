"""Records a program that runs already, from outside: `layerscope attach`.

Nothing of ours gets into the program, and nothing stops it: no signal, no ptrace, no code. The
sampler has the kernel copy stacks of its threads and reads their frames of Python; the drainer
reads its counters. What only code inside the program could tell, such as operators, is not there.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from layerscope.capture import counters
from layerscope.capture.recorder import Recorder, surviving
from layerscope.capture.sampler import HZ, Outside, Sampler
from layerscope.host import files, process
from layerscope.host.process import ProcessFacts
from layerscope.model.errors import RunError, UsageError
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.model.secrets import kept_environment, mask
from layerscope.rawfile.counters import read
from layerscope.recording.run import Run
from layerscope.session import remote_script, standby
from layerscope.session.command import program_name
from layerscope.session.converter import Converter
from layerscope.session.create import create, discard, shown, text
from layerscope.session.finish import finish, summarise
from layerscope.session.living import ask, living_of
from layerscope.session.outside import environment_of, raise_descriptor_limit, words_of
from layerscope.session.remote_script import RemoteScript
from layerscope.session.requests import Requests
from layerscope.session.run import reserve_streams, write_options
from layerscope.session.session import Ended
from layerscope.session.spooling import divert
from layerscope.show.screen import notify

WATCH_S = 0.5
_OPENED_BEFORE = (
    "its recording was begun before: -o, --rate, --max-size and --full are as they were then"
)
_TREE = (
    "children of the program that begin from now on are recorded with it; attach those that run "
    "already one by one"
)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class AttachOptions(Struct, frozen=True):
    """What a recording of the process `pid` is asked for.

    `for_s`: how long in seconds, None until it ends or somebody ends us; `tree`: its children too;
    `output`: the name of the recording, empty for one of the program's; `size`: what keeps the
    recording small, as `size_options` says it; `operators`: have the program execute a script of
    ours, if its Python offers that, and record its operators.
    """

    pid: int
    size: dict[str, Any]
    for_s: float | None = None
    tree: bool = False
    output: str = ""
    spool: str = ""
    rate_hz: int = HZ
    operators: bool = False
    quiet: bool = False


def attach(asked: AttachOptions) -> int:
    """Record the process until it ends, the time is over, or somebody ends us: 0."""
    reserve_streams()
    program = target(asked.pid)
    living = living_of(asked.pid)
    if living is not None and not standby.is_resting(living):
        stop = f", `layerscope stop {asked.pid}` ends that"
        may_end = stop if living.window.get("steered") else ""
        raise RunError(
            f"process {asked.pid} is being recorded already, into {shown(living.path)}. "
            f"`layerscope top {asked.pid}` shows it{may_end}"
        )
    if living is not None or standby.is_prepared(asked.pid):
        return attach_through_door(asked)
    if asked.operators:
        _check_script(asked.pid)
        return attach_through_door(asked, RemoteScript)
    recording = create_for(program, asked.output, asked.quiet)
    divert(recording, asked.spool or None)
    write_options(recording, asked.size)
    attached = Attached(program, recording, asked.rate_hz, asked.tree)
    requests = Requests(recording, attached.recorder, of_one=not asked.tree)
    attached.recorder.listen_for_requests()
    with asked_to_end() as ending:
        try:
            attached.begin()
        except RunError:
            discard(recording)
            raise
        if not asked.quiet:
            _say_beginning(asked.pid, recording.path, asked.for_s)
        attached.wait(asked.for_s, ending)
        attached.end()
    with surviving(attached.recorder.problems):
        attached.finish()
    with surviving(attached.recorder.problems):
        summarise(recording, attached.recorder, attached.converter, asked.quiet)
    attached.converter.close()
    with surviving(attached.recorder.problems):
        requests.finish()
    return 0


def _check_script(pid: int) -> None:
    """RunError where the process cannot be had to execute a script of ours."""
    why = remote_script.refusal(pid)
    if why is not None:
        raise RunError(
            f"operators of process {pid} cannot be recorded: {why}. Or start it under layerscope "
            "run, or with LAYERSCOPE_AUTOSTART=standby; without --operators attach records the rest"
        )


def attach_through_door(
    asked: AttachOptions, knock: Callable[[int], standby.Signal | RemoteScript] = standby.Signal
) -> int:
    """Have the program record itself, with its operators: it was started with
    LAYERSCOPE_AUTOSTART=standby, its recording waits to be told, or it executes a script of ours
    (`knock`). Its recorder stays until it ends.
    """
    output = Path(asked.output).absolute()
    folder, name = (output.parent, output.name) if asked.output else (output, "")
    options = {"rate_hz": asked.rate_hz, "size": asked.size, "spool": asked.spool}
    try:
        pidfd = os.pidfd_open(asked.pid)
    except OSError as error:
        raise RunError(f"process {asked.pid} has ended") from error
    living = living_of(asked.pid)
    notes = [_OPENED_BEFORE] if living is not None else []
    notes += [_TREE] if asked.tree else []
    if living is None:
        living = standby.open_door(asked.pid, folder, name, options, knock(asked.pid))
    with asked_to_end() as ending:
        try:
            error_text = ask(living, {"what": "start", "for_s": asked.for_s}).get("error")
        except (OSError, ValueError) as error:
            raise RunError(f"process {asked.pid} has ended") from error
        if error_text:
            raise RunError(f"the recording {shown(living.path)} {error_text}")
        if not asked.quiet:
            _say_beginning(asked.pid, living.path, asked.for_s)
            notify("".join(f"layerscope: {note}\n" for note in notes))
        has_ended = wait_for(pidfd, asked.for_s, ending)
    os.close(pidfd)
    with contextlib.suppress(OSError, ValueError):
        ask(living, {"what": "stop"})
    if not asked.quiet:
        look = "report" if has_ended else "top"
        notify(
            f"layerscope: {shown(living.path)} has the operators of process {asked.pid}, if it has "
            "a framework; it is complete when the program has ended. Next: "
            f"layerscope {look} {shown(living.path)}\n"
        )
    return 0


def target(pid: int) -> ProcessFacts:
    """The process, if it can be recorded. ReadError where there is none, UsageError where not."""
    found = process.facts(Path("/"), pid)
    leader = files.whole(files.fields(Path(f"/proc/{pid}/status")).get("Tgid", "")) or pid
    if leader != pid:
        raise UsageError(f"{pid} is a thread of process {leader}. Name the process")
    if pid == os.getpid():
        raise UsageError(f"process {pid} is this command itself. Name a program that runs")
    if not found.argv and not found.libraries and "maps" not in " ".join(found.unread):
        raise UsageError(f"process {pid} ({found.name}) is a thread of the kernel. Name a program")
    if process.is_32_bit(pid):
        raise UsageError(
            f"process {pid} ({found.name}) is a 32-bit program, and only 64-bit ones are recorded"
        )
    whose = [word for word in found.unread if word.startswith("maps")]
    if whose or (os.geteuid() and found.uid != os.geteuid()):
        why = whose[0].partition(": ")[2] if whose else "it belongs to another user"
        remedy = "Run this as root, or as its user"
        if not os.geteuid():
            why, remedy = "not even root may read it here", "Give this container CAP_SYS_PTRACE"
        raise RunError(f"process {pid} ({found.name}) cannot be recorded: {why}. {remedy}")
    return found


def create_for(program: ProcessFacts, output: str, quiet: bool) -> Run:
    """The recording, named after the program where `output` does not name it."""
    command = words_of(program.pid, "cmdline")
    recording = create(output, command, quiet)
    recording.info.command = [text(word) for word in mask(command)]
    recording.info.environment = kept_environment(environment_of(program.pid))
    with contextlib.suppress(OSError):
        recording.info.cwd = text(os.readlink(f"/proc/{program.pid}/cwd"))
    recording.save()
    return recording


class Attached:
    """The recording of one program that runs already, from `begin` to `end`."""

    def __init__(self, program: ProcessFacts, recording: Run, rate_hz: int, tree: bool) -> None:
        self.pid = program.pid
        self.recording = recording
        self.recorder = Recorder(recording.raw)
        self.recorder.sampler = self._sampler = Sampler(
            recording.raw, self.recorder.problems, rate_hz, Outside.TREE if tree else Outside.ALONE
        )
        self.converter = Converter(recording, self.recorder)
        self.recorder.on_watch.append(self.converter.watch)
        self.has_ended = False
        self._command = words_of(self.pid, "cmdline")
        self._pidfd = -1
        self._began: dict[str, int] = {}
        self._newest: dict[str, int] = {}

    def begin(self) -> None:
        """Start recording. RunError where the process is gone, or nothing can be had of it."""
        problems = self.recorder.problems
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            raise RunError(f"process {self.pid} has ended") from error
        raise_descriptor_limit()
        if not self._sampler.start() or self._sampler.uses_timers:
            self._sampler.end()
            problem = problems[-1]
            raise RunError(
                f"nothing can be recorded from outside: {problem.what}. {problem.remedy}"
            )
        problems.append(_from_outside(self.pid))
        self.recorder.link.start()
        self.recorder.base = self._began = counters.used_so_far(self.pid)
        self._look()
        self.recorder.begin(self.pid, time.clock_gettime_ns(time.CLOCK_MONOTONIC))

    def wait(self, for_s: float | None, ending: int) -> None:
        """Until the program has ended, `for_s` seconds are over, or we are asked to end."""
        self.has_ended = wait_for(self._pidfd, for_s, ending, self.watch)

    def watch(self) -> None:
        """Call it every second or so."""
        self._look()
        self.recorder.watch()

    def end(self) -> None:
        """Stop recording; the program goes on."""
        self.recorder.end(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._pidfd = -1

    def finish(self) -> None:
        """Complete the recording."""
        ended = self._ended()
        used = finish(self.recording, self.recorder, ended, self.converter, self._command)
        self._take_sums_of_threads(used)

    def _take_sums_of_threads(self, used: dict[str, int]) -> None:
        """The sampler knows what each thread has used to its end, those of children among them,
        where we only look twice a second.
        """
        program = self.recording.info.program
        program.faults_minor = max(program.faults_minor, used.get("faults_minor", 0))
        program.faults_major = max(program.faults_major, used.get("faults_major", 0))
        cpu_ns = used.get("cpu_ns", 0)
        if cpu_ns:
            program.system_ns = min(program.system_ns, cpu_ns)
            program.user_ns = cpu_ns - program.system_ns
        self.recording.save()

    def _look(self) -> None:
        """What the program has used so far; a zombie still tells."""
        for _, name, value, _ in read(counters.sample(self.pid)):
            self._newest[name] = value

    def _ended(self) -> Ended:
        """What it has used while it was recorded. How it ended only its parent is told."""

        def used(name: str) -> int:
            return self._newest.get(name, 0) - self._began.get(name, 0)

        return Ended(
            None,
            self.recorder.end_ns - self.recorder.start_ns,
            used("user_ns"),
            used("system_ns"),
            self._newest.get("rss_peak_bytes", self._newest.get("rss_bytes", 0)),
            used("faults_minor"),
            used("faults_major"),
            goes_on=not self.has_ended,
        )


def wait_for(
    pidfd: int, for_s: float | None, ending: int, watch: Callable[[], None] | None = None
) -> bool:
    """Wait until the program has ended, `for_s` seconds are over, or somebody asks us to end
    (`ending`, of `asked_to_end`); call `watch` meanwhile. Whether the program has ended.
    """
    until = None if for_s is None else time.monotonic() + for_s
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(ending, select.POLLIN)
    while until is None or time.monotonic() < until:
        left_s = WATCH_S if until is None else min(WATCH_S, until - time.monotonic())
        came = [descriptor for descriptor, _ in poll.poll(max(left_s, 0) * 1000)]
        if watch is not None:
            watch()
        if came:
            return pidfd in came
    return False


def _from_outside(pid: int) -> Problem:
    what = f"process {pid} was recorded from outside, where nothing tells what a framework does"
    remedy = "start it under layerscope run"
    if remote_script.refusal(pid) is None:
        remedy += ", or attach it with --operators"
    return Problem(
        OPERATORS,
        "from_outside",
        what,
        remedy,
        "operators, modules, steps, primitives and ranges",
    )


def _say_beginning(pid: int, path: Path, for_s: float | None) -> None:
    name = program_name(words_of(pid, "cmdline"))
    end = "Ctrl-C ends the recording" if for_s is None else f"it takes {for_s:g} s"
    notify(
        f"layerscope: recording process {pid} ({name}) into {shown(path)}; {end}, and the program "
        "goes on\n"
    )


@contextlib.contextmanager
def asked_to_end() -> Iterator[int]:
    """A descriptor that can be read when a signal asks us to end."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number in _ENDING:
        signal.signal(number, lambda *_: None)
    kept = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(kept)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)
