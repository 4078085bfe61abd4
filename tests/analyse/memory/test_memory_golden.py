"""A real program of whose memory every byte is known (`tests/golden/recordings/memory`): what holds
it, of which module, and what leaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import diff, tables
from layerscope.analyse.memory.at_peak import blocks_at_peak
from layerscope.analyse.result import Result
from layerscope.analyse.summary import summarise
from layerscope.recording.reader import Reader
from layerscope.show.summary import text
from tests.replayed import replay

MIB = 1 << 20
FIRST, SECOND = 4 * (64 * 128 + 128), 4 * (128 * 10 + 10)
PARAMETERS = FIRST + SECOND
# Adam counts the steps of each parameter in four bytes.
COUNTS = 4 * 4
PROGRAM = "/srv/work/program.py"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    recorded = replay("memory", tmp_path_factory.mktemp("memory"))
    with Reader(recorded.run) as opened:
        yield opened


def rows(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.data.to_pylist()
    return found


def table(reader: Reader, name: str, by: str | None = None) -> list[dict[str, Any]]:
    return rows(tables.build(reader, name, by))


def summed(found: list[dict[str, Any]], key: str, value: str) -> dict[Any, int]:
    sums: Counter[Any] = Counter()
    for row in found:
        sums[row[key]] += row[value]
    return dict(sums)


def test_the_peak_holds_what_the_program_says_it_does(reader: Reader) -> None:
    found = table(reader, "peak", "category")

    assert summed(found, "category", "bytes") == {
        "parameter": PARAMETERS,
        "gradient": PARAMETERS,
        "optimizer state": 2 * PARAMETERS + COUNTS,
        "buffer": 4 * 1024,
        "input": 4 * 32 * 64,
        "activation": 4,  # the loss, which a variable names
        "other": 10 * MIB + 2 * MIB,
    }


def test_what_is_certain_is_what_sizes_and_lifetimes_prove(reader: Reader) -> None:
    certain = {
        row["category"]: round(row["certain_share"] * row["bytes"])
        for row in table(reader, "peak", "category")
    }

    assert certain == {
        "parameter": PARAMETERS,
        "gradient": PARAMETERS,
        "optimizer state": 2 * PARAMETERS,
        "buffer": 0,
        "input": 0,
        "activation": 0,
        "other": 0,
    }


def test_parameters_gradients_and_averages_are_of_their_modules(reader: Reader) -> None:
    found = table(reader, "peak")

    for module, size in (("Net.first", FIRST), ("Net.second", SECOND)):
        own = [row for row in found if row["module"] == module]
        assert summed(own, "category", "bytes") == {
            "parameter": size,
            "gradient": size,
            "optimizer state": 2 * size,
        }


@pytest.mark.parametrize("by", [None, "category", "module", "line", "operator"])
def test_every_way_to_group_the_peak_adds_up_to_it(reader: Reader, by: str | None) -> None:
    (whole,) = table(reader, "peak", "process")

    found = table(reader, "peak", by)

    assert sum(row["bytes"] for row in found) == whole["bytes"]
    assert sum(row["blocks"] for row in found) == whole["blocks"]
    assert sum(row["share"] for row in found) == pytest.approx(1)


@pytest.mark.parametrize("by", ["operator", "module", "line", "step", "phase", "thread", "size"])
def test_every_way_to_group_allocations_adds_up_to_all(reader: Reader, by: str) -> None:
    whole = reader.query("SELECT count(*) AS n, sum(bytes)::BIGINT AS bytes FROM allocations")
    (peak,) = table(reader, "peak", "process")

    found = table(reader, "memory", by)

    assert sum(row["allocations"] for row in found) == whole["n"][0].as_py()
    assert sum(row["bytes"] for row in found) == whole["bytes"][0].as_py()
    assert sum(row["peak_bytes"] for row in found) == peak["bytes"]
    assert all(0 <= row["avg_ns"] <= row["max_ns"] for row in found)


def test_each_step_is_higher_by_what_the_one_before_left_behind(reader: Reader) -> None:
    highest = [row["highest_bytes"] for row in table(reader, "memory", "step") if row["step"]]

    growth = {after - before for before, after in pairwise(highest)}
    assert growth == {MIB}


def test_a_closure_leaks_and_a_cache_does_not(reader: Reader) -> None:
    found = {row["line"]: row for row in table(reader, "memory", "line")}

    leaks = [line for line, row in found.items() if row["is_leak"]]
    assert leaks == [f"{PROGRAM}:31"]
    leak = found[f"{PROGRAM}:31"]
    assert (leak["growth_low"], leak["growth_per_step"], leak["growth_high"]) == (MIB, MIB, MIB)
    cache = found[f"{PROGRAM}:41"]
    assert cache["growth_low"] < 0 < cache["growth_per_step"]


def test_the_summary_says_the_peak_and_the_leak(reader: Reader) -> None:
    said = text(summarise(reader))

    assert "Tensors: 12.7 MB at the peak, after 4.36 s: other 12.6 MB" in said
    assert "most of program.py:31: 10.5 MB" in said
    assert (
        "Leak: program.py:31 allocates 1.05 MB a step that was not released when the last step ended"
        in said
    )


def test_a_recording_has_the_same_peak_as_itself(reader: Reader, tmp_path: Path) -> None:
    made = diff.build(reader, reader, ("a", "b"), ["overview", "memory"])

    assert rows(made.result("memory", reader.connection())) == []
    assert "The peak of live memory is 12.7 MB in both." in made.notes


def test_the_figures_of_the_peak_are_those_of_the_table(reader: Reader) -> None:
    found = blocks_at_peak(reader)

    assert found is not None
    assert found.bytes == sum(found.categories.values()) == sum(found.lines.values())
    by_line = summed(table(reader, "peak", "line"), "line", "bytes")
    assert found.lines == by_line
