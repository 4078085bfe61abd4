"""The operators that multiply matrices or convolve, with the kernels that they launched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from layerscope.analyse.gpu.arithmetic import arithmetic
from layerscope.analyse.gpu.tensor_cores import is_eligible, on_tensor_cores
from layerscope.analyse.shapes import words

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# Each kernel once, with the operator that launched it.
_KERNELS = f"""
    WITH operators AS (
        SELECT to_span AS span, min(from_span) AS operator
        FROM links WHERE kind = 'operator_gpu' GROUP BY to_span
    ), kernels AS (
        SELECT operators.operator, operator.name::VARCHAR AS name, operator.args,
               spans.dur_ns, {on_tensor_cores("spans.name::VARCHAR")} AS on_tensor_cores,
               coalesce({is_eligible("operator.name::VARCHAR")}, false) AS is_eligible
        FROM spans LEFT JOIN operators USING (span)
             LEFT JOIN spans AS operator ON operator.span = operators.operator
        WHERE spans.layer = 'gpu' AND spans.kind = 'kernel'
    )"""
_LAUNCHED = f"""{_KERNELS}
    SELECT name, any_value(args.json) AS arguments, count(DISTINCT operator) AS calls,
           sum(dur_ns)::BIGINT AS gpu_ns,
           coalesce(sum(dur_ns) FILTER (on_tensor_cores), 0)::BIGINT AS tensor_core_ns
    FROM kernels LEFT JOIN args USING (args) WHERE is_eligible
    GROUP BY name, args ORDER BY name, args"""
_SHARES = f"""{_KERNELS}
    SELECT coalesce(sum(dur_ns) FILTER (is_eligible) / sum(dur_ns), 0) AS eligible,
           coalesce(sum(dur_ns) FILTER (on_tensor_cores) / sum(dur_ns), 0) AS used
    FROM kernels"""


class MatrixCalls(Struct, frozen=True):
    """Calls of an operator with the same arguments. `each`: operations and bytes of one of them;
    None: not told.
    """

    name: str
    shape: str
    calls: int
    gpu_ns: int
    tensor_core_ns: int
    each: tuple[int, int] | None


def launched(reader: Reader) -> Iterator[MatrixCalls]:
    """Of all operators that could use tensor cores."""
    for row in reader.query(_LAUNCHED).to_pylist():
        told = row.pop("arguments")
        each = arithmetic(row["name"], told)
        yield MatrixCalls(**row, shape=words(told or ""), each=each)


def shares(reader: Reader) -> tuple[float, float]:
    """The part of the time of kernels that such operators launched, and that on tensor cores."""
    (row,) = reader.query(_SHARES).to_pylist()
    return row["eligible"], row["used"]
