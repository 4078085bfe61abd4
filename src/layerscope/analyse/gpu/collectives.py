"""Collectives of several ranks, each call matched with that of the others.

Calls with the same number in a process group belong together (`collective_calls`). Where the calls
of ranks differ in name, size or type of data, or in their number, that is said: then the trace of a
rank began in the middle, or the ranks have gone apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from layerscope.analyse.across import engines
from layerscope.analyse.across.engines import Engine
from layerscope.analyse.gpu import collective_questions as questions
from layerscope.analyse.gpu.clock_fit import ClockFit, SharedEnds, fit_clocks
from layerscope.analyse.gpu.collective_calls import columns, read_calls
from layerscope.analyse.gpu.work import parts_of

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa

    from layerscope.recording.reader import Reader


class Job(Struct, frozen=True):
    """The collectives of several ranks, in an engine that is open: `calls` are those that belong to
    others, with their times on one clock. `notes`: what has to be said.
    """

    engine: Engine
    calls: ibis.Table
    notes: tuple[str, ...]

    def answer(self, question: ibis.Table) -> pa.Table:
        """The rows of a question about the calls."""
        return self.engine.answer(question)


@contextmanager
def read_job(reader: Reader, engine: str = engines.DEFAULT) -> Iterator[Job | None]:
    """The collectives that at least two ranks took part in; None where there are none."""
    calls = read_calls(reader)
    if len(set(calls["rank"].unique().to_pylist())) < 2:
        # The name is looked at all the same.
        if engine != engines.DEFAULT:
            with engines.opened(engine):
                pass
        yield None
        return
    with engines.opened(engine) as opened:
        yield _job(opened, calls)


def _job(engine: Engine, calls: pa.Table) -> Job:
    from layerscope.analyse.across.answers import ibis_table

    engine.give("read_calls", calls)
    read = ibis_table("read_calls", columns())
    ends = engine.answer(questions.shared_ends(read))
    fits = fit_clocks(_groups(ends))
    engine.give("calls", _on_one_clock(calls, fits))
    matched = questions.matched(ibis_table("calls", columns()))
    different = engine.answer(questions.different(matched))
    uneven = engine.answer(questions.uneven(read))
    notes = [*_clock_notes(fits), *_differences(different), *_uneven(uneven)]
    return Job(engine, matched, tuple(notes))


def _groups(ends: pa.Table) -> list[SharedEnds]:
    """The ends of collectives, which are sorted by group, number and rank, for each group."""
    codes = ends["group"].combine_chunks().dictionary_encode().indices
    rank = ends["rank"].to_numpy()
    end_ns = ends["end_ns"].to_numpy()
    found = []
    for part in parts_of(codes.to_numpy().astype(np.int64)):
        ranks = np.unique(rank[part])
        by_number = end_ns[part].reshape(-1, len(ranks))
        found.append(SharedEnds(tuple(ranks.tolist()), by_number))
    return found


def _on_one_clock(calls: pa.Table, fits: Mapping[int, ClockFit]) -> pa.Table:
    """The calls with the times of each rank corrected; they lie rank after rank."""
    import pyarrow as pa

    rank = calls["rank"].to_numpy()
    for name in ("start_ns", "end_ns"):
        times_ns = calls[name].to_numpy().copy()
        for part in parts_of(rank):
            fit = fits.get(int(rank[part.start]))
            if fit is not None:
                times_ns[part] = fit.corrected(times_ns[part])
        place = calls.column_names.index(name)
        calls = calls.set_column(place, name, pa.array(times_ns))
    return calls


def _clock_notes(fits: Mapping[int, ClockFit]) -> Sequence[str]:
    fitted = [fit for fit in fits.values() if fit.collectives]
    if not fitted:
        return [
            "The clocks of the ranks are taken as they are: fewer than 10 collectives that wait "
            "for all ranks are in the traces."
        ]
    residual_us = max(fit.residual_ns for fit in fitted) / 1_000
    offset_us = max(abs(fit.offset_ns) for fit in fitted) / 1_000
    return [
        f"The clocks of {len(fits)} ranks were fitted to the ends of collectives: they were up "
        f"to {offset_us:,.1f} us apart, and are within {residual_us:,.1f} us now (median)."
    ]


def _differences(different: pa.Table) -> Sequence[str]:
    """What to say of collectives in which ranks called different ones: the rows are those of the
    first, each with how many there are.
    """
    rows = different.to_pylist()
    if not rows:
        return []
    first = rows[0]
    told = sorted({f"{row['name']} of {row['in_elements']} {row['dtype']}" for row in rows})
    return [
        f"In {first['different']} of {first['collectives']} collectives the ranks called "
        f"different ones, first in number {first['number']} of group "
        f"{first['group'] or 'of all ranks'}: {', '.join(told)}. Traces that begin at different "
        "steps look like this, and jobs that hang."
    ]


def _uneven(uneven: pa.Table) -> Sequence[str]:
    return [
        f"The ranks have {row['fewest']} to {row['most']} collectives in group "
        f"{row['group'] or 'of all ranks'}: those beyond the fewest are left out."
        for row in uneven.to_pylist()
    ]
