"""Libraries told apart by the names that distributions and wheels give them."""

from __future__ import annotations

import pytest

from layerscope.host import runtimes
from layerscope.host.runtimes import ALLOCATOR, BLAS, CUDA, ONEDNN, OPENMP


@pytest.mark.parametrize(
    ("file", "kind", "name"),
    [
        ("libgomp.so.1", OPENMP, "libgomp"),
        ("libgomp.so.1.0.0", OPENMP, "libgomp"),
        ("libgomp-a34b3233.so.1", OPENMP, "libgomp"),
        ("libgomp-a34b3233.so.1.0.0", OPENMP, "libgomp"),
        ("libiomp5.so", OPENMP, "libiomp5"),
        ("libomp.so.5", OPENMP, "libomp"),
        ("libomp-e9212f90.so.5", OPENMP, "libomp"),
        ("libopenblas.so.0", BLAS, "OpenBLAS"),
        ("libopenblasp-r0.3.21.so", BLAS, "OpenBLAS"),
        ("libopenblasp-r0-f650aae0.3.3.so", BLAS, "OpenBLAS"),
        ("libopenblas64_p-r0-0cf96a72.3.23.dev.so", BLAS, "OpenBLAS"),
        ("libscipy_openblas64_-ff651d7f.so", BLAS, "OpenBLAS"),
        ("libmkl_rt.so.2", BLAS, "MKL"),
        ("libmkl_avx512.so.2", BLAS, "MKL"),
        ("libblis.so.4", BLAS, "BLIS"),
        ("libblis-mt.so.4.2.1", BLAS, "BLIS"),
        ("libtatlas.so.3", BLAS, "ATLAS"),
        ("libatlas.so.3.10.3", BLAS, "ATLAS"),
        ("libblas.so.3.11.0", BLAS, "reference BLAS"),
        ("libdnnl.so.3.5", ONEDNN, "oneDNN"),
        ("libmkldnn.so.0", ONEDNN, "oneDNN"),
        ("libjemalloc.so.2", ALLOCATOR, "jemalloc"),
        ("libjemalloc-cb7b0d13.so.2", ALLOCATOR, "jemalloc"),
        ("libtcmalloc.so.4", ALLOCATOR, "tcmalloc"),
        ("libtcmalloc_minimal.so.4.5.9", ALLOCATOR, "tcmalloc"),
        ("libmimalloc.so.2.1", ALLOCATOR, "mimalloc"),
        ("libmimalloc-secure.so.2.0", ALLOCATOR, "mimalloc"),
        ("libc.so.6", ALLOCATOR, "glibc"),
        ("libc-2.31.so", ALLOCATOR, "glibc"),
        ("ld-musl-x86_64.so.1", ALLOCATOR, "musl"),
        ("libcudart.so.12.4.127", CUDA, "CUDA runtime"),
        ("libcudart-d0da41ae.so.11.0", CUDA, "CUDA runtime"),
        ("libcublasLt.so.12", CUDA, "cuBLAS"),
        ("libcudnn_ops.so.9", CUDA, "cuDNN"),
        ("libnccl.so.2", CUDA, "NCCL"),
        ("libcuda.so.550.54.15", CUDA, "CUDA driver"),
    ],
)
def test_a_library_is_known_by_its_name(file: str, kind: str, name: str) -> None:
    path = f"/somewhere/with spaces/{file}"

    assert runtimes.told_apart([path]) == (runtimes.Runtime(kind, name, path),)


@pytest.mark.parametrize(
    "file",
    ["libtorch_cpu.so", "libgomp-plugin-nvptx.so.1", "libcrypt.so.1", "libcap.so.2", "libmkl.txt", "libompt.so",
     "python3.11", "libgompx.so", "", "libcurl.so.4", "libcusomething.so"],
)  # fmt: skip
def test_others_are_not(file: str) -> None:
    assert runtimes.told_apart([f"/lib/{file}"]) == ()


def test_two_copies_of_one_runtime_are_two_and_one_copy_named_twice_is_one() -> None:
    wheels = ["/a/torch/lib/libgomp.so.1", "/a/sklearn.libs/libgomp-a34b3233.so.1.0.0"]
    told = runtimes.told_apart([*wheels, wheels[0], "/lib/libc.so.6"])

    assert [one.path for one in runtimes.of_kind(told, OPENMP)] == sorted(wheels)


def test_an_allocator_in_front_of_the_c_library_serves() -> None:
    assert runtimes.allocator(runtimes.told_apart(["/lib/libc.so.6"])) == "glibc"
    assert (
        runtimes.allocator(runtimes.told_apart(["/lib/libc.so.6", "/lib/libtcmalloc.so.4"]))
        == "tcmalloc"
    )
    assert runtimes.allocator(runtimes.told_apart(["/bin/static"])) == ""
