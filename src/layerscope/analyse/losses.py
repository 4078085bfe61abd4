"""What a recording lacks: layers that could not record, and the records that were lost, with their
count.

Every output shows these first; a layer that is missing is a sentence and never an empty table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from layerscope.model.events import Problem

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

_TOLD_APART = {"no_sampler", "no_segment"}
REASONS = {
    "ring_full": "the ring of their thread was full: the drainer was slower than the program",
    "disk_full": "the disk was full",
    "after_end": "they came after the recording had ended",
    "open_requests": "they were requests that were under way when their process ended",
    "no_ring": "no ring could be made for their thread",
    "too_deep": "they were nested too deeply",
    "damaged": "the raw file is damaged there",
    "max_size": "the recording was as large as it may become and its conversion too far behind to "
    "make room",
}
_REMEDIES = {
    "ring_full": "leave a CPU to the drainer",
    "disk_full": "record to a disk with room (-o)",
    "after_end": "end the processes that outlive the program before it ends",
    "open_requests": "let it answer them before it ends",
    "no_ring": "raise the limits of memory, file sizes and open files of the program (ulimit -v, "
    "-f, -n)",
    "damaged": "record again",
    "max_size": "allow more (--max-size), record less (--steps, --after), or leave a CPU to the "
    "converter",
}


def problems(reader: Reader) -> tuple[Problem, ...]:
    """The problems of the recording, then its losses, one for each reason."""
    columns = reader.arrays("problems", ["layer", "code", "what", "remedy", "lost"])
    layers = columns["layer.names"]
    found = [
        Problem(
            str(layers[code]),
            *(str(columns[name][row]) for name in ("code", "what", "remedy", "lost")),
        )
        for row, code in enumerate(columns["layer"])
    ]
    named = {problem.layer for problem in found}
    for layer in reader.run.info.layers:
        if layer.problem and layer.name not in named:
            found.append(Problem(layer.name, "not_recorded", layer.problem, "", layer.name))
    return (*found, *_gaps(reader))


class _Lost(Struct):
    """Records lost for one reason."""

    records: int = 0
    is_exact: bool = True
    tracks: set[int] = field(default_factory=set)

    def add(self, track: int, records: int) -> None:
        """Add a row of `gaps`; -1 stands for null: nobody could count them."""
        self.records += max(records, 0)
        if records < 0:
            self.is_exact = False
        if track != -1:
            self.tracks.add(track)


def _gaps(reader: Reader) -> list[Problem]:
    columns = reader.arrays("gaps", ["track", "reason", "lost"])
    reasons = columns["reason.names"]
    lost_by_reason: dict[str, _Lost] = {}
    for track, code, records in zip(
        columns["track"], columns["reason"], columns["lost"], strict=True
    ):
        reason = reasons[code]
        if reason in _TOLD_APART:  # a problem of its own says it
            continue
        lost = lost_by_reason.setdefault(reason, _Lost())
        lost.add(int(track), int(records))
    return [_gap(reason, lost) for reason, lost in lost_by_reason.items()]


def _gap(reason: str, lost: _Lost) -> Problem:
    what = REASONS.get(reason, reason)
    remedy = _REMEDIES.get(reason, "")
    return Problem("operators", f"lost_{reason}", what, remedy, _number_lost(lost))


def _number_lost(lost: _Lost) -> str:
    """How many records on how many threads, in words."""
    if lost.is_exact:
        number = f"{lost.records:,}"
    elif lost.records:
        number = f"at least {lost.records:,}"
    else:
        number = "an unknown number of"
    is_single = lost.is_exact and lost.records == 1
    noun = "record" if is_single else "records"
    if not lost.tracks:
        return f"{number} {noun}"
    threads = "thread" if len(lost.tracks) == 1 else "threads"
    return f"{number} {noun} on {len(lost.tracks)} {threads}"
