"""The converter: when it works beside the program, and the summary that it makes for the prompt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from layerscope.analyse.summary import summarise
from layerscope.recording.reader import Reader
from layerscope.recording.run import LayerState
from layerscope.session import convert
from layerscope.session.free_cpus import FreeCpus
from layerscope.show.summary import text
from tests.recordings import MS, Recording


def test_the_overhead_at_the_prompt_is_that_of_the_steps_too(tmp_path: Path) -> None:
    recording = Recording()
    for number in range(12):
        recording.add_step(number, number * 10 * MS, (0, 5 * MS, 5 * MS, 0, 0))
        recording.add_span("aten::mm", number * 10 * MS, MS, step=number)
    run = recording.write(
        tmp_path / "x.layerscope",
        layers=[LayerState("operators", records=12, cpu_ns=12 * MS, state="recorded")],
    )
    request = {"tables": str(run.path), "info": msgspec.to_builtins(run.info)}

    answer = convert._summary(run.path, request)

    assert "at least 10.0 % of its steps (estimated)" in answer["text"]
    with Reader(run) as reader:
        later = text(summarise(reader))
    assert later.partition("Overhead")[0] == answer["text"].partition("Overhead")[0]


class Backlog:
    """A conversion of a recording that grows by 1 MB each time it is looked at, and ends at 40."""

    most_bytes = 2 << 30
    is_wrong = False

    def __init__(self, end: int) -> None:
        self.waiting_mb = 0
        self.looks = 0
        self.converted_at: list[int] = []
        self.segments_at: tuple[int, ...] = ()
        self.source = self
        self._end = end

    def backlog_share(self) -> float:
        self.waiting_mb += 1
        self.looks += 1
        if self.looks == 40:
            os.close(self._end)
        return (self.waiting_mb << 20) / self.most_bytes

    def advance(self, most: int) -> int:
        self.converted_at.append(self.waiting_mb)
        self.waiting_mb = 0
        return 0

    def keep_within_size(self) -> None:
        pass

    def read_ahead(self) -> bool:
        return self.looks in self.segments_at


def follow(
    monkeypatch: pytest.MonkeyPatch, free: float, segments_at: tuple[int, ...] = ()
) -> Backlog:
    """A conversion beside a program that leaves so many CPUs free."""
    reading, writing = os.pipe()
    conversion: Any = Backlog(writing)
    conversion.segments_at = segments_at
    monkeypatch.setattr(convert, "POLL_S", 0.001)
    monkeypatch.setattr(FreeCpus, "of_late", lambda _: free)
    monkeypatch.setattr(convert, "_prepare_summary", lambda: None)
    with open(reading, "rb") as requests:
        monkeypatch.setattr("sys.stdin", requests)
        assert not convert._follow(conversion)
    found: Backlog = conversion
    return found


def test_beside_a_free_core_a_batch_is_converted_when_there_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert follow(monkeypatch, free=1.0).converted_at == [12, 12, 12]


def test_beside_busy_cores_the_conversion_waits_until_the_end_would_take_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert follow(monkeypatch, free=0.1).converted_at == [16, 16]


def test_segments_of_a_profiler_do_not_pile_up_beside_busy_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert follow(monkeypatch, free=0.1, segments_at=(5, 10)).converted_at == [6, 5, 16]


def test_free_cpus_are_what_is_idle_and_what_we_use_ourselves(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    stat = tmp_path / "proc" / "stat"
    stat.parent.mkdir()
    ticks = os.sysconf("SC_CLK_TCK")

    def idle(seconds: float) -> None:
        each = round(seconds * ticks / len(cpus))
        stat.write_text("".join(f"cpu{cpu} 9 0 9 {each} 0 0 0 0 0 0\n" for cpu in cpus))

    passed_s, used_s = [0.0], [0.0]
    idle(10.0)
    free = FreeCpus(tmp_path, lambda: passed_s[0], lambda: used_s[0])
    idle(10.5)
    passed_s[0] += 2.0
    assert free.of_late() == pytest.approx(0.25, abs=0.02)
    used_s[0], passed_s[0] = 1.0, passed_s[0] + 1.0
    assert free.of_late() == pytest.approx(1.0, abs=0.02)
    stat.unlink()
    passed_s[0] += 1.0
    assert free.of_late() == float("inf")
