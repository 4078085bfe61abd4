"""How long segments of XLA's profiler are, and the pauses between them, by what they cost."""

from __future__ import annotations

import json
import runpy
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.handed_faults import HANDED
from tests.recorded import ROOT

PART = ROOT / "src/layerscope/capture/frameworks/jax/inside/segments.py"


@pytest.fixture
def part() -> dict[str, Any]:
    """What the file defines."""
    return runpy.run_path(str(PART), {"faults": HANDED})


def made(part: dict[str, Any], raw: Path, share: float | None) -> Any:
    """Segments of a program that has computed for two seconds, the second one of which ends."""
    (raw / "options.json").write_text(json.dumps({"profiler_share": share}))
    profiler = SimpleNamespace(ProfilerSession=None)
    found = part["Segments"](raw.as_posix(), None, profiler, None, None, None, None)
    found.count = 2
    found.since_s = time.monotonic() - 2
    found.since_cpu_s = time.process_time() - 2
    return found


def pause_s(found: Any) -> float:
    """How long there is none from now on."""
    return max(0.0, found.pause_until_s - time.monotonic())


def test_segments_that_cost_little_follow_each_other(part: dict[str, Any], tmp_path: Path) -> None:
    found = made(part, tmp_path, 0.05)
    found.plan(100_000, 2.0)
    found.keep_budget(2.0, 0.01)
    assert pause_s(found) == 0
    assert found.length_s == 4.0


def test_segments_that_cost_much_have_pauses_that_earn_it(
    part: dict[str, Any], tmp_path: Path
) -> None:
    found = made(part, tmp_path, 0.05)
    found.plan(2_000_000, 1.0)
    found.keep_budget(1.0, 0.3)
    # Half a second more takes 0.15 s, and 0.15 s of ten seconds are earned: 0.3 s are missing.
    assert pause_s(found) == pytest.approx(0.3 / 0.015, rel=0.05)
    assert found.length_s == 0.5


def test_without_a_budget_there_is_no_pause(part: dict[str, Any], tmp_path: Path) -> None:
    found = made(part, tmp_path, None)
    found.plan(20_000_000, 1.0)
    found.keep_budget(1.0, 2.0)
    assert pause_s(found) == 0
    assert found.length_s == 0.5
    assert found.may_hold()


def test_of_the_first_segment_what_compiles_does_not_count(
    part: dict[str, Any], tmp_path: Path
) -> None:
    found = made(part, tmp_path, 0.05)
    found.count = 1
    found.begun_s = found.since_s
    found.compiled_s = found.since_s + 1.9
    found.keep_budget(2.0, 0.4)
    assert found.spent_s == pytest.approx(0.02, rel=0.05)
    assert pause_s(found) == 0


def test_behind_many_traces_of_the_program_s_own_ours_does_not_go_on(
    part: dict[str, Any], tmp_path: Path
) -> None:
    found = made(part, tmp_path, 0.05)
    found.traces = SimpleNamespace(lock=threading.Lock(), profile_session=None)
    found.profiler = SimpleNamespace(ProfilerSession=None, start_server=None)
    found.hidden = lambda function: function
    for number in range(part["MOST_AWAY"]):
        assert not found.over
        found.give_way(True)
        assert found.is_away
        found.traces.profile_session = number
        assert not found.comes_back()
        found.traces.profile_session = None
        assert found.comes_back()
    assert found.over
    assert all(until_ns >= from_ns for from_ns, until_ns in found.away)
