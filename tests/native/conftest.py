"""Fixtures for the tests that drive the agent without torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.building import FAKE_TORCH, build, build_driver
from tests.native.clients import Clients, build_client
from tests.native.driven import Drive


@pytest.fixture(scope="session")
def fake_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with the few functions of libtorch_cpu.so that the agent looks up."""
    return build(
        tmp_path_factory.mktemp("fake") / "libfake_torch.so",
        [FAKE_TORCH],
        "-O2",
        "-shared",
        "-fPIC",
    )


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of driver.c, with agent and stand-in inside."""
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def drive(native_agent: Path, fake_torch: Path, tmp_path: Path) -> Drive:
    """Runs lines of Python in a process with the agent."""
    return Drive(native_agent, fake_torch, tmp_path)


@pytest.fixture(scope="session")
def itt_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of itt_client.c."""
    return build_client(tmp_path_factory.mktemp("itt"), "itt_client")


@pytest.fixture(scope="session")
def nvtx_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of nvtx_client.c."""
    return build_client(tmp_path_factory.mktemp("nvtx"), "nvtx_client")


@pytest.fixture
def record(native_agent: Path, tmp_path: Path) -> Clients:
    """Records a program that uses ITT or NVTX."""
    return Clients(Drive(native_agent, Path(), tmp_path), {})
