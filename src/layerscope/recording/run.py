"""One recording = one folder: its `run.json`, and where everything else in it lies.

Only the process that records writes `run.json`, always by rename, so a reader sees an old or a
new one and never half of one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from layerscope.model.errors import ReadError, RunError, UsageError
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.model.stored_json import Int64, decoded

if TYPE_CHECKING:
    from layerscope.recording.rank_keys import RankKeys

SUFFIX = ".layerscope"
# A recording in one file (recording/packed.py).
PACKED = f"{SUFFIX}.zip"
# In the recording of several ranks: the folder of their recordings (recording/ranks.py).
RANKS = "ranks"


class ExitState(msgspec.Struct):
    """How the program ended: an exit `code`, or the `signal` that ended it. `goes_on`: it runs
    longer than it was recorded.
    """

    code: Int64 | None = None
    signal: Int64 | None = None
    goes_on: bool = False


class LayerState(msgspec.Struct):
    """What one layer recorded and cost: `cpu_ns` inside the program, `bytes` of raw data.

    `rate_hz`: samples of a thread in a second of its CPU time, of a layer that samples, as asked
    for; `lowest_rate_hz`: how few they became to keep the budget.
    """

    name: str
    state: str
    problem: str = ""
    records: Int64 = 0
    dropped: Int64 = 0
    cpu_ns: Int64 = 0
    bytes: Int64 = 0
    rate_hz: Int64 = 0
    lowest_rate_hz: Int64 = 0


class TableState(msgspec.Struct):
    """A finished table and its number of rows."""

    name: str
    rows: Int64


class RecordingCost(msgspec.Struct):
    """CPU time of our own processes beside the program, and what the recording takes on disk."""

    session_cpu_ns: Int64 = 0
    drainer_cpu_ns: Int64 = 0
    converter_cpu_ns: Int64 = 0
    raw_bytes: Int64 = 0
    tables_bytes: Int64 = 0
    sampler_cpu_ns: Int64 = 0


class ProgramState(msgspec.Struct):
    """Resources of the program itself, as the kernel accounted them at its end (wait4)."""

    wall_ns: Int64 = 0
    user_ns: Int64 = 0
    system_ns: Int64 = 0
    max_rss_bytes: Int64 = 0
    faults_minor: Int64 = 0
    faults_major: Int64 = 0
    # As all of these with its children that it has waited for; None: not known.
    switches_voluntary: Int64 | None = None
    switches_forced: Int64 | None = None
    storage_read_bytes: Int64 | None = None
    storage_written_bytes: Int64 | None = None


class RunInfo(msgspec.Struct):
    """`run.json`. States: running, finished (the program ended by itself or was ended), killed.

    `host`: the facts about the machine, as host/machine.py writes them; of an imported trace at
    most its name.
    """

    schema: Int64
    layerscope: str
    run_id: str
    state: str
    command: list[str]
    cwd: str
    environment: dict[str, str]
    host: dict[str, Any]
    started_utc: str
    start_ns: Int64 = 0
    session_pid: Int64 = 0
    finished_utc: str = ""
    exit: ExitState = msgspec.field(default_factory=ExitState)
    layers: list[LayerState] = []
    window: str = ""
    step_mark: str = ""  # what the user called a step
    weight_policy: str = "none"
    tables: list[TableState] = []
    cost: RecordingCost = msgspec.field(default_factory=RecordingCost)
    program: ProgramState = msgspec.field(default_factory=ProgramState)
    versions: dict[str, str] = {}
    imported_from: str = ""  # the file of another program that this was made from

    @property
    def has_python(self) -> bool:
        """Whether the program is Python, as far as is known: of a program in C or C++ the version
        of its framework is noted alone.
        """
        return not self.versions or "python" in self.versions

    def host_fact(self, *names: str) -> Any:
        """What `host` says under these names, one inside the other; None where it does not."""
        found: Any = self.host
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    @property
    def granted_cpus(self) -> float | None:
        """CPUs that the program could use at once (affinity, limits of its control group); None
        where not known.
        """
        cpus = self.host_fact("cpu", "granted")
        return cpus if isinstance(cpus, (int, float)) and cpus > 0 else None


# What stands where a recording should, by what opening its `run.json` says.
_WHY_NONE: dict[type[OSError], str] = {
    FileNotFoundError: "the folder has neither run.json nor a trace of another profiler. Name a "
    "folder that has",
    NotADirectoryError: "it is neither a file nor a folder. Write what comes out of it into a "
    "file, and open that",
}


class Run:
    """A recording on disk. `path` is its folder, `info` its `run.json`.

    `tables_path` is where its Parquet lies: the folder itself, or the user's cache when the
    folder cannot be written. `joined`: of several ranks, how the tables of each are read, and
    where they lie.
    """

    def __init__(self, path: Path, info: RunInfo, tables_path: Path | None = None) -> None:
        self.path = path
        self.info = info
        self.tables_path = tables_path or path
        self.joined: list[tuple[RankKeys, Path]] = []

    @property
    def name(self) -> str:
        """The folder's name without its suffix."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def raw(self) -> Path:
        """The folder of the raw files; of several ranks, the folder of their recordings."""
        name = RANKS if self.is_joined else "raw"
        return self.path / name

    @property
    def is_joined(self) -> bool:
        """Whether it is made of the recordings of several ranks."""
        return os.path.isdir(self.path / RANKS)  # False too where its file system is gone

    @classmethod
    def create(cls, path: Path, info: RunInfo) -> Run:
        """Make the folder `path` (it must not exist) with its first `run.json`."""
        try:
            path.mkdir(parents=True)
            (path / "raw").mkdir()
            (path / ".gitignore").write_text("*\n")
            run = cls(path, info)
            run.save()
        except OSError as error:
            message = (
                f"cannot make the recording {path}: {error.strerror}. Choose another place with -o"
            )
            raise RunError(message) from error
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """The recording at `path`; ReadError in words when it is none, damaged, or too new."""
        file = path / "run.json"
        try:
            data = file.read_bytes()
        except OSError as error:
            why = _WHY_NONE.get(type(error), f"{file.name}: {error.strerror}")
            raise ReadError(f"{path} is not a layerscope recording: {why}") from error
        refuse_newer(path, data)
        try:
            info = decoded(data, RunInfo)
        except ValueError as error:
            raise ReadError(
                f"{file} is damaged ({error}). The raw files beside it are untouched"
            ) from error
        return cls(path, info)

    def save(self) -> None:
        """Write `run.json` by rename."""
        folder = self.path
        target = folder / "run.json"
        temporary = folder / "run.json.tmp"
        text = msgspec.json.encode(self.info)
        lines = msgspec.json.format(text, indent=1)
        temporary.write_bytes(lines + b"\n")
        os.replace(temporary, target)


