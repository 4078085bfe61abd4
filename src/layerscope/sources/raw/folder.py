"""The raw files of a recording as a source: processes, samples, and the logs beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from layerscope.model.events import Problem
from layerscope.rawfile import json_files, raw_file, sampler_file, windows
from layerscope.rawfile.log_files import WINDOWS, has_logs, profiled_pids
from layerscope.sources.raw.process import RawProcess

if TYPE_CHECKING:
    from layerscope.sources.raw.followed_segments import FollowedSegments


class RawFolder:
    """The processes of the recording whose raw files are in `raw`, which may still grow.

    `rank`: of one of several ranks the folder of its recording; `shift_ns` puts the
    clock of its host on the run's. `problems`: what has to be said about its logs at the end.
    `holds`: processes in which a framework's own profiler records are read as far as its spans are
    known: of segments those that have ended, else nothing before the end. `follows`: these are read
    before the end. `waits_for_loop`: nothing of them is given on before it is known what the steps
    may be. `step_mark`: what they are, at the end.
    """

    def __init__(self, raw: Path, rank: str = "", shift_ns: int = 0) -> None:
        self.raw = raw
        self.rank = rank
        self.shift_ns = shift_ns
        self.problems: list[Problem] = []
        self._processes: dict[Path, RawProcess] = {}
        self._is_over = False
        self.holds = self.follows = self.waits_for_loop = True
        self.step_mark = ""
        self._followed: dict[Path, FollowedSegments] = {}

    def read_ahead(self) -> bool:
        """Read a segment of a framework's profiler that has ended. False: there is none."""
        return self.follows and any(one.advance() for one in self._followed.values())

    @property
    def is_wrong(self) -> bool:
        """Whether spans were given on that should have been others."""
        return any(one.is_wrong and one.has_given for one in self._followed.values())

    @property
    def has_given(self) -> bool:
        """Whether spans of segments were given on."""
        return any(one.has_given for one in self._followed.values())

    @property
    def loop(self) -> str:
        """What is a step by the segments so far; empty: it is not known."""
        marks = (one.loops.step_mark for one in self._followed.values())
        return next(filter(None, marks), "")

    def new_processes(self) -> list[RawProcess]:
        """Those that were not there at the last call."""
        found = []
        for path in raw_file.spools(self.raw):
            if path not in self._processes:
                found.append(self._add(path))
        if self.holds and not self._is_over:
            self._hold()
        return found

    def _hold(self) -> None:
        """Say of processes in which profilers record how far they may be read."""
        held = profiled_pids(self.raw)
        for path, process in self._processes.items():
            if process.pid in held and path not in self._followed:
                self._hold_one(path, process)
            followed = self._followed.get(path)
            if followed is not None and self.follows:
                followed.look()

    def _hold_one(self, path: Path, process: RawProcess) -> None:
        from layerscope.sources.raw.followed_segments import FollowedSegments, may_be_followed

        pids = [one.process.pid for one in self._followed.values()]
        process.is_held = process.pid in pids or not may_be_followed(self.raw, process.pid)
        if not process.is_held:
            followed = FollowedSegments(self.raw, process, self.waits_for_loop)
            self._followed[path] = followed

    def finish(self, main_pid: int | None, is_windowed: bool) -> list[RawProcess]:
        """The recording is over: read its logs as well. Processes of which nothing else is there.

        `main_pid`: the program's. `is_windowed`: the user asked for a window.
        """
        new = self.new_processes()
        listed = sorted(self.raw.glob(f"*/{WINDOWS}"))
        if listed:
            new += self._add_windows(listed, is_windowed)
        if has_logs(self.raw):
            from layerscope.sources.raw.logs import finish_segments, merge_logs

            others = self._processes.keys() - self._followed.keys()
            processes = [one for path, one in self._processes.items() if path in others]
            self.problems += merge_logs(self.raw, processes, main_pid)
            self.problems += finish_segments(self.raw, self._followed.values())
        self._is_over = True
        marks = [process.step_mark for process in self._processes.values()]
        self.step_mark = self.loop or next(filter(None, marks), "")
        for process in self._processes.values():
            process.is_held = False
        return new

    def _add_windows(self, listed: list[Path], is_windowed: bool) -> list[RawProcess]:
        """Read windows of frameworks' own profilers. Processes of which nothing else is there."""
        from layerscope.sources.raw.stock_windows import StockWindows, problems_of_windows

        new = []
        windows = [StockWindows(path) for path in listed]
        for one in windows:
            if one.windows and one.raw_file not in self._processes:
                new.append(self._add(one.raw_file))
            if one.windows:
                self._processes[one.raw_file].append(one)
        self.problems += problems_of_windows(windows, is_windowed)
        return new

    def _add(self, path: Path) -> RawProcess:
        """A process whose raw files are new."""
        process = RawProcess(path, self.rank, self.shift_ns)
        self._processes[path] = process
        return process

    def left_bytes(self) -> int:
        """How much of the raw files is still to be read."""
        left = 0
        for path in raw_file.spools(self.raw):
            known = self._processes.get(path)
            left += known.left_bytes if known else raw_file.size_bytes(path)
        return left


