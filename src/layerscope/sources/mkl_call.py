"""One call of MKL as MKL_VERBOSE writes it, `SGEMM(T,N,128,32,128,0x7ff..,...)`, taken apart."""

from __future__ import annotations

import re

from msgspec import Struct

_CALL = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\((.*)\)", re.DOTALL)
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\(nil\)|NULL")
_DESCRIPTOR = re.compile(r",?desc:0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[0-9]{1,18}")
_TYPES = {"S": "f32", "D": "f64", "C": "c32", "Z": "c64", "H": "f16"}
_ELEMENT_BYTES = {
    "f32": 4,
    "f64": 8,
    "c32": 8,
    "c64": 16,
    "f16": 2,
    "bf16": 2,
    "s8": 1,
    "u8": 1,
    "s16": 2,
    "s32": 4,
}
_ONE_TYPE = re.compile("BF16|F16|F32|S8|U8|S16|S32")
_GEMM = re.compile(r"[SDCZH]GEMM.*|GEMM_.*")
# Those that multiply two matrices whose sizes they are told: no batches, triangles or packing.
_PRODUCT = re.compile(
    rf"(?:[SDCZH]GEMM(?:3M)?|GEMM_((?:{_ONE_TYPE.pattern}){{3}}))(?:_COMPUTE|_DIRECT)?"
)
# LAPACK's names: the type, two letters for the kind of matrix, then what is done with it; some of
# BLAS look alike.
_LAPACK = re.compile(
    r"[SDCZ](?:GE|GB|GT|GG|PO|PB|PT|PP|SY|SP|SB|ST|HE|HB|HP|HS|OR|UN|TR|TB|TP|TG|BD|LA|DI)[A-Z0-9]{2,4}(?:_.*)?"
)
_BLAS = re.compile(
    r"[SDCZ](?:GE|GB|SY|SB|SP|HE|HB|HP|TR|TB|TP)(?:MM|MV|SM|R2|RK|R2K|RU|RC|MMT)(?:_.*)?|[SDCZ]T[RBP]SV"
)


class Call(Struct, frozen=True):
    """One call. `kind`: gemm, fft, lapack or other. `dtype`: f32, or bf16bf16f32 of a product of
    other types; c32 is complex of two f32. `problem`: its arguments without addresses.

    `flop`: 2 x M x N x K of one matrix product, 8 x M x N x K if it is complex; None of a batch,
    whose sizes lie behind addresses, and of everything else. `bytes`: of its three matrices, each
    once.
    """

    routine: str
    kind: str
    dtype: str
    problem: str
    flop: int | None = None
    bytes: int | None = None


def parse(text: str) -> Call | None:
    """The call in `text`; None when it is none."""
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    routine = match[1].upper().removeprefix("CBLAS_")
    told = [
        word for word in _DESCRIPTOR.sub("", match[2]).split(",") if not _ADDRESS.fullmatch(word)
    ]
    problem = ",".join(told)
    if _GEMM.fullmatch(routine):
        return _product(routine, told, problem)
    if routine.startswith(("FFT", "DFT")):
        return Call(routine, "fft", {"d": "f64", "s": "f32"}.get(problem[:1], ""), problem)
    kind = "lapack" if _LAPACK.fullmatch(routine) and not _BLAS.fullmatch(routine) else "other"
    return Call(routine, kind, _TYPES.get(routine[0], ""), problem)


def _product(routine: str, words: list[str], problem: str) -> Call:
    """A matrix product; `words`: its arguments that are no addresses."""
    types = _types_of_product(routine)
    distinct = set(types)
    dtype = types[0] if len(distinct) == 1 else "".join(types)
    sizes = [int(word) for word in words[:6] if _NUMBER.fullmatch(word)]
    is_known = len(types) == 3 and _PRODUCT.fullmatch(routine) is not None
    if len(sizes) < 3 or not is_known:
        return Call(routine, "gemm", dtype, problem)
    rows, columns, depth = sizes[:3]
    left_bytes, right_bytes, result_bytes = (_ELEMENT_BYTES[name] for name in types)
    moved_bytes = rows * depth * left_bytes
    moved_bytes += depth * columns * right_bytes
    moved_bytes += rows * columns * result_bytes
    # A complex multiplication and addition are eight operations on real numbers.
    per_element = 8 if dtype in ("c32", "c64") else 2
    flop = per_element * rows * columns * depth
    return Call(routine, "gemm", dtype, problem, flop, moved_bytes)


def _types_of_product(routine: str) -> list[str]:
    """The types of the left and the right matrix and of the result."""
    if routine.startswith("GEMM_"):
        _, _, types = routine.partition("_")
        mixed = _ONE_TYPE.findall(types)
        if mixed:
            return [name.lower() for name in mixed]
    letter = routine[0]
    of_all = _TYPES.get(letter, "")
    return [of_all, of_all, of_all]
