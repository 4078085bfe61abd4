"""Memory timelines of PyTorch's profiler that are known to the byte, cut, damaged, or a picture."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.analyse.summary import summarise
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.show import summary as summary_text
from layerscope.sources import known, memory_timeline
from layerscope.sources.imported import Imported

START_NS = 1_760_000_000_000_000_000
BEFORE, NEW, VERSION, RELEASE = 1, 2, 3, 4
PARAMETERS, GRADIENTS, ACTIVATIONS = 0, 5, 4
# Parameters from before; activations of which the first one ends; a block that becomes a gradient.
RAW = [
    (-1, BEFORE, 4000, PARAMETERS),
    (START_NS, NEW, 100, ACTIVATIONS),
    (START_NS + 10, NEW, 100, ACTIVATIONS),
    (START_NS + 20, NEW, 50, 7),
    (START_NS + 30, VERSION, -50, 7),
    (START_NS + 30, VERSION, 50, GRADIENTS),
    (START_NS + 40, VERSION, -50, GRADIENTS),
    (START_NS + 40, VERSION, 50, GRADIENTS),
    (START_NS + 50, RELEASE, -100, ACTIVATIONS),
    (START_NS + 70, RELEASE, -50, GRADIENTS),
]


def write(path: Path, rows: object) -> Path:
    path.write_text(json.dumps(rows))
    return path


def blocks(found: Imported) -> list[tuple[int, int, int | None]]:
    """Of each block its start, its bytes and its end."""
    memory = found.memory
    live: dict[int, list[int]] = {}
    ended = []
    columns = (memory.column("block"), memory.column("bytes"), memory.column("is_release"))
    for at_ns, block, size, is_release in zip(
        memory.at_ns.tolist(), *(values.tolist() for values in columns), strict=True
    ):
        if is_release:
            began_ns, bytes_ = live.pop(block)
            ended.append((began_ns, bytes_, at_ns))
        else:
            assert block not in live
            live[block] = [at_ns, size]
    return sorted([*ended, *((at, size, None) for at, size in live.values())], key=str)


def counter(found: Imported, name: str) -> list[tuple[int, int]]:
    moments = found.moments
    rows = moments.name == found.names.index(f"{name}\nPyTorch")
    return list(zip(moments.at_ns[rows].tolist(), moments.value[rows].tolist(), strict=True))


def test_blocks_live_from_their_allocation_to_their_release(tmp_path: Path) -> None:
    """Whatever versions and categories they have meanwhile."""
    found = memory_timeline.read(write(tmp_path / "memory.raw.json", RAW))
    assert found.realtime_ns == START_NS
    assert blocks(found) == sorted(
        [(0, 4000, None), (0, 100, 50), (10, 100, None), (20, 50, 70)], key=str
    )


def test_categories_are_counters(tmp_path: Path) -> None:
    found = memory_timeline.read(write(tmp_path / "memory.raw.json", RAW))
    assert counter(found, "parameters_bytes") == [(0, 4000)]
    assert counter(found, "activations_bytes") == [(0, 100), (10, 200), (50, 100)]
    assert counter(found, "unknown_bytes") == [(20, 50), (30, 0)]
    assert counter(found, "gradients_bytes") == [(30, 50), (70, 0)]
    assert counter(found, "allocated_bytes") == [
        (0, 4100),
        (10, 4200),
        (20, 4250),
        (50, 4150),
        (70, 4100),
    ]


def test_it_is_said_where_another_block_could_have_been_released(tmp_path: Path) -> None:
    found = memory_timeline.read(write(tmp_path / "memory.raw.json", RAW))
    (problem,) = found.problems
    assert problem.code == "blocks_alike"
    assert problem.what.startswith("1 times one of several blocks")
    alone = [row for row in RAW if row[0] != START_NS + 10]
    assert memory_timeline.read(write(tmp_path / "alone.raw.json", alone)).problems == []


def test_a_timeline_opens_like_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    packed = tmp_path / "memory.raw.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(RAW).encode()))
    with Reader(open_run(packed)) as reader:
        summary = summary_text.text(summarise(reader), "it").splitlines()
        assert (
            summary[2]
            == "Tensors: 4.25 kB at the peak, after 20 ns: other 4.10 kB, temporary 150 bytes"
        )
        assert summary[-1] == "Next: layerscope table it peak"
        found = reader.query(
            "SELECT device, sum(bytes) AS bytes, count(*) AS n FROM allocations GROUP BY ALL"
        ).to_pylist()
        assert found == [{"device": "one device", "bytes": 4250, "n": 4}]


def test_a_cut_timeline_has_what_came_before(tmp_path: Path) -> None:
    text = json.dumps(RAW)
    path = tmp_path / "memory.raw.json"
    path.write_text(text[: text.index(f", [{START_NS + 70}") + 20])
    found = memory_timeline.read(path)
    assert len(found.memory) == 5
    assert "file_cut" in [problem.code for problem in found.problems]
    packed = tmp_path / "memory.raw.json.gz"
    whole = gzip.compress(json.dumps(RAW * 2000).encode())
    packed.write_bytes(whole[: len(whole) * 2 // 3])
    assert "file_cut" in [problem.code for problem in memory_timeline.read(packed).problems]


def test_what_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_timeline, "_MOST_TEXT_BYTES", 10_000_000)
    path = tmp_path / "memory.json.gz"
    for unit, begin in ((RAW, "["), ([1], "[[")):
        text = begin + (json.dumps(unit)[1:-1] + ", ") * (12_000_000 // len(str(unit)))
        path.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(ReadError, match="unpacked it has more than 9 MB"):
            memory_timeline.read(path)


def test_a_timeline_with_far_too_many_events_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "memory.raw.json", RAW)
    monkeypatch.setattr(memory_timeline, "_MOST_ROWS", len(RAW))
    memory_timeline.read(path)
    monkeypatch.setattr(memory_timeline, "_MOST_ROWS", len(RAW) - 1)
    with pytest.raises(ReadError, match=r"more than 9 events\. Profile fewer steps"):
        memory_timeline.read(path)


def test_a_list_without_end_is_damage_before_all_of_it_is_read() -> None:
    """What has been read of it is copied each time that more of it comes."""
    read = 0

    def pieces() -> Iterator[bytes]:
        nonlocal read
        yield json.dumps(RAW)[:-1].encode() + b", ["
        while read < 100:
            read += 1
            yield b"1" * (1 << 20)

    with pytest.raises(ReadError, match="a list in it has no end"):
        list(memory_timeline._Lists(Path("memory.raw.json"), pieces()))
    assert read < 5


def test_numbers_that_cannot_be_are_counted(tmp_path: Path) -> None:
    wrong = [(1 << 62, NEW, 1, 0), (START_NS, 9, 1, 0), (START_NS, NEW, 1, 8), (-7, NEW, 1, 0)]
    found = memory_timeline.read(write(tmp_path / "memory.raw.json", [*RAW, *wrong]))
    (problem,) = [one for one in found.problems if one.code == "events_rejected"]
    assert problem.what.startswith("4 events")
    assert len(blocks(found)) == 4


def test_what_is_no_number_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "memory.raw.json"
    for wrong in ('[1, 2, "x", 3]', "[1, 2, 3]", "[1, 2, 3.5, 4]", "[[1, 2, 3, 4]]", "{}"):
        path.write_text(json.dumps(RAW)[:-1] + f", {wrong}, [1, 2, 3, 4]]")
        with pytest.raises(ReadError, match="damaged"):
            memory_timeline.read(path)


TIMES_US = [START_NS // 1000, START_NS // 1000 + 5]
SUMS = [TIMES_US, [[0, 10, 0, 0, 0, 3, 0, 0, 1], [0, 10, 0, 0, 0, 0, 7, 0, 0]]]


def test_sums_are_counters(tmp_path: Path) -> None:
    found = memory_timeline.read(write(tmp_path / "memory.json", SUMS))
    assert counter(found, "parameters_bytes") == [(0, 10), (5000, 10)]
    assert counter(found, "activations_bytes") == [(0, 3), (5000, 0)]
    assert counter(found, "gradients_bytes") == [(0, 0), (5000, 7)]
    assert counter(found, "unknown_bytes") == [(0, 1), (5000, 0)]
    assert counter(found, "allocated_bytes") == [(0, 14), (5000, 17)]
    assert len(found.memory) == 0
    assert "raw.json.gz" in found.problems[0].remedy


def test_cut_or_damaged_sums_are_said_to_be_so(tmp_path: Path) -> None:
    text = json.dumps(SUMS)
    path = tmp_path / "memory.json"
    for wrong in (text[:-1], text[:-20], text[:30], text.replace("10", "x"), text + "]"):
        path.write_text(wrong)
        with pytest.raises(ReadError, match="damaged"):
            memory_timeline.read(path)


def test_empty_timelines_are_empty(tmp_path: Path) -> None:
    found = memory_timeline.read(write(tmp_path / "memory.json", [[], []]))
    assert len(found.memory) == len(found.moments.at_ns) == 0


def test_a_picture_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """As the profiler writes it."""
    path = tmp_path / "memory.html"
    path.write_text(
        '<html>\n<head><meta charset="utf-8" /><title>GPU Memory Timeline HTML</title></head>\n'
        "<body>\n  <img src='data:image/png;base64,iVBORw0KGgo='>\n</body>\n</html>"
    )
    with pytest.raises(ReadError, match=r"is a picture .* ends with \.raw\.json\.gz"):
        open_run(path)


@pytest.mark.parametrize(
    ("text", "is_timeline"),
    [
        (json.dumps(RAW), True),
        (json.dumps(RAW, separators=(",", ":")), True),
        (json.dumps(RAW, indent=1), True),
        (json.dumps(SUMS), True),
        (json.dumps([list(range(30_000)), [[0] * 9] * 30_000]), True),
        ("[[], []]", True),
        ("[[1, 2, 3], [4, 5, 6]]", False),
        ("[[1, 9, 3, 4], [4, 5, 6, 7]]", False),
        ("[1, 2, 3, 4]", False),
        ('[{"a": 1}]', False),
        ("<html><title>Other</title></html>", False),
    ],
)
def test_timelines_are_known_by_their_beginning(text: str, is_timeline: bool) -> None:
    head = text.encode()[: 1 << 20]
    found = [one.MEANING for one in known() if one.recognises(head)]
    assert found == ([memory_timeline.MEANING] if is_timeline else [])


EVENTS = st.lists(
    st.tuples(
        st.integers(-1, 50),
        st.integers(1, 4),
        st.sampled_from((-8, -4, 0, 4, 8)),
        st.integers(0, 7),
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=EVENTS)
def test_any_events_make_counters_of_their_sums(
    rows: list[tuple[int, int, int, int]], tmp_path: Path
) -> None:
    """Also releases of what was never allocated, and halves of changes."""
    found = memory_timeline.read(write(tmp_path / "memory.raw.json", [(-1, 1, 4, 0), *rows]))
    assert counter(found, "allocated_bytes")[-1][1] == 4 + sum(size for _, _, size, _ in rows)
    assert (np.diff(found.memory.at_ns) >= 0).all()


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Real histories: blocks begin, change, and end."""
    live: list[tuple[int, int]] = []
    rows = []
    for at_ns in range(1, draw(st.integers(2, 40))):
        what = draw(st.sampled_from((NEW, VERSION, RELEASE)))
        if what == NEW or not live:
            live.append((draw(st.sampled_from((4, 8))), draw(st.integers(0, 2))))
            rows.append((at_ns, NEW, *live[-1]))
            continue
        size, category = live.pop(draw(st.integers(0, len(live) - 1)))
        rows.append((at_ns, what, -size, category))
        if what == VERSION:
            live.append((size, draw(st.integers(0, 2))))
            rows.append((at_ns, VERSION, *live[-1]))
    return rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=histories())
