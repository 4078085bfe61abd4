"""Lines: the lines of Python, with the CPU time that samples found them in.

line         file and line
function     qualified name of its function
self_ns      CPU time in it and in no other line of Python that it called: what frameworks and other
             native code did for it is a part of that
self_share   self_ns as a fraction of all CPU time of the recording
self_share_low, self_share_high
             self_share lies between these with 95 %: it was sampled. 100 samples know a time to 20
             %, 10,000 to 2 %
total_ns     CPU time in it and in what it called; a line that calls itself counts once
total_share  total_ns as a fraction of all CPU time of the recording
wait_ns      time it waited off the CPU, in no other line of Python; without idle waits of threads
             of pools
samples      number of samples of self_ns
faults       page faults in it and in no function that it called, by one sample of many
total_faults page faults in it and in what it called

The rows "outside Python" and "not known" are everything else, as in the table functions. self_ns
adds up to all CPU time that was sampled. --by thread, module, operator and step make one row for
each of these; shares stay those of the whole. --mine shows the files of the program alone: what
libraries do for a line counts for that line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import Result, ResultColumn
from layerscope.analyse.stacks import by_frame, sample_reader

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = by_frame.BY
REFUSED: dict[str, str] = {}
_OWN = (
    ResultColumn("line", "string", "", "file and line"),
    ResultColumn("function", "string", "", "qualified name of its function"),
)
COLUMNS = (*_OWN, *by_frame.TIMES)
TOP = 30
EMPTY = sample_reader.EMPTY
EMPTY_OF_OTHERS = sample_reader.EMPTY_OF_OTHERS
NEXT = "layerscope table lines --by operator"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each line, or for each of them and `by`; most time of its own first."""
    return by_frame.build(reader, by_frame.LINES, _OWN, by)


def build_mine(reader: Reader, by: str | None = None) -> Result:
    """The same of the program's own files: time in libraries counts for what called them."""
    return by_frame.build(reader, by_frame.LINES, _OWN, by, is_mine=True)
