"""The raw files of a recording as a source: processes, samples, and the logs beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from layerscope.model.events import Problem
from layerscope.rawfile import json_files, raw_file, sampler_file
from layerscope.rawfile.log_files import WINDOWS, has_logs, profiled_pids
from layerscope.sources.raw.process import RawProcess
from layerscope.sources.raw.profile_files import ProfilesAhead


class RawFolder:
    """The processes of the recording whose raw files are in `raw`, which may still grow.

    `rank`: of one of several ranks the folder of its recording; `shift_ns` puts the
    clock of its host on the run's. `problems`: what has to be said about its logs at the end.
    `holds`: processes in which a framework's own profiler records are read at the end alone.
    """

    def __init__(self, raw: Path, rank: str = "", shift_ns: int = 0) -> None:
        self.raw = raw
        self.rank = rank
        self.shift_ns = shift_ns
        self.problems: list[Problem] = []
        self._processes: dict[Path, RawProcess] = {}
        self._is_over = False
        self.holds = True
        self.step_mark = ""
        self._ahead = ProfilesAhead()

    def read_ahead(self) -> bool:
        """Read a profile of a framework that has ended, for `finish`. False: there is none."""
        return self._ahead.read(self.raw)

    def new_processes(self) -> list[RawProcess]:
        """Those that were not there at the last call."""
        found = []
        for path in raw_file.spools(self.raw):
            if path not in self._processes:
                found.append(self._add(path))
        if self.holds and not self._is_over:
            held = profiled_pids(self.raw)
            for process in self._processes.values():
                process.is_held = process.pid in held
        return found

    def finish(self, main_pid: int | None, is_windowed: bool) -> list[RawProcess]:
        """The recording is over: read its logs as well. Processes of which nothing else is there.

        `main_pid`: the program's. `is_windowed`: the user asked for a window.
        """
        new = self.new_processes()
        listed = sorted(self.raw.glob(f"*/{WINDOWS}"))
        if listed:
            new += self._add_windows(listed, is_windowed)
        if has_logs(self.raw):
            from layerscope.sources.raw.logs import merge_logs

            processes = list(self._processes.values())
            self.problems += merge_logs(self.raw, processes, main_pid, self._ahead)
        self._is_over = True
        marks = [process.step_mark for process in self._processes.values()]
        self.step_mark = next(filter(None, marks), "")
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
    """

    def __init__(self, raw: Path, rank: str = "", is_live: bool = False) -> None:
        self.raw = raw
        self.options = json_files.read_options(raw)
        self._folder = RawFolder(raw, rank)
        self._folder.holds = not is_live
        self._samplers: set[Path] = set()

    def new_processes(self) -> list[RawProcess]:
        """Processes whose raw files were not there at the last call."""
        return self._folder.new_processes()

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
        new = self._folder.finish(session.get("pid"), "window" in self.options)
        if self._folder.step_mark and not self.options.get("step_mark"):
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
