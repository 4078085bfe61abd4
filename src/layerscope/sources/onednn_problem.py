"""What oneDNN or MKL tells about one call, as one text, taken apart into its fields.

The text is what oneDNN hands to ITT, and what stands in a line of its verbose log between the
operation and the time: `engine,primitive,implementation,prop_kind,memory
descriptors,attributes,auxiliary,problem`. Version 1.0 has no column of attributes, the versions
before it no engine either; `gemm_api` of 2.7 has no auxiliary column. Of MKL it is the call itself:
`SGEMM(T,N,128,32,128,...)`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import NamedTuple

from msgspec import Struct

from layerscope.sources import mkl_call

# Bits of an element by the library's name of its type; `undef` is a tensor that is not there.
BITS = {
    "f64": 64,
    "f32": 32,
    "s32": 32,
    "s64": 64,
    "bf16": 16,
    "f16": 16,
    "s8": 8,
    "u8": 8,
    "boolean": 8,
    "e8m0": 8,
    "f8_e5m2": 8,
    "f8_e4m3": 8,
    "s4": 4,
    "u4": 4,
    "f4_e2m1": 4,
    "f4_e3m0": 4,
    "undef": 0,
}
_ENGINE = re.compile(r"(?:cpu|gpu|any)(?:2(?:cpu|gpu))?(?::[0-9]+)?")
_OLD_TENSOR = re.compile(rf"(.+)_({'|'.join(BITS)})")
# Sizes of nineteen digits and more are no sizes.
_NUMBER = re.compile(r"([a-z]+)(-?[0-9]{1,18})(?![0-9])")
_DIMENSIONS = re.compile(r"[0-9]{1,18}(?:x[0-9]{1,18})*")
_LARGEST = 2**63 - 1
_GATES = {
    "vanilla_rnn": 1,
    "vanilla_lstm": 4,
    "vanilla_gru": 3,
    "lbr_gru": 3,
    "vanilla_augru": 3,
    "lbr_augru": 3,
}
# Convolutions and pooling reach over these; depth and height are absent where there are fewer
# dimensions.
_AXES = ("d", "h", "w")


class OnednnProblem(Struct, frozen=True):
    """The fields of one text; "" or None where the text does not tell.

    `library`: oneDNN or MKL, "" when it is a text of neither. `dtype`: the type of source, weights
    and destination, or one after the other where they differ: f32, u8s8f32. `formats`: layouts,
    without bias and workspace; of a reorder `abcd -> Acdb16a`, else `src:acdb wei:Acdb64a
    dst:acdb`. `flop`: see `_flop`. `bytes`: see `_bytes`. Of MKL `algorithm` is the name of the
    routine, and `problem` its arguments without addresses.
    """

    library: str = ""
    engine: str = ""
    primitive_kind: str = ""
    implementation: str = ""
    prop_kind: str = ""
    dtype: str = ""
    formats: str = ""
    attributes: str = ""
    algorithm: str = ""
    problem: str = ""
    flop: int | None = None
    bytes: int | None = None


class Tensor(NamedTuple):
    """One memory descriptor: `name` as src or wei, `dtype` as f32 ("" where the version does not
    say), its layout.
    """

    name: str
    dtype: str
    layout: str


def parse(text: str) -> OnednnProblem:
    """The fields of `text`; an empty `OnednnProblem` for a text of neither library. Takes any
    text.
    """
    call = mkl_call.parse(text)
    if call is not None:
        return OnednnProblem(
            "MKL",
            "cpu",
            call.kind,
            dtype=call.dtype,
            algorithm=call.routine,
            problem=call.problem,
            flop=_fitting(call.flop),
            bytes=_fitting(call.bytes),
        )
    fields = text.split(",")
    if _ENGINE.fullmatch(fields[0]):
        return (
            _partition(fields) if len(fields) > 1 and fields[1].isdecimal() else _primitive(fields)
        )
    return _primitive(["", *fields]) if len(fields) >= 6 else OnednnProblem()


def name_of(text: str) -> str:
    """What a span of `text` is called: the kind of primitive, the kind of partition, or the routine
    of MKL.
    """
    first, kind, third = (*text.split(",", 3), "", "")[:3]
    if "(" in first:
        call = mkl_call.parse(text)
        return call.routine if call else first
    if first != "cpu" and not _ENGINE.fullmatch(first):
        return first
    return third if kind.isdecimal() else kind


def _primitive(fields: list[str]) -> OnednnProblem:
    """Of a primitive, `fields` with the engine."""
    # An old text may have commas among its descriptors; everything after them is counted from the
    # end.
    surplus = max(len(fields) - 8, 0) if fields[0] else max(len(fields) - 7, 0)
    descriptors, tail = ",".join(fields[4 : 5 + surplus]), fields[5 + surplus :]
    engine, kind, implementation, prop_kind = (fields + [""] * 3)[:4]
    if len(tail) == 2:
        # 1.0 has no column of attributes; `gemm_api` of 2.7 has no auxiliary one.
        tail = [tail[0], "", tail[1]] if kind == "gemm_api" else ["", *tail]
    attributes, algorithm, problem = (tail + [""] * 3)[:3]
    tensors, dtype, formats = _tensors(descriptors)
    sizes = _sizes(kind, problem)
    return OnednnProblem(
        "oneDNN",
        engine,
        kind,
        implementation,
        prop_kind,
        dtype,
        formats.replace(" dst:", " -> ").removeprefix("src:") if kind == "reorder" else formats,
        attributes.strip(),
        algorithm,
        problem,
        _fitting(_flop(kind, prop_kind, algorithm, problem, sizes)),
        _fitting(_bytes(kind, prop_kind, tensors, sizes)),
    )


def _fitting(count: int | None) -> int | None:
    """`count`, unless it does not fit the tables."""
    if count is None or count > _LARGEST:
        return None
    return count


def _partition(fields: list[str]) -> OnednnProblem:
    """Of a partition of a graph: `algorithm` are its operations, `problem` the shapes of its
    tensors.
    """
    engine, _, kind, operations, formats, tensors, *rest = fields + [""] * 6
    shapes = [tensor.split(":") for tensor in tensors.split()]
    told = [f"{shape[0].partition('_')[0]}:{shape[4]}" for shape in shapes if len(shape) > 4]
    dtypes = dict.fromkeys(shape[0].partition("_")[2] for shape in shapes)
    # Since 3.13 the size of the scratchpad stands there too, as `scratchpad:4096` or as a bare
    # number.
    rest = [word for word in rest if word and not word.isdecimal()]
    modes = " ".join(word for word in rest if word.startswith(("fpm:", "scratchpad:")))
    implementation = next(
        (word for word in rest[:-1] if not word.startswith(("fpm:", "scratchpad:"))), ""
    )
    return OnednnProblem(
        "oneDNN",
        engine,
        kind,
        implementation,
        "",
        "".join(dtypes),
        formats.strip(),
        modes,
        operations,
        " ".join(told),
    )


@lru_cache(maxsize=4096)
def _tensors(descriptors: str) -> tuple[tuple[Tensor, ...], str, str]:
    """The tensors of a column of descriptors, their types in one word, and their layouts."""
    tensors = tuple(_tensor(text) for text in descriptors.split())
    layouts = []
    for tensor in tensors:
        is_minor = tensor.name.startswith(("bia", "ws"))
        if not is_minor and tensor.layout not in ("", "undef", "x"):
            layouts.append(f"{tensor.name}:{tensor.layout}")
    return tensors, _types(tensors), " ".join(layouts)


def _types(tensors: tuple[Tensor, ...]) -> str:
    """The types of sources, weights and results: once where they are all the same."""
    first: dict[str, str] = {}
    for tensor in tensors:
        role = _role(tensor.name)
        if role is not None and tensor.dtype not in ("", "undef"):
            first.setdefault(role, tensor.dtype)
    types = list(first.values())
    if len(set(types)) == 1:
        return types[0]
    return "".join(types)


def _role(name: str) -> str | None:
    """None for what says nothing about the type of the computation."""
    for role in ("src", "wei", "dst"):
        if name.startswith(role):
            return role
    return name if name == "data" else None


def _tensor(text: str) -> Tensor:
    """One descriptor of any version.

    `fsrc:nchw` and `in:f32_oihw` before 1.0, `src_f32::blocked:abcd:f0` until 3.5,
    `src:f32::blocked:abcd::f0` since.
    """
    parts = text.split(":")
    old = _OLD_TENSOR.fullmatch(parts[0])
    if old:
        return Tensor(old[1], old[2], _layout(parts[2:]))
    if len(parts) > 3:
        return Tensor(parts[0], parts[1], _layout(parts[3:]))
    name, layout = parts[0], parts[1] if len(parts) > 1 else ""
    dtype, _, tag = layout.partition("_")
    if name in ("in", "out"):
        return Tensor(
            "src" if name == "in" else "dst", dtype if dtype in BITS else "", tag if tag else layout
        )
    return Tensor(name.removeprefix("f"), "", layout)


def _layout(parts: list[str]) -> str:
    """From `kind:tag:...`: the tag, or the kind where there is none (`wino`, `csr`, `any`)."""
    kind, *others = parts or [""]
    tag = others[0] if others else ""
    return tag or kind


class _Sizes(NamedTuple):
    """Numbers of elements of the tensors of a problem, and the number of its multiplications (0:
    not told).
    """

    src: int
    wei: int
    bia: int
    dst: int
    products: int


def _sizes(kind: str, problem: str) -> _Sizes | None:
    """How large the tensors of a problem are; None where the text does not say or nobody knows how
    to read it.
    """
    if kind in ("convolution", "deconvolution", "inner_product") or kind.startswith("pooling"):
        return _windowed_sizes(kind, _named_sizes(problem))
    if kind in ("matmul", "gemm_api", "gemm"):
        return _product_sizes(problem)
    parts = problem.split(":")
    if not all(_DIMENSIONS.fullmatch(part) for part in parts):
        return _elementwise_sizes(problem)
    if len(parts) > 1 and kind != "binary":
        return None
    first, *others = map(_shape, parts)
    if not others:
        return _Sizes(prod(first), 0, 0, prod(first), 0)
    # Of a binary one either source may be repeated along a dimension of the other.
    second = others[0]
    result = map(max, first, second)
    return _Sizes(prod(first), prod(second), 0, prod(result), 0)


def _named_sizes(problem: str) -> dict[str, int]:
    """The sizes in a problem by their names."""
    sizes = {}
    for name, digits in _NUMBER.findall(problem):
        sizes[name] = int(digits)
    return sizes


def _shape(dimensions: str) -> list[int]:
    """Such as `64x128`."""
    sizes = dimensions.split("x")
    return [int(size) for size in sizes]


def _elementwise_sizes(problem: str) -> _Sizes | None:
    """Of as many elements as `mb2ic16ih8iw8` says."""
    numbers = _NUMBER.findall(problem)
    names = {name for name, _ in numbers}
    if not names or not names <= {"mb", "ic", "id", "ih", "iw"}:
        return None
    elements = prod(int(value) for _, value in numbers)
    return _Sizes(elements, 0, 0, elements, 0)


def _windowed_sizes(kind: str, told: dict[str, int]) -> _Sizes | None:
    """Of a convolution, a pooling or an inner product from what is told: mb, g, ic, oc, ih, oh, kh,
    ...
    """
    batch, groups, inputs = told.get("mb", 0), told.get("g", 1), told.get("ic", 0)
    outputs = told.get("oc", inputs if kind.startswith("pooling") else 0)
    if min(batch, groups, inputs, outputs) <= 0:
        return None
    before = prod(told.get("i" + axis, 1) for axis in _AXES)
    after = prod(told.get("o" + axis, 1) for axis in _AXES)
    # The kernel of an inner product covers its whole input.
    window = before if kind == "inner_product" else prod(told.get("k" + axis, 1) for axis in _AXES)
    weights = outputs * (inputs // groups) * window
    positions = before if kind == "deconvolution" else after
    return _Sizes(
        batch * inputs * before,
        weights,
        outputs,
        batch * outputs * after,
        batch * positions * weights,
    )


def _product_sizes(problem: str) -> _Sizes | None:
    """Of a matrix product: `64x128:128x32`, with leading dimensions for a batch, or
    `m64n32k128`.
    """
    parts = problem.split(":")
    if len(parts) >= 2 and all(_DIMENSIONS.fullmatch(part) for part in parts[:2]):
        return _batched_sizes(_shape(parts[0]), _shape(parts[1]))
    size = _named_sizes(problem)
    if not {"m", "n", "k"} <= size.keys():
        return None
    rows, columns, depth = size["m"], size["n"], size["k"]
    result = rows * columns
    return _Sizes(rows * depth, depth * columns, columns, result, result * depth)


def _batched_sizes(left: list[int], right: list[int]) -> _Sizes | None:
    if len(left) != len(right) or len(left) < 2:
        return None
    *left_batch, rows, depth = left
    *right_batch, right_rows, columns = right
    if depth != right_rows:
        return None
    batch = prod(map(max, left_batch, right_batch))
    result = batch * rows * columns
    return _Sizes(prod(left), prod(right), columns, result, result * depth)


def _flop(
    kind: str, prop_kind: str, algorithm: str, problem: str, sizes: _Sizes | None
) -> int | None:
    """Floating-point operations, a multiplication and an addition being two; None: no formula.

    Convolution: 2 x mb x oc x ic/g x kernel x output positions, products with padding included;
    deconvolution the same with input positions; inner product 2 x mb x oc x ic x input positions;
    matrix product 2 x M x N x K x batch. Backward by data and by weights are each as many as
    forward. Bias and post-ops are not counted. Recurrent networks: 2 x layers x directions x time x
    mb x gates x dhc x (slc + sic), with a projection + dhc x dic; backward twice that, as it is by
    data and by weights. Binary: one for an element. Anything else has none.
    """
    if kind == "rnn":
        return _recurrent_flop(prop_kind, algorithm, problem)
    if sizes is None:
        return None
    if kind == "binary":
        return sizes.dst
    if kind in ("convolution", "deconvolution", "inner_product", "matmul", "gemm_api", "gemm"):
        return 2 * sizes.products
    return None


def _recurrent_flop(prop_kind: str, algorithm: str, problem: str) -> int | None:
    size = _named_sizes(problem)
    name, _, _ = algorithm.removeprefix("alg:").partition(" ")
    gates = _GATES.get(name)
    hidden = size.get("dhc", size.get("dic"))
    is_complete = {"l", "t", "mb", "slc", "sic"} <= size.keys()
    if gates is None or hidden is None or not is_complete:
        return None
    directions = size.get("d", 2 if "bidirectional" in algorithm else 1)
    projection = size.get("dic", hidden)
    is_projected = "dhc" in size and projection != hidden
    projected = projection * hidden if is_projected else 0
    cells = size["l"] * directions * size["t"] * size["mb"]
    inputs = size["slc"] + size["sic"]
    per_cell = gates * hidden * inputs + projected
    passes = 2 if prop_kind.startswith("backward") else 1
    return 2 * cells * per_cell * passes


def _bytes(
    kind: str, prop_kind: str, tensors: tuple[Tensor, ...], sizes: _Sizes | None
) -> int | None:
    """Bytes of source, weights, bias and destination, each once and without the padding of blocked
    layouts.

    Of elementwise primitives, whose source and destination are one `data`, both; backward `diff` is
    both read and written. None where a size or a type is not told, as where another convolution is
    fused into one. Statistics, workspace and scratchpad are left out.
    """
    if sizes is None or kind in ("rnn", "concat", "sum", "reduction", "resampling"):
        return None
    bits = 0
    for at, (name, dtype, _) in enumerate(tensors):
        if dtype not in BITS or "_fused" in name:
            return None
        if name == "data":
            elements = sizes.src if prop_kind.startswith("backward") else sizes.src + sizes.dst
        elif name == "diff":
            elements = sizes.src + sizes.dst
        elif at == 1 and kind in ("binary", "gemm"):  # both sources have one name
            elements = sizes.wei
        else:
            role = name.removeprefix("diff_")[:3]
            elements = {"src": sizes.src, "wei": sizes.wei, "bia": sizes.bia, "dst": sizes.dst}.get(
                role, 0
            )
        bits += elements * BITS[dtype]
    return bits // 8 or None
