"""The files beside the raw files that the program's libraries wrote: their logs, and the windows of
PyTorch's own profiler.

They are merged with the spans of the agent when a recording is read (`sources.raw`).
"""

from __future__ import annotations

from pathlib import Path

# oneDNN's verbose log.
ONEDNN_LOG = "verbose.gz"
# Calls of MKL, by process.
MKL_LOGS = "mkl-*.log"
# What says that a framework's own profiler records in a process; the profile has a name that begins
# so, or lies in a folder of that name.
PROFILES = "*.profile"
# What the stock profiler's windows of one process were; each has a trace beside it.
WINDOWS = "windows.jsonl"


def arrivals_of(log: Path) -> Path:
    """The file that says when the lines of oneDNN's `log` arrived."""
    return log.with_name("verbose.arrivals")


def raw_file_of_windows(path: Path) -> Path:
    """The raw file of the process whose windows are listed in `path`; where the drainer has begun
    none, it is not there.
    """
    folder = path.parent
    host_and_pid, _, begun_ns = folder.name.rpartition("-")
    earlier: dict[int, Path] = {}
    for known in folder.parent.glob(f"{host_and_pid}-*/spool"):
        start = known.parent.name.rpartition("-")[2]
        if start.isdigit() and int(start) <= int(begun_ns):
            earlier[int(start)] = known
    return earlier[max(earlier)] if earlier else folder / "spool"


def has_logs(raw: Path) -> bool:
    """Whether there are logs of libraries, or profiles of frameworks, beside the raw files in
    `raw`.
    """
    return has_library_logs(raw) or any(raw.glob(PROFILES))


def has_library_logs(raw: Path) -> bool:
    """Whether oneDNN or MKL wrote one there."""
    return (raw / ONEDNN_LOG).exists() or any(raw.glob(MKL_LOGS))


def profiled_pids(raw: Path) -> set[int]:
    """The processes in which a framework's own profiler records: FORMAT-PID-NUMBER.profile."""
    pids = set()
    for path in raw.glob(PROFILES):
        _, *numbers = path.stem.rsplit("-", 2)
        if len(numbers) == 2 and numbers[0].isdecimal():
            pids.add(int(numbers[0]))
    return pids


def has_windows(raw: Path) -> bool:
    """Whether PyTorch's own profiler recorded something of what is in `raw`."""
    try:
        return any(raw.glob(f"*/{WINDOWS}")) or any(raw.glob(f"*/raw/*/{WINDOWS}"))
    except OSError:  # the server that it lies on is gone
        return False
