"""One recorded process on its way into the tables. Used by `conversion`, `epochs` and
`small_tables`.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from layerscope.ingest.device_work import DeviceWork
from layerscope.ingest.parents import TrackNesting
from layerscope.ingest.phases import Int32s
from layerscope.ingest.stepping import Stepping
from layerscope.ingest.string_table import ProcessStrings
from layerscope.ingest.submissions import Submissions
from layerscope.ingest.windows import ProcessWindows
from layerscope.model.layers import REQUESTS
from layerscope.sources.process import ProcessEvents, SourceProcess

# A thread may be sampled a little before it says that it has begun, and the other way round.
SLACK_NS = 50_000_000


class TrackKeys(Struct):
    """Hands out the keys of tracks, and knows the process of each."""

    owners: list[int] = field(default_factory=list)
    # Of threads that were sampled before the agent knew them: (process, tid) -> start and end, key.
    sampled: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)

    def take_sampled(self, process: int, tid: int, start_ns: int, end_ns: int) -> int:
        """The key for a thread that was sampled; it is its key too when the agent or another
        sampler finds it.
        """
        thread = (process, tid)
        for first_ns, last_ns, known in self.sampled.get(thread, []):
            if first_ns <= start_ns < last_ns:
                return known
        key = self.take(process)
        self.sampled.setdefault(thread, []).append((start_ns, end_ns, key))
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


class IngestedProcess(Struct):
    """One process of a source on its way into the tables."""

    number: int
    source: SourceProcess
    texts: ProcessStrings
    keys: TrackKeys
    tracks: dict[int, int] = field(
        default_factory=dict
    )  # its own number of a track -> the key in the recording
    nesting: dict[int, TrackNesting] = field(default_factory=dict)
    stepping: Stepping = field(default_factory=Stepping)
    windows: ProcessWindows = field(
        default_factory=ProcessWindows
    )  # what of it was recorded, if not all was
    submissions: Submissions = field(default_factory=Submissions)
    device_work: DeviceWork = field(default_factory=DeviceWork)
    has_spans: bool = False  # one at least was taken into the tables
    has_scopes: bool = False  # something that could make steps was recorded
    is_side: bool = False  # its requests are none: another process has steps of a stronger rule
    backward: int = 0  # number of its backward functions
    cut_ns: int = -1  # spans that start before this are in parts already

    @property
    def events(self) -> ProcessEvents:
        """What was read of it."""
        return self.source.events

    def numbers(self, step: np.ndarray) -> Int32s:
        """The numbers of the steps of the process, given as the first one that was recorded, the
        second, ...; -1: none.

        They differ where only windows were recorded.
        """
        windows = self.windows.known(self.events.window_marks)
        if not windows.known:
            return step
        numbers = np.append(
            windows.numbers(self.stepping.starts(), self.stepping.rule), np.int32(-1)
        )
        known: Int32s = numbers[step]
        return known

    def track_key(self, number: int) -> int:
        """The key of the track that the process itself gave this number."""
        if number not in self.tracks:
            track = self.events.tracks.get(number)
            key = -1
            if track is not None and track.tid is not None:
                start_ns = self.events.to_run(track.start)
                key = self.keys.known(self.number, track.tid, start_ns)
            self.tracks[number] = key if key >= 0 else self.keys.take(self.number)
        return self.tracks[number]

    def request_tracks(self) -> Int32s:
        """The keys of the tracks on which requests lie."""
        tracks = self.events.tracks.values()
        keys = [self.track_key(track.number) for track in tracks if track.kind == REQUESTS]
        return np.array(keys, np.int32)

    @property
    def main_track(self) -> int:
        """The key of the track of its first thread; -1 where nothing of it was recorded."""
        pid = self.events.about.get("pid")
        of_pid = [number for number, track in self.events.tracks.items() if track.tid == pid]
        return self.track_key(min(of_pid)) if of_pid else -1
