"""Environments that are made while tests run that do not need them, without making any."""

from __future__ import annotations

import pytest

import beside
from native_build import Failure


def test_environments_are_made_while_the_block_runs() -> None:
    made: list[str] = []

    with beside.made_beside(lambda: made.append("environments")):
        made.append("tests")

    assert sorted(made) == ["environments", "tests"]


def test_an_environment_that_cannot_be_made_is_a_failure_after_the_tests() -> None:
    def fail() -> None:
        raise Failure("no network")

    ran = []
    with pytest.raises(Failure, match="no network"), beside.made_beside(fail):
        ran.append("tests")
    assert ran == ["tests"]


def test_a_python_that_is_too_new_for_mxnet_has_its_tests_skipped() -> None:
    assert beside.mxnet_for((3, 12)) == {}
    assert list(beside.missing({})) == ["LAYERSCOPE_TEST_NO_MXNET"]


def test_both_versions_of_mxnet_are_made_for_an_old_python() -> None:
    wanted = beside.mxnet_for((3, 11))

    assert [name for name, _ in wanted.values()] == ["mxnet2", "mxnet1"]
    assert beside.missing(wanted) == {}
