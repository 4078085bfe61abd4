"""The scripts that measure, function by function."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from layerscope.checks import measurements
from layerscope.host import memory
from tests.checks.machines import machine
from tests.checks.test_measuring import INSIDE


@pytest.fixture(scope="module")
def inside() -> Iterator[dict[str, ModuleType]]:
    """The modules of the script, in this Python."""
    sys.path.insert(0, str(INSIDE))
    yield {
        name: importlib.import_module(name)
        for name in ("measure_products", "measure_memory", "measure_libraries")
    }
    sys.path.remove(str(INSIDE))


def task(
    left: int, caches: int, granted: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], list[str]]:
    problems: list[str] = []
    monkeypatch.setattr(memory, "available_bytes", lambda: left)
    monkeypatch.setattr(measurements, "last_caches_bytes", lambda allowed: caches)
    return measurements._task(machine(cpu={"granted": granted}), 5.0, problems), problems


@pytest.mark.parametrize(
    ("facts", "counts"),
    [
        ({}, [1, 8]),
        ({"cores": 4}, [1, 4, 8]),
        ({"cores": 4, "granted": 4.0}, [1, 4]),
        ({"cores": 4, "granted": 3.0}, [1, 3]),
        ({"cores": 4, "granted": 6.0}, [1, 4, 6]),
        ({"cores": 8, "allowed": (0, 1, 2, 3), "allowed_cores": (0, 2), "granted": 4.0}, [1, 2, 4]),
        (
            {"cores": 4, "allowed": (0, 1, 2), "granted": 3.0},
            [1, 3],
        ),  # not told whose cores these are
        ({"cores": 1, "allowed_cores": (0,), "granted": 2.0}, [1, 2]),
        ({"cores": None}, [1, 8]),
    ],
)
def test_hardware_threads_of_a_core_are_measured_besides_one_a_core(
    facts: dict[str, Any], counts: list[int]
) -> None:
    assert measurements._thread_counts(machine(cpu=facts).cpu) == counts


def test_arrays_are_larger_than_all_caches_and_fit_into_a_small_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mib = 1 << 20
    usual, problems = task(8 << 30, 32 * mib, 2.9999, monkeypatch)
    assert (usual["threads"], usual["array_bytes"], usual["skip"], problems) == (
        [1, 3],
        64 * mib,
        [],
        [],
    )
    large, problems = task(8 << 30, 256 * mib, 8.0, monkeypatch)
    assert (large["array_bytes"], problems) == (512 * mib, [])
    small, problems = task(100 * mib, 32 * mib, 0.5, monkeypatch)
    assert (small["threads"], small["array_bytes"], small["skip"]) == (
        [1],
        25 * mib,
        ["import torch"],
    )
    assert small["matrix_bytes"] == 25 * mib
    assert [problem.partition(",")[0] for problem in problems] == [
        "memory bandwidth is partly that of caches: they hold 32 MiB", "only 100 MiB of memory are left here",
    ]  # fmt: skip


def test_last_caches_are_counted_once_for_all_that_share_them(tmp_path: Path) -> None:
    for number in range(4):
        for index, kind, size in (
            (0, "Data", "32K"),
            (1, "Instruction", "64K"),
            (3, "Unified", "16384K"),
        ):
            folder = tmp_path / f"sys/devices/system/cpu/cpu{number}/cache/index{index}"
            folder.mkdir(parents=True)
            (folder / "type").write_text(f"{kind}\n")
            (folder / "size").write_text(f"{size}\n")
            (folder / "shared_cpu_list").write_text("0-1\n" if number < 2 else "2-3\n")

    assert measurements.last_caches_bytes((0, 1), tmp_path) == 16 << 20
    assert measurements.last_caches_bytes((1, 2, 3), tmp_path) == 32 << 20
    assert measurements.last_caches_bytes((9,), tmp_path) == 0


def test_the_rate_is_that_of_the_best_run(
    inside: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    products = inside["measure_products"]
    clock = [0.0]
    monkeypatch.setattr(products.time, "perf_counter", lambda: clock[0])

    def make(size: int, slow: list[float] | None = None) -> Any:
        delays = iter([3.0, *([1.0, 1.25, 1.5, 2.0] * 500)])

        def work() -> None:
            clock[0] += (size / 1024) ** 3 * 0.008 * next(delays)  # 8 ms: 268.4 GFLOP/s

        return work

    case = products.Case("a product", "x", "float32", 1, make, products.nothing)
    case.run(0.5, 1 << 30, lambda: None)
    row = case.row()

    assert row["size"] == 1024  # 12 ms are allowed, and 1536 would take 27
    assert row["gflop_per_s"] == pytest.approx(2e-9 * 1024**3 / 0.008)
    assert row["spread"] == pytest.approx(0.25)  # half of the runs took 1 or 1.25 times as long
    many = products.Case("a product", "x", "float32", 4, make, products.nothing, like=case)
    many.run(0.5, 1 << 30, lambda: None)
    assert many.size == 1536
    tight = products.Case("a product", "x", "float64", 4, make, products.nothing, like=case)
    tight.run(0.5, 8 << 20, lambda: None)
    assert tight.size == 512


def test_rounds_go_on_until_two_agree(inside: dict[str, ModuleType]) -> None:
    products = inside["measure_products"]
    case = products.Case("a product", "x", "float32", 1, None, products.nothing)
    states = []
    for best in (1.0, 1.1, 0.9, 0.91):
        case.rounds.append([best, 5.0])
        states.append(case.is_settled())

    assert states == [False, False, False, True]


def test_one_thread_is_timed_by_its_own_cpu_time(
    inside: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program that has the CPU for half of the time makes no library look half as fast."""
    products = inside["measure_products"]
    wall, cpu = [0.0], [0.0]
    monkeypatch.setattr(products.time, "perf_counter", lambda: wall[0])
    monkeypatch.setattr(products.time, "thread_time", lambda: cpu[0])

    def make(size: int) -> Any:
        def work() -> None:
            wall[0] += (size / 1024) ** 3 * 0.016
            cpu[0] += (size / 1024) ** 3 * 0.008

        return work

    speed = 2e-9 * 1024**3 / 0.008
    for threads, use, expected in ((1, lambda threads: None, speed), (4, lambda threads: None, speed / 2),
                                   (1, products.nothing, speed / 2)):  # fmt: skip
        case = products.Case("a product", "x", "float32", threads, make, use)
        case.run(0.5, 1 << 30, lambda: None)
        assert case.row()["gflop_per_s"] == pytest.approx(expected)
        assert case.row()["rounds"] == [pytest.approx(expected)]


