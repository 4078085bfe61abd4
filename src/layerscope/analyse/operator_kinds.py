"""Which kind of work an operator is, by its name and by the primitives below it."""

from __future__ import annotations

import re

from msgspec import Struct

from layerscope.analyse.kind_names import (
    _CONVOLUTION,
    _ONEDNN_PRODUCT,
    _OTHER_MKL,
    _OTHER_ONEDNN,
    _REORDER,
    MKL_PRODUCT,
)
from layerscope.model.frameworks import backends_of, products

_CONVOLUTIONS = ("convolution", "deconvolution")
_MATRIX_PRODUCTS = ("matmul", "inner_product", "gemm", "gemm_api", "brgemm", "sparse_gemm")


def worker_of(name: str, blas: str) -> str:
    """Who does the work of an operator that asked for no primitive; empty where its name does not
    say.
    """
    if name in products():
        return blas
    backends = backends_of(name)
    if backends is None:
        return ""
    has_primitive = re.search(backends.has_primitive or "(?!)", name)
    calls_others = re.match(backends.calls_others or "(?!)", name)
    if has_primitive and not calls_others:
        return f"{backends.title} (oneDNN not used)"
    return backends.title


class Primitive(Struct, frozen=True):
    """What a primitive is; `implementation` is empty where it is not told."""

    library: str
    kind: str
    implementation: str
    is_creation: bool

    @property
    def work(self) -> int:
        """The kind of work."""
        if self.library == "MKL":
            return MKL_PRODUCT if self.kind in _MATRIX_PRODUCTS else _OTHER_MKL
        if self.is_creation:
            return _OTHER_ONEDNN
        if self.kind == "reorder":
            return _REORDER
        if self.kind in _CONVOLUTIONS:
            return _CONVOLUTION
        return _ONEDNN_PRODUCT if self.kind in _MATRIX_PRODUCTS else _OTHER_ONEDNN

    @property
    def what(self) -> str:
        """How it is called below an operator."""
        if self.is_creation:
            return "creation"
        if self.work == _REORDER:
            return "reorders"
        return f"{self.library} {self.implementation}".rstrip()

    @property
    def text(self) -> str:
        """How it is called by itself."""
        creation = ""
        if self.is_creation:
            creation = "creation of "
        implementation = self.implementation
        if self.library == "MKL":
            implementation = "MKL"
        return f"{creation}{self.kind} {implementation}".rstrip()


UNKNOWN = Primitive("oneDNN", "primitive", "", False)
