"""Profiles in the format of speedscope (JSON), which many profilers write: stacks with their
weight, or calls and returns.

Numbers are decimals in the unit that a profile names. Of what has no unit of time they are taken as
ns.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import msgspec
from msgspec import Struct, field

from layerscope.model.events import Problem
from layerscope.model.layers import STACKS
from layerscope.sources.call_stacks import MOST_DEPTH, NONE, CallStacks, OpenCalls
from layerscope.sources.cut_json import read_json
from layerscope.sources.imported import Imported, ImportedProcess, ImportedTrack

MEANING = "a profile in the format of speedscope"
_SCHEMA = re.compile(rb'"\$schema"\s*:\s*"https?://(?:www\.)?speedscope\.app/')
_SHAPE = re.compile(rb'^\s*\{(?=.*"shared"\s*:\s*\{\s*"frames")(?=.*"profiles"\s*:)', re.DOTALL)
_UNITS = {"nanoseconds": 1, "microseconds": 10**3, "milliseconds": 10**6, "seconds": 10**9}
_MOST = Decimal(1 << 60)
_MOST_LINE = 1 << 31


class _Frame(msgspec.Struct, gc=False):
    name: str = ""
    file: str | None = None
    line: int | None = None


class _Shared(msgspec.Struct, gc=False):
    frames: list[_Frame] = []


class _SpeedscopeEvent(msgspec.Struct, gc=False):
    type: str = ""
    frame: int = -1
    at: Decimal = Decimal(0)


class _Profile(msgspec.Struct, gc=False):
    type: str = ""
    name: str = ""
    unit: str = "none"
    start: Decimal = msgspec.field(default=Decimal(0), name="startValue")
    end: Decimal = msgspec.field(default=Decimal(0), name="endValue")
    events: list[_SpeedscopeEvent] = []
    samples: list[list[int]] = []
    weights: list[Decimal] = []


class _SpeedscopeFile(msgspec.Struct, gc=False):
    shared: _Shared = msgspec.field(default_factory=_Shared)
    profiles: list[_Profile] = []
    exporter: str | None = None
    name: str | None = None


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a profile of speedscope."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return start.startswith(b"{") and bool(_SCHEMA.search(head) or _SHAPE.search(start))


def read(path: Path) -> Imported:
    """The stacks of the profiles in the file `path`, which may be packed with gzip, and may be
    cut.
    """
    file, is_cut = read_json(path, _SpeedscopeFile)
    profiles = _Profiles(file)
    for number, profile in enumerate(file.profiles):
        profiles.add(number, profile)
    return profiles.imported(is_cut)


class _Profiles(Struct):
    """Puts profiles into `stacks`. `rejected`: how many samples or events cannot be."""

    file: _SpeedscopeFile
    stacks: CallStacks = field(default_factory=CallStacks)
    rejected: int = 0
    unmatched: int = 0
    units: set[str] = field(default_factory=set)
    _frames: list[int] = field(default_factory=list)

    def add(self, number: int, profile: _Profile) -> None:
        """Take in a profile, as a track."""
        if not self._frames:
            self._frames = [self._frame(one) for one in self.file.shared.frames]
        if profile.unit not in _UNITS:
            self.units.add(profile.unit)
        if profile.type == "evented":
            self._add_calls(number, profile)
        else:
            self._add_samples(number, profile)

    def imported(self, is_cut: bool) -> Imported:
        """All of them."""
        file = self.file
        names = [one.name or f"profile {number}" for number, one in enumerate(file.profiles, 1)]
        return Imported(
            tracks=[ImportedTrack(0, name) for name in names] or [ImportedTrack(0, "nothing")],
            processes=[ImportedProcess(name=file.name or "")],
            stacks=self.stacks.imported(self.stacks.first_ns),
            versions={"exporter": file.exporter} if file.exporter else {},
            problems=self._problems(is_cut),
        )

    def _frame(self, frame: _Frame) -> int:
        """The number of a frame, which is of Python if its file is."""
        file = frame.file or ""
        is_python = file.endswith((".py", ".pyx"))
        layer = "python" if is_python else "native"
        line = frame.line or 0
        has_line = 0 < line < _MOST_LINE
        place = {"file": file or None, "line": line if has_line and file else None}
        name = frame.name or "[unknown]"
        return self.stacks.frames.add(layer, name, **place)

    def _ns(self, value: Decimal, unit: str) -> int | None:
        """A number in ns; None: it cannot be."""
        if not value.is_finite():
            return None
        scaled = value * _UNITS.get(unit, 1)
        return round(scaled) if abs(scaled) < _MOST else None

    def _number(self, frame: int) -> int | None:
        """The number of a frame of the file; None: there is none."""
        count = len(self._frames)
        if not 0 <= frame < count:
            return None
        return self._frames[frame]

    def _add_calls(self, track: int, profile: _Profile) -> None:
        calls = OpenCalls(self.stacks, track)
        for event in profile.events:
            at_ns = self._ns(event.at, profile.unit)
            frame = self._number(event.frame)
            if at_ns is None or frame is None or event.type not in ("O", "C"):
                self.rejected += 1
            elif event.type == "O":
                calls.call(frame, at_ns)
            else:
                calls.finish(frame, at_ns)
        end_ns = self._ns(profile.end, profile.unit)
        if end_ns:
            calls.until(end_ns)

        self.unmatched += calls.unmatched
        self.rejected += calls.backwards

    def _add_samples(self, track: int, profile: _Profile) -> None:
        at_ns = self._ns(profile.start, profile.unit) or 0
        self.rejected += abs(len(profile.samples) - len(profile.weights))
        for sample, weight in zip(profile.samples, profile.weights, strict=False):
            weight_ns = self._ns(weight, profile.unit)
            frames = [self._number(one) for one in sample[:MOST_DEPTH]]
            if weight_ns is None or weight_ns < 0 or None in frames or at_ns > int(_MOST):
                self.rejected += 1
                continue
            stack = NONE
            for frame in frames:
                stack = self.stacks.below(stack, frame)  # type: ignore[arg-type]
            self.stacks.sample(track, stack, at_ns, weight_ns)
            at_ns += weight_ns

    def _problems(self, is_cut: bool) -> list[Problem]:
        found = []
        remedy = "export the profile again"
        if is_cut:
            what = "the profile was cut"
            found.append(Problem(STACKS, "trace_cut", what, "copy it again", "what came behind"))
        if self.units:
            what = f"the profile counts in {', '.join(sorted(self.units))}: read as ns"
            found.append(Problem(STACKS, "no_unit", what, "compare shares", "times"))
        if self.rejected:
            what = f"{self.rejected:,} samples or events of the profile cannot be"
            found.append(Problem(STACKS, "events_rejected", what, remedy, "these events"))
        if self.unmatched:
            what = f"{self.unmatched:,} functions of the profile return without a call"
            found.append(Problem(STACKS, "ends_unpaired", what, remedy, "these calls"))
        if not self.stacks.count:
            what = "the profile has no sample"
            found.append(Problem(STACKS, "no_events", what, "record again", "everything"))
        return found
