"""What a trace of MXNet's profiler does not hold, and what of it could not be read, as sentences.
Used by `mxnet_trace`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from layerscope.model.events import Problem
from layerscope.model.layers import COUNTERS, OPERATORS
from layerscope.sources.chrome_events import ChromeEvents
from layerscope.sources.event_pairs import EventPairs

# What the profiler writes, but for names of processes.
_PHASES = b"BEben()C"
# Longer names are cut.
_NAME_BYTES = 127
_EXAMPLE_LETTERS = 120
# What all events of the profiler lack.
_NO_IDENTITY = Problem(
    OPERATORS,
    "no_identity",
    "a trace of MXNet's profiler has none: a thread is called by the hash that the trace has of it",
    "record with layerscope run to have them",
    "process id, thread ids and names of threads",
)
_NO_EVENTS = Problem(
    OPERATORS,
    "no_events",
    "the trace has no event",
    "call set_state('run') before the work and dump() once behind it: after a second run without "
    "continuous_dump the file is written anew",
    "everything",
)
_NO_OPERATORS = Problem(
    OPERATORS,
    "no_operators",
    "the trace has no operator",
    "set_config(profile_imperative=True, profile_symbolic=True), or MXNET_PROFILER_MODE=15 with "
    "MXNET_PROFILER_AUTOSTART=1, whose default leaves out what Gluon executes",
    "operators",
)
_NO_HEADER = Problem(
    OPERATORS,
    "trace_headless",
    "the file begins in the middle of a trace: the profiler ran already when its filename was set",
    "import the file before it too; set the filename once, before set_state('run')",
    "names of devices: an operator has the number of its device",
)


class Contents(Struct, frozen=True):
    """How many operators, bulks of operators, and counters or markers were read, and how many spans
    end before they begin.
    """

    operators: int
    bulks: int
    clock_steps: int
    moments: int


def problems_of(
    events: ChromeEvents, columns: dict[str, np.ndarray], pairs: EventPairs, about: Contents
) -> list[Problem]:
    """What has to be said about a trace; `columns` are those of its events."""
    found = [_NO_IDENTITY]
    has_events = len(pairs.begin) or about.moments
    if not has_events:
        found.append(_NO_EVENTS)
    elif not about.operators:
        found.append(_NO_OPERATORS)
    if not events.has_header and has_events:
        found.append(_NO_HEADER)
    if not events.has_end:
        found.append(_no_end(events))
    found += _unread(events, columns, pairs)
    found += _of_names(events)
    found += _of_spans(about)
    return found


def _no_end(events: ChromeEvents) -> Problem:
    cut = " and its last event is cut" if events.is_cut else ""
    return Problem(
        OPERATORS,
        "trace_unended",
        f"the file has no end{cut}: dump() was not called for the last time, the name of the file "
        "was changed, or the process was killed",
        "call profiler.dump() before the program ends",
        "what the profiler had not written yet",
    )


def _unread(
    events: ChromeEvents, columns: dict[str, np.ndarray], pairs: EventPairs
) -> Iterator[Problem]:
    """Events that were left out."""
    if events.rejected:
        example = events.example[:_EXAMPLE_LETTERS]
        yield Problem(
            OPERATORS,
            "events_rejected",
            f"{_events(events.rejected)} damaged and left out, first: {example}",
            "look at that place of the file: several processes may have written it at once; give "
            "each a filename of its own",
            "these events",
        )
    phase = columns["phase"]
    known = np.frombuffer(_PHASES, np.uint8)
    foreign = phase[~np.isin(phase, known)]
    if len(foreign):
        letters = ", ".join(chr(letter) for letter in np.unique(foreign).tolist())
        yield Problem(
            OPERATORS,
            "phases_unknown",
            f"{_events(len(foreign))} of a kind that MXNet does not write ({letters})",
            "import the file that MXNet wrote, before other programs changed it",
            "these events",
        )
    if pairs.begins_left or pairs.ends_left:
        yield Problem(
            OPERATORS,
            "events_unmatched",
            f"{pairs.begins_left:,} events begin something whose end is not in the file, and "
            f"{pairs.ends_left:,} end something whose begin is not",
            "import the file as MXNet wrote it: there both stand next to each other",
            "these spans",
        )
    is_counter = phase == ord("C")
    without = int(np.count_nonzero(is_counter & ~columns["has_value"]))
    if without:
        yield Problem(
            COUNTERS,
            "counters_without_value",
            f"{_events(without)} readings of counters without a number",
            "import the file as MXNet wrote it",
            "these readings",
        )


def _events(count: int) -> str:
    """So many of them, as the beginning of a sentence."""
    return "1 event is" if count == 1 else f"{count:,} events are"


def _of_names(events: ChromeEvents) -> Iterator[Problem]:
    """Names that the profiler has cut."""
    lengths = [len(name.encode("utf-8", "replace")) for name in events.names]
    cut = sum(length >= _NAME_BYTES for length in lengths)
    if cut:
        names = "1 name has" if cut == 1 else f"{cut:,} names have"
        yield Problem(
            OPERATORS,
            "names_cut",
            f"{names} {_NAME_BYTES} bytes, where MXNet's profiler cuts names",
            "record with layerscope run, which keeps whole names, or use shorter ones",
            "the rest of long names: those that begin alike are one",
        )


def _of_spans(about: Contents) -> Iterator[Problem]:
    """What is known of the spans and looks different from what they are."""
    if about.clock_steps:
        spans = "1 span" if about.clock_steps == 1 else f"{about.clock_steps:,} spans"
        yield Problem(
            OPERATORS,
            "clock_stepped",
            "the system's clock was set back while the profiler ran: they end before they begin",
            "record again",
            f"the durations of {spans}, which are 0 here",
        )
    if about.bulks:
        bulks = "1 span" if about.bulks == 1 else f"{about.bulks:,} spans"
        yield Problem(
            OPERATORS,
            "bulks",
            "MXNet executed several operators as one",
            "set MXNET_EXEC_BULK_EXEC_TRAIN=0 MXNET_EXEC_BULK_EXEC_INFERENCE=0 "
            "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN=0 and record again; the program then runs another "
            "way, and slower",
            f"the operators in {bulks} called ImperativeBulk",
        )
