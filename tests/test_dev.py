"""dev.py: what it decides, tested without a network and without making environments."""

from __future__ import annotations

import ast
import fcntl
import importlib.util
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TextIO

import pytest

DEV = Path(__file__).resolve().parent.parent / "dev.py"

BUILD = DEV.with_name("native_build.py")
TESTS = DEV.with_name("every_test.py")
PYTHONS = DEV.with_name("pythons.py")
BESIDE = DEV.with_name("beside.py")
WEB_BUILD = DEV.with_name("web_build.py")
FILES = (DEV, BUILD, TESTS, PYTHONS, BESIDE, WEB_BUILD)

FakeProgram = Callable[[str, str], Path]


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """A fresh dev.py that takes an empty folder for the repository."""
    spec = importlib.util.spec_from_file_location("layerscope_dev", DEV)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    monkeypatch.syspath_prepend(str(DEV.parent))
    spec.loader.exec_module(module)
    root = tmp_path / "repository"
    (root / "native").mkdir(parents=True)
    monkeypatch.setattr(module, "ROOT", root)
    monkeypatch.setattr(module, "ENVS", root / ".envs")
    monkeypatch.setattr(module, "NATIVE_OUT", root / "src" / "layerscope" / "native")
    return module


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def fake_program(empty_path: Path) -> FakeProgram:
    """Puts a shell script on PATH."""

    def make(name: str, script: str) -> Path:
        path = empty_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_dev_parses_under_python_3_8(file: Path) -> None:
    ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_dev_imports_the_standard_library_only(file: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])

    assert imported <= {
        *sys.stdlib_module_names,
        "beside",
        "every_test",
        "native_build",
        "native_layout",
        "pythons",
        "web_build",
    }


def test_dev_names_no_package_index_and_pins_torch() -> None:
    source = DEV.read_text(encoding="utf-8")

    assert "://" not in source
    assert re.findall(r'"torch[^"]*"', source.replace('bare "torch"', "")) == ['"torch==2.13.0"']


# --- Pythons ---


def test_an_old_python_with_no_newer_one_on_path_is_told_what_to_install(
    dev: ModuleType, empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 8, 18))
    monkeypatch.setattr("pythons.python_version", lambda python: (3, 8))

    with pytest.raises(dev.Failure, match=r"needs Python 3\.11 or newer.*Remedy: install one"):
        dev.find_python()


def test_a_python_without_ensurepip_is_told_the_package(
    dev: ModuleType, empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pythons.python_version", lambda python: None)

    with pytest.raises(
        dev.MissingVenv, match=r"ensurepip is missing.*apt-get install python3-venv"
    ):
        dev.find_python()


def test_a_newer_python_on_path_is_taken_when_ours_is_too_old(
    dev: ModuleType, fake_program: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_program("python3", "echo 3 8")))
    fake_program("python3.13", "exit 127")  # as a shim does whose version is not installed
    good = fake_program("python3.12", "echo 3 12")

    assert dev.find_python() == str(good)


def test_old_numpy_has_the_torch_of_the_program_where_their_python_is_the_same(
    dev: ModuleType, fake_program: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_program("python3", "echo 3 11")))

    environment, _ = dev.old_numpy_environment()

    assert environment.requirements == ("numpy==1.23.5",)
    assert environment.also == "program"


