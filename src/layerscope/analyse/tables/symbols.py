"""Symbols: the functions of native code, with the CPU time that samples found them in.

name         name of the function
object       the library or program it lies in; [jit] is code that was made at run time
self_ns      CPU time in it and in no function that it called
self_share   self_ns as a fraction of all CPU time of the recording
self_share_low, self_share_high
             self_share lies between these with 95 %: it was sampled. 100 samples know a time to 20
             %, 10,000 to 2 %
total_ns     CPU time in it and in what it called, Python too; a function that calls itself counts
             once
total_share  total_ns as a fraction of all CPU time of the recording
wait_ns      time it waited off the CPU, in no function that it called; without idle waits of
             threads of pools
samples      number of samples of self_ns
faults       page faults in it and in no function that it called, by one sample of many
total_faults page faults in it and in what it called

The row "outside native code" is time in the interpreter itself, "not known" time of which no stack
was taken. self_ns adds up to all CPU time that was sampled. --by object adds up the functions of a
library; --by thread, module, operator and step make one row for each of these; shares stay those of
the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.analyse.result import Result, ResultColumn
from layerscope.analyse.stacks import by_frame, sample_reader

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ("object", *by_frame.BY)
REFUSED: dict[str, str] = {}
_OBJECT = ResultColumn("object", "string", "", "the library or program it lies in")
_OWN = (ResultColumn("name", "string", "", "name of the function"), _OBJECT)
COLUMNS = (*_OWN, *by_frame.TIMES)
TOP = 30
EMPTY = sample_reader.EMPTY
EMPTY_OF_OTHERS = sample_reader.EMPTY_OF_OTHERS
NEXT = "layerscope table symbols --by object"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each function, each library, or for each function and `by`; most time of its own
    first.
    """
    if by == "object":
        return by_frame.build(reader, by_frame.OBJECTS, (_OBJECT,), None)
    return by_frame.build(reader, by_frame.SYMBOLS, _OWN, by)
