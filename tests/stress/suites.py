"""Tests of others, bare and under `layerscope run`: each of them ends in the same way.

NumPy's own, with the Python of an environment that has what they need, and those in C++ that
PyTorch's wheel brings along. Native programs are sampled where they use a library that tells of
itself (ITT), as PyTorch's oneDNN does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.differential import environment
from tests.stress.stressing import Often

NUMPY_TIMEOUT_S = 3600
TORCH_TIMEOUT_S = 900
# What these programs are is not a test, or takes minutes to measure something.
NO_TESTS = ("protoc", "torch_shm_manager", "benchmark")
QUICK_TORCH = ("basic", "test_parallel", "thread_init_test")
QUICK_NUMPY = ("random/tests/test_generator_mt19937.py", "tests/test_ctypeslib.py")

Ends = dict[str, str]


@dataclass
class Ended:
    """How one program's tests ended: by name, and the status of the program. `why`: it does not run
    here.
    """

    status: int
    tests: Ends = field(default_factory=dict)
    why: str = ""


def differences(bare: Ended, recorded: Ended) -> list[str]:
    """The tests that ended in another way, and the program."""
    said = (
        []
        if bare.status == recorded.status
        else [f"the program: {bare.status} became {recorded.status}"]
    )
    for name in sorted({*bare.tests, *recorded.tests}):
        before, after = bare.tests.get(name, "not run"), recorded.tests.get(name, "not run")
        if before != after:
            said.append(f"{name}: {before} became {after}")
    return said


class Suite(Often):
    """Runs programs of tests in a folder of their own."""

    timeout_s = TORCH_TIMEOUT_S

    def end_of(self, command: Sequence[str], is_recorded: bool) -> tuple[int, str, str]:
        """Status, stdout and stderr; 124 for one that did not end."""
        before = self.recorder() if is_recorded else []
        shutil.rmtree(self.recording, ignore_errors=True)
        try:
            done = subprocess.run(
                [*before, *command], cwd=self.work, capture_output=True, timeout=self.timeout_s, check=False,
                stdin=subprocess.DEVNULL, env=environment(PYTHONDONTWRITEBYTECODE="1", PYTHONHASHSEED="0"),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 124, "", "did not end"
        return (
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
        )


# --- NumPy ---


class NumPyTests(Suite):
    """NumPy's own tests, as many as are named: files in NumPy's folder, or all but those of
    f2py.
    """

    timeout_s = NUMPY_TIMEOUT_S

    def __init__(self, folder: Path, python: str) -> None:
        super().__init__(folder)
        self.python = python
        place = "import numpy, os; print(os.path.dirname(numpy.__file__))"
        found = subprocess.run(
            [python, "-c", place], capture_output=True, text=True, check=True
        ).stdout
        self.numpy = Path(found.strip())

    def run_tests(self, names: Sequence[str], is_recorded: bool) -> Ended:
        """How each of them ended."""
        report = self.work.parent / f"{is_recorded}.xml"
        # f2py's run a compiler of Fortran, and meson, which are not there.
        words = [str(self.numpy / name) for name in names] or [
            "--pyargs", "numpy", f"--ignore={self.numpy / 'f2py' / 'tests'}"
        ]  # fmt: skip
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "-m",
            "not slow",
            f"--junitxml={report}",
        ]
        status, out, _ = self.end_of([self.python, "-m", "pytest", *words, *options], is_recorded)
        if not report.exists():
            return Ended(status, why=out[-400:])
        ended = Ended(status)
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            ended.tests[f"{case.get('classname')}::{case.get('name')}"] = (
                kinds[0] if kinds else "passed"
            )
        report.unlink()
        return ended


# --- PyTorch ---


def torch_programs(python: str) -> list[Path]:
    """The programs of tests in PyTorch's folder, small ones first."""
    code = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    files = [path for name in ("test", "bin") for path in (Path(found.strip()) / name).glob("*")]
    return [
        path for path in sorted(files, key=lambda path: (path.stat().st_size, path.name))
        if path.is_file() and not any(name in path.name for name in NO_TESTS) and path.read_bytes()[:4] == b"\x7fELF"
    ]  # fmt: skip


_RESULT = re.compile(r"^\[ +(OK|FAILED|SKIPPED|PASSED) +\] (.+?)(?: \(\d+ ms\))?$", re.MULTILINE)


class TorchTests(Suite):
    """PyTorch's tests in C++, which are programs of GoogleTest."""

    def run_program(self, program: Path, is_recorded: bool) -> Ended:
        """How its tests ended."""
        status, out, err = self.end_of([str(program)], is_recorded)
        if status in (126, 127):
            return Ended(status, why=err.strip().splitlines()[-1])
        return Ended(status, {name: how for how, name in _RESULT.findall(out)})
