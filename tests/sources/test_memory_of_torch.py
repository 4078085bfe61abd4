"""Memory as PyTorch's own profiler writes it: its trace, its timelines, and a snapshot made of it,
all of one run. What it says itself is what is read.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope.ingest.open import open_run
from layerscope.model.layers import PHASES
from layerscope.recording.reader import Reader
from layerscope.sources import kineto, known, memory_timeline, torch_snapshot
from layerscope.sources.imported import Imported

# Trains a little, keeps four blocks of 4,000 bytes, and writes what was profiled in every form.
PROGRAM = """
import json, pickle, sys, torch, warnings
from pathlib import Path
from torch.profiler import ProfilerActivity, profile
warnings.simplefilter("ignore")
folder = Path(sys.argv[1])
layer = torch.nn.Linear(300, 200)
optimizer = torch.optim.Adam(layer.parameters())
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True,
             with_stack=True) as found:
    for _ in range(3):
        layer(torch.ones(50, 300)).relu().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    kept = [torch.ones(1000) for _ in range(4)]
found.export_chrome_trace(str(folder / "trace.json"))
for name in ("memory.raw.json.gz", "memory.json", "memory.json.gz"):
    found.export_memory_timeline(str(folder / name), device="cpu")
from torch.cuda._memory_viz import _profile_to_snapshot
snapshot = _profile_to_snapshot(found)
(folder / "snapshot.pickle").write_bytes(pickle.dumps(snapshot))
def is_of_memory(event):
    try:
        return event.name() == "[memory]"
    except UnicodeDecodeError:  # names of frames are not always texts
        return False