def refuse_newer(path: Path, data: bytes) -> None:
    """Raise ReadError when the `run.json` in `data` was written by a newer layerscope."""
    found = re.search(rb'"schema"\s*:\s*(\d+)', data)
    if found and int(found[1]) > SCHEMA_VERSION:
        raise ReadError(
            f"{path} was recorded by a newer layerscope (schema {int(found[1])}; this one reads up "
            f"to {SCHEMA_VERSION}). Update layerscope to open it"
        )


def free_name(folder: Path, stem: str) -> Path:
    """`folder/stem.layerscope`, or the first of `-2`, `-3`, ... that does not exist yet."""
    candidate = folder / f"{stem}{SUFFIX}"
    number = 2
    while candidate.exists():
        candidate = folder / f"{stem}-{number}{SUFFIX}"
        number += 1
    return candidate


def newest(folder: Path) -> Path:
    """The newest recording in `folder`, else the newest packed one; UsageError when there is
    none.
    """
    found = [path for path in folder.glob(f"*{SUFFIX}") if (path / "run.json").exists()]
    if found:
        return max(found, key=lambda path: (path / "run.json").stat().st_mtime_ns)
    packed = [path for path in folder.glob(f"*{PACKED}") if path.is_file()]
    if packed:
        return max(packed, key=lambda path: path.stat().st_mtime_ns)
    raise UsageError(f"no recording in {folder}. Make one: layerscope run train.py")


def find_run(name: str | None) -> Path:
    """The recording called `name`, with or without its suffix: a folder or a packed file; None is
    the newest here.

    UsageError when there is none. A path that exists but is no recording is returned: opening it
    says what is wrong.
    """
    if name is None:
        return newest(Path.cwd())
    found = recordings_called(name)
    if found:
        return found[0]
    if Path(name).exists():
        return Path(name)
    raise UsageError(f"there is no recording {name!r}. Make one: layerscope run train.py")


def recordings_called(name: str) -> list[Path]:
    """The recordings that `name` may mean: the folder itself, or with the suffix, or one packed
    into a file.
    """
    plain = Path(name)
    endings = ("", SUFFIX, PACKED, PACKED.removeprefix(SUFFIX))
    paths = [plain.with_name(plain.name + ending) for ending in endings] if plain.name else [plain]
    return [
        path
        for path in paths
        if (path / "run.json").exists() or (path.name.endswith(PACKED) and path.is_file())
    ]
