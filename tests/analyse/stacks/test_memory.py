"""Flame graphs of memory: the bytes of every place are known, of a recording that was made once and
of made-up ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from layerscope.analyse.stacks import flame_layout, graphs
from layerscope.analyse.stacks.graphs import Graph, Look
from layerscope.analyse.stacks.sample_reader import Choice
from layerscope.analyse.tables import memory, peak
from layerscope.model.errors import UsageError
from layerscope.model.layers import PHASES
from layerscope.recording.reader import Reader
from tests.analyse.stacks.made import compared, graph_of, sampled, stacks_of
from tests.recorded import Recorded
from tests.recordings import MS, Recording
from tests.replayed import replay

MIB = 1 << 20
LEAK, CACHE = "aten::empty > program.py:31", "aten::empty > program.py:41"
# All blocks of the program and nothing else, as the peak of them has them.
LIVE = """
    SELECT sum(bytes) AS bytes, count(*) AS blocks FROM allocations, (
      SELECT at_ns AS moment, (SELECT sum(bytes) FROM allocations live WHERE live.at_ns <= one.at_ns
        AND (dur_ns IS NULL OR live.at_ns + dur_ns > one.at_ns)) AS level
      FROM allocations one WHERE {where} ORDER BY level DESC, moment LIMIT 1)
    WHERE at_ns <= moment AND (dur_ns IS NULL OR at_ns + dur_ns > moment)"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return replay("memory", tmp_path_factory.mktemp("memory"))


@pytest.fixture(scope="module")
def reader(recorded: Recorded) -> Iterator[Reader]:
    with Reader(recorded.run) as opened:
        yield opened


def of(reader: Reader, kind: str, by: str | None = None, **choice: Any) -> Graph:
    return graphs.build(reader, Look(kind, Choice(**choice), by=by))


def sums(graph: Graph) -> tuple[int, int]:
    """Bytes and blocks of the whole."""
    size, blocks = graph.tree.whole().tolist()
    return size, blocks


def test_all_that_was_allocated_is_in_the_picture(recorded: Recorded, reader: Reader) -> None:
    graph = of(reader, "alloc")

    (rows,) = recorded.rows("SELECT sum(bytes) AS bytes, count(*) AS blocks FROM allocations")
    assert sums(graph) == (rows["bytes"], rows["blocks"])
    found = stacks_of(graph)
    assert found[LEAK] == 10 * MIB
    assert found[CACHE] == 2 * MIB
    # A batch of 32 rows through the layers of 128 and 10, ten times.
    assert found["Net > Net.first > aten::addmm > program.py:24"] == 10 * 4 * 32 * 128
    assert found["Net > Net.second > aten::addmm > program.py:24"] == 10 * 4 * 32 * 10
    assert (graph.unit, graph.is_sampled) == ("bytes", False)


def test_what_is_live_is_the_sum_at_the_highest_moment(recorded: Recorded, reader: Reader) -> None:
    graph = of(reader, "live")

    (most,) = recorded.rows(LIVE.format(where="true"))
    assert sums(graph) == (most["bytes"], most["blocks"])
    found = stacks_of(graph)
    assert (found[LEAK], found[CACHE]) == (10 * MIB, 2 * MIB)
    averages = 2 * 4 * (64 * 128 + 128 + 128 * 10 + 10)
    # They belong to the modules whose gradients have their sizes.
    of_adam = [size for way, size in found.items() if way.endswith("zeros_like > program.py:55")]
    assert sum(of_adam) == averages
    (note,) = graph.notes
    assert re.fullmatch(r"The highest moment of recording is 4\.\d+ s after its start\.", note)


def test_a_step_has_a_highest_moment_of_its_own(recorded: Recorded, reader: Reader) -> None:
    (step,) = recorded.rows(
        "SELECT start_ns, start_ns + dur_ns AS end_ns FROM steps WHERE step = 3"
    )
    where = f"one.at_ns >= {step['start_ns']} AND one.at_ns < {step['end_ns']}"
    (most,) = recorded.rows(LIVE.format(where=where))

    graph = of(reader, "live", steps=range(3, 4))

    assert sums(graph) == (most["bytes"], most["blocks"])
    assert stacks_of(graph)[LEAK] == 3 * MIB
    assert "in step 3" in graph.notes[0]


