"""What a file holds that something else wrote: spans as columns, on tracks of processes. Made by `collect/formats`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from layerscope.model.events import Problem


@dataclass(frozen=True, slots=True)
class ImportedTrack:
    """What carries spans: its name and its process, an index into `Imported.processes`."""

    process: int
    name: str


@dataclass(frozen=True, slots=True)
class ImportedProcess:
    """A process of the file: how the file calls it, "" if it does not, and its rank."""

    name: str = ""
    rank: int | None = None


@dataclass(slots=True)
class Imported:
    """The spans of one file.

    `start_ns` counts from the first span, at `realtime_ns` of CLOCK_REALTIME (None: the file does not tell times).
    `track`: index into `tracks`. `depth`: how many spans were open on the track when it started. `kind`: index into
    `model.layers.KINDS`. `name`: index into `names`. `args`: index into `args_texts`, JSON texts; -1: none.
    `versions` and `environment`: what the file says about its libraries and the machine.
    """

    start_ns: np.ndarray
    dur_ns: np.ndarray
    track: np.ndarray
    depth: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    args: np.ndarray
    names: list[str]
    args_texts: list[str]
    tracks: list[ImportedTrack]
    processes: list[ImportedProcess]
    realtime_ns: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
