"""What an operator computes and moves, worked out of the shapes of its inputs: floating-point
operations, a multiplication and an addition being two, and the bytes of inputs and outputs, each
counted once. Less cannot be moved; a kernel moves more where its cache is too small.

For products of matrices, convolutions and their gradients; None for all else, and where a shape or
the stride that it takes is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from msgspec import Struct

from layerscope.model.stored_json import decoded

Shapes = Sequence[Sequence[int]]
_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip


class Arithmetic(Struct, frozen=True):
    """Of one call of an operator: its operations, and the elements that it reads and writes."""

    flop: int
    elements: int


def arithmetic(name: str, arguments: str | None) -> tuple[int, int] | None:
    """Operations and bytes of a call of this operator, in whichever library, with these
    arguments.
    """
    rule = _RULES.get(name.rpartition("::")[2])
    if rule is None or arguments is None:
        return None
    try:
        told = decoded(arguments.encode(), dict[str, Any])
        shapes = [tuple(shape or ()) for shape in told["shapes"]]
        found = rule(shapes, told.get("Concrete Inputs") or [])
        types = map(str, told["dtypes"])
        each = next(_BYTES[one] for one in types if one in _BYTES)
    except (ValueError, KeyError, TypeError, IndexError, StopIteration):
        return None
    if found is None:
        return None
    return found.flop, found.elements * each


def _product(shapes: Shapes, left: int) -> Arithmetic | None:
    """Of two matrices, or of two stacks of them: the inputs `left` and the one behind it."""
    *stack, rows, inner = shapes[left]
    *other, again, columns = shapes[left + 1]
    if stack != other or inner != again:
        return None
    many = prod(stack)
    read = rows * inner + inner * columns
    elements = many * (read + rows * columns)
    products = many * rows * inner * columns
    return Arithmetic(2 * products, elements)


def _mm(shapes: Shapes, _: Sequence[str]) -> Arithmetic | None:
    return _product(shapes, 0)


def _addmm(shapes: Shapes, _: Sequence[str]) -> Arithmetic | None:
    return _product(shapes, 1)


def _convolved(image: Sequence[int], weight: Sequence[int], out: Sequence[int]) -> Arithmetic:
    """A convolution of images (number, channels, sizes) with a weight (channels of the result,
    channels of a group, sizes), or one of its two gradients, which take as much.
    """
    number, channels = out[0], weight[0]
    each = prod(weight[1:])
    flop = 2 * number * channels * each * prod(out[2:])
    return Arithmetic(flop, prod(image) + prod(weight) + prod(out))


def _sizes(text: str, dimensions: int) -> list[int]:
    """`[1, 1]`, or one number for all dimensions."""
    found = [int(word) for word in text.strip("[]() ").split(",")]
    return found * dimensions if len(found) == 1 else found


def _forward(stride: int, padding: int, dilation: int, transposed: int | None = None) -> Any:
    """A rule for a convolution whose stride, padding and dilation are these inputs."""

    def rule(shapes: Shapes, concrete: Sequence[str]) -> Arithmetic | None:
        image, weight, *_ = shapes
        dimensions = len(image) - 2
        if transposed is not None and concrete[transposed] != "False":
            return None
        steps, around, apart = (
            _sizes(concrete[at], dimensions) for at in (stride, padding, dilation)
        )
        out = [image[0], weight[0]]
        for at in range(dimensions):
            covered = apart[at] * (weight[at + 2] - 1) + 1
            room = image[at + 2] + 2 * around[at] - covered
            out.append(room // steps[at] + 1)
        return _convolved(image, weight, out)

    return rule


def _backward(shapes: Shapes, concrete: Sequence[str]) -> Arithmetic | None:
    """Gradients of the input and of the weight, those of them that are asked for."""
    out, image, weight = shapes[:3]
    asked = concrete[-1].strip("[]").split(",")
    many = sum(word.strip() == "True" for word in asked[:2])
    one = _convolved(image, weight, out)
    return Arithmetic(many * one.flop, many * one.elements)


_RULES: dict[str, Callable[[Shapes, Sequence[str]], Arithmetic | None]] = {
    "mm": _mm,
    "bmm": _mm,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addmm_": _addmm,
    "cudnn_convolution": _forward(stride=3, padding=2, dilation=4),
    "miopen_convolution": _forward(stride=4, padding=3, dilation=5),
    "_convolution": _forward(stride=3, padding=4, dilation=5, transposed=6),
    "convolution": _forward(stride=3, padding=4, dilation=5, transposed=6),
    "convolution_backward": _backward,
}
