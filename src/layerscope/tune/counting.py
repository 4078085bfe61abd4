"""Steps of a program that is timed and not recorded: our agent in it marks where each begins, and
keeps nothing else.

What a step is say the rules of `layerscope.ingest.steps`, counted as they happen
(`native/agent/steps.c`): outside of windows a framework may not even call us for operators. A step
by an optimizer or a mark ends where the next one begins, with what lies between them; by a loader
it ends where the next batch is asked for; a request ends where the last call of a module in it
returns. The first one, of which the begin is not known, is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.capture import agent
from layerscope.ingest.steps import warmup
from layerscope.model.distinct import distinct
from layerscope.rawfile import counters, dtypes, layout, raw_file
from layerscope.rawfile.windows import RequestedWindow
from layerscope.sources.raw.decoder import Decoder

# It holds no step, so that nothing is recorded: the agent then says where each step begins
# (native/agent/windows.c).
EVERY_STEP = RequestedWindow(first=1, last=1)
_RULE_BITS = layout.WINDOW_BY_TIME - 1
_CPU = counters.NAMES.index("cpu_ns")

Int64s = NDArray[np.int64]


class Counted(Struct, frozen=True):
    """The steps of a trial that are not warm-up, of all processes with steps by the strongest rule.

    `dur_ns` of each; `cpu_ns`: CPU time of all processes between the first one's begin and the last
    one's end, divided by their number; 0 where nobody read it.
    """

    rule: str
    dur_ns: Int64s
    cpu_ns: float


def without_collectors(environment: dict[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """The environment of a recorded program without what has oneDNN and others load the agent
    too.
    """
    ours = {agent.SETTINGS, agent.ITT, agent.NVTX, agent.JIT}
    return {
        name: value for name, value in environment.items() if name not in ours or name in before
    }


def read(raw: Path) -> Counted | None:
    """The steps in the raw files below `raw`; None where there are none."""
    decoders = [_decoded(path) for path in raw_file.spools(raw)]
    found = [
        (rule, begins, ends)
        for decoder in decoders
        for rule, begins, ends in [_steps(decoder)]
        if len(begins)
    ]
    if not found:
        return None
    strongest = max(rule for rule, _, _ in found)
    kept = []
    for rule, begins, ends in found:
        is_warm = ~warmup(ends - begins)
        if rule == strongest:
            kept.append((begins[is_warm], ends[is_warm]))
    begins, ends = (np.concatenate(column) for column in zip(*kept, strict=True))
    spent_ns = _cpu_ns(decoders, int(begins.min()), int(ends.max()))
    return Counted(_NAMES[strongest], ends - begins, spent_ns / len(begins))


_NAMES = {
    layout.RULE_REQUEST: "request",
    layout.RULE_SERVED: "served",
    layout.RULE_LOADER: "loader",
    layout.RULE_OPTIMIZER: "optimizer",
    layout.RULE_MARK: "mark",
    layout.RULE_NAMED: "mark",
}


class LiveSteps:
    """Counts the steps of a program that still runs, by the raw files that grow."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        self._readers: dict[Path, raw_file.SpoolReader] = {}
        # The strongest rule, and by it the highest number of a step.
        self._most: dict[Path, tuple[int, int]] = {}

    def count(self) -> int:
        """How many steps have begun in the process that has made most by the strongest rule."""
        for path in raw_file.spools(self._raw):
            reader = self._readers.setdefault(path, raw_file.SpoolReader(path))
            for chunk in reader.chunks({raw_file.RECORDS}):
                records = np.frombuffer(chunk.payload, dtypes.RECORD)
                self._note(path, records)
        _, number = max(self._most.values(), default=(0, 0))
        return number

    def _note(self, path: Path, records: np.ndarray) -> None:
        is_mark = records["kind"] == layout.MARK
        is_begin = records["module"] == layout.MARK_BEGINS
        begins = records[is_mark & is_begin]
        if not len(begins):
            return
        rules = begins["end"] & _RULE_BITS
        numbers = begins["seq"]
        latest = max(zip(rules.tolist(), numbers.tolist(), strict=True))
        before = self._most.get(path, (0, 0))
        self._most[path] = max(before, latest)


def _decoded(path: Path) -> Decoder:
    decoder = Decoder()
    for chunk in raw_file.SpoolReader(path).chunks():
        decoder.add(chunk)
    for _ in decoder.batches(last=True):
        pass
    return decoder