def test_what_is_compared_has_the_same_size_and_the_same_rounds(
    inside: dict[str, ModuleType],
) -> None:
    products = inside["measure_products"]
    mkl = products.Case("a product", "MKL", "float32", 1, None, None)
    onednn = products.Case("a linear layer", "oneDNN", "float32", 1, None, None, as_large=mkl)
    many = products.Case("a product", "MKL", "float32", 8, None, None)
    mkl.size = 768
    assert onednn.fitting(None, 1 << 30) == 768
    for case in (mkl, many):
        case.rounds += [[1.0], [1.0]]
    onednn.rounds += [[1.0], [2.0]]

    assert products.unsettled([mkl, onednn, many]) == [mkl, onednn]
    onednn.rounds.append([1.0])
    assert products.unsettled([mkl, onednn, many]) == []


def test_memory_is_really_copied_by_every_thread(inside: dict[str, ModuleType]) -> None:
    import ctypes

    copy = inside["measure_memory"].Copy(3, 1 << 20)
    try:
        copy.start()
        copy.run(0)
        whole = 3 * copy.slice
        assert ctypes.string_at(copy.target.address, whole) == b"\2" * whole
        assert copy.run(1) > 0
        assert ctypes.string_at(copy.target.address, whole) == b"\1" * whole
    finally:
        copy.finish()
    assert whole > (1 << 20) - 3 * 64


def test_libraries_are_asked_by_the_names_that_builders_give_their_functions(
    inside: dict[str, ModuleType], tmp_path: Path
) -> None:
    """OpenBLAS as SciPy builds it, BLIS and MKL, each as a library that is compiled here."""
    sources = {
        "libscipy_openblas64_-1.so": """
            static int threads = 3;
            const char *scipy_openblas_get_config64_(void)
            { return "OpenBLAS 0.3.99.dev DYNAMIC_ARCH Zen MAX_THREADS=64"; }
            const char *scipy_openblas_get_corename64_(void) { return "Zen"; }
            int scipy_openblas_get_parallel64_(void) { return 2; }
            int scipy_openblas_get_num_threads64_(void) { return threads; }
            void scipy_openblas_set_num_threads64_(int wanted) { threads = wanted; }""",
        "libblis.so.4": """
            static long threads = 5;
            const char *bli_info_get_version_str(void) { return "0.9.0"; }
            int bli_arch_query_id(void) { return 7; }
            const char *bli_arch_string(int id) { return id == 7 ? "zen3" : "?"; }
            long bli_thread_get_num_threads(void) { return threads; }
            void bli_thread_set_num_threads(long wanted) { threads = wanted; }""",
        "libmkl_rt.so.2": """
            #include <string.h>
            static int threads = 7;
            void MKL_Get_Version_String(char *into, int length)
            { strncpy(into, "Intel(R) oneAPI Math Kernel Library Version 2023.1-Product Build 2023", length); }
            int MKL_Get_Max_Threads(void) { return threads; }
            void MKL_Set_Num_Threads(int wanted) { threads = wanted; }""",
        "libblas.so.3": "void sgemm_(void) {}",
    }
    found = [
        asked(inside["measure_libraries"], tmp_path / name, source)
        for name, source in sources.items()
    ]

    assert found == [
        ("OpenBLAS of NumPy", "0.3.99.dev", "Zen", 3, "OpenMP", 2), ("BLIS of NumPy", "0.9.0", "zen3", 5, "", 2),
        ("MKL", "2023.1", "", 7, "", 2), ("BLAS of NumPy", "", "", None, "", None),
    ]  # fmt: skip


def asked(libraries: ModuleType, path: Path, source: str) -> tuple[Any, ...]:
    """What the library compiled from `source` says in a process of its own, and its threads when it
    is given 2.
    """
    path.with_suffix(".c").write_text(source)
    command = ["cc", "-shared", "-fPIC", "-o", str(path), str(path.with_suffix(".c"))]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    code = (
        f"import sys; sys.path.insert(0, {str(INSIDE)!r}); import ctypes, json, measure_libraries as m; "
        f"ctypes.CDLL({str(path)!r}); one = [b for b in m.blas_mapped() if b.path == {str(path)!r}][0]; "
        "row = one.row('NumPy'); one.set_threads and one.set_threads(2); "
        "print(repr((row['name'], row['version'], row['chose'], row['threads'], row['runtime'], "
        "one.get_threads and one.get_threads())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    result: tuple[Any, ...] = ast.literal_eval(done.stdout)
    return result


def test_the_script_parses_as_python_3_8() -> None:
    for path in INSIDE.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
