"""The names of the kinds of work that a step is made of."""

from __future__ import annotations

(
    _CONVOLUTION,
    _ONEDNN_PRODUCT,
    MKL_PRODUCT,
    _REORDER,
    _OTHER_ONEDNN,
    _OTHER_MKL,
    BLAS,
    KERNEL,
    LOADER,
    REST,
) = range(10)
