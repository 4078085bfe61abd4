"""Masks what must not leave the head of its owner: passwords and keys on a command line.

Masked are the value of an option or NAME=VALUE whose name speaks of a secret, and the password in a
URL. The environment is not masked but listed: only variables that are named here are ever kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MASK = "***"
_SECRET_WORD = (
    r"(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|access[-_]?key|auth|credential)s?"
)
_NAMED = re.compile(rf"(?i)^(-{{0,2}}[\w.-]*{_SECRET_WORD}[\w.-]*=)(.+)$")
_OPTION = re.compile(rf"(?i)^--?[\w.-]*{_SECRET_WORD}[\w.-]*$")
_URL = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://[^/\s:@]+:)([^@\s/]+)(@)")

# What changes how fast a program runs, and what says which rank it is: beginnings that one library
# alone uses, and whole names where others use the same beginning (Terraform has TF_VAR_ and
# TF_CLI_). Nothing else is kept.
_BEGINNINGS = (
    "ATEN_",
    "BLIS_",
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "GOMP_",
    "JAX_",
    "KMP_",
    "MALLOC_",
    "MKLDNN_",
    "MKL_",
    "MXNET_",
    "NCCL_",
    "NPY_",
    "NUMEXPR_",
    "OMPI_COMM_WORLD_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "TBB_",
    "VECLIB_",
    "XLA_",
)
_NAMES = frozenset(
    (
        "CONDA_PREFIX",
        "GLIBC_TUNABLES",
        "GROUP_RANK",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "PMIX_RANK",
        "PMI_LOCAL_RANK",
        "PMI_LOCAL_SIZE",
        "PMI_RANK",
        "PMI_SIZE",
        "PYTHONHASHSEED",
        "PYTHONOPTIMIZE",
        "RANK",
        "SLURM_JOB_ID",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_NTASKS",
        "SLURM_PROCID",
        "SLURM_STEP_ID",
        "TF_CPP_MAX_VLOG_LEVEL",
        "TF_CPP_MIN_LOG_LEVEL",
        "TF_CUDNN_DETERMINISTIC",
        "TF_CUDNN_USE_AUTOTUNE",
        "TF_DETERMINISTIC_OPS",
        "TF_DISABLE_MKL",
        "TF_ENABLE_ONEDNN_OPTS",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_GPU_ALLOCATOR",
        "TF_GPU_THREAD_COUNT",
        "TF_GPU_THREAD_MODE",
        "TF_NUM_INTEROP_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_USE_LEGACY_KERAS",
        "TF_XLA_FLAGS",
        "VIRTUAL_ENV",
        "WORLD_SIZE",
    )
)


def mask(argv: Sequence[str]) -> list[str]:
    """`argv` with every secret replaced by `***`."""
    masked = []
    hide_next = False
    for word in argv:
        if hide_next and not word.startswith("-"):
            masked.append(MASK)
            hide_next = False
            continue
        hide_next = bool(_OPTION.match(word))
        word = _NAMED.sub(rf"\1{MASK}", word)
        masked.append(_URL.sub(rf"\1{MASK}\3", word))
    return masked


def kept_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the variables that a recording may keep, the beginnings of names, and whole names."""
    # Not above: inside of a program this file is read alone, for its masks.
    from layerscope.model.frameworks import frameworks

    beginnings = list(_BEGINNINGS)
    for framework in frameworks():
        beginnings += framework.environment
    return tuple(beginnings), tuple(sorted(_NAMES))


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environment` that a recording may keep."""
    beginnings, names = kept_names()
    chosen = {
        name: value
        for name, value in environment.items()
        if name in names or name.startswith(beginnings)
    }
    return {name: value for name, value in sorted(chosen.items()) if not _OPTION.match(f"--{name}")}
