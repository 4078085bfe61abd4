"""Fixtures for the tests of the unwinder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.building import build, sanitizer_flag
from tests.stacks.oracles import HERE, STRICT, UNWINDER, Oracle, build_oracle


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """The recorder and the program that compares, as they are shipped."""
    return build_oracle(tmp_path_factory.mktemp("oracle"))


@pytest.fixture(scope="session")
def sanitized_oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """The same under the compiler's checkers."""
    folder = tmp_path_factory.mktemp("sanitized")
    flag = sanitizer_flag(folder, "address,undefined")
    return build_oracle(folder, flag, "-fno-sanitize-recover=undefined")


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that the victim loads while it runs."""
    return build(
        tmp_path_factory.mktemp("plugin") / "plugin.so",
        [HERE / "plugin.c"],
        "-O2",
        "-shared",
        "-fPIC",
    )


@pytest.fixture(scope="session")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of fuzz.c under the compiler's checkers."""
    folder = tmp_path_factory.mktemp("fuzz")
    flag = sanitizer_flag(folder, "address,undefined")
    return build(
        folder / "fuzz",
        [HERE / "fuzz.c", *UNWINDER],
        *STRICT,
        flag,
        "-fno-sanitize-recover=undefined",
    )
