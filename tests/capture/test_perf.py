"""`perf record` beside a program: what it leaves is on the run's clock and has the program in
it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerscope.capture import perf
from layerscope.rawfile import json_files, raw_file
from layerscope.sources import perf_data
from tests.sources.test_perf_data import column

BUSY = "import time, sys\nwhile time.process_time() < 0.5: pass\ntime.sleep(0.05)"


def need_perf() -> None:
    if problem := perf.check():
        pytest.skip(problem.what)


def test_without_perf_there_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    recorder = perf.Perf(tmp_path)
    assert not recorder.start()
    recorder.finish()
    assert [problem.code for problem in recorder.problems] == ["no_perf"]


def test_a_perf_that_fails_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "perf").write_text("#!/bin/sh\necho 'nobody may' >&2\nexit 1\n")
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    recorder = perf.Perf(tmp_path)
    assert not recorder.start()
    assert [(problem.code, "nobody may" in problem.what) for problem in recorder.problems] in (
        [("perf_failed", True)], [("perf_refused", False)]
    )  # fmt: skip


@pytest.mark.slow
def test_its_file_takes_a_part_of_what_the_recording_may(tmp_path: Path) -> None:
    need_perf()
    (tmp_path / json_files.OPTIONS).write_text(json.dumps({raw_file.MAX_SIZE: 500_000}))
    recorder = perf.Perf(tmp_path)
    if not recorder.start():
        pytest.skip(recorder.problems[-1].what)
    wakes = "import time\nfor _ in range(20000): time.sleep(0)\nwhile time.process_time() < 1.5: time.sleep(0.0001)"
    subprocess.run([sys.executable, "-c", wakes], check=True, timeout=120)
    recorder.finish()
    size_bytes = (tmp_path / perf.FILE).stat().st_size
    assert size_bytes < 3_000_000
    assert ("perf_full" in [problem.code for problem in recorder.problems]) == (
        size_bytes >= 90_000
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_narrow", [False, True])
def test_the_program_is_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_narrow: bool
) -> None:
    """The whole machine, and where that is refused the program alone."""
    need_perf()
    if is_narrow:
        real = shutil.which("perf")
        script = f'#!/bin/sh\ncase " $* " in *" -a "*) echo "not for you" >&2; exit 1;; esac\nexec {real} "$@"\n'
        (tmp_path / "perf").write_text(script)
        (tmp_path / "perf").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    recorder = perf.Perf(tmp_path)
    if not recorder.start():
        pytest.skip(recorder.problems[-1].what)
    begin_ns = time.monotonic_ns()
    with subprocess.Popen([sys.executable, "-c", BUSY]) as program:
        assert program.wait() == 0
    end_ns = time.monotonic_ns()
    recorder.finish()
    if is_narrow:
        assert [problem.code for problem in recorder.problems] == ["perf_narrow"]
    content = perf_data.read(tmp_path / perf.FILE)
    own = {number for number, track in enumerate(content.tracks) if track.tid == program.pid}
    rows = zip(
        *(column(content, name) for name in ("track", "kind", "at_ns", "weight_ns")), strict=True
    )
    mine = [(kind, at, weight) for track, kind, at, weight in rows if track in own]
    assert mine
    assert all(begin_ns <= at <= end_ns for _, at, _ in mine)
    cpu_ns = sum(weight for kind, _, weight in mine if kind == 0)
    assert cpu_ns > 0.1e9
    assert max(weight for kind, _, weight in mine if kind == 1) >= 50_000_000
