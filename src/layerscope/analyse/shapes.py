"""The shapes of an operator's inputs, as `layerscope run --shapes` records them, in words.

A text of table `args` such as {"shapes": [[2, 3], null], "dtypes": ["float32", "int"]} is shown by
its tensors alone: float32[2, 3]. A list of tensors is in parentheses, a tensor whose sizes are no
numbers is float32[?], and what a long text had no room for is "...".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from layerscope.model.errors import UsageError
from layerscope.model.stored_json import decoded

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.recording.reader import Reader

_BEGIN = '{"shapes"'
NO_TENSORS = "no tensors"
NOT_KNOWN = "not known"
_WITHOUT = (
    "no layer recorded the shapes of inputs. Record them: layerscope run --shapes train.py, or "
    "with record_shapes=True of the framework's profiler"
)


def shape_texts(reader: Reader) -> pa.Table:
    """Two columns, `args` and `shape`: every key of arguments that hold shapes, with its words.

    UsageError when the recording has none.
    """
    import pyarrow as pa

    rows = reader.query(
        f"SELECT args, json FROM args WHERE starts_with(json, '{_BEGIN}')"
    ).to_pydict()
    if not rows["args"]:
        raise UsageError(f"operators cannot be shown by shape: {_why_without(reader)}")
    return pa.table(
        {
            "args": pa.array(rows["args"], pa.int64()),
            "shape": [words(text) for text in rows["json"]],
        }
    )


def words(text: str) -> str:
    """The tensors of one text of arguments."""
    try:
        recorded = decoded(text.encode(), dict[str, Any])
        shapes = recorded["shapes"]
        if shapes is None:
            return NOT_KNOWN
        # Ranges of NVTX tell the sizes alone.
        dtypes = recorded.get("dtypes", [""] * len(shapes))
        tensors = [_input(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    except (ValueError, KeyError, TypeError):
        return NOT_KNOWN
    if recorded.get("cut"):
        tensors.append("...")
    return ", ".join(tensor for tensor in tensors if tensor) or NO_TENSORS


def _input(shape: Any, dtype: Any) -> str:
    """One input in words; empty: it is no tensor."""
    if isinstance(dtype, list):
        inputs = []
        for pair in zip(shape, dtype, strict=True):
            words = _input(*pair)
            inputs.append(words or "None")
        return f"({', '.join(inputs)})"
    if shape is None:
        return ""
    sizes = ", ".join(map(str, shape))
    return f"{dtype}[{sizes}]"


def _why_without(reader: Reader) -> str:
    """Why there are no shapes."""
    rows = reader.query(
        "SELECT what, remedy FROM problems WHERE starts_with(code, 'shapes_') LIMIT 1"
    ).to_pylist()
    if not rows:
        return _WITHOUT
    what, remedy = rows[0]["what"], rows[0]["remedy"]
    return f"{what}. {remedy[:1].upper()}{remedy[1:]}"
