"""What a trace in Chrome's format holds: spans, marks, values, and what has to be said of it. Used
by `chrome` and `onnxruntime`.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from layerscope.model.events import Problem
from layerscope.model.layers import COUNTERS, RANGES
from layerscope.sources.chrome_samples import ChromeSamples
from layerscope.sources.chrome_spans import ChromeSpans, ChromeTracks, arguments, spans_of
from layerscope.sources.imported import Imported, ImportedProcess
from layerscope.sources.trace_moments import joined, marks_of, values_of
from layerscope.sources.trace_rows import TraceRows
from layerscope.sources.trace_scan import HAS_VALUE, ScannedTrace


def content_of(trace: ScannedTrace, rows: TraceRows) -> Imported:
    """The spans, marks and values of a scanned trace."""
    tracks = ChromeTracks(trace, rows.columns("names"))
    nameless = [code for code, name in enumerate(trace.names) if not name]
    spans = spans_of(rows, tracks, nameless)
    names: dict[str, int] = {}
    known = [" ".join(name.split()) or "(no name)" for name in trace.names]
    known.append("(no name)")  # for -1
    numbers = [names.setdefault(name, len(names)) for name in known]
    name_of = np.array(numbers, np.int32)
    args, texts = arguments(trace, spans)
    is_open = spans.unfinished
    counters = rows.columns("counters")
    has_value = (counters["flags"] & HAS_VALUE) != 0
    without = int(np.count_nonzero(~has_value))
    place = tracks.by_rows
    instants = rows.columns("instants")
    marks = marks_of(trace, instants, place, names)
    values = values_of(trace, counters, place, names)
    moments = joined([marks, values])
    samples = ChromeSamples()
    samples.add(trace.beside, tracks.told)
    starts = (spans.start_ns, moments.at_ns)
    firsts = [int(at_ns.min()) for at_ns in starts if len(at_ns)]
    if samples.stacks.count:
        firsts.append(samples.stacks.first_ns)
    first_ns = min(firsts, default=0)
    processes = tracks.processes or [ImportedProcess()]
    problems = _problems(trace, rows, spans, without) + samples.problems()
    return Imported(
        start_ns=spans.start_ns - first_ns,
        dur_ns=spans.end_ns - spans.start_ns,
        track=spans.track,
        depth=spans.depth,
        kind=spans.kind,
        name=name_of[spans.name],
        args=args,
        more={"unfinished": is_open},
        names=list(names),
        args_texts=texts,
        moments=replace(moments, at_ns=moments.at_ns - first_ns),
        tracks=tracks.found,
        processes=processes,
        first_ns=first_ns,
        stacks=samples.stacks.imported(first_ns) if samples.stacks.count else None,
        problems=problems,
    )


def _problems(
    trace: ScannedTrace, rows: TraceRows, spans: ChromeSpans, without: int
) -> list[Problem]:
    """What the trace has and the recording has not."""
    again = "record again"
    arrows = len(rows.columns("arrows")["time_ns"])
    told = {
        "events_rejected": (rows.rejected, "have times that cannot be", again),
        "events_damaged": (
            trace.damaged,
            f"are damaged, first: {trace.example[:120]}",
            "copy the trace again",
        ),
        "events_unmatched": (
            spans.ends_left,
            "end something whose begin is not in the file",
            "begin to record before the program works",
        ),
        "durations_negative": (spans.negative, "end before they begin: their duration is 0", again),
        "arrows_unread": (
            arrows,
            "are arrows between spans",
            "open the file in Perfetto to see them",
        ),
        "phases_unknown": (
            sum(rows.unknown.values()),
            f"are of a kind that is not read ({', '.join(sorted(rows.unknown))})",
            "open the file in Perfetto to see them",
        ),
    }
    found = [
        Problem(RANGES, code, f"{count:,} events {what}", remedy, "these events")
        for code, (count, what, remedy) in told.items()
        if count
    ]
    if without:
        what = f"{without:,} readings of counters are no numbers"
        found.append(Problem(COUNTERS, "counters_without_value", what, again, "these readings"))
    if not trace.has_end:
        what = "the trace has no end: it was cut, or its program was killed"
        lost = "what stood behind the cut"
        found.append(Problem(RANGES, "trace_cut", what, "copy the file again", lost))
    return found