def test_what_was_there_when_the_time_begins_may_be_most(
    recorded: Recorded, reader: Reader
) -> None:
    start_ns = reader.run.info.start_ns
    last = recorded.value("SELECT max(at_ns) FROM allocations")
    # From the last allocation on everything is only released.
    since = (last + 1 - start_ns) / 1e9

    graph = of(reader, "live", seconds=(since, float("inf")))

    assert stacks_of(graph)[LEAK] == 10 * MIB


def test_what_outlives_its_step_is_left_over_and_a_cache_is_not(reader: Reader) -> None:
    graph = of(reader, "leak")

    # Step 0 is warm-up, and the last two are not judged. What is remembered behind the call of an
    # optimizer belongs to the next step.
    assert stacks_of(graph) == {LEAK: 7 * MIB}
    (note,) = graph.notes
    assert note.startswith("2.10 MB that outlived their step too are left out")
    by_step = stacks_of(of(reader, "leak", by="step"))
    assert by_step == {f"step {step} > {LEAK}": MIB for step in range(1, 8)}
    assert sums(of(reader, "leak", steps=range(2, 4))) == (2 * MIB, 2)


@pytest.mark.parametrize("kind", ["alloc", "live"])
def test_parts_add_up_to_the_whole(recorded: Recorded, reader: Reader, kind: str) -> None:
    whole = sums(of(reader, kind))

    phases = [phase for phase in PHASES if phase in _phases(recorded)]
    parts = []
    for phase in phases:
        try:
            parts.append(sums(of(reader, kind, phase=phase)))
        except UsageError:
            parts.append((0, 0))
    assert tuple(map(sum, zip(*parts, strict=True))) == whole
    for by in ("thread", "process", "rank", "step"):
        assert sums(of(reader, kind, by=by)) == whole
    assert sums(of(reader, kind, thread="python3.11")) == whole


def _phases(recorded: Recorded) -> set[str]:
    return {row["phase"] for row in recorded.rows("SELECT DISTINCT phase FROM allocations")}


def test_a_module_has_what_was_allocated_in_it(recorded: Recorded, reader: Reader) -> None:
    table = memory.build(reader, "module").data.to_pylist()
    known = {row["module"]: (row["bytes"], row["allocations"]) for row in table}
    forward = recorded.value(
        "SELECT sum(bytes) FROM allocations JOIN modules USING (module) WHERE path = 'Net.first'"
    )

    assert sums(of(reader, "alloc", module="Net.first")) == known["Net.first"]
    assert sums(of(reader, "alloc", module="second")) == known["Net.second"]
    # With what the backward pass allocated for it.
    assert known["Net.first"][0] > forward
    with pytest.raises(UsageError, match=r"there is no module 'third'\. The modules are Net, "):
        of(reader, "alloc", module="third")


def test_each_category_is_a_frame_around_its_blocks(reader: Reader) -> None:
    table = peak.build(reader, "category").data.to_pylist()

    graph = of(reader, "live", by="category")

    found: dict[str, int] = {}
    for way, size in stacks_of(graph).items():
        category = way.partition(" > ")[0]
        found[category] = found.get(category, 0) + size
    assert found == {row["category"]: row["bytes"] for row in table}
    assert {"parameter", "gradient", "optimizer state"} < found.keys()
    with pytest.raises(UsageError, match="--by category is for memory"):
        of(reader, "operators", by="category")


@pytest.mark.parametrize("kind", ["alloc", "live", "leak"])
def test_a_recording_compared_with_itself_has_not_changed(reader: Reader, kind: str) -> None:
    graph = graphs.compare(reader, reader, Look(kind))

    drawn = flame_layout.draw(graph)
    assert not drawn.change.any()
    assert not drawn.sure.any()
    assert graph.compared is not None
    assert graph.compared.per == ("run" if kind == "live" else "step")
    if kind == "leak":
        # A MiB in each of these.
        assert (graph.whole, graph.compared.units) == (7 * MIB, 7)


