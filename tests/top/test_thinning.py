"""A part of the records is read where there are too many, and stands for all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layerscope.analyse.live.program import LiveProgram
from layerscope.ingest.live.recording import LiveRecording
from layerscope.ingest.live.thinning import Pace
from layerscope.model.live import OPERATORS
from layerscope.rawfile.layout import FUNCTION, OPTIMIZER, SPAN_KINDS
from layerscope.session.top import TopOptions, Watch
from layerscope.show.live.lines import lines
from tests.ingest.raw_file import RawFile

WINDOW_NS = 5_000_000_000
STRETCH_NS = 100_000_000
STRETCHES = 64
# In each millisecond a step of 900 µs with 30 short operators of 20 µs, each with one of 5 µs; in
# each stretch an operator of 40 ms in which there are short ones too.
STEP_NS, SHORT_NS, INNER_NS = 900_000, 20_000, 5_000
SHORTS = 30


def stretch(file: RawFile, begin_ns: int) -> list[tuple]:
    """The records of a stretch."""
    found: list[tuple] = []
    for at_ns in range(begin_ns, begin_ns + 50_000_000, 1_000_000):
        found += shorts(file, at_ns, 1)
        found += file.span(
            at_ns, at_ns + STEP_NS, 0, "Optimizer.step#SGD.step", OPTIMIZER, optimizer=7
        )
    long_ns = begin_ns + 50_000_000
    for at_ns in range(long_ns, long_ns + 40_000_000, 1_000_000):
        found += shorts(file, at_ns, 1)
    found += file.span(long_ns, long_ns + 40_000_000, 0, "long", FUNCTION)
    return found


def shorts(file: RawFile, begin_ns: int, depth: int) -> list[tuple]:
    found: list[tuple] = []
    for at_ns in range(begin_ns, begin_ns + SHORTS * SHORT_NS, SHORT_NS):
        found += file.span(at_ns + 5_000, at_ns + 5_000 + INNER_NS, depth + 1, "inner", FUNCTION)
        found += file.span(at_ns, at_ns + SHORT_NS - 2_000, depth, "short", FUNCTION)
    return found


@pytest.fixture(scope="module", params=[True, False], ids=["tsc", "monotonic"])
def raw(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("thinned") / "raw"
    file = RawFile(folder, 1, tsc=request.param, kinds=[list(kind) for kind in SPAN_KINDS])
    file.poll(0)
    file.records(0, file.thread_begin(0, 1, 1))
    for number in range(STRETCHES):
        begin_ns = number * STRETCH_NS
        file.records(0, stretch(file, begin_ns))
        file.poll(begin_ns + STRETCH_NS)
    file.end(STRETCHES * STRETCH_NS)
    return folder


def read(raw: Path, every: int) -> tuple[dict[str, list[int]], int, int]:
    """By operator its count, its time, its time of its own; the steps; the records."""
    with LiveRecording(raw, WINDOW_NS) as recording:
        recording.every = every
        program = LiveProgram(recording.known, 0, WINDOW_NS)
        program.add(recording.advance(last=True))
        [(process, _)] = recording._processes
        names = [name for name, _ in program.known.labels[OPERATORS]]
        sums = program.sums(OPERATORS).whole.tolist()
        steps = program.facts().steps.count
        return dict(zip(names, sums, strict=True)), steps, process.events.records


@pytest.mark.parametrize("every", [2, 4, 8])
def test_a_part_that_is_read_tells_the_sums_of_all(raw: Path, every: int) -> None:
    whole, steps, records = read(raw, 1)
    part, steps_of_part, records_of_part = read(raw, every)

    assert records_of_part < 1.2 * records / every
    assert part.keys() == whole.keys()
    for name in whole:
        # All stretches are alike, and so is their part: what is left is rounding.
        assert np.allclose(part[name], whole[name], rtol=0.03), (name, part[name], whole[name])
    assert steps_of_part == steps == 50 * STRETCHES


def test_all_that_is_not_read_is_counted(raw: Path) -> None:
    whole, _, _ = read(raw, 1)
    part, _, _ = read(raw, 4)

    for name in whole:
        assert abs(part[name][0] - whole[name][0]) <= 3, name


def test_fewer_records_are_read_until_reading_takes_little() -> None:
    pace = Pace()
    took = 0.11  # of a core, if all were read
    found = []
    for _ in range(10):
        pace.spent(round(took / pace.every * 2e9), 2_000_000_000)
        found.append(pace.every)

    assert found[-1] == found[-2] == 8
    assert took / found[-1] <= 0.014


def test_all_is_read_again_when_there_is_less_to_read() -> None:
    pace = Pace()
    for _ in range(8):
        pace.spent(200_000_000, 2_000_000_000)
    for _ in range(8):
        pace.spent(1_000_000, 2_000_000_000)

    assert pace.every == 1


class Watched:
    """What `top` knows of a recording that it watches."""

    title, pid, cpus, since, warm_s = "python train.py", 1, 2.0, "since start", 0.0
    start_ns = program_start_ns = 0

    def is_over(self) -> bool:
        return False

    def closed(self) -> str:
        return ""


def test_the_screen_says_that_a_part_was_read(raw: Path) -> None:
    with LiveRecording(raw, WINDOW_NS) as recording:
        program = LiveProgram(recording.known, 0, WINDOW_NS)
        watch = Watch(TopOptions(table=OPERATORS), Watched(), recording, program)  # type: ignore[arg-type]
        watch._read()
        assert "records read" not in watch.view().note
        watch._pace.spent(300_000_000, 6_000_000_000)
        watch._read()

        [line] = [line.text for line in lines(watch.view(), 100, 24) if "read:" in line.text]
        assert line.startswith("1 of 4 records read: times and counts of operators")
        assert recording.every == 4


def test_a_moment_is_not_enough_to_read_less() -> None:
    pace = Pace()
    pace.spent(500_000_000, 500_000_000)

    assert pace.every == 1
