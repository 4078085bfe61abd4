"""Which libraries a process has mapped that decide how it uses the machine, by their file names
alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

OPENMP, BLAS, ONEDNN, ALLOCATOR, CUDA = "OpenMP", "BLAS", "oneDNN", "allocator", "CUDA"

# Between the name and `.so` there may be the version, or a hash of the copy that a wheel brought:
# auditwheel and its like put 8 digits there, as in libgomp-a34b3233.so.1.0.0.
_END = r"(-r?[\d.]+)?(-[0-9a-f]{8,})?\.so(\.[\d.]+)?"
_NAMES: tuple[tuple[str, str, str], ...] = (
    (OPENMP, "libgomp", r"libgomp"),
    (OPENMP, "libiomp5", r"libiomp5"),
    (OPENMP, "libomp", r"libomp5?"),
    (OPENMP, "libnvomp", r"libnvomp"),
    (BLAS, "OpenBLAS", r"lib(scipy_|flexi)?openblas[\w.-]*?"),
    (BLAS, "MKL", r"libmkl_\w+"),
    (BLAS, "BLIS", r"libblis(64)?(-mt)?"),
    (BLAS, "ATLAS", r"lib(s|t)?atlas"),
    (BLAS, "NVPL", r"libnvpl_blas_\w+"),
    (BLAS, "Arm Performance Libraries", r"libarmpl\w*"),
    (BLAS, "reference BLAS", r"libblas"),
    (ONEDNN, "oneDNN", r"lib(dnnl|onednn|mkldnn)"),
    (ALLOCATOR, "jemalloc", r"libjemalloc"),
    (ALLOCATOR, "tcmalloc", r"libtcmalloc(_\w+)?"),
    (ALLOCATOR, "mimalloc", r"libmimalloc(-\w+)?"),
    (ALLOCATOR, "tbbmalloc", r"libtbbmalloc(_proxy)?"),
    (CUDA, "CUDA driver", r"libcuda"),
    (CUDA, "CUDA runtime", r"libcudart"),
    (CUDA, "cuBLAS", r"libcublas(Lt)?"),
    (CUDA, "cuDNN", r"libcudnn(_\w+)?"),
    (CUDA, "NCCL", r"libnccl"),
    (CUDA, "CUPTI", r"libcupti"),
    (CUDA, "NVRTC", r"libnvrtc(-builtins)?"),
    (CUDA, "NVML", r"libnvidia-ml"),
    (CUDA, "CUDA library", r"libcu(fft|rand|solver|sparse|sparseLt|file|tensor)(Mg|w)?"),
)
_KNOWN = tuple((kind, name, re.compile(pattern + _END)) for kind, name, pattern in _NAMES)
_LIBC = re.compile(r"libc\.so\.6|libc-2\.\d+\.so")
_MUSL = re.compile(r"(ld-musl-|libc\.musl-).*\.so(\.1)?")


class Runtime(Struct, frozen=True):
    """A mapped library: its `kind` (OPENMP, BLAS, ONEDNN, ALLOCATOR, CUDA), its `name` for people,
    and where it lies.

    What is linked into another library is not seen: MKL and oneDNN in the wheels of frameworks are
    in the framework's own library.
    """

    kind: str
    name: str
    path: str


def told_apart(libraries: Iterable[str]) -> tuple[Runtime, ...]:
    """Those of `libraries` (paths of mapped files) that are a runtime, in the order of kinds, names
    and paths.

    Of allocators the last is the one of the C library, which serves where no other is in front of
    it.
    """
    found = [runtime for path in libraries if (runtime := _runtime(path))]
    kinds = (OPENMP, BLAS, ONEDNN, ALLOCATOR, CUDA)
    return tuple(
        sorted(
            set(found),
            key=lambda one: (
                kinds.index(one.kind),
                one.name in ("glibc", "musl"),
                one.name,
                one.path,
            ),
        )
    )


def of_kind(runtimes: Iterable[Runtime], kind: str) -> tuple[Runtime, ...]:
    """Those of one kind: of OpenMP more than one is more than one pool of threads, whatever their
    names.
    """
    return tuple(runtime for runtime in runtimes if runtime.kind == kind)


def allocator(runtimes: Iterable[Runtime]) -> str:
    """The name of the allocator that serves the process; empty where none is known (a static
    program).
    """
    return next((runtime.name for runtime in of_kind(runtimes, ALLOCATOR)), "")


def _runtime(path: str) -> Runtime | None:
    file = path.rpartition("/")[2]
    for kind, name, pattern in _KNOWN:
        if pattern.fullmatch(file):
            return Runtime(kind, name, path)
    if _LIBC.fullmatch(file):
        return Runtime(ALLOCATOR, "glibc", path)
    return Runtime(ALLOCATOR, "musl", path) if _MUSL.fullmatch(file) else None
