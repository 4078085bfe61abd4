"""The session's end of the drainer, where no drainer lives."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from layerscope.capture import link
from layerscope.capture.link import DrainerLink
from layerscope.capture.restarts import Restarts
from layerscope.model.events import Problem
from layerscope.rawfile import dtypes, layout, raw_file
from tests.capture.shared_memory import START, Page, Ring


def test_where_every_drainer_dies_the_session_takes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "may_fork", lambda: False)
    monkeypatch.setattr(link, "own_command", lambda *_: ["false"])
    problems: list[Problem] = []
    held = DrainerLink(tmp_path, problems)
    ring = Ring()
    ring.put(1000)

    held.start()
    held.begin(os.getpid(), START)
    for kind, fd in ((layout.SEND_PROCESS, Page().fd), (layout.SEND_RING, ring.fd)):
        held.keep(
            {"type": kind, "pid": os.getpid(), "index": 0, "process_start": START}, os.dup(fd)
        )
    held.end()

    (file,) = tmp_path.glob("*/spool")
    chunks = list(raw_file.SpoolReader(file).chunks())
    taken = [
        np.frombuffer(chunk.payload, dtypes.RECORD)["seq"]
        for chunk in chunks
        if chunk.kind == raw_file.RECORDS
    ]
    assert np.concatenate(taken).tolist() == list(range(1000))
    assert chunks[-1].kind == raw_file.END
    assert [problem.code for problem in problems] == ["drainer_restarted"]
    assert problems[0].what == "the drainer did not come to its end (status 1)"


def test_what_ends_again_and_again_is_started_three_times_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    restarts, started = Restarts(), []
    for _ in range(300):
        if restarts.may_start():
            restarts.note_start()
            started.append(now)
        now += 0.1
    assert started[:3] == pytest.approx([100, 100.1, 100.2])
    assert all(later - first > 10 for first, later in zip(started, started[3:], strict=False))
    assert len(started) == 9
    assert restarts.note_end("the drainer", "ended (status -9)") == "the drainer ended (status -9)"
    assert (
        restarts.note_end("the drainer", "stopped")
        == "the drainer ended 2 times; the last one stopped"
    )
