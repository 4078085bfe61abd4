"""Masks what must not leave the head of its owner: passwords and keys on a command line.

Masked are the value of an option or NAME=VALUE whose name speaks of a secret, and the password in a URL.
The environment is not masked but listed: only the variables of ENVIRONMENT are ever kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MASK = "***"
_SECRET_WORD = r"(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|access[-_]?key|auth|credential)s?"
_NAMED = re.compile(rf"(?i)^(-{{0,2}}[\w.-]*{_SECRET_WORD}[\w.-]*=)(.+)$")
_OPTION = re.compile(rf"(?i)^--?[\w.-]*{_SECRET_WORD}[\w.-]*$")
_URL = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://[^/\s:@]+:)([^@\s/]+)(@)")

# What changes how fast a program runs, and what says which rank it is. Nothing else is kept.
ENVIRONMENT = re.compile(
    r"^(OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|NUMEXPR|VECLIB|ONEDNN|DNNL|MKLDNN|ATEN|TORCH|PYTORCH|TORCHINDUCTOR|MXNET|JAX|XLA|TF|"
    r"CUDA|NCCL|MALLOC|GLIBC|TBB|NPY|OMPI_COMM_WORLD|PMI|PMIX|TORCHELASTIC|"
    r"SLURM_(PROCID|LOCALID|NTASKS|JOB_ID|NODEID|STEP))_?\w*$"
    r"|^(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|VIRTUAL_ENV|CONDA_PREFIX|PYTHONHASHSEED|PYTHONOPTIMIZE|"
    r"LD_PRELOAD|LD_LIBRARY_PATH)$"
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


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environment` that a recording may keep."""
    chosen = {name: value for name, value in environment.items() if ENVIRONMENT.match(name)}
    return {name: value for name, value in sorted(chosen.items()) if not _OPTION.match(f"--{name}")}