events = list(filter(is_of_memory, found.profiler.kineto_results.events()))
actions = [entry["action"] for trace in snapshot["device_traces"] for entry in trace]
print(json.dumps(dict(
    events=[[e.start_ns(), e.nbytes()] for e in events],
    allocated=actions.count("alloc"), released=actions.count("free_completed"),
)))
"""


class Profiled:
    """The files, and what the program said of them."""

    def __init__(self, python: str, folder: Path) -> None:
        self.folder = folder
        done = subprocess.run(
            [python, "-c", PROGRAM, str(folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        self.told: dict[str, Any] = json.loads(done.stdout)


@pytest.fixture(scope="module")
def profiled(program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    return Profiled(program_python, tmp_path_factory.mktemp("memory"))


def counter(found: Imported, name: str) -> dict[int, int]:
    """The values of a counter by time."""
    moments = found.moments
    rows = moments.name == found.names.index(f"{name}\nPyTorch")
    return dict(zip(moments.at_ns[rows].tolist(), moments.value[rows].tolist(), strict=True))


def test_every_event_of_memory_is_read_to_the_byte(profiled: Profiled) -> None:
    found = kineto.read(profiled.folder / "trace.json")
    memory = found.memory
    sign = np.where(memory.column("is_release"), -1, 1)
    ours = zip(
        (memory.at_ns + (found.realtime_ns or 0)).tolist(),
        (sign * memory.column("bytes")).tolist(),
        strict=True,
    )
    theirs = [tuple(event) for event in profiled.told["events"]]
    assert len(theirs) > 50
    assert sorted(ours) == sorted(theirs)


def test_events_of_memory_have_the_operator_that_was_open(profiled: Profiled) -> None:
    found = kineto.read(profiled.folder / "trace.json")
    memory = found.memory
    allocated = ~memory.column("is_release")
    operators = memory.column("operator")[allocated].tolist()
    names = Counter(found.names[number] if number >= 0 else "" for number in operators)
    assert names["aten::addmm"] == 3
    assert names["aten::ones"] == 3 + 4
    assert "aten::empty" not in names
    phase = {
        (found.names[number], PHASES[code])
        for number, code in zip(operators, memory.column("phase")[allocated].tolist(), strict=True)
        if number >= 0
    }
    assert ("aten::addmm", "forward") in phase
    assert ("aten::ones", "other") in phase
    assert any(code == "backward" for _, code in phase)
    assert any(code == "optimizer" for _, code in phase)


def test_a_trace_with_memory_has_blocks_and_counters_in_its_tables(
    profiled: Profiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with Reader(open_run(profiled.folder / "trace.json")) as reader:
        rows = reader.query(
            "SELECT device, count(*) AS blocks FROM allocations "
            "WHERE bytes = 4000 AND operator = 'aten::ones' AND dur_ns IS NULL GROUP BY ALL"
        ).to_pylist()
        assert rows == [{"device": "cpu", "blocks": 4}]
        unknown = reader.query("SELECT count(*) AS n FROM allocations WHERE is_lost").to_pylist()
        assert unknown == [{"n": 0}]
        names = reader.query("SELECT DISTINCT name FROM counters").to_pylist()
        assert names == [{"name": "allocated_bytes of cpu"}]


def test_a_raw_timeline_has_the_sums_that_the_profiler_makes_of_it(profiled: Profiled) -> None:
    """By category and microsecond, against the sums that it writes itself."""
    raw = memory_timeline.read(profiled.folder / "memory.raw.json.gz")
    sums = memory_timeline.read(profiled.folder / "memory.json")
    times_us, sizes = json.loads((profiled.folder / "memory.json").read_text())
    start_ns = raw.realtime_ns or 0
    for number, category in enumerate(memory_timeline.CATEGORIES):
        values = counter(raw, f"{category.replace(' ', '_')}_bytes")
        last = 0
        by_us = {}
        for at_ns, value in sorted(values.items()):
            by_us[int((at_ns + start_ns) / 1000)] = value  # as the profiler rounds it
        for at_us, of_time in zip(times_us, sizes, strict=True):
            last = by_us.get(at_us, last)
            if at_us > int(start_ns / 1000):  # what was there before has this time too
                assert last == of_time[number + 1], (category, at_us)
    assert len(sums.memory) == 0
    assert [problem.code for problem in sums.problems] == ["sums_only"]
    most = max(sum(of_time) for of_time in sizes)
    assert max(counter(sums, "allocated_bytes").values()) == most


def test_a_raw_timeline_has_each_block_once(profiled: Profiled) -> None:
    """A change of its version is no allocation, and what is never released is live at the end."""
    raw = json.loads(gzip.decompress((profiled.folder / "memory.raw.json.gz").read_bytes()))
    memory = memory_timeline.read(profiled.folder / "memory.raw.json.gz").memory
    is_release = memory.column("is_release")
    actions = Counter(action for _, action, _, _ in raw)
    assert actions[3] > 0
    assert int(np.count_nonzero(~is_release)) == actions[1] + actions[2]
    assert int(np.count_nonzero(is_release)) == actions[4]
    sign = np.where(is_release, -1, 1)
    assert int((sign * memory.column("bytes")).sum()) == sum(size for _, _, size, _ in raw)


def test_packed_and_plain_sums_are_the_same(profiled: Profiled) -> None:
    one = memory_timeline.read(profiled.folder / "memory.json")
    other = memory_timeline.read(profiled.folder / "memory.json.gz")
    assert counter(one, "allocated_bytes") == counter(other, "allocated_bytes")


def test_a_snapshot_that_torch_makes_of_a_profile_is_read(profiled: Profiled) -> None:
    found = torch_snapshot.read(profiled.folder / "snapshot.pickle")
    early = sum(problem.code == "history_begins_late" for problem in found.problems)
    is_release = found.memory.column("is_release")
    before = int(np.count_nonzero(found.memory.at_ns == 0))
    assert early
    assert before
    assert int(np.count_nonzero(~is_release)) == profiled.told["allocated"] + before
    assert int(np.count_nonzero(is_release)) == profiled.told["released"]
    assert "no_times" in [problem.code for problem in found.problems]


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("trace.json", kineto),
        ("memory.raw.json.gz", memory_timeline),
        ("memory.json", memory_timeline),
        ("snapshot.pickle", torch_snapshot),
    ],
)
def test_each_file_is_known_by_what_is_in_it(profiled: Profiled, name: str, format_: Any) -> None:
    content = (profiled.folder / name).read_bytes()
    head = gzip.decompress(content) if name.endswith(".gz") else content
    assert [one.MEANING for one in known() if one.recognises(head[: 1 << 20])] == [format_.MEANING]