def test_libraries_of_another_environment_come_after_its_own(
    dev: ModuleType, steps: list[list[str]]
) -> None:
    for name in ("program", "trainers"):
        (dev.ENVS / name / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    program = dev.Environment("program", ("a",)), "/some/python3"
    trainers = dev.Environment("trainers", ("b",), also="program"), "/some/python3"

    pythons = dev.make_all([program, trainers])

    assert pythons == [str(dev.ENVS / name / "bin" / "python") for name in ("program", "trainers")]
    assert [command[-1] for command in steps if "install" in command] == ["a", "b"]
    line = (dev.ENVS / "trainers/lib/python3.11/site-packages/other-environment.pth").read_text()
    assert line == f"{dev.ENVS / 'program/lib/python3.11/site-packages'}\n"


def is_taken_soon(file: TextIO) -> bool:
    """Whether somebody has the lock of this file, within a minute."""
    for _ in range(6000):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(0.01)
    return False


def test_who_waits_for_an_environment_waits_for_the_one_that_it_needs(
    dev: ModuleType, steps: list[list[str]]
) -> None:
    made: Future[str] = Future()
    trainers = dev.Environment("trainers", ("b",), also="program")
    with ThreadPoolExecutor(1) as beside:
        python = beside.submit(dev.make, trainers, "/some/python3", made)
        lock = dev.ENVS / "trainers.lock"
        while not lock.exists():
            time.sleep(0.01)
        with lock.open("w") as file:
            assert is_taken_soon(file)
        assert steps == []
        made.set_result("program")

    assert python.result() == trainers.python


def test_old_numpy_goes_into_an_old_python_where_there_is_one(
    dev: ModuleType, fake_program: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(fake_program("python3", "echo 3 13")))
    assert dev.old_numpy_environment()[0].requirements == ("numpy==2.1.0",)

    old = fake_program("python3.10", "echo 3 10")

    environment, python = dev.old_numpy_environment()
    assert environment.requirements == ("torch==2.13.0", "numpy==1.23.5")
    assert python == str(old)


@pytest.mark.parametrize(("user", "installs"), [(0, True), (1000, False)])
def test_venv_is_installed_by_the_system_only_for_root(
    dev: ModuleType,
    fake_program: FakeProgram,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    user: int,
    installs: bool,
) -> None:
    log = tmp_path / "log"
    fake_program("apt-get", f'echo "$@" >> {log}')
    monkeypatch.setattr("pythons.DEBIAN", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: user)

    assert dev.install_packages("python3-venv") is installs
    assert log.exists() is installs
    if installs:
        assert log.read_text() == "-q update\n-q install -y --no-install-recommends python3-venv\n"


@pytest.mark.parametrize(("verb", "runs"), [("test", 2), ("check", 1)])
def test_only_test_installs_venv_and_tries_again(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, verb: str, runs: int
) -> None:
    calls = []

    def fail(options: object) -> int:
        calls.append(options)
        raise dev.MissingVenv("no venv")

    monkeypatch.setitem(dev.VERBS, verb, fail)
    monkeypatch.setattr(dev, "install_packages", lambda *names: True)

    assert dev.main([verb]) == 2
    assert len(calls) == runs


# --- Environments ---


@pytest.fixture
def steps(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What `make` would run; a venv is made as a folder with a Python that works."""
    commands: list[list[str]] = []

    def run(command: list[str], sentence: str) -> None:
        commands.append(command)
        if "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.write_text("#!/bin/sh\nexit 0\n")
            python.chmod(0o755)

    monkeypatch.setattr(dev, "run_or_fail", run)
    return commands


def test_an_environment_is_made_once(dev: ModuleType, steps: list[list[str]]) -> None:
    environment = dev.Environment("program", ("a==1", "b"), ("--index-url", "mirror"))

    python = dev.make(environment, "/some/python3")
    dev.make(environment)

    assert python == str(dev.ENVS / "program" / "bin" / "python")
    assert [command[0] for command in steps] == ["/some/python3", python]
    assert steps[1][-4:] == ["--index-url", "mirror", "a==1", "b"]


def test_other_requirements_are_installed_into_the_same_environment(
    dev: ModuleType, steps: list[list[str]]
) -> None:
    dev.make(dev.Environment("program", ("a==1",)), "/some/python3")
    dev.make(dev.Environment("program", ("a==2",)))

    assert [command[-1] for command in steps[1:]] == ["a==1", "a==2"]


def test_a_failed_installation_is_not_taken_for_a_finished_one(
    dev: ModuleType, steps: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = dev.Environment("program", ("a==1",))
    dev.make(environment, "/some/python3")
    (environment.folder / "layerscope-stamp").unlink()

    def fail(command: list[str], sentence: str) -> None:
        raise dev.Failure(sentence)

    monkeypatch.setattr(dev, "run_or_fail", fail)

    with pytest.raises(dev.Failure, match=r"pip could not install a==1"):
        dev.make(environment)
    assert not environment.is_ready()


def test_an_environment_whose_python_is_gone_is_made_again(
    dev: ModuleType, steps: list[list[str]]
) -> None:
    environment = dev.Environment("program", ("a==1",))
    dev.make(environment, "/some/python3")
    Path(environment.python).unlink()

    dev.make(environment, "/some/python3")

    assert steps[2] == ["/some/python3", "-m", "venv", "--clear", str(environment.folder)]
    assert environment.is_ready()


def test_a_lint_rule_is_no_reason_to_install_again_but_a_dependency_is(dev: ModuleType) -> None:
    project = dev.ROOT / "pyproject.toml"
    stamps = []
    for dependency, lint in (("a", "E"), ("a", "F"), ("b", "F")):
        project.write_text(
            f'[project]\ndependencies = ["{dependency}"]\n\n[tool.ruff]\nselect = ["{lint}"]\n'
        )
        stamps.append(dev.tool_environment(development=True).stamp())

    assert stamps[0] == stamps[1]
    assert stamps[1] != stamps[2]


def test_the_demo_is_content_with_the_environment_of_the_tests(
    dev: ModuleType, steps: list[list[str]]
) -> None:
    (dev.ROOT / "pyproject.toml").write_text("[project]\n")
    assert not dev.tool_environment(development=False).requirements[-1].endswith("[dev]")

    dev.make(dev.tool_environment(development=True), "/some/python3")

    assert dev.tool_environment(development=False).is_ready()


# --- PyTorch for the demo ---


def test_the_active_environment_is_asked_first_for_torch(
    dev: ModuleType, fake_program: FakeProgram, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_program("python3", "exit 1")
    for name in ("venv", "conda"):
        (tmp_path / name / "bin").mkdir(parents=True)
        fake_program("python", "exit 0").rename(tmp_path / name / "bin" / "python")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    assert dev.find_torch() == str(tmp_path / "venv" / "bin" / "python")

    (tmp_path / "venv" / "bin" / "python").unlink()

    assert dev.find_torch() == str(tmp_path / "conda" / "bin" / "python")


def test_no_torch_anywhere_is_none(
    dev: ModuleType, fake_program: FakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setattr(sys, "executable", str(fake_program("python3", "exit 1")))

    assert dev.find_torch() is None


def test_a_demo_without_torch_and_without_a_terminal_says_how_to_agree(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "find_torch", lambda: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    assert dev.main(["demo"]) == 2

    printed = capsys.readouterr().err
    assert "183 MiB" in printed
    assert "--index-url" in printed
    assert printed.splitlines()[-1].endswith("Remedy: python3 dev.py demo --yes")
    assert not dev.ENVS.exists()


class Terminal(io.StringIO):
    """A terminal at which somebody has typed a line."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "downloads"),
    [("y\n", True), ("Yes\n", True), ("n\n", False), ("\n", False), ("", False)],
)
def test_only_a_clear_yes_downloads(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, answer: str, downloads: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))

    if downloads:
        dev.ask_for_torch(yes=False)
    else:
        with pytest.raises(dev.Failure, match="nothing was downloaded"):
            dev.ask_for_torch(yes=False)


