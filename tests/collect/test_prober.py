"""The pages of processes that come and go are not kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from layerscope.collect import layout, probe
from layerscope.collect.probe import Answer
from layerscope.collect.prober import Prober
from tests.collect.shared_memory import Page


def test_a_process_that_records_keeps_no_descriptor_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(probe, "known", lambda library: Answer("good", "", 200, 304, 1.0, 1.0, True))
    prober = Prober(use_tsc=False)
    before = os.listdir("/proc/self/fd")

    late = Page(library=str(tmp_path / "libtorch_cpu.so"))
    prober.take(late.fd, 1)
    for _ in range(20):
        page = Page(library=str(tmp_path / "libtorch_cpu.so"), callbacks=3)
        prober.take(page.fd, 1)
        assert late.fields["probe"][0] == layout.PROBE_GOOD
        os.close(page.fd)
    prober.finish()

    assert [problem.code for problem in prober.problems] == ["probe_late"]
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 4
