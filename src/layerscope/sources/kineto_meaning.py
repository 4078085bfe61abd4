"""What the names, the categories and the arguments of torch.profiler mean. Used by `kineto` and
`kineto_window`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from layerscope.model.frameworks import kind_of
from layerscope.model.layers import KINDS, PYTHON_CALL
from layerscope.model.stored_json import decoded

FUNCTION, BACKWARD, RANGE = (KINDS.index(kind) for kind in ("function", "backward", "range"))
OPTIMIZER, LOADER, EVENT = (KINDS.index(kind) for kind in ("optimizer", "loader", "event"))
KERNEL, MEMCPY, MEMSET = (KINDS.index(kind) for kind in ("kernel", "memcpy", "memset"))
LAUNCH, SYNC, RUNTIME = (KINDS.index(kind) for kind in ("launch", "sync", "runtime"))
# Kineto calls dtypes as C++ does.
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "bool": "bool",
    "signed char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "unsigned char": "uint8",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}
# What the autograd engine opens around a backward function, whose name follows.
ENGINE = "autograd::engine::evaluate_function: "
# The ranges of torch.profiler around each step, whose number follows.
STEP = "ProfilerStep#"
# By category, as it is written today and as it was in 2021. What is not here is an event.
KIND_OF_CATEGORY = {
    "cpu_op": FUNCTION,
    "Operator": FUNCTION,
    "user_annotation": RANGE,
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
    "cuda_sync": SYNC,
    "python_function": PYTHON_CALL,
    "Runtime": RUNTIME,
}
_RUNTIME = re.compile(r".*_(runtime|driver)")
_LAUNCHES = re.compile(r"(cuda|cu|hip)(\w*Launch|Memcpy|Memset|Module\w*Launch)\w*")
_WAITS = re.compile(r"(cuda|cu|hip)\w*Synchronize\w*")


def kind_of_category(category: str) -> int:
    """What events of a category are, an index into KINDS."""
    if _RUNTIME.fullmatch(category):
        return RUNTIME
    return KIND_OF_CATEGORY.get(category, EVENT)


def kind_of_call(name: str) -> int:
    """What a call of a runtime does."""
    if _WAITS.fullmatch(name):
        return SYNC
    return LAUNCH if _LAUNCHES.fullmatch(name) else RUNTIME


def kinds_of(
    name: np.ndarray,
    names: list[str],
    is_range: np.ndarray,
    forward_thread: np.ndarray,
    tid: np.ndarray,
) -> np.ndarray:
    """What each span is. Kineto keeps no scope: a backward function has a forward thread, or is the
    first in the engine's span of the same name.
    """
    own = np.array([_kind_of(text) for text in names], np.uint8)[name]
    is_named = is_range | (own != RANGE) | _are_steps(names)[name]
    kind = np.where(is_named, own, FUNCTION).astype(np.uint8)
    kind[~is_range & (forward_thread > 0)] = BACKWARD
    codes = {text: code for code, text in enumerate(names)}
    inner = np.array(
        [
            codes.get(text.removeprefix(ENGINE), -1) if text.startswith(ENGINE) else -1
            for text in names
        ]
    )
    if len(name) > 1:
        kind[1:][(inner[name[:-1]] == name[1:]) & (tid[:-1] == tid[1:])] = BACKWARD
    return kind


def _kind_of(text: str) -> int:
    """By a name that the framework itself gives."""
    kind = kind_of(text)
    return KINDS.index(kind) if kind else RANGE


def _are_steps(names: list[str]) -> np.ndarray:
    """Which of these names ranges around steps have."""
    found = [text.startswith(STEP) for text in names]
    return np.array(found, np.bool_)


def shape_text(shapes: bytes, types: bytes) -> str:
    """Both lists as JSON, with the names that torch gives its dtypes in Python."""
    try:
        sizes = decoded(shapes, list[Any])
        kinds = decoded(types, list[str])
    except ValueError:
        return json.dumps({"shapes": None})
    return json.dumps(tensors(sizes, kinds))


def tensors(sizes: list[Any], kinds: list[str]) -> dict[str, Any]:
    """Shapes and dtypes of inputs; of what is no tensor there is no shape."""
    missing = len(sizes) - len(kinds)
    kinds = kinds + [""] * missing
    of_tensors = []
    for size, kind in zip(sizes, kinds, strict=False):
        is_tensor = kind in DTYPES
        of_tensors.append(size if is_tensor else None)
    dtypes = [DTYPES.get(kind, kind or None) for kind in kinds]
    return {"shapes": of_tensors, "dtypes": dtypes}


def operator_arguments(text: str) -> str:
    """The arguments of an operator, JSON, with its inputs as layer `operators` has them."""
    try:
        found = decoded(text.encode(), dict[str, Any])
    except ValueError:
        return text
    sizes, kinds = found.pop("Input Dims", None), found.pop("Input type", [])
    if not isinstance(sizes, list):
        return text
    is_listed = isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds)
    inputs = tensors(sizes, kinds if is_listed else [])
    return json.dumps({**inputs, **found}, ensure_ascii=False)
