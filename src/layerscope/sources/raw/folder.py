"""The raw files of a recording as a source: processes, samples, and the logs beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.model.events import Problem
from layerscope.rawfile import json_files, raw_file, sampler_file
from layerscope.rawfile.log_files import WINDOWS, has_logs
from layerscope.sources.raw.process import RawProcess
from layerscope.sources.raw.stock_windows import StockWindows, problems_of_windows


class RawFolder:
    """The processes of the recording whose raw files are in `raw`, which may still grow.

    `rank`: the folder of its rank, where several recordings are read as one; `shift_ns` puts the
    clock of its host on the run's. `problems`: what has to be said about its logs at the end.
    """

    def __init__(self, raw: Path, rank: str = "", shift_ns: int = 0) -> None:
        self.raw = raw
        self.rank = rank
        self.shift_ns = shift_ns
        self.problems: list[Problem] = []
        self._processes: dict[Path, RawProcess] = {}

    def new_processes(self) -> list[RawProcess]:
        """Those that were not there at the last call."""
        found = []
        for path in raw_file.spools(self.raw):
            if path not in self._processes:
                found.append(self._add(path))
        return found

    def finish(self, main_pid: int | None, is_windowed: bool) -> list[RawProcess]:
        """The recording is over: read its logs as well. Processes of which nothing else is there.

        `main_pid`: the program's. `is_windowed`: the user asked for a window.
        """
        new = self.new_processes()
        files = sorted(self.raw.glob(f"*/{WINDOWS}"))
        windows = [StockWindows(path) for path in files]
        for one in windows:
            if one.windows and one.raw_file not in self._processes:
                new.append(self._add(one.raw_file))
            if one.windows:
                self._processes[one.raw_file].append(one)
        self.problems += problems_of_windows(windows, is_windowed)
        if has_logs(self.raw):
            from layerscope.sources.raw.logs import merge_logs

            processes = list(self._processes.values())
            self.problems += merge_logs(self.raw, processes, main_pid)
        return new

    def _add(self, path: Path) -> RawProcess:
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


@dataclass(frozen=True, slots=True)
class SamplerFile:
    """The raw file of a sampler. `rank` and `shift_ns`: as of `RawFolder`."""

    path: Path
    rank: str
    shift_ns: int


class RawRecording:
    """The raw files of one recording or, where `raw` is the folder of the recordings of several
    ranks, of all of them. They may still grow.

    `shifts_ns`: by rank, what puts the clock of its host on the run's.
    """

    def __init__(self, raw: Path, shifts_ns: Mapping[str, int] | None = None) -> None:
        self.raw = raw
        self.options = json_files.read_options(raw)
        self._shifts_ns = shifts_ns or {}
        self._folders: dict[Path, RawFolder] = {}
        self._samplers: set[Path] = set()

    def new_processes(self) -> list[RawProcess]:
        """Processes whose raw files were not there at the last call."""
        return [process for folder in self._all() for process in folder.new_processes()]

    def new_samples(self) -> list[SamplerFile]:
        """Files of samplers that were not there at the last call."""
        new = []
        for path, rank in sampler_file.files(self.raw):
            if path in self._samplers:
                continue
            self._samplers.add(path)
            shift_ns = self._shifts_ns.get(rank, 0)
            new.append(SamplerFile(path, rank, shift_ns))
        return new

    def finish(self, session: dict[str, Any]) -> list[RawProcess]:
        """The recording is over: from now on the logs of its libraries are read too."""
        new = []
        for folder in self._all():
            about = session.get("ranks", {}).get(folder.rank, session)
            new += folder.finish(about.get("pid"), "window" in self.options)
        return new

    def problems(self) -> dict[str, list[Problem]]:
        """What has to be said about its logs by rank, and about damaged files."""
        found = {folder.rank: folder.problems for folder in self._folders.values()}
        of_recording = found.get("", [])
        damage = json_files.damage(self.raw)
        found[""] = [*damage, *of_recording]
        return found

    def left_bytes(self) -> int:
        """How much of the raw files is still to be read."""
        folders = self._folders.values()
        return sum(folder.left_bytes() for folder in folders)

    def size_bytes(self) -> int:
        """What the raw files take."""
        return raw_file.raw_bytes(self.raw)

    def _all(self) -> list[RawFolder]:
        """The raw folders; those of ranks appear one by one."""
        of_ranks = {path.parent.name: path for path in sorted(self.raw.glob("*/raw"))}
        folders = of_ranks or {"": self.raw}
        for rank, path in folders.items():
            if path in self._folders:
                continue
            shift_ns = self._shifts_ns.get(rank, 0)
            self._folders[path] = RawFolder(path, rank, shift_ns)
        return list(self._folders.values())
