"""What a recording lacks: layers that could not record, and the records that were lost, with their
count.

Every output shows these first; a layer that is missing is a sentence and never an empty table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.model.events import Problem

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

_REASONS = {
    "ring_full": "the ring of their thread was full: the drainer was slower than the program",
    "disk_full": "the disk was full",
    "after_end": "they came after the recording had ended",
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


def _gaps(reader: Reader) -> list[Problem]:
    columns = reader.arrays("gaps", ["track", "reason", "lost"])
    reasons = columns["reason.names"]
    counted: dict[str, tuple[int, bool, set[int]]] = {}
    for track, code, lost in zip(columns["track"], columns["reason"], columns["lost"], strict=True):
        if reasons[code] == "no_sampler":  # a problem of its own says it
            continue
        total, exact, tracks = counted.get(reasons[code], (0, True, set()))
        # -1 stands for null: nobody could count them.
        counted[reasons[code]] = (
            total + max(int(lost), 0),
            exact and lost >= 0,
            tracks | {int(track)} - {-1},
        )
    return [_gap(reason, *values) for reason, values in counted.items()]


def _gap(reason: str, lost: int, exact: bool, tracks: set[int]) -> Problem:
    number = f"{lost:,}" if exact else f"at least {lost:,}" if lost else "an unknown number of"
    noun = "record" if exact and lost == 1 else "records"
    where = f" on {len(tracks)} {'thread' if len(tracks) == 1 else 'threads'}" if tracks else ""
    what = _REASONS.get(reason, reason)
    return Problem(
        "operators", f"lost_{reason}", what, _REMEDIES.get(reason, ""), f"{number} {noun}{where}"
    )
