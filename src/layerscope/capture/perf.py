"""`perf record` beside the program, for what only a privileged recorder sees: kernel frames, all
waits, who woke whom.

It starts before the program and writes `raw/perf.data`, on the clock of the run. Three ways are
tried, from the one that tells most: the whole machine, the program with its kernel frames, the
program's own code. For the latter two perf follows the session, whose children inherit what is
measured.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
from pathlib import Path

from layerscope.host import kernel
from layerscope.model.events import Problem
from layerscope.rawfile.json_files import read_options
from layerscope.rawfile.raw_file import stacks_bytes

FILE = "perf.data"
LAYER = "perf"
_USUAL = ("record", "-q", "-k", "CLOCK_MONOTONIC", "--call-graph", "fp", "--delay=-1")
_CLOCK = "cpu-clock/freq=99/"
# Every one of them: a frequency for all events would thin them too.
_TRACEPOINTS = ("-c", "1", "-e", "sched:sched_switch", "-e", "sched:sched_waking")
# perf reads symbols of the kernel and of all libraries before it starts to record.
_START_S, _END_S = 10.0, 20.0
_MOST_PARANOID = 2
# Of what perf may write it has written so much when it ends for that.
_FULL_SHARE = 0.9
_ENABLE, _ACKNOWLEDGED = b"enable\n", b"ack"
_ERROR_BYTES = 2000


def check() -> Problem | None:
    """What keeps perf from recording here, as far as that is known without trying."""
    if shutil.which("perf") is None:
        remedy = (
            "install perf: on Debian `apt install linux-perf`, on Ubuntu `apt install "
            "linux-tools-$(uname -r)`"
        )
        return Problem(
            LAYER, "no_perf", "there is no perf on this machine", remedy, "what perf records"
        )
    paranoid = kernel.facts().perf_event_paranoid
    if os.geteuid() and paranoid is not None and paranoid > _MOST_PARANOID:
        what = f"perf may not record here: perf_event_paranoid is {paranoid}"
        return Problem(
            LAYER,
            "perf_refused",
            what,
            "sudo sysctl kernel.perf_event_paranoid=1",
            "what perf records",
        )
    return None


class Perf:
    """One `perf record`, into the folder `raw`. `problems` is what it cannot record."""

    def __init__(self, raw: Path) -> None:
        self.problems: list[Problem] = []
        self._file = raw / FILE
        self._process: subprocess.Popen[bytes] | None = None
        self._error = ""
        self._most_bytes = 0
        self._control: list[int] = []

    def start(self) -> bool:
        """Begin to record; whether it does. Called by the process that will start the program."""
        problem = check()
        if problem:
            self.problems.append(problem)
            return False
        own = ("-p", str(os.getpid()), "--switch-events")
        # When we are killed perf goes too: it ends with the process that it is given, or that it
        # follows.
        ends_with_us = ("--", "tail", f"--pid={os.getpid()}", "-f", "/dev/null")
        ways = (
            ("-a", "-e", _CLOCK, *_TRACEPOINTS, *ends_with_us),
            (*own, "-e", _CLOCK),
            (*own, "-e", f"{_CLOCK}u"),
        )
        lost = (
            "",
            "who ended a wait, and what other programs did",
            "who ended a wait, and functions of the kernel",
        )
        for way, missing in zip(ways, lost, strict=True):
            if self._started(way):
                if missing:
                    what = f"perf may not record the whole machine: {self._error}"
                    remedy = (
                        "run as root, or " * bool(os.geteuid())
                        + "sysctl kernel.perf_event_paranoid=-1"
                    )
                    self.problems.append(Problem(LAYER, "perf_narrow", what, remedy, missing))
                return True
        what = f"perf cannot record: {self._error}"
        remedy = "try `perf record -e cpu-clock:u -- true` and see what it says"
        self.problems.append(Problem(LAYER, "perf_failed", what, remedy, "what perf records"))
        return False

    def _started(self, way: tuple[str, ...]) -> bool:
        """Whether perf records this way: it says so when all is set up."""
        (control, our_control), (our_answer, answer) = os.pipe(), os.pipe()
        self._control = [our_control, our_answer]
        try:
            process = subprocess.Popen(
                [
                    "perf",
                    *_USUAL,
                    *self._bound(),
                    "--control",
                    f"fd:{control},{answer}",
                    "-o",
                    str(self._file),
                    *way,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(control, answer),
                start_new_session=True,
            )
        except OSError as error:
            self._error = str(error.strerror or error)
            return False
        finally:
            os.close(control)
            os.close(answer)
        with contextlib.suppress(BrokenPipeError):
            os.write(our_control, _ENABLE)
        # An end without a word means that perf has gone.
        if select.select([our_answer], [], [], _START_S)[0] and os.read(our_answer, 64).startswith(
            _ACKNOWLEDGED
        ):
            self._process = process
            return True
        self._error = _ended(process, signal.SIGKILL) or "it did not start in time"
        self._close()
        return False

    def _bound(self) -> list[str]:
        """perf ends when its file is as large as those of stacks may be."""
        self._most_bytes = stacks_bytes(read_options(self._file.parent))
        return [f"--max-size={self._most_bytes}B"] if self._most_bytes else []

    def _close(self) -> None:
        for descriptor in self._control:
            os.close(descriptor)
        self._control = []

    def finish(self) -> None:
        """The program has ended: let perf write the rest of its file."""
        if self._process is None:
            return
        has_ended = self._process.poll() is not None
        error = _ended(self._process, signal.SIGINT)
        self._process = None
        self._close()
        if not self._file.exists() or not self._file.stat().st_size:
            what = f"perf left no file: {error or 'it did not say why'}"
            self.problems.append(
                Problem(LAYER, "perf_failed", what, "record again", "what perf records")
            )
        elif (
            has_ended
            and self._most_bytes
            and self._file.stat().st_size >= _FULL_SHARE * self._most_bytes
        ):
            what = (
                f"perf's file was full at {self._most_bytes / 1e6:,.0f} MB, a fifth of what the "
                "recording may take"
            )
            remedy = "allow more (run --max-size), or record a part of the run (--after, --for)"
            self.problems.append(
                Problem(LAYER, "perf_full", what, remedy, "what perf records, from then on")
            )


def _ended(process: subprocess.Popen[bytes], number: signal.Signals) -> str:
    """End perf by this signal; returns what it said."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
    try:
        _, said = process.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    lines = [
        line.strip()
        for line in said[:_ERROR_BYTES].decode("utf-8", "replace").splitlines()
        if line.strip()
    ]
    return " ".join(lines[:2])
