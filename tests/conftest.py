"""Fixtures for all tests: the Python of the profiled programs, which is never our own."""

from __future__ import annotations

import fcntl
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

from layerscope.host import system_calls
from tests.pace import Pace
from tests.undisturbed import Undisturbed

# How long an example takes is the machine's business.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Whoever runs the tests in the background of a script has signals ignored, and so would every
# program that they start.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL),
):  # fmt: skip
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)

ROOT = Path(__file__).resolve().parent.parent
# Where every test runs programs, compiles some, or takes seconds: none of them belongs into
# `dev.py check`.
TAKES_LONG = (
    "capture/test_inject", "capture/test_probe", "capture/test_sampler", "cli/test_run_", "examples/",
    "ingest/test_convert_long", "native/", "native_interface/", "native_sampler/", "stress/", "truth/",
)  # fmt: skip
# Where tests compile and run programs in C, or make Pythons of this machine load the agent.
NEEDS_NO_ENVIRONMENT = ("native/", "native_interface/")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Pace(), "pace")
    config.pluginmanager.register(Undisturbed(), "undisturbed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves repetitions to `dev.py stress`, and puts the files first that take long: the end would
    wait for them. Before those are the ones that need no environment, which may not be there yet.
    """
    if not os.environ.get("LAYERSCOPE_TEST_STRESS"):
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("stress")]
        )
        items[:] = [item for item in items if not item.get_closest_marker("stress")]
    for item in items:
        if item.path.relative_to(ROOT / "tests").as_posix().startswith(TAKES_LONG):
            item.add_marker("slow")
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    needs_nothing = tuple(str(ROOT / "tests" / folder) for folder in NEEDS_NO_ENVIRONMENT)
    items.sort(key=lambda item: (not str(item.path).startswith(needs_nothing), -slow[item.path]))


@pytest.fixture(scope="session")
def program_python() -> str:
    """The Python of an environment with PyTorch and NumPy and nothing of ours."""
    return _later_python("LAYERSCOPE_TEST_PYTHON")


@pytest.fixture(scope="session")
def old_numpy_python() -> str:
    """The Python of an environment with PyTorch and a NumPy that our own libraries cannot be
    imported beside.
    """
    return _later_python("LAYERSCOPE_TEST_OLD_NUMPY_PYTHON")


@pytest.fixture(scope="session")
def trainers_python() -> str:
    """The Python of an environment with PyTorch, transformers, accelerate and lightning."""
    return _later_python("LAYERSCOPE_TEST_TRAINERS_PYTHON")


@pytest.fixture(scope="session")
def jax_python() -> str:
    """The Python of an environment with JAX and ONNX Runtime for the CPU."""
    return _later_python("LAYERSCOPE_TEST_JAX_PYTHON")


@pytest.fixture(scope="session", params=["1", "2"])
def mxnet_python(request: pytest.FixtureRequest) -> str:
    """The Pythons of two environments: with MXNet 1.9.1, and with 2.0.0b1."""
    return _mxnet_python(request.param)


@pytest.fixture(scope="session")
def mxnet1_python() -> str:
    """The Python of an environment with MXNet 1.9.1."""
    return _mxnet_python("1")


@pytest.fixture(scope="session")
def mxnet2_python() -> str:
    """The Python of an environment with MXNet 2.0.0b1."""
    return _mxnet_python("2")


@pytest.fixture(scope="session")
def numpy_python() -> str:
    """The Python of an environment that can run NumPy's own tests."""
    return _python_from("LAYERSCOPE_TEST_NUMPY_PYTHON")


@pytest.fixture(scope="session")
def spark_python() -> str:
    """The Python of an environment with our libraries, PySpark and a Java."""
    return _later_python("LAYERSCOPE_TEST_SPARK_PYTHON")


@pytest.fixture(scope="session")
def native_agent() -> Path:
    """The compiled agent. Only a machine without a C compiler may do without: the test is skipped
    then.
    """
    if reason := os.environ.get("LAYERSCOPE_TEST_NO_AGENT"):
        pytest.skip(reason)
    agent = ROOT / "src" / "layerscope" / "native" / "liblayerscope-agent.so"
    assert agent.exists(), f"{agent} is not compiled: run `python3 dev.py native`"
    return agent


@pytest.fixture(scope="session")
def perf_events(native_agent: Path) -> None:
    """The kernel gives events of threads and memory of other processes. Where it does not the test
    is skipped.
    """
    refused = system_calls.refused()
    for call in ("perf_event_open", "process_vm_readv"):
        if call in refused:
            pytest.skip(f"{call} is refused here: {refused[call]}")


def _mxnet_python(version: str) -> str:
    if reason := os.environ.get("LAYERSCOPE_TEST_NO_MXNET"):
        pytest.skip(reason)
    return _later_python(f"LAYERSCOPE_TEST_MXNET{version}_PYTHON")


def _later_python(variable: str) -> str:
    """That of an environment which is made while tests run."""
    environment = Path(os.environ.get(variable, "")).parent.parent
    lock = environment.with_name(f"{environment.name}.lock")
    if lock.exists():  # whoever makes the environment holds it until that is complete
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    return _python_from(variable)


def _python_from(variable: str) -> str:
    # A failure, not a skip: without it nothing would be tested, and nobody would notice.
    python = os.environ.get(variable, "")
    assert python, f"{variable} is not set: run the tests with `python3 dev.py test`"
    assert Path(python).exists(), f"{variable} names {python}, which is not there"
    return python


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, a home and temporary files of their own."""
    for name in ("work", "home", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "work"
