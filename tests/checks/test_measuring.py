"""Measuring for real, in Pythons with everything, with old things, with nothing, and with things that break."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from layerscope.checks import measurements
from layerscope.checks.measured_output import Findings
from layerscope.checks.measurements import measure
from layerscope.host import machine as machines
from layerscope.host import memory
from layerscope.model.measured import Library, Measured, bandwidth, peak
from tests.attempts import once_in_three
from tests.checks.machines import machine

INSIDE = measurements.SCRIPT.parent
HERE = machines.facts()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in measurements.CAPS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is copied: what is tested is something else."""
    monkeypatch.setattr(measurements, "_ARRAY_BYTES", 1 << 20)
    monkeypatch.setattr(measurements, "last_caches_bytes", lambda allowed: 0)


@pytest.fixture(scope="module")
def whole(program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """The machine and the libraries of the program's Python, measured as a user has it done."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for name in measurements.CAPS:
            patch.delenv(name, raising=False)
        return measure(program_python, 25.0)


@pytest.fixture(scope="module")
def inside() -> Iterator[dict[str, ModuleType]]:
    """The modules of the script, in this Python."""
    sys.path.insert(0, str(INSIDE))
    yield {name: importlib.import_module(name) for name in ("measure_products", "measure_memory", "measure_libraries")}
    sys.path.remove(str(INSIDE))


def script(path: Path, *lines: str) -> str:
    """A Python of ours: a program for sh."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


def bare(path: Path, folder: Path) -> str:
    """This Python without any package but those in `folder`."""
    return script(path, f"export PYTHONPATH={folder}", f'exec {sys.executable} -S "$@"')


def library(found: Measured, name: str) -> Library:
    return next(one for one in found.libraries if one.name == name)


@pytest.mark.slow
def test_libraries_of_the_program_are_asked_and_tried(program_python: str, whole: Measured) -> None:
    found = whole

    assert [one.name for one in found.libraries][:5] == ["NumPy", "OpenBLAS of NumPy", "PyTorch", "ATen", "oneDNN"]
    assert found.problems == ()
    # PyTorch and NumPy themselves, asked another way.
    code = "import torch, numpy; print(torch.__config__.show()); print(torch.__version__, numpy.__version__)"
    told = subprocess.run([program_python, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert f"CPU capability usage: {library(found, 'ATen').chose}" in told
    assert told.split()[-2:] == [library(found, "PyTorch").version, library(found, "NumPy").version]
    assert library(found, "oneDNN").version in told
    types = {(rate.dtype, rate.threads) for rate in found.rates}
    threads = max(1, int(HERE.cpu.granted))
    assert {(dtype, count) for dtype in ("float32", "float64", "bfloat16") for count in (1, threads)} <= types
    for rate in found.rates:
        assert 0.01 < rate.gflop_per_s < 1e5
        assert rate.runs >= 3
        assert rate.spread >= 0
    assert (peak(found, "float32", 1) or 0) > 0.1
    assert 0.1 < (bandwidth(found, 1) or 0) < 1e4


@pytest.mark.slow
def test_onednn_and_openblas_are_what_they_say_when_asked_by_others(program_python: str, whole: Measured) -> None:
    """oneDNN by its own variable in a process of its own, OpenBLAS by the name of the core that it is told to be."""
    found = whole
    code = "import torch; torch.nn.functional.conv2d(torch.ones(2, 16, 32, 32), torch.ones(16, 16, 3, 3))"
    told = subprocess.run(
        ["env", "ONEDNN_VERBOSE=1", program_python, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert f"isa:{library(found, 'oneDNN').chose}\n" in told
    assert f"nthr:{library(found, 'oneDNN').threads}\n" in told


@pytest.mark.slow
def test_variables_that_hold_libraries_back_are_seen_in_what_they_choose(
    program_python: str, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if HERE.isa.level not in ("x86-64-v3", "x86-64-v4"):
        pytest.skip("these are variables for CPUs with AVX2")
    caps = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem"}
    for name, value in caps.items():
        monkeypatch.setenv(name, value)
    found = measure(program_python, 8.0)

    assert found.variables == caps
    assert library(found, "ATen").chose == "DEFAULT"
    assert library(found, "oneDNN").width_bits == 128
    assert (library(found, "OpenBLAS of NumPy").chose, library(found, "OpenBLAS of NumPy").width_bits) == (
        "Nehalem",
        128,
    )
    assert found.tried == ()


@pytest.mark.slow
@once_in_three
def test_an_old_numpy_has_other_names_inside(old_numpy_python: str, small: None) -> None:
    found = measure(old_numpy_python, 8.0)

    assert library(found, "NumPy").chose
    assert library(found, "OpenBLAS of NumPy").version.startswith("0.3.")
    assert library(found, "OpenBLAS of NumPy").runtime == "pthreads"
    assert {rate.dtype for rate in found.rates if rate.library == "OpenBLAS of NumPy"} == {"float32", "float64"}
    assert found.problems == ()


@pytest.mark.slow
def test_a_core_type_is_tried_where_the_cpu_is_taken_for_a_narrower_one(
    program_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not set(measurements._WIDE_FLAGS) <= set(HERE.isa.flags):
        pytest.skip("this CPU has no AVX-512")
    found = Findings()
    found.libraries["OpenBLAS of NumPy"] = Library("OpenBLAS of NumPy", "0.3.31", "Haswell", 256)
    asked = program_python, {"PATH": "/usr/bin:/bin"}, HERE, found, time.monotonic() + 60

    (tried,) = measurements._try_core_type(*asked)
    assert (tried.variable, tried.value, tried.dtype) == ("OPENBLAS_CORETYPE", "SkylakeX", "float32")
    assert min(tried.gflop_per_s, tried.without_gflop_per_s) > 0.1
    monkeypatch.setattr(measurements, "_WIDE_TYPE", "NoSuchCore")
    assert measurements._try_core_type(*asked) == ()


def test_a_python_without_anything_has_memory(tmp_path: Path, small: None) -> None:
    found = measure(bare(tmp_path / "python", tmp_path), 5.0)

    assert found.libraries == found.rates == ()
    assert found.problems == (
        "NumPy is not installed in this Python: nothing of it was measured",
        "PyTorch is not installed in this Python: nothing of it was measured",
    )
    assert found.bandwidths
    assert all(one.gbyte_per_s > 0.01 and one.runs >= 4 for one in found.bandwidths)


def test_packages_that_do_not_work_become_sentences(tmp_path: Path, small: None) -> None:
    for name, body in (
        ("numpy", "raise RuntimeError('compiled for another CPU\\nand more')"), ("torch", "import not_there"),
    ):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(body)
    found = measure(bare(tmp_path / "python", tmp_path), 5.0)

    assert found.problems == (
        "numpy cannot be imported: RuntimeError compiled for another CPU",
        "torch cannot be imported: ModuleNotFoundError No module named 'not_there'",
    )


def test_a_package_that_kills_the_process_is_left_out_the_next_time(tmp_path: Path, small: None) -> None:
    for name, body in (("numpy", "raise ImportError('x')"), ("torch", "import os; os.kill(os.getpid(), 4)")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(body)
    found = measure(bare(tmp_path / "python", tmp_path), 5.0)

    assert "measuring was ended by SIGILL at: import torch; that library does not work here" in found.problems
    assert "numpy cannot be imported: ImportError x" in found.problems
    assert found.bandwidths


def test_a_python_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "GRACE_S", 0.2)
    hangs = script(tmp_path / "python", """echo 'layerscope {"begin": "import torch"}'""", "exec sleep 60")
    found = measure(hangs, 1.2)

    assert found.problems == (
        "measuring was stopped after 1 s at: import torch; try again when the machine is less busy",
    )


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["echo 'SyntaxError: invalid syntax' >&2", "exit 1"],
         "measuring ended with status 1: SyntaxError: invalid syntax; it needs Python 3.8 or later"),
        (["exit 0"], "measuring ended with status 0: it did not say why; it needs Python 3.8 or later"),
        (["kill -9 $$"], "measuring was ended by SIGKILL; that library does not work here"),
    ],
)  # fmt: skip
def test_what_is_no_python_is_said_so(lines: list[str], problem: str, tmp_path: Path) -> None:
    assert measure(script(tmp_path / "python", *lines), 2.0).problems == (problem,)


def test_a_python_that_is_not_there() -> None:
    found = measure("/no/such/python", 2.0)

    assert found.problems == (
        "/no/such/python cannot be started: No such file or directory; name the Python of the program",
    )


def test_the_child_sees_neither_our_variables_nor_logs_that_would_disturb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LAYERSCOPE_AGENT", "ONEDNN_VERBOSE", "MKL_VERBOSE", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    python = script(tmp_path / "python", f"env > {tmp_path}/environment")
    measure(python, 2.0)
    names = {line.partition("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}

    assert "OMP_NUM_THREADS" in names
    assert not names & {"LAYERSCOPE_AGENT", "ONEDNN_VERBOSE", "MKL_VERBOSE"}


def task(left: int, caches: int, granted: float, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[str]]:
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
        ({"cores": 4, "allowed": (0, 1, 2), "granted": 3.0}, [1, 3]),  # not told whose cores these are
        ({"cores": 1, "allowed_cores": (0,), "granted": 2.0}, [1, 2]),
        ({"cores": None}, [1, 8]),
    ],
)
def test_hardware_threads_of_a_core_are_measured_besides_one_a_core(facts: dict[str, Any], counts: list[int]) -> None:
    assert measurements._thread_counts(machine(cpu=facts).cpu) == counts


def test_arrays_are_larger_than_all_caches_and_fit_into_a_small_group(monkeypatch: pytest.MonkeyPatch) -> None:
    mib = 1 << 20
    usual, problems = task(8 << 30, 32 * mib, 2.9999, monkeypatch)
    assert (usual["threads"], usual["array_bytes"], usual["skip"], problems) == ([1, 3], 64 * mib, [], [])
    large, problems = task(8 << 30, 256 * mib, 8.0, monkeypatch)
    assert (large["array_bytes"], problems) == (512 * mib, [])
    small, problems = task(100 * mib, 32 * mib, 0.5, monkeypatch)
    assert (small["threads"], small["array_bytes"], small["skip"]) == ([1], 25 * mib, ["import torch"])
    assert small["matrix_bytes"] == 25 * mib
    assert [problem.partition(",")[0] for problem in problems] == [
        "memory bandwidth is partly that of caches: they hold 32 MiB", "only 100 MiB of memory are left here",
    ]  # fmt: skip


def test_last_caches_are_counted_once_for_all_that_share_them(tmp_path: Path) -> None:
    for number in range(4):
        for index, kind, size in ((0, "Data", "32K"), (1, "Instruction", "64K"), (3, "Unified", "16384K")):
            folder = tmp_path / f"sys/devices/system/cpu/cpu{number}/cache/index{index}"
            folder.mkdir(parents=True)
            (folder / "type").write_text(f"{kind}\n")
            (folder / "size").write_text(f"{size}\n")
            (folder / "shared_cpu_list").write_text("0-1\n" if number < 2 else "2-3\n")

    assert measurements.last_caches_bytes((0, 1), tmp_path) == 16 << 20
    assert measurements.last_caches_bytes((1, 2, 3), tmp_path) == 32 << 20
    assert measurements.last_caches_bytes((9,), tmp_path) == 0


def test_the_rate_is_that_of_the_best_run(inside: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_is_compared_has_the_same_size_and_the_same_rounds(inside: dict[str, ModuleType]) -> None:
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
    found = [asked(inside["measure_libraries"], tmp_path / name, source) for name, source in sources.items()]

    assert found == [
        ("OpenBLAS of NumPy", "0.3.99.dev", "Zen", 3, "OpenMP", 2), ("BLIS of NumPy", "0.9.0", "zen3", 5, "", 2),
        ("MKL", "2023.1", "", 7, "", 2), ("BLAS of NumPy", "", "", None, "", None),
    ]  # fmt: skip


def asked(libraries: ModuleType, path: Path, source: str) -> tuple[Any, ...]:
    """What the library compiled from `source` says in a process of its own, and its threads when it is given 2."""
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    result: tuple[Any, ...] = ast.literal_eval(done.stdout)
    return result


def test_the_script_parses_as_python_3_8() -> None:
    for path in INSIDE.glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
