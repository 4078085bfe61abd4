"""A failed test is void only where it measures and the host took CPU time away."""

from __future__ import annotations

import pytest

from layerscope.host.noise import CpuTime
from tests import undisturbed

pytest_plugins = ["pytester"]

FAILS = """
    import pytest

    @pytest.mark.alone
    def test_measures():
        assert not "right"

    def test_other():
        assert not "right"
"""


def outcomes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, steal: int
) -> dict[str, int]:
    readings = iter([CpuTime(1000, 500, 0), CpuTime(1200, 600, steal)] * 2)
    monkeypatch.setattr(undisturbed.noise, "cpu_time", lambda: next(readings))
    pytester.makeini("[pytest]\nmarkers = alone")
    pytester.makepyfile(FAILS)
    done = pytester.inline_run("-p", "no:cacheprovider", plugins=[undisturbed.Undisturbed()])
    passed, skipped, failed = done.countoutcomes()
    return {"passed": passed, "skipped": skipped, "failed": failed}


def test_a_measurement_that_was_disturbed_is_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcomes(pytester, monkeypatch, 3) == {"passed": 0, "skipped": 1, "failed": 1}


def test_one_that_was_not_has_failed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcomes(pytester, monkeypatch, 1) == {"passed": 0, "skipped": 0, "failed": 2}