def test_what_there_is_not_is_refused(reader: Reader) -> None:
    with pytest.raises(UsageError, match="alloc is made of blocks of memory"):
        of(reader, "alloc", by="state")
    with pytest.raises(UsageError, match="--kind live is what lives at one moment"):
        graphs.compare(reader, reader, Look("live", per="step"))
    with pytest.raises(
        UsageError, match=r"no memory of tensors\. Record it: layerscope run --layers"
    ):
        graph_of(sampled((("python f a.py:1",), 1)), Look("alloc"))


def with_blocks(*blocks: tuple[int, int | None, int], steps: int = 10, **more: Any) -> Recording:
    """Blocks of (start in ms, duration in ms or None, bytes), and steps of 10 ms; one block comes
    after them.
    """
    recording = Recording()
    recording.rows["allocations"] = []
    for at_ms, dur_ms, size in blocks:
        add_block(recording, at_ms, dur_ms, size, **more)
    for step in range(steps):
        recording.add_step(step, 10 * step * MS, (0, 10 * MS, 0, 0, 0))
    add_block(recording, 500, 0, 0, line="end.py:1")
    return recording


def add_block(recording: Recording, at_ms: int, dur_ms: int | None, size: int, **more: Any) -> None:
    dur_ns = None if dur_ms is None else dur_ms * MS
    recording.add_block(size, at_ms * MS, dur_ns, **{"line": "/a/train.py:7", **more})


def test_places_that_are_hardly_known_have_a_name_too() -> None:
    recording = with_blocks((0, 1, 3), operator="", line="")
    add_block(recording, 1, 1, 5, operator="", line="<string>")
    add_block(recording, 2, 1, 7, line="/b/train.py:9")
    add_block(recording, 3, 1, 9)

    assert stacks_of(graph_of(recording, Look("alloc"))) == {
        "no module, operator or line known": 3,
        "<string>": 5,
        "aten::empty > b/train.py:9": 7,
        "aten::empty > a/train.py:7": 9,
    }


def test_each_device_and_process_has_its_own_highest_moment() -> None:
    recording = with_blocks((0, 10, 100), (50, 10, 30))
    add_block(recording, 55, 1, 40, device="cuda:0")
    child = recording.add_process(200)
    thread = recording.add_thread(child, 200, "child")
    add_block(recording, 70, 5, 8, track=thread)

    graph = graph_of(recording, Look("live"))

    assert stacks_of(graph) == {
        "tensor on cpu > aten::empty > train.py:7": 108,
        "tensor on cuda:0 > aten::empty > train.py:7": 40,
    }
    assert "3 processes and devices" in graph.notes[0]


def test_blocks_whose_release_was_lost_are_not_live() -> None:
    recording = with_blocks((0, 10, 100))
    add_block(recording, 5, None, 50, is_lost=True)

    assert graph_of(recording, Look("live")).whole == 100
    assert graph_of(recording, Look("alloc")).whole == 150


def test_a_program_that_was_killed_shows_what_was_live() -> None:
    recording = with_blocks((0, 10, 100), (20, None, 70), (30, None, 60))

    assert graph_of(recording, Look("live")).whole == 130


def test_a_cache_that_is_full_is_no_leak() -> None:
    filled = [(10 * step + 1, None, 100) for step in range(3)]
    leaking = [(10 * step + 2, None, 1) for step in range(11)]
    recording = with_blocks(*filled, steps=11)
    for at_ms, dur_ms, size in leaking:
        add_block(recording, at_ms, dur_ms, size, line="leak.py:1")

    assert stacks_of(graph_of(recording, Look("leak"))) == {"aten::empty > leak.py:1": 9}


def test_a_leak_needs_steps() -> None:
    with pytest.raises(UsageError, match="has too few steps: 6 besides warm-up and the last two"):
        graph_of(with_blocks((0, None, 1), steps=7), Look("leak"))
    with pytest.raises(UsageError, match="No line goes on keeping memory step after step"):
        graph_of(with_blocks((0, 5, 1)), Look("leak"))


def test_a_leak_that_is_mended_is_gone() -> None:
    leak = with_blocks(*((10 * step + 1, None, 100) for step in range(10)))
    mended = with_blocks(*((10 * step + 1, 1, 100) for step in range(10)))

    graph = compared(mended, leak, Look("leak"))

    drawn = flame_layout.draw(graph)
    assert drawn.is_gone.all()
    assert drawn.change[0] == -100
