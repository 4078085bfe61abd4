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

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

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
    from layerscope.analyse.gpu.matrix_operators import MatrixCalls
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


class _OperatorSums(Struct):
    """Of an operator, or of one of its shapes; `told_ns`: of the calls with known shapes."""

    calls: int = 0
    gpu_ns: int = 0
    tensor_core_ns: int = 0
    told_ns: int = 0
    flop: int = 0
    bytes: int = 0

    def add(self, call: MatrixCalls) -> None:
        """Calls with the same arguments."""
        self.calls += call.calls
        self.gpu_ns += call.gpu_ns
        self.tensor_core_ns += call.tensor_core_ns
        if call.each is None:
            return
        flop, size = call.each
        self.told_ns += call.gpu_ns
        self.flop += call.calls * flop
        self.bytes += call.calls * size

    def row(self) -> tuple[Any, ...]:
        """As a row of the table, without what it is of."""
        on_tensor_cores = _part(self.tensor_core_ns, self.gpu_ns)
        whole = (self.calls, self.gpu_ns, on_tensor_cores)
        if not self.flop:
            nothing = [None] * 5
            return (*whole, *nothing)
        flop_rate = _part(self.flop, self.told_ns)
        byte_rate = _part(self.bytes, self.told_ns)
        intensity = _part(self.flop, self.bytes)
        return (*whole, self.flop, flop_rate, self.bytes, byte_rate, intensity)


def _part(of: int, whole: int) -> float | None:
    return of / whole if whole else None


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each operator, or for each of its shapes; the longest first."""
    from layerscope.analyse.gpu.matrix_operators import launched, shares

    sums: dict[tuple[str, ...], _OperatorSums] = {}
    for call in launched(reader):
        key = (call.name, call.shape) if by else (call.name,)
        of_key = sums.setdefault(key, _OperatorSums())
        of_key.add(call)
    longest_first = sorted(sums, key=lambda key: (-sums[key].gpu_ns, key))
    rows = [(*key, *sums[key].row()) for key in longest_first]
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