def test_yes_asks_nothing(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)

    dev.ask_for_torch(yes=True)


# --- Verbs ---


@pytest.fixture
def commands(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], int]]:
    """What the verbs start, after its environments were made; each ends with the status planned for
    it, else 0.
    """
    started: list[tuple[list[str], int]] = []
    planned: list[int] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        status = planned.pop(0) if planned else 0
        started.append((command, status))
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setattr(dev, "setting", lambda index_url, whole: ("tool-python", {}))
    monkeypatch.setattr(dev, "install_packages", lambda *names: False)
    monkeypatch.setattr(dev, "find_python", lambda newest_first=True: "python3.13")
    monkeypatch.setattr(dev, "python_version", lambda python: (3, 13))
    monkeypatch.setattr(dev, "make", lambda environment, *_: f"{environment.name}-python")
    monkeypatch.setattr(dev, "compiled", lambda tool, variables: variables)
    monkeypatch.setattr(dev.subprocess, "run", run)
    monkeypatch.setattr(dev, "planned", planned, raising=False)
    return started


PYTEST = ["tool-python", "-m", "pytest"]


def test_arguments_are_passed_on(dev: ModuleType, commands: list[tuple[list[str], int]]) -> None:
    assert dev.main(["test", "-k", "name", "tests/recording", "-x"]) == 0

    assert [command for command, _ in commands] == [
        [*PYTEST, "-k", "name", "tests/recording", "-x"]
    ]


def test_tests_are_told_of_environments_that_are_made_meanwhile(
    dev: ModuleType, commands: list[tuple[list[str], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    told: list[dict[str, str]] = []
    monkeypatch.setattr(dev, "make", lambda one, *_: made.append(one.name) or one.python)
    monkeypatch.setattr(dev, "compiled", lambda tool, variables: told.append(variables) or {})

    dev.main(["test", "-k", "name"])

    # NumPy's own tests belong to `stress`.
    assert sorted(made) == ["jax", "old-numpy", "program", "spark", "tool", "trainers"]
    pythons = {name for name in told[0] if name.endswith("_PYTHON")}
    assert len(pythons) == len(made) - 1
    assert told[0]["LAYERSCOPE_TEST_PYTHON"] == str(dev.ENVS / "program" / "bin" / "python")


def test_a_selection_of_ones_own_is_run_as_it_is(
    dev: ModuleType, commands: list[tuple[list[str], int]]
) -> None:
    assert dev.main(["test", "-m", "slow"]) == 0

    assert [command for command, _ in commands] == [[*PYTEST, "-m", "slow"]]


def test_check_goes_on_after_a_failure_and_names_it(
    dev: ModuleType, commands: list[tuple[list[str], int]], capsys: pytest.CaptureFixture[str]
) -> None:
    dev.planned.extend([0, 1])

    assert dev.main(["check"]) == 1

    assert [command[2] for command, _ in commands] == ["ruff", "ruff", "mypy", "pytest"]
    assert "failed: ruff format" in capsys.readouterr().err


def test_a_verb_that_passes_nothing_on_refuses_what_it_does_not_know(dev: ModuleType) -> None:
    with pytest.raises(SystemExit) as caught:
        dev.main(["check", "--fast"])

    assert caught.value.code == 2