def test_live_bytes_and_lives_together_are_right(
    rows: list[tuple[int, int, int, int]], tmp_path: Path
) -> None:
    """Whichever of the blocks that are alike ends."""
    found = blocks(memory_timeline.read(write(tmp_path / "memory.raw.json", rows)))
    assert len(found) == sum(action == NEW for _, action, _, _ in rows)
    first_ns = rows[0][0]
    for moment in range(first_ns, rows[-1][0] + 1):
        expected = sum(size for at_ns, _, size, _ in rows if at_ns <= moment)
        at = moment - first_ns
        live = [size for began, size, end in found if began <= at and (end is None or end > at)]
        assert sum(live) == expected
    expected_ends = Counter(
        (at_ns - first_ns, -size) for at_ns, action, size, _ in rows if action == RELEASE
    )
    assert Counter((end, size) for _, size, end in found if end is not None) == expected_ends


def test_the_timeline_of_the_corpus_has_its_peak(tmp_path: Path) -> None:
    path = Path(os.environ.get("LAYERSCOPE_CORPUS", "")) / "memory" / "memory_timeline.raw.gz"
    if "LAYERSCOPE_CORPUS" not in os.environ or not path.exists():
        pytest.skip("LAYERSCOPE_CORPUS names no folder with this timeline")
    raw = json.loads(gzip.decompress(path.read_bytes()))
    found = memory_timeline.read(path)
    sums, live, peak = Counter[int](), 0, 0
    for at, (at_ns, _, size, category) in enumerate(raw):
        sums[category] += size
        live += size
        is_last = at + 1 == len(raw) or raw[at + 1][0] != at_ns
        peak = max(peak, live) if is_last else peak
    assert max(value for _, value in counter(found, "allocated_bytes")) == peak
    for number, category in enumerate(memory_timeline.CATEGORIES):
        name = f"{category.replace(' ', '_')}_bytes"
        assert counter(found, name)[-1][1] == sums[number]
    assert len(blocks(found)) == sum(action in (BEFORE, NEW) for _, action, _, _ in raw)
