"""Allocations of tensors and arrays against what the program and torch.profiler say of them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.recorded import ROOT, Recorded, record

pytestmark = pytest.mark.slow

PROGRAM = ROOT / "tests" / "programs" / "memory_known.py"
KIB = 1024
FLOAT, DOUBLE = 4, 8


@pytest.fixture(scope="module")
def recorded(
    program_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    folder = tmp_path_factory.mktemp("memory")
    options = ["--layers=+memory,-stacks"]
    return record(program_python, str(PROGRAM), folder, str(folder / "trace"), options=options)


def of_size(recorded: Recorded, size: int) -> list[dict[str, Any]]:
    return recorded.rows(
        f"""
        SELECT allocations.*, pid, tid, tracks.name AS thread
        FROM allocations JOIN tracks USING (track) JOIN processes USING (process)
        WHERE bytes = {size} ORDER BY at_ns"""
    )


def of_torch_profiler(recorded: Recorded) -> dict[str, Any]:
    trace = recorded.run.path.parent / "trace.bytes"
    found: dict[str, Any] = json.loads(trace.read_text())
    return found


def line_of(text: str) -> str:
    lines = PROGRAM.read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f"{PROGRAM}:{number}"


def test_the_events_of_torch_profiler_are_the_same(recorded: Recorded) -> None:
    """On its thread, one by one: every allocation and every release, in the same order."""
    assert recorded.status == -signal.SIGKILL or recorded.status == 128 + signal.SIGKILL
    theirs = of_torch_profiler(recorded)["events"]
    begin_ns, end_ns = recorded.rows(
        "SELECT start_ns, start_ns + dur_ns AS end_ns FROM spans WHERE name = 'profiled'"
    )[0].values()
    blocks = recorded.rows(
        f"""
        SELECT at_ns, coalesce(at_ns + dur_ns, {2**62}) AS end_ns, bytes FROM allocations
        WHERE allocator = 'tensor' AND at_ns < {end_ns}"""
    )
    events = [(block["at_ns"], block["bytes"]) for block in blocks]
    events += [(block["end_ns"], -block["bytes"]) for block in blocks]
    ours = [size for at_ns, size in sorted(events) if begin_ns <= at_ns < end_ns]

    assert len(theirs) > 100
    assert ours == theirs[: len(ours)]
    # Between the end of the range and that of the profiler nothing is allocated.
    assert len(theirs) == len(ours)


def test_a_block_that_another_thread_releases_has_ended(recorded: Recorded) -> None:
    (block,) = of_size(recorded, 11 * KIB * FLOAT)

    assert block["tid"] != block["pid"]
    assert block["dur_ns"] > 0
    assert block["operator"] == "aten::empty"
    assert block["line"] == line_of("maker = threading.Thread")


def test_a_child_does_not_end_a_block_of_its_parent(recorded: Recorded) -> None:
    (shared,) = of_size(recorded, 13 * KIB * FLOAT)
    (own,) = of_size(recorded, 17 * KIB * FLOAT)

    assert shared["dur_ns"] is None
    assert own["pid"] != shared["pid"]
    assert own["dur_ns"] > 0


def test_arrays_of_numpy_are_known_with_their_line(recorded: Recorded) -> None:
    (zeros,) = of_size(recorded, 19 * KIB * DOUBLE)
    (source,) = of_size(recorded, 23 * KIB * DOUBLE)
    (resized,) = of_size(recorded, 29 * KIB * DOUBLE)

    assert {zeros["allocator"], source["allocator"], resized["allocator"]} == {"numpy"}
    assert zeros["line"] == source["line"] == line_of("arrays = [numpy.zeros")
    assert zeros["dur_ns"] is not None
    assert resized["at_ns"] >= source["at_ns"] + source["dur_ns"]
    assert resized["line"] == line_of("arrays[1].resize")
    assert resized["dur_ns"] is None


def test_of_a_killed_program_what_was_live_is_known(recorded: Recorded) -> None:
    live = of_size(recorded, 31 * KIB * FLOAT)

    assert [block["dur_ns"] for block in live] == [None] * 3
    assert {block["line"] for block in live} == {line_of("live = [torch.empty")}
    assert {block["is_lost"] for block in live} == {False}


ACTIVATION = 512 * 256 * FLOAT
WEIGHT, BIAS = 256 * 256 * FLOAT, 256 * FLOAT
PARAMETERS = 4 * (WEIGHT + BIAS)
# PyTorch saves the state of its generator for what is computed again.
GENERATOR = 5056


def growth(recorded: Recorded, name: str) -> int:
    """By how much live tensors grow at most in the range `name`."""
    return int(
        recorded.value(
            f"""
            WITH range AS (
                SELECT start_ns AS since, start_ns + dur_ns AS until FROM spans
                WHERE name = '{name}' AND layer = 'operators'
            ),
            blocks AS (
                SELECT allocations.* FROM allocations, range
                WHERE allocator = 'tensor' AND at_ns BETWEEN since AND until
            ),
            events AS (
                SELECT at_ns, bytes AS change FROM blocks
                UNION ALL SELECT at_ns + dur_ns, -bytes FROM blocks WHERE dur_ns IS NOT NULL
            )
            SELECT max(live)
            FROM (SELECT sum(change) OVER (ORDER BY at_ns) AS live FROM events)"""
        )
    )


def test_twins_that_keep_less_have_the_lower_peak_that_torch_profiler_has(
    recorded: Recorded,
) -> None:
    peaks = of_torch_profiler(recorded)["peaks"]

    assert {name: growth(recorded, name) for name in peaks} == peaks
    # At the first weight's gradient: the input, three activations (that of the last block has gone),
    # two gradients of activations, and two scalars.
    assert peaks["plain"] == 6 * ACTIVATION + WEIGHT + BIAS + 2 * FLOAT
    assert peaks["adam"] == peaks["plain"]  # its averages are from the step before
    assert peaks["accumulated"] == peaks["plain"] + PARAMETERS
    # Its peak is a block later, when there is the gradient of one layer more.
    instead = WEIGHT + BIAS + 2 * GENERATOR
    assert peaks["checkpointed"] == peaks["plain"] - ACTIVATION + instead
