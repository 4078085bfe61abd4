"""A part of NumPy's tests and of PyTorch's in C++: they end as they do without us. `python3 dev.py
stress` runs all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.suites import (
    QUICK_NUMPY,
    QUICK_TORCH,
    NumPyTests,
    TorchTests,
    differences,
    torch_programs,
)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.stress
def test_tests_of_numpy(numpy_python: str, native_agent: Path, tmp_path: Path) -> None:
    suite = NumPyTests(tmp_path, numpy_python)

    bare, recorded = (suite.run_tests(QUICK_NUMPY, is_recorded) for is_recorded in (False, True))

    assert bare.why == ""
    assert len(bare.tests) > 200
    assert differences(bare, recorded) == []
    assert suite.recorded().rows("SELECT count(*) > 0 AS some FROM samples") == [{"some": True}]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK_TORCH)
def test_tests_of_torch(name: str, program_python: str, native_agent: Path, tmp_path: Path) -> None:
    programs = {program.name: program for program in torch_programs(program_python)}
    if name not in programs:
        pytest.skip(f"this PyTorch does not bring {name} along")
    suite = TorchTests(tmp_path)

    bare, recorded = (
        suite.run_program(programs[name], is_recorded) for is_recorded in (False, True)
    )

    assert (bare.status, bare.why) == (0, "")
    assert bare.tests
    assert differences(bare, recorded) == []