class SamplerFile(Struct, frozen=True):
    """The raw file of a sampler. `rank` and `shift_ns`: as of `RawFolder`."""

    path: Path
    rank: str
    shift_ns: int


class RawRecording:
    """The raw files of one recording, which may still grow; `rank`: as of `RawFolder`. `is_live`:
    they are only looked at while they grow, without what profiles of frameworks will add.
    `follows`: as of `RawFolder`; `loop`: what it is thought to find as steps.
    """

    def __init__(
        self,
        raw: Path,
        rank: str = "",
        is_live: bool = False,
        follows: bool = True,
        loop: str = "",
    ) -> None:
        self.raw = raw
        self.options = json_files.read_options(raw)
        self._is_asked = bool(self.options.get("step_mark"))
        self._folder = RawFolder(raw, rank)
        self._folder.holds = not is_live
        self._folder.follows = follows
        self._folder.waits_for_loop = not (self._is_asked or loop)
        self._loop = loop
        self._samplers: set[Path] = set()

    @property
    def is_wrong(self) -> bool:
        """Whether what was read should have been other, as it is known now."""
        folder = self._folder
        loop = folder.step_mark or folder.loop
        is_other = folder.has_given and loop not in ("", self.options.get("step_mark"))
        return folder.is_wrong or (is_other and not self._is_asked)

    @property
    def loop(self) -> str:
        """What the steps are by what was read so far; empty: it is not known."""
        return self._folder.loop

    def new_processes(self) -> list[RawProcess]:
        """Processes whose raw files were not there at the last call."""
        new = self._folder.new_processes()
        loop = self._loop or self._folder.loop
        if loop and not (self._is_asked or self._folder.has_given):
            self.options["step_mark"] = loop
        return new

    def read_ahead(self) -> bool:
        """Read some of what only the end asks for. False: there is nothing."""
        return self._folder.read_ahead()

    def new_samples(self) -> list[SamplerFile]:
        """Files of samplers that were not there at the last call."""
        new = []
        for path, _ in sampler_file.files(self.raw):
            if path not in self._samplers:
                self._samplers.add(path)
                new.append(SamplerFile(path, self._folder.rank, self._folder.shift_ns))
        return new

    def finish(self, session: dict[str, Any]) -> list[RawProcess]:
        """The recording is over: from now on the logs of its libraries are read too."""
        asked = windows.of_options(self.options)
        has_window = asked is not None and asked.budget is None
        new = self._folder.finish(session.get("pid"), has_window)
        is_free = not (self._is_asked or self._folder.has_given)
        if self._folder.step_mark and is_free:
            self.options["step_mark"] = self._folder.step_mark
        return new

    def problems(self) -> dict[str, list[Problem]]:
        """What has to be said about its logs by rank, and about damaged files."""
        damage = list(json_files.damage(self.raw))
        rank, found = self._folder.rank, self._folder.problems
        return {rank: found, "": damage} if rank else {"": [*damage, *found]}

    def left_bytes(self) -> int:
        """How much of the raw files is still to be read."""
        return self._folder.left_bytes()

    def size_bytes(self) -> int:
        """What the raw files take."""
        return raw_file.raw_bytes(self.raw)
