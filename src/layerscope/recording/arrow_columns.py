"""Columns between NumPy and Arrow, where a number below zero or no text is null.

Arrow's own functions for that are in pyarrow.compute, which takes 35 ms to import, and
`pyarrow.array` imports numpy.ma, which takes 30 ms: too much for the recording of a short program.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def arrow_array(values: np.ndarray, is_known: np.ndarray | None = None) -> pa.Array:
    """Numbers as Arrow has them, in the memory of `values` where it has them so too; null where
    `is_known` is false.
    """
    bitmap = None
    if is_known is not None and not is_known.all():
        bitmap = _bits(is_known)
    content = _bits(values) if values.dtype == np.bool_ else np.ascontiguousarray(values)
    buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in (bitmap, content)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def _bits(values: np.ndarray) -> np.ndarray:
    return np.packbits(values, bitorder="little")


def coded_texts(places: np.ndarray, texts: list[str]) -> pa.DictionaryArray:
    """A dictionary array of the texts at these int32 places; -1 is null."""
    indices = arrow_array(places, places >= 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def texts_of(data: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """A column of texts as int32 places in an array of them; -1 for null."""
    merged = data.unify_dictionaries().combine_chunks()
    chunks = merged.chunks if isinstance(merged, pa.ChunkedArray) else [merged]
    if not chunks:
        return np.zeros(0, np.int32), np.zeros(0, object)
    (chunk,) = chunks
    texts = chunk.dictionary.to_numpy(zero_copy_only=False)
    return _numbers_of_chunk(chunk.indices), texts


def numbers_of(data: pa.ChunkedArray) -> np.ndarray:
    """A column of integers; -1 for null."""
    parts = [_numbers_of_chunk(chunk) for chunk in data.chunks]
    if len(parts) == 1:
        return parts[0]
    nothing = np.zeros(0, data.type.to_pandas_dtype())
    return np.concatenate([nothing, *parts])


def _numbers_of_chunk(chunk: pa.Array) -> np.ndarray:
    bitmap, content = chunk.buffers()
    behind = chunk.offset + len(chunk)
    kind = np.dtype(chunk.type.to_pandas_dtype())
    if content is None:
        return np.zeros(0, kind)
    values = np.frombuffer(content, kind, behind)[chunk.offset :]
    if not chunk.null_count:
        return values
    bits = np.frombuffer(bitmap, np.uint8)
    is_known = np.unpackbits(bits, count=behind, bitorder="little")[chunk.offset :]
    return np.where(is_known, values, kind.type(-1))
