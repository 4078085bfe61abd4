"""One recorded process on its way into the tables. Used by `conversion`, `epochs` and
`small_tables`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from layerscope.ingest.parents import TrackNesting
from layerscope.ingest.phases import Int32s
from layerscope.ingest.stepping import Stepping
from layerscope.ingest.string_table import ProcessStrings
from layerscope.ingest.windows import ProcessWindows
from layerscope.rawfile import raw_file
from layerscope.sources.raw.decoder import Decoder

# A thread may be sampled a little before it says that it has begun, and the other way round.
SLACK_NS = 50_000_000


@dataclass(slots=True)
class TrackKeys:
    """Hands out the keys of tracks, and knows the process of each."""

    owners: list[int] = field(default_factory=list)
    # Of threads that were sampled before the agent knew them: (process, tid) -> start and end, key.
    sampled: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)

    def take_sampled(self, process: int, tid: int, start_ns: int, end_ns: int) -> int:
        """The key for a thread that was sampled; it is its key too when the agent or another
        sampler finds it.
        """
        for first_ns, last_ns, known in self.sampled.get((process, tid), []):
            if first_ns <= start_ns < last_ns:
                return known
        key = self.take(process)
        self.sampled.setdefault((process, tid), []).append((start_ns, end_ns, key))
        return key

    def known(self, process: int, tid: int, at_ns: int) -> int:
        """The key that a thread with this number had got when it was sampled around this time; -1:
        none.
        """
        for place, (start_ns, end_ns, key) in enumerate(
            found := self.sampled.get((process, tid), [])
        ):
            if start_ns - SLACK_NS <= at_ns <= end_ns:
                del found[place]
                return key
        return -1

    def take(self, process: int) -> int:
        """The next key, for a track of this process."""
        self.owners.append(process)
        return len(self.owners) - 1


@dataclass(slots=True)
class IngestedProcess:
    """One raw file on its way into the tables."""

    number: int
    host: str
    reader: raw_file.SpoolReader
    texts: ProcessStrings
    decoder: Decoder
    keys: TrackKeys
    rank: str = ""  # the folder of its rank, where several recordings are read as one
    tracks: dict[int, int] = field(
        default_factory=dict
    )  # its own number of a track -> the key in the recording
    nesting: dict[int, TrackNesting] = field(default_factory=dict)
    stepping: Stepping = field(default_factory=Stepping)
    windows: ProcessWindows = field(
        default_factory=ProcessWindows
    )  # what of it was recorded, if not all was
    has_spans: bool = False  # one at least was taken into the tables
    has_scopes: bool = False  # something that could make steps was recorded
    is_side: bool = False  # its requests are none: another process has steps of a stronger rule
    backward: int = 0  # number of its backward functions
    cut_ns: int = -1  # spans that start before this are in parts already

    def numbers(self, step: np.ndarray) -> Int32s:
        """The numbers of the steps of the process, given as the first one that was recorded, the
        second, ...; -1: none.

        They differ where only windows were recorded.
        """
        windows = self.windows.known(self.decoder.window_marks)
        if not windows.known:
            return step
        numbers = np.append(
            windows.numbers(self.stepping.starts(), self.stepping.rule), np.int32(-1)
        )
        known: Int32s = numbers[step]
        return known

    @property
    def read_until_ns(self) -> int:
        """The newest reading of the clocks that was read."""
        return self.decoder.readings[-1][1] if self.decoder.readings else -1

    def track_key(self, number: int) -> int:
        """The key of the track that the process itself gave this number."""
        if number not in self.tracks:
            track = self.decoder.tracks.get(number)
            key = (
                self.keys.known(self.number, track.tid, self.decoder.to_run(track.start))
                if track
                else -1
            )
            self.tracks[number] = key if key >= 0 else self.keys.take(self.number)
        return self.tracks[number]

    @property
    def main_track(self) -> int:
        """The key of the track of its first thread; -1 where nothing of it was recorded."""
        pid = self.decoder.about.get("pid")
        of_pid = [number for number, track in self.decoder.tracks.items() if track.tid == pid]
        return self.track_key(min(of_pid)) if of_pid else -1

    def read_files(self) -> list[Path]:
        """The raw files of it that nobody writes to any more and that have been read to their
        end.
        """
        files = raw_file.segments(self.reader.path)
        is_over = self.decoder.ended and not self.reader.left_bytes
        return files if is_over else files[: self.reader.segment]

    def strip(self, file: Path) -> int:
        """Take the spans out of one of `read_files`; returns how many bytes that frees."""
        files = self.read_files()
        freed = raw_file.strip(file, keeps_sums=file == files[-1])
        if file == raw_file.segments(self.reader.path)[self.reader.segment]:
            self.reader.offset -= freed
        return freed
