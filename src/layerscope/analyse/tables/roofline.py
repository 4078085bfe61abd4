"""Roofline: how fast operators multiplied and convolved on GPUs, and whether tensor cores did it.

name              operator that launched kernels itself; only those that could use tensor cores:
                  products of matrices, convolutions, attention
shape             with --by shape: type and sizes of its inputs
calls             how often it launched something
gpu_ns            time of the kernels that it launched
tensor_core_share the part of gpu_ns in kernels that use tensor cores, by their names
flop              floating-point operations, out of the shapes of its inputs; none: not told
flop_rate         flop divided by gpu_ns of the calls whose shapes are told
bytes             of inputs and outputs, each counted once: the least that had to be moved
byte_rate         bytes divided by gpu_ns of the calls whose shapes are told
intensity         flop divided by bytes: operators with few are bound by memory, not by arithmetic

Traces do not tell the clock of a GPU, so there is no column for its peak: hold the rates against
the data sheet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from layerscope.analyse.result import (
    BYTES,
    COUNT,
    GBYTE_PER_S,
    GFLOP_PER_S,
    NS,
    RATIO,
    SHARE,
    Result,
    ResultColumn,
    of_rows,
)
from layerscope.model.units import percent

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ("shape",)
REFUSED: dict[str, str] = {}
_SHAPE = ResultColumn("shape", "string", "", "type and sizes of its inputs")
COLUMNS = (
    ResultColumn("name", "string", "", "operator"),
    ResultColumn("calls", "int64", COUNT, "that launched something"),
    ResultColumn("gpu_ns", "int64", NS, "of the kernels that it launched"),
    ResultColumn("tensor_core_share", "float64", SHARE, "of gpu_ns, on tensor cores"),
    ResultColumn("flop", "int64", COUNT, "floating-point operations"),
    ResultColumn("flop_rate", "float64", GFLOP_PER_S, "achieved"),
    ResultColumn("bytes", "int64", BYTES, "of inputs and outputs"),
    ResultColumn("byte_rate", "float64", GBYTE_PER_S, "achieved"),
    ResultColumn("intensity", "float64", RATIO, "flop divided by bytes"),
)
TOP = 30
EMPTY = "No operator that multiplies matrices or convolves launched a kernel."
NEXT = "layerscope table kernels --by operator"


@dataclass(slots=True)
class _OperatorSums:
    """Of an operator, or of one of its shapes; `told_ns`: of the calls with known shapes."""

    calls: int = 0
    gpu_ns: int = 0
    tensor_core_ns: int = 0
    told_ns: int = 0
    flop: int = 0
    bytes: int = 0

    def row(self) -> tuple[Any, ...]:
        """As a row of the table, without what it is of."""
        whole = (self.calls, self.gpu_ns, self._of(self.tensor_core_ns, self.gpu_ns))
        if not self.flop:
            return (*whole, None, None, None, None, None)
        rates = [self._of(self.flop, self.told_ns), self._of(self.bytes, self.told_ns)]
        return (*whole, self.flop, rates[0], self.bytes, rates[1], self._of(self.flop, self.bytes))

    @staticmethod
    def _of(part: int, whole: int) -> float | None:
        return part / whole if whole else None


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each operator, or for each of its shapes; the longest first."""
    from layerscope.analyse.gpu.matrix_operators import launched, shares

    sums: dict[tuple[str, ...], _OperatorSums] = {}
    for call in launched(reader):
        key = (call.name, call.shape) if by else (call.name,)
        of_key = sums.setdefault(key, _OperatorSums())
        of_key.calls += call.calls
        of_key.gpu_ns += call.gpu_ns
        of_key.tensor_core_ns += call.tensor_core_ns
        if call.each is not None:
            of_key.told_ns += call.gpu_ns
            of_key.flop += call.calls * call.each[0]
            of_key.bytes += call.calls * call.each[1]
    rows = [(*key, *of_key.row()) for key, of_key in _longest_first(sums)]
    columns = (COLUMNS[0], _SHAPE, *COLUMNS[1:]) if by else COLUMNS
    result = of_rows("roofline", columns, rows)
    if not rows:
        return result
    eligible, used = shares(reader)
    note = (
        f"Operators that could use tensor cores launched {percent(eligible)} of the time of "
        f"kernels; kernels that use them have {percent(used)}."
    )
    return replace(result, notes=(note,))


def _longest_first(
    sums: dict[tuple[str, ...], _OperatorSums],
) -> Iterator[tuple[tuple[str, ...], _OperatorSums]]:
    yield from sorted(sums.items(), key=lambda one: (-one[1].gpu_ns, one[0]))
