"""Can this machine hold a recording: memory, CPUs, disk, limits, and what surrounds the program."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from layerscope.checks.recording_check import LIMITED, OK, RecordingCheck, text
from layerscope.host import (
    cgroup,
    filesystems,
    kernel,
)
from layerscope.model import cache, units

# Below this a recording of an hour may not fit: about 2 GB an hour (README).
_ROOM_BYTES = 2_000_000_000
_LITTLE_MEMORY_BYTES = 1_000_000_000
_FEW_DESCRIPTORS = 1024


def memory_here(group: cgroup.Cgroup, available_bytes: int) -> RecordingCheck:
    """Room for the recorder beside the program."""
    limit = group.memory_most_bytes
    of = f" of the {units.size(limit)} of this control group" if limit is not None else ""
    what = f"{units.size(available_bytes)} are left{of}"
    if available_bytes < _LITTLE_MEMORY_BYTES:
        remedy = "give the job 1 GB more, or convert the recording elsewhere"
        return RecordingCheck(
            "memory", LIMITED, f"{what}; the recorder takes up to 300 MB, and 3 MB a thread", remedy
        )
    return RecordingCheck("memory", OK, what)


def cpus(usable: float, online: int) -> RecordingCheck:
    """Room for the drainer beside the program."""
    what = f"{usable:g} of {online} CPUs"
    if usable < 2:
        return RecordingCheck(
            "cpus",
            LIMITED,
            f"{what}: the recorder takes its 2 to 10 % from the program",
            "allow 2 CPUs",
        )
    return RecordingCheck("cpus", OK, what)


def recordings(folder: Path | None) -> RecordingCheck:
    """Where `run` puts its recording."""
    instead = f"recordings go to {tempfile.gettempdir()}"
    if folder is None:
        return RecordingCheck(
            "recordings",
            LIMITED,
            f"the working directory is gone: {instead}",
            "choose a place with -o",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        return RecordingCheck(
            "recordings",
            LIMITED,
            f"{text(folder)} cannot be written: {instead}",
            "choose a place with -o",
        )
    free_bytes = _free_bytes(folder)
    what = (
        f"{units.size(free_bytes)} free in {text(folder)} ({filesystems.kind(folder) or 'unknown'})"
    )
    if filesystems.is_remote(folder):
        return RecordingCheck(
            "recordings",
            OK,
            f"{what}: a network, so raw files lie in {tempfile.gettempdir()} until the end",
        )
    if free_bytes < _ROOM_BYTES:
        return RecordingCheck(
            "recordings",
            LIMITED,
            f"{what}; an hour may take 2 GB",
            "choose a place with -o, or layerscope clean",
        )
    return RecordingCheck("recordings", OK, what)


def temporary_files(folder: Path) -> RecordingCheck:
    """Where questions and raw files go that have no other place."""
    if not os.access(folder, os.W_OK | os.X_OK):
        what = f"{folder} cannot be written: large questions fail"
        return RecordingCheck("temporary", LIMITED, what, "set TMPDIR")
    free = units.size(_free_bytes(folder))
    return RecordingCheck("temporary", OK, f"{free} free in {folder}")


def cached_probes() -> RecordingCheck:
    """Where answers about torch are kept."""
    for folder in cache.caches(cache.PROBE):
        try:
            cache.make(folder)
        except OSError:
            continue
        if cache.is_temporary(folder):
            what = f"no cache in the home can be written: {folder.parent} instead"
            return RecordingCheck(
                "cache", LIMITED, what, "set HOME or XDG_CACHE_HOME to a folder of yours"
            )
        return RecordingCheck("cache", OK, str(folder.parent))
    remedy = "set XDG_CACHE_HOME to a folder of yours"
    return RecordingCheck("cache", LIMITED, "there is none: each run tries torch out anew", remedy)


def limits() -> Iterator[RecordingCheck]:
    """Limits of processes (ulimit) that a recording meets."""
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 < descriptors < _FEW_DESCRIPTORS:
        what = (
            f"{descriptors} open files at most: the recorder holds one for each thread of the "
            "program"
        )
        yield RecordingCheck("limits", LIMITED, what, "ulimit -n 65536")
    for number, name, words in (
        (resource.RLIMIT_FSIZE, "f", "files of at most"),
        (resource.RLIMIT_AS, "v", "address space of at most"),
    ):
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            yield RecordingCheck(
                "limits",
                LIMITED,
                f"{words} {units.size(soft)}: what does not fit is lost",
                f"ulimit -{name} unlimited",
            )


def surroundings(here: kernel.Kernel, user: str) -> RecordingCheck:
    """What is unusual, and does not matter."""
    words = [
        f"user {user}"
        if user
        else f"user {os.getuid()}, without an entry in passwd, which needs none"
    ]
    words += ["in a container"] * here.is_container
    words += ["under a seccomp filter"] * (here.seccomp in ("filter", "strict"))
    words += ["without new privileges"] * here.no_new_privileges
    return RecordingCheck("surroundings", OK, ", ".join(words))


def _free_bytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
