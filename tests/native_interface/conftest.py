"""Fixtures for the tests of the C interface: its library, and the program that is driven."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.native.building import ROOT, build
from tests.native_interface.driven import Drive, alone, under_run

NATIVE_OUT = ROOT / "src" / "layerscope" / "native"
STRICT = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "native" / "include"))


@pytest.fixture(scope="session")
def interface(native_agent: Path) -> Path:
    """The compiled library."""
    library = native_agent.with_name("liblayerscope.so")
    assert library.exists(), f"{library} is not compiled: run `python3 dev.py native`"
    return library


@pytest.fixture(scope="session")
def driver(interface: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of driver.c, linked as a user's program is."""
    source = Path(__file__).with_name("driver.c")
    link = (
        f"-L{interface.parent}",
        f"-Wl,-rpath,{interface.parent}",
        "-Wl,--no-as-needed",
        "-llayerscope",
    )
    return build(tmp_path_factory.mktemp("driver") / "driver", [source], *STRICT, *link)


@pytest.fixture
def drive(driver: Path, tmp_path: Path) -> Drive:
    """Runs the driver alone."""
    return partial(alone, driver, tmp_path)


@pytest.fixture
def drive_under_run(driver: Path, tmp_path: Path) -> Drive:
    """Runs the driver under `layerscope run`."""
    return partial(under_run, driver, tmp_path)