def _steps(decoder: Decoder) -> tuple[int, Int64s, Int64s]:
    """The strongest rule of a process, and of each of its steps by that when it began and ended."""
    track, records = decoder.window_marks()
    is_mark = np.isin(records["module"], (layout.MARK_BEGINS, layout.MARK_ENDS))
    track, records = track[is_mark], records[is_mark]
    if not len(records):
        nothing = np.zeros(0, np.int64)
        return layout.RULE_NONE, nothing, nothing
    code = records["end"].astype(np.int64)
    rules = code & _RULE_BITS
    strongest = int(rules.max())
    is_strongest = rules == strongest
    if strongest == layout.RULE_SERVED:
        begins, ends = _by_number(records[is_strongest])
        return strongest, begins, ends
    if strongest != layout.RULE_REQUEST:
        begins, ends = _follow(records[is_strongest])
        return strongest, begins, ends
    # It may have seemed that requests begin with one module, and then that it is another one:
    # the last counts.
    leader = code >> layout.WINDOW_INSTANCE
    last_leader = leader[is_strongest].max()
    is_chosen = is_strongest & (leader == last_leader)
    begins, ends = _requests_of_threads(track[is_chosen], records[is_chosen])
    return strongest, begins, ends


def _by_number(records: np.ndarray) -> tuple[Int64s, Int64s]:
    """Those that have a number of their own, and have ended."""
    is_end = records["module"] == layout.MARK_ENDS
    begun = records[~is_end]
    ended = records[is_end]
    numbers = begun["seq"], ended["seq"]
    _, first, second = np.intersect1d(*numbers, return_indices=True)
    begins = begun["start"][first]
    ends = ended["start"][second]
    return begins.astype(np.int64), ends.astype(np.int64)


def _requests_of_threads(track: np.ndarray, records: np.ndarray) -> tuple[Int64s, Int64s]:
    """Those of all threads, by their begins."""
    all_begins, all_ends = [], []
    for thread in distinct(track):
        begins, ends = _requests(records[track == thread])
        all_begins.append(begins)
        all_ends.append(ends)
    begins = np.concatenate(all_begins)
    ends = np.concatenate(all_ends)
    order = np.argsort(begins, kind="stable")
    return begins[order], ends[order]


def _requests(records: np.ndarray) -> tuple[Int64s, Int64s]:
    """Of one thread: from each begin to the last end before the next begin."""
    order = np.argsort(records["start"], kind="stable")
    records = records[order]
    at_ns = records["start"].astype(np.int64)
    is_end = records["module"] == layout.MARK_ENDS
    begins, ends = at_ns[~is_end], at_ns[is_end]
    if not len(ends):
        return begins[:0], ends
    forever = np.iinfo(np.int64).max
    next_begins = np.append(begins[1:], forever)
    last = np.searchsorted(ends, next_begins) - 1
    last_ends = ends[np.maximum(last, 0)]
    has_end = (last >= 0) & (last_ends >= begins)
    return begins[has_end], last_ends[has_end]


def _follow(records: np.ndarray) -> tuple[Int64s, Int64s]:
    """Of steps one after the other: from the last mark of a number to the first of the next. A
    loader that has no more batches is asked once more, for a step that does not begin.
    """
    order = np.argsort(records["start"], kind="stable")
    records = records[order]
    at_ns = records["start"].astype(np.int64)
    number = records["seq"].astype(np.int64)
    is_followed = np.diff(number) == 1
    last = np.flatnonzero(is_followed)
    return at_ns[last], at_ns[last + 1]


def _cpu_ns(decoders: list[Decoder], begin_ns: int, end_ns: int) -> float:
    """CPU time of all processes between two moments: of each a straight line between the readings
    around them.
    """
    total = 0.0
    for decoder in decoders:
        if not decoder.counters:
            continue
        rows = np.concatenate(decoder.counters)
        rows = rows[rows["counter"] == _CPU]
        if not len(rows):
            continue
        first_ns = int(rows["at_ns"][0])
        said_ns = int(decoder.about.get("start_ns", first_ns))
        start_ns = min(said_ns, first_ns)
        at_ns = np.append(start_ns, rows["at_ns"])
        value = np.append(0, rows["value"])
        at_begin, at_end = np.interp([begin_ns, end_ns], at_ns, value)
        total += float(at_end - at_begin)
    return total
