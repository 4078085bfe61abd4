"""Fixtures for the tests of the sampler: the program with known answers, and samplers that are
ended.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from layerscope.capture.sampler import BINARY
from tests.native.building import build, build_driver
from tests.native_sampler.sampling import Sampling

HERE = Path(__file__).parent


@contextlib.contextmanager
def folder_for_all() -> Iterator[Path]:
    """A folder that every user can read: those of pytest are the user's own."""
    with tempfile.TemporaryDirectory(prefix="layerscope-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def known(native_agent: Path, perf_events: None) -> Iterator[Path]:
    """The compiled known.c, where every user can run it."""
    assert BINARY.exists(), f"{BINARY} is not compiled: run `python3 dev.py native`"
    with folder_for_all() as folder:
        yield build_driver(folder, driver=HERE / "known.c").rename(folder / "known")


@pytest.fixture(scope="session")
def plain(perf_events: None) -> Iterator[Path]:
    """The compiled plain.c, where every user can run it."""
    with folder_for_all() as folder:
        yield build(folder / "plain", [HERE / "plain.c"], "-O2", "-fomit-frame-pointer")


@pytest.fixture
def sampling(native_agent: Path) -> Iterator[Callable[..., Sampling]]:
    """Starts a sampler; it is ended with the test."""
    started: list[Sampling] = []
    with folder_for_all() as folder:

        def start(user: Sequence[str] = (), hz: int = 99, most_bytes: int = 0) -> Sampling:
            started.append(Sampling(folder, user, hz, most_bytes))
            return started[-1]

        yield start
        for one in started:
            one.kill()
