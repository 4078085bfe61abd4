"""Functions: the functions of Python, with the CPU time that samples found them in.

name         qualified name of the function
file         its source file
self_ns      CPU time in it and in no other function of Python that it called: what frameworks and
             other native code did for it is a part of that
self_share   self_ns as a fraction of all CPU time of the recording
self_share_low, self_share_high
             self_share lies between these with 95 %: it was sampled. 100 samples know a time to 20
             %, 10,000 to 2 %
total_ns     CPU time in it and in what it called; a function that calls itself counts once
total_share  total_ns as a fraction of all CPU time of the recording
wait_ns      time it waited off the CPU, in no other function of Python; without idle waits of
             threads of pools
samples      number of samples of self_ns
faults       page faults in it and in no function that it called, by one sample of many
total_faults page faults in it and in what it called

The row "outside Python" is threads without Python: those of OpenMP and of the backward pass. "not
known" is time of which no stack was taken: before the sampler reached the program, and in wait_ns
what had to wait for a CPU. self_ns adds up to all CPU time that was sampled. --by thread, module,
operator and step make one row for each of these; shares stay those of the whole. --mine shows the
files of the program alone: what libraries do for a line counts for that line.
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
    ResultColumn("name", "string", "", "qualified name of the function"),
    ResultColumn("file", "string", "", "its source file"),
)
COLUMNS = (*_OWN, *by_frame.TIMES)
TOP = 30
EMPTY = sample_reader.EMPTY
EMPTY_OF_OTHERS = sample_reader.EMPTY_OF_OTHERS
NEXT = "layerscope table lines"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each function, or for each of them and `by`; most time of its own first."""
    return by_frame.build(reader, by_frame.FUNCTIONS, _OWN, by)


def build_mine(reader: Reader, by: str | None = None) -> Result:
    """The same of the program's own files: time in libraries counts for what called them."""
    return by_frame.build(reader, by_frame.FUNCTIONS, _OWN, by, is_mine=True)
