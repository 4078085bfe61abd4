"""The ranks of a recording one by one: questions to one of them read its files alone, so neither
time nor memory grows with how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from layerscope.recording.database import connected
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run


def ranks_apart(reader: Reader) -> Iterator[Reader]:
    """A reader of each rank, with the keys and times of the recording of all; open until the next
    one is asked for. Of a recording whose ranks were not put together, `reader` itself.
    """
    run = reader.run
    if not run.joined:
        yield reader
        return
    with closing(connected()) as shared:
        for one in run.joined:
            of_rank = Run(run.path, run.info, run.tables_path)
            of_rank.joined = [one]
            with Reader(of_rank, shared) as its:
                yield its
