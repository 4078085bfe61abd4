"""Environments that are made while tests run that do not need them, without making any."""

from __future__ import annotations

from pathlib import Path

import pytest

import beside
from native_build import Failure


def test_environments_are_made_while_the_block_runs() -> None:
    made: list[str] = []

    with beside.made_beside([lambda: made.append("one") or "", lambda: made.append("two") or ""]):
        made.append("tests")

    assert sorted(made) == ["one", "tests", "two"]


def test_an_environment_that_cannot_be_made_is_a_failure_after_the_tests() -> None:
    def fail() -> str:
        raise Failure("no network")

    ran = []
    with pytest.raises(Failure, match="no network"), beside.made_beside([fail]):
        ran.append("tests")
    assert ran == ["tests"]


def test_a_python_that_is_too_new_for_mxnet_has_its_tests_skipped(tmp_path: Path) -> None:
    wanted = beside.mxnet_for((3, 12))

    assert wanted == {}
    assert list(beside.variables(tmp_path, wanted)) == ["LAYERSCOPE_TEST_NO_MXNET"]


def test_the_tests_know_the_pythons_of_both_versions(tmp_path: Path) -> None:
    told = beside.variables(tmp_path, beside.mxnet_for((3, 11)))

    assert told == {
        "LAYERSCOPE_TEST_MXNET1_PYTHON": str(tmp_path / "mxnet1" / "bin" / "python"),
        "LAYERSCOPE_TEST_MXNET2_PYTHON": str(tmp_path / "mxnet2" / "bin" / "python"),
    }
