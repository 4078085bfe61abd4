"""One recording while it happens: starts the program between its doors, takes the memory that its
processes hand over, forwards signals, and reaps.

Three processes stand beside the program: this one, the drainer (`link`, `drainer`) and the
converter (the caller's), and a witness of signals (`program`) that only sleeps. The program is a
direct child in the same process group and session, with our standard streams, our working
directory, limits, mask and descriptors: what it would have without us.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple

from layerscope.capture import agent, unreached
from layerscope.capture.program import Program
from layerscope.capture.recorder import EVERYTHING, Recorder
from layerscope.model.errors import RunError
from layerscope.model.events import Problem


class Ended(Struct):
    """How the program ended and what the kernel says it used. `status` is None where only its
    parent was told, `max_rss_bytes` 0 where it is not known: of a program that never held as much
    as a copy of us.
    """

    status: int | None
    wall_ns: int
    user_ns: int
    system_ns: int
    max_rss_bytes: int
    faults_minor: int
    faults_major: int
    # None where only the system's last word would have told them.
    switches_voluntary: int | None = None
    switches_forced: int | None = None
    storage_read_bytes: int | None = None
    storage_written_bytes: int | None = None
    goes_on: bool = False  # it has not ended

    @property
    def signal(self) -> int | None:
        """The signal that ended the program, if one did."""
        return (
            os.WTERMSIG(self.status)
            if self.status is not None and os.WIFSIGNALED(self.status)
            else None
        )

    @property
    def code(self) -> int | None:
        """The exit status of the program, if it exited."""
        return (
            os.WEXITSTATUS(self.status)
            if self.status is not None and os.WIFEXITED(self.status)
            else None
        )


class Session(Recorder):
    """Records one program. `problems` is what could not be recorded, known at the end of `run`."""

    def __init__(self, raw: Path) -> None:
        super().__init__(raw)
        self._door: Path | None = None
        self._temporary_door: tempfile.TemporaryDirectory[str] | None = None

    def open_door(self, ranks: Sequence[int] = ()) -> dict[str, str]:
        """Start listening; returns the environment of the program. `ranks`: only these are
        recorded; empty: all.
        """
        environment = dict(os.environ)
        # Where nobody can listen, windows of the stock profiler are left.
        settings = self.listen() or agent.settings("", False)
        stacks = None
        if self.sampler is not None and settings["socket"] and self.sampler.start():
            stacks = self.layers["stacks"] = self.sampler.settings
        try:
            shape_settings = self.shapes.settings() if self.shapes else None
            door = agent.make_door(
                self._door_folder(),
                settings["socket"],
                bool(settings["tsc"]),
                ranks,
                shape_settings,
                self.raw.absolute(),
                self.window,
                self.layers,
            )
        except OSError as error:
            self.stop_listening()
            self.say_no_door(error)
            return environment
        self._door = door
        old = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{door}{os.pathsep}{old}" if old else str(door)
        if settings["socket"]:
            added, taken = agent.without_python(
                environment,
                settings["socket"],
                bool(settings["tsc"]),
                ranks,
                self.window,
                door,
                stacks,
                bool(self.layers.get("api", True)),
                bool(self.layers.get("memory", False)),
            )
            environment |= added
            self.problems += taken
        return environment

    def _door_folder(self) -> Path:
        """In the recording; elsewhere if its path cannot stand in a list that is separated by
        colons.
        """
        if os.pathsep not in str(self.raw):
            return self.raw / "door"
        self._temporary_door = tempfile.TemporaryDirectory(prefix="layerscope-door-")
        return Path(self._temporary_door.name)

    def run(self, program: Program) -> Ended:
        """Run `program` to its end. RunError 126 or 127 when it cannot be started."""
        start_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self._start(program)
        self.begin(program.pid, start_ns)
        program.wait(self.watch)
        self.end(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        _, status, usage = os.wait4(self.pid, 0)
        self.finish_probes()
        program.release()
        return Ended(status, self.end_ns - start_ns, *astuple(program.own_usage(usage)))

    def _start(self, program: Program) -> None:
        """Start it; without its door where the kernel takes no longer environment."""
        try:
            program.start()
        except RunError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.E2BIG:
                raise
            program.start(dict(os.environ))
            self.stop_listening()
            what = (
                "the arguments and the variables of the program leave no room for a longer "
                "PYTHONPATH"
            )
            self.problems.append(
                Problem("operators", "no_door", what, "shorten PYTHONPATH", EVERYTHING)
            )

    def close(self) -> None:
        """Let the drainer take the rest, and close the door."""
        super().close()
        if self._door is not None:
            self.problems += (refused := agent.refusals(self._door))
            self.seen_processes += len(refused)
        if self._temporary_door is not None:
            self._temporary_door.cleanup()

    def nobody_came(self, command: list[str]) -> Problem:
        """Why no process handed anything over, as far as that is known."""
        return unreached.nobody_came(command, os.environ)
