"""Measuring for real, in Pythons with everything, with old things, with nothing, and with things
that break.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerscope.checks import measurements
from layerscope.checks.measured_output import Findings
from layerscope.checks.measurements import measure
from layerscope.host import machine as machines
from layerscope.model.measured import Library, Measured, bandwidth, peak
from tests.attempts import once_in_three

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

    assert [one.name for one in found.libraries][:5] == [
        "NumPy",
        "OpenBLAS of NumPy",
        "PyTorch",
        "ATen",
        "oneDNN",
    ]
    assert found.problems == ()
    # PyTorch and NumPy themselves, asked another way.
    code = "import torch, numpy; print(torch.__config__.show()); print(torch.__version__, numpy.__version__)"
    told = subprocess.run(
        [program_python, "-c", code], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert f"CPU capability usage: {library(found, 'ATen').chose}" in told
    assert told.split()[-2:] == [library(found, "PyTorch").version, library(found, "NumPy").version]
    assert library(found, "oneDNN").version in told
    types = {(rate.dtype, rate.threads) for rate in found.rates}
    threads = max(1, int(HERE.cpu.granted))
    assert {
        (dtype, count) for dtype in ("float32", "float64", "bfloat16") for count in (1, threads)
    } <= types
    for rate in found.rates:
        assert 0.01 < rate.gflop_per_s < 1e5
        assert rate.runs >= 3
        assert rate.spread >= 0
    assert (peak(found, "float32", 1) or 0) > 0.1
    assert 0.1 < (bandwidth(found, 1) or 0) < 1e4


@pytest.mark.slow
def test_onednn_and_openblas_are_what_they_say_when_asked_by_others(
    program_python: str, whole: Measured
) -> None:
    """oneDNN by its own variable in a process of its own, OpenBLAS by the name of the core that it
    is told to be.
    """
    found = whole
    code = "import torch; torch.nn.functional.conv2d(torch.ones(2, 16, 32, 32), torch.ones(16, 16, 3, 3))"
    told = subprocess.run(
        ["env", "ONEDNN_VERBOSE=1", program_python, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    assert f"isa:{library(found, 'oneDNN').chose}\n" in told
    assert f"nthr:{library(found, 'oneDNN').threads}\n" in told


@pytest.mark.slow
def test_variables_that_hold_libraries_back_are_seen_in_what_they_choose(
    program_python: str, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if HERE.isa.level not in ("x86-64-v3", "x86-64-v4"):
        pytest.skip("these are variables for CPUs with AVX2")
    caps = {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_CORETYPE": "Nehalem",
    }
    for name, value in caps.items():
        monkeypatch.setenv(name, value)
    found = measure(program_python, 8.0)

    assert found.variables == caps
    assert library(found, "ATen").chose == "DEFAULT"
    assert library(found, "oneDNN").width_bits == 128
    assert (
        library(found, "OpenBLAS of NumPy").chose,
        library(found, "OpenBLAS of NumPy").width_bits,
    ) == (
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
    assert {rate.dtype for rate in found.rates if rate.library == "OpenBLAS of NumPy"} == {
        "float32",
        "float64",
    }
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
    assert (tried.variable, tried.value, tried.dtype) == (
        "OPENBLAS_CORETYPE",
        "SkylakeX",
        "float32",
    )
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


def test_a_package_that_kills_the_process_is_left_out_the_next_time(
    tmp_path: Path, small: None
) -> None:
    for name, body in (
        ("numpy", "raise ImportError('x')"),
        ("torch", "import os; os.kill(os.getpid(), 4)"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(body)
    found = measure(bare(tmp_path / "python", tmp_path), 5.0)

    assert (
        "measuring was ended by SIGILL at: import torch; that library does not work here"
        in found.problems
    )
    assert "numpy cannot be imported: ImportError x" in found.problems
    assert found.bandwidths


def test_a_python_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "GRACE_S", 0.2)
    hangs = script(
        tmp_path / "python", """echo 'layerscope {"begin": "import torch"}'""", "exec sleep 60"
    )
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
