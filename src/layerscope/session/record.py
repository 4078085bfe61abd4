"""Stand beside a program that runs already and record it to its end (internal).

Started by `layerscope.profiler` inside the program. Leaves it at once: no child of the program, not
in its session, with nothing of it open. Prints one line of JSON when it is ready, then nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from layerscope.rawfile import windows
from layerscope.session.outside import environment_of, raise_descriptor_limit, words_of

if TYPE_CHECKING:
    from layerscope.capture.recorder import Recorder
    from layerscope.recording.run import Run
    from layerscope.session.session import Ended

WATCH_MS = 1000


def record_beside(about: dict[str, Any]) -> int:
    """Record the program that `about` names (pid, folder, stem) until it has ended. `steered`: it
    was not the program that started us, and nothing is recorded before `layerscope start`; then
    `rate_hz`, `size` and `spool` are as of AttachOptions, where they are given.
    """
    pid = about["pid"]
    if not about.get("steered") and os.getppid() != pid:
        return 0  # it has ended before we began, and nobody waits for a line of ours
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        pidfd = -1
    if pidfd < 0 or has_ended(pidfd):
        return 0
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    Beside(about, pidfd).run()
    return 0


def has_ended(pidfd: int) -> bool:
    """Whether the process has, be it a zombie still."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


class Beside:
    """The recording of one program that is not our child."""

    def __init__(self, about: dict[str, Any], pidfd: int) -> None:
        self.pid: int = about["pid"]
        self._about = about
        self._pidfd = pidfd
        self._window = windows.RequestedWindow(steered=True) if about.get("steered") else None
        self._usage: dict[str, int] = {}
        self._most_rss_bytes = 0

    def run(self) -> None:
        """From the line that says we are ready to the complete recording."""
        from layerscope.capture.recorder import Recorder, surviving
        from layerscope.model.errors import LayerscopeError
        from layerscope.session.converter import Converter
        from layerscope.session.create import discard
        from layerscope.session.finish import finish, summarise
        from layerscope.session.requests import Requests
        from layerscope.session.run import write_options
        from layerscope.session.spooling import divert

        command = words_of(self.pid, "cmdline")
        try:
            recording = self._create(command)
        except LayerscopeError as error:
            _say({"problem": str(error)})
            return
        divert(recording, self._about.get("spool") or None)
        if self._window is not None:
            size = self._about.get("size", {})
            write_options(recording, {**size, "window": asdict(self._window)})
        recorder = Recorder(recording.raw)
        requests = Requests(recording, recorder)
        settings = recorder.listen()
        if settings is None:
            discard(recording)
            problem = recorder.problems[0]
            _say({"problem": f"{problem.what}: {problem.remedy}"})
            return
        raise_descriptor_limit()
        if self._window is not None:
            self._sample(recorder)
        converter = Converter(recording, recorder)
        recorder.on_watch.append(converter.watch)
        recorder.link.start()
        start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        recorder.begin(self.pid, start_ns)
        window = {"window": self._window.for_agent("")} if self._window else {}
        _say({"path": str(recording.path), "settings": {**settings, **window}})
        os.chdir("/")  # whoever wants to unmount where the program was started must be able to
        self._wait(recorder)
        recorder.end(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        recorder.finish_probes()
        if self._window is not None and not recorder.seen_processes:
            # It ended while its door was being opened.
            converter.close()
            discard(recording)
            return
        with surviving(recorder.problems):
            finish(recording, recorder, self._ended(recorder), converter, command)
        with surviving(recorder.problems):
            summarise(recording, recorder, converter, True)
        converter.close()
        with surviving(recorder.problems):
            requests.finish()

    def _sample(self, recorder: Recorder) -> None:
        """Stacks, from outside and while the window is open: handlers of signals in a program that
        runs already are no business of ours.
        """
        from layerscope.capture.sampler import HZ, Outside, Sampler

        rate_hz = self._about.get("rate_hz", HZ)
        sampler = Sampler(recorder.raw, recorder.problems, rate_hz, Outside.TREE)
        unable = sampler.check()
        if unable is not None:
            recorder.problems.append(unable)
            return
        sampler.is_resting = True
        sampler.start()
        recorder.sampler = sampler

    def _create(self, command: list[str]) -> Run:
        """The recording, named after what the program asked for or after the program."""
        from layerscope.model.errors import LayerscopeError
        from layerscope.model.secrets import kept_environment, mask
        from layerscope.recording.run import free_name
        from layerscope.session.command import program_name
        from layerscope.session.create import create

        stem = (
            self._about["stem"] or Path(program_name(command)).name.removesuffix(".py") or "program"
        )
        try:
            path = free_name(Path(self._about["folder"]), stem)
            recording = create(str(path), command, quiet=True, window=self._window)
        except (LayerscopeError, OSError):
            recording = create(None, [stem], quiet=True, window=self._window)
        recording.info.command = mask(
            [word.encode("utf-8", "replace").decode() for word in command]
        )
        recording.info.environment = kept_environment(environment_of(self.pid))
        recording.save()
        return recording

    def _wait(self, recorder: Recorder) -> None:
        """Until the program has ended."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        while not poll.poll(WATCH_MS):
            self._look()
            recorder.watch()
        self._look()

    def _look(self) -> None:
        """What the program has used so far; a zombie still tells."""
        from layerscope.capture import counters
        from layerscope.rawfile.counters import read

        for _, name, value, _ in read(counters.sample(self.pid)):
            self._usage[name] = value
        rss_bytes = self._usage.get("rss_bytes", 0)
        self._most_rss_bytes = max(self._most_rss_bytes, rss_bytes)

    def _ended(self, recorder: Recorder) -> Ended:
        from layerscope.session.session import Ended

        used = self._usage.get
        return Ended(
            None,
            recorder.end_ns - recorder.start_ns,
            used("user_ns", 0),
            used("system_ns", 0),
            self._most_rss_bytes,
            used("faults_minor", 0),
            used("faults_major", 0),
        )


def _say(answer: dict[str, Any]) -> None:
    """The one line to whoever started us; standard output leads nowhere afterwards."""
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.close(nowhere)
