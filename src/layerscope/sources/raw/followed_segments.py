"""The segments that a framework's own profiler records of a process, followed while it runs: each
becomes spans among those of the raw file when it has ended. Used by `folder`.

What comes later may show that spans which were given on should be others: a span of the agent that
lies around some of them ends, a thread of theirs becomes one of the agent's, another function turns
out to be the loop. Then `is_wrong`, and who reads begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.model.distinct import distinct
from layerscope.model.events import Problem
from layerscope.rawfile.log_files import has_library_logs
from layerscope.sources.raw import profiles
from layerscope.sources.raw.decoder import Decoder
from layerscope.sources.raw.late_spans import LateSpans
from layerscope.sources.raw.late_stream import LateStream
from layerscope.sources.raw.loops import Loops
from layerscope.sources.raw.open_operators import ProcessReader
from layerscope.sources.raw.process import RawProcess
from layerscope.sources.raw.profile_files import ProfileFile, contents_of, profiles_in
from layerscope.sources.raw.profile_tasks import ended_by, tasks

# So many spans wait for a loop at most.
MOST_WAITING = 1_000_000
# What is told of a moment is in its file within this time, and the clocks agree so well.
_LATE_NS, _ERROR_NS = 1_000_000_000, 1_000_000


class FollowedSegments:
    """The segments of `process`, whose files are in `raw`. `loops`: what its steps may be.
    `waits`: nothing is given on before that is known.
    """

    def __init__(self, raw: Path, process: RawProcess, waits: bool) -> None:
        self.process = process
        self.loops = Loops()
        self.problems: list[Problem] = []
        self.is_wrong = False
        self._raw = raw
        self._waits = waits
        self._stream = process.late = LateStream(bool(process.decoder.about))
        self._reader = ProcessReader(process)
        self._tids: dict[tuple[int, int], int] = {}
        self._placed: set[Path] = set()
        self._placed_until_ns = -1
        # Threads of the agent that late spans lie on, and threads that only the profiler knows.
        self._tracks: set[int] = set()
        self._others: set[int] = set()
        self._tasks = 0  # that were given on
        self._ended_ns = 0  # of the last segment, on CLOCK_REALTIME

    @property
    def has_given(self) -> bool:
        """Whether some of the spans were given on."""
        return self._stream.given > 0

    @property
    def recorded(self) -> Decoder:
        """What the agent has recorded of the process."""
        return self._reader.recorded.decoder

    def look(self) -> None:
        """Say how far the raw file may be read."""
        if self._waits and not self.loops.step_mark and self._stream.waiting < MOST_WAITING:
            return
        self._read()
        now_ns = time.time_ns()
        clock = profiles.clock_of(self._reader.recorded)
        next_ = self._next()
        if next_ is None:
            begun_ns = now_ns - _LATE_NS
            self._add_tasks(begun_ns)
        else:
            begun_ns = next_.about.get("begun_realtime_ns", 0)
        if clock is not None:
            self._stream.until_ns = int(clock.to_run(np.array([begun_ns]))[0]) - _ERROR_NS

    def advance(self) -> bool:
        """Take in the next segment, if it has ended and the raw file has as much. False: not
        yet.
        """
        next_ = self._next()
        if next_ is None or not next_.has_ended:
            return False
        profile = self._next() or next_  # the last that is told of it comes before its file
        ended_ns = profile.about.get("ended_realtime_ns")
        if not isinstance(ended_ns, int):
            return False
        self._read()
        readings = self._reader.recorded.decoder.readings
        if not readings or readings[-1][2] < ended_ns + _ERROR_NS:
            return False
        self._add(profile, ended_ns)
        return True

    def finish(self) -> None:
        """The process has ended: take in what is left."""
        self._read()
        spans = self._reader.finish()
        self._check(spans)
        lost = 0
        for profile in list(self._left()):
            if "tasks" not in profile.about:
                lost += not self._add(profile, 0)
        self._add_tasks(2**63 - 1)
        if lost:
            self.problems.append(profiles.lost_profiles(lost))
        self._stream.finish()

    def _next(self) -> ProfileFile | None:
        """The segment that comes next."""
        segments = (one for one in self._left() if "tasks" not in one.about)
        return next(segments, None)

    def _left(self) -> list[ProfileFile]:
        """What was not taken in."""
        return list(profiles_in(self._raw, self._placed, self.process.pid))

    def _read(self) -> None:
        """Read on in the raw file."""
        spans = self._reader.read()
        self._check(spans)

    def _check(self, spans: np.ndarray) -> None:
        """Whether spans that were given on lie in what came now, or on another thread."""
        decoder = self._reader.recorded.decoder
        if self._placed_until_ns >= 0:
            began = spans["track"][spans["start"] < self._placed_until_ns]
            self.is_wrong |= not self._tracks.isdisjoint(distinct(began).tolist())
        tids = {track.tid for track in decoder.tracks.values()}
        self.is_wrong |= not self._others.isdisjoint(tids)
        self.is_wrong |= 0 < self._stream.first_text < len(decoder.names)

    def _add(self, profile: ProfileFile, ended_ns: int) -> bool:
        """Take in the spans of a segment, and what ended before it. False: there is nothing in
        it.
        """
        self._placed.add(profile.path)
        self._note_silence(profile)
        contents, damaged = contents_of(profile)
        self.problems += damaged
        parts = []
        for content in contents:
            profiles.number_threads(content, profile, self._tids)
            if any(track.tid == profiles.MAIN for track in content.tracks):
                self._mind_main()
            spans = profiles.placed(profile, content, self._reader.recorded)
            if spans is not None:
                self.loops.add(spans)
                parts.append(spans)
        self._give(parts)
        self._add_tasks(ended_ns)
        return bool(contents)

    def _note_silence(self, profile: ProfileFile) -> None:
        """Nothing was recorded between the last segment and this one."""
        clock = profiles.clock_of(self._reader.recorded)
        begun_ns = profile.about.get("begun_realtime_ns", 0)
        if clock is not None and 0 < self._ended_ns < begun_ns:
            moments = np.array([self._ended_ns, begun_ns])
            on_run = clock.to_run(moments) + self.process.decoder.shift_ns
            from_ns, until_ns = on_run.tolist()
            self.process.decoder.silent.append((from_ns, until_ns))
        self._ended_ns = profile.about.get("ended_realtime_ns", 0)

    def _mind_main(self) -> None:
        """Where the agent does not know the main thread so far, it must not come to know it."""
        known = profiles.threads_of(self._reader.recorded)
        if self.process.pid not in known:
            self._others.add(self.process.pid)

    def _add_tasks(self, realtime_ns: int) -> None:
        """Take in the compilations that ended by then."""
        clock = profiles.clock_of(self._reader.recorded)
        told: Sequence[Any] = next(
            (one.about["tasks"] for one in self._left() if "tasks" in one.about), []
        )
        count = ended_by(told, realtime_ns)
        if clock is None or count <= self._tasks:
            return
        threads = profiles.threads_of(self._reader.recorded)
        others = tasks(told[:count], clock, threads, self._tasks)
        self._tasks = count
        self._give([others] if others else [])

    def _give(self, parts: Sequence[LateSpans]) -> None:
        for part in parts:
            numbers = distinct(part.track).tolist()
            self._tracks.update(number for number in numbers if number >= 0)
            tids = [part.track_tids[one] for one in numbers if one in part.track_tids]
            self._others.update(tids)
            self._placed_until_ns = max(self._placed_until_ns, int(part.end_ns.max(initial=-1)))
        if parts:
            self._stream.add(parts, self._reader.recorded.decoder)
            self._reader.forget(self._placed_until_ns)


def may_be_followed(raw: Path, pid: int) -> bool:
    """Whether all that profilers wrote of a process are segments, which have all of it, and no
    other log has more.
    """
    if has_library_logs(raw):
        return False
    mine = [one.about for one in profiles_in(raw, pid=pid)]
    return all(about.get("is_whole") is True or "tasks" in about for about in mine)
