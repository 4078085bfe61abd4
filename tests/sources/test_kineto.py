"""Traces of PyTorch's own profiler as columns: what it says itself is what is read, and names may
be anything.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.open import open_run
from layerscope.model.clocks import Conversion, Identity
from layerscope.model.errors import ReadError
from layerscope.model.layers import KINDS
from layerscope.recording.reader import Reader
from layerscope.sources import kineto, kineto_window
from layerscope.sources.span_depths import depths
from tests.quick_torch import quick

NAMES = [
    'quote " in',
    "back\\slash",
    "tab\t\x01control",
    "ümläut ☃",
    "",
    "x" * 2000,
    "}],",
    '",\n"pid": 7',
]

# Profiles a little of everything into a trace, and prints what the profiler says of it in Python.
PROGRAM = f"""
import json, sys, threading, time, torch
from torch.profiler import ProfilerActivity, profile, record_function
layer, data = torch.nn.Linear(3, 2), torch.utils.data.DataLoader([torch.ones(3)] * 4, batch_size=2)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
losses = []
before = time.time_ns()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
    for batch in data:
        losses.append(layer(batch).relu().sum())
        losses.pop().backward()
        optimizer.step()
    for name in {NAMES!r}:
        with record_function(name):
            torch.ones(2, 5, dtype=torch.float64) + 1
    left_open = record_function("left open")
    left_open.__enter__()
    torch.hypot(torch.ones(7), torch.ones(7))
after = time.time_ns()
found.export_chrome_trace(sys.argv[1])
events = found.profiler.kineto_results.events()
told = [[e.name(), e.start_ns(), e.duration_ns(), e.sequence_nr(), e.fwd_thread_id()] for e in events
        if e.name() != "left open"] if hasattr(events[0], "start_ns") else None
averages = {{row.key: [row.count, row.self_cpu_time_total] for row in found.key_averages()}}
print(json.dumps(dict(events=told, before=before, after=after, averages=averages)))
"""


class Written:
    """A trace that the program's PyTorch wrote, and what it said of it."""

    def __init__(self, python: str, folder: Path) -> None:
        self.path = folder / "trace.json"
        done = subprocess.run(
            [python, "-c", quick(PROGRAM), str(self.path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        self.told: dict[str, Any] = json.loads(done.stdout)
        self.trace = kineto_window.read_trace(self.path, Identity())

    def rows(self, name: str) -> list[int]:
        """The rows of the spans that are called so."""
        return np.flatnonzero(self.trace.name == self.trace.names.index(name)).tolist()

    def kind(self, name: str) -> set[str]:
        """What they are."""
        return {KINDS[self.trace.kind[row]] for row in self.rows(name)}


@pytest.fixture(scope="module")
def written(program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(program_python, tmp_path_factory.mktemp("kineto"))


def test_every_span_is_read_with_its_times_to_the_nanosecond(written: Written) -> None:
    if written.told["events"] is None:
        pytest.skip("the profiler of this PyTorch tells times in microseconds only")
    trace = written.trace
    ours = sorted(
        (int(start), int(end - start), int(seq), int(thread))
        for start, end, seq, thread, cut in zip(
            trace.start_ns,
            trace.end_ns,
            trace.seq,
            trace.forward_thread,
            trace.unfinished,
            strict=True,
        )
        if not cut
    )
    theirs = sorted(
        (start, duration, seq, thread) for _, start, duration, seq, thread in written.told["events"]
    )
    assert len(ours) == len(theirs) > 60
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    # Only where there is one is the number written.
    assert [row[2:] for row in ours if row[2] >= 0] == [row[2:] for row in theirs if row[2] >= 0]


def test_times_are_those_of_the_machine(written: Written) -> None:
    trace = written.trace
    assert written.told["before"] <= trace.start_ns.min()
    assert trace.end_ns.max() <= written.told["after"]


def test_a_clock_puts_them_on_the_clock_of_the_run(written: Written) -> None:
    clock = Conversion()
    base = written.told["before"]
    clock.add(base, 1000)
    clock.add(base + 10**12, 1000 + 10**12)
    moved = kineto_window.read_trace(written.path, clock)
    assert (moved.start_ns == written.trace.start_ns - base + 1000).all()
    assert (moved.end_ns == written.trace.end_ns - base + 1000).all()


def test_each_span_is_of_its_kind(written: Written) -> None:
    assert written.kind("aten::addmm") == {"function"}
    assert written.kind("AddmmBackward0") == {"backward"}
    assert written.kind("torch::autograd::AccumulateGrad") == {"backward"}
    assert written.kind("autograd::engine::evaluate_function: ReluBackward0") == {"backward"}
    assert written.kind("Optimizer.step#SGD.step") == {"optimizer"}
    assert written.kind("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__") == {"loader"}
    assert written.kind("x" * 2000) == {"range"}


def test_names_that_break_the_json_are_read_as_far_as_pytorch_writes_them(written: Written) -> None:
    trace = written.trace
    ranges = {trace.names[code] for code in trace.name[trace.kind == KINDS.index("range")].tolist()}
    assert {"back/slash", "", "}],", "left open"} <= ranges
    assert ranges & {'quote " in', "quote ' in"}  # as newer builds write it
    # Each range holds the same three spans, whatever it is called.
    at = [
        row
        for row in np.flatnonzero(trace.kind == KINDS.index("range")).tolist()
        if row not in written.rows("left open")
    ]
    assert len(at) == len(NAMES)
    for row in at:
        inside = (
            (trace.start_ns >= trace.start_ns[row])
            & (trace.end_ns <= trace.end_ns[row])
            & (trace.depth == 1)
        )
        names = [trace.names[code] for code in trace.name[inside].tolist()]
        assert (names[0], names[-1]) == ("aten::ones", "aten::add")
        assert (
            len(names) == 2 or written.told["events"] is None
        )  # in whole microseconds some seem to end before others


def test_what_was_open_at_the_end_is_said_to_be(written: Written) -> None:
    trace = written.trace
    (row,) = written.rows("left open")
    if written.told["events"] is None:
        pytest.skip("the profiler of this PyTorch does not say what was open")
    assert np.flatnonzero(trace.unfinished).tolist() == [row]
    assert trace.end_ns[row] == trace.end_ns.max()
    (inside,) = written.rows("aten::hypot")
    assert trace.depth[inside] == trace.depth[row] + 1


def test_shapes_are_told_as_the_agent_tells_them(written: Written) -> None:
    trace = written.trace
    (row,) = written.rows("aten::hypot")
    assert json.loads(trace.shape_texts[trace.shapes[row]]) == {
        "shapes": [[7], [7]],
        "dtypes": ["float32", "float32"],
    }
    add = written.rows("aten::add")[-1]
    told = json.loads(trace.shape_texts[trace.shapes[add]])
    assert told["shapes"][0] == [2, 5]
    assert told["dtypes"][0] == "float64"
    assert trace.shapes[written.rows("AddmmBackward0")[0]] >= -1


def test_backward_functions_lead_to_the_thread_of_their_operators(written: Written) -> None:
    trace = written.trace
    (row, _) = written.rows("AddmmBackward0")
    forward = [at for at in written.rows("aten::addmm") if trace.seq[at] == trace.seq[row]]
    assert trace.framework_threads == {int(trace.tid[forward[0]]): int(trace.forward_thread[row])}
    assert trace.thread_names.keys() >= {int(trace.tid[row])}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 20)), max_size=40))
def test_the_depth_is_the_number_of_spans_that_are_open(spans: list[tuple[int, int, int]]) -> None:
    rows = sorted((tid, start, -duration) for tid, start, duration in spans)
    tid, start = (np.array([row[of] for row in rows], np.int64) for of in (0, 1))
    end = start - np.array([row[2] for row in rows], np.int64)
    found = depths(tid, start, end)
    for at in range(len(rows)):
        assert found[at] == sum(
            tid[before] == tid[at] and end[before] > start[at] for before in range(at)
        )


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"traceEvents": 7}', b'{"traceEvents": [{"ts": "x"}]}', b"\xff"]
)
def test_what_is_no_trace_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(ReadError, match=r"trace\.json is damaged .*record again"):
        kineto_window.read_trace(path, Identity())


def test_a_trace_that_was_cut_is_an_error(written: Written, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    content = written.path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ReadError, match="damaged"):
        kineto_window.read_trace(path, Identity())


def test_a_trace_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="cannot be read"):
        kineto_window.read_trace(tmp_path / "none.json", Identity())


def test_a_trace_without_a_span_has_none(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "M", "name": "process_name", "tid": 0, "args": {"name": "python"}}, {}]}'
    )
    trace = kineto_window.read_trace(path, Identity())
    assert (len(trace.start_ns), trace.names, len(trace.depth)) == (0, [], 0)


# --- opened like a recording ---


def test_self_times_are_those_of_the_profiler(written: Written) -> None:
    """It counts an operator that calls itself once (`EventList._remove_dup_nodes`)."""
    query = """SELECT span.name, sum(span.self_ns) AS self_ns,
                      count(*) FILTER (around.name IS DISTINCT FROM span.name) AS calls
               FROM spans span LEFT JOIN spans around ON span.parent = around.span
               GROUP BY span.name"""
    with Reader(open_run(written.path)) as reader:
        ours = {row["name"]: row for row in reader.query(query).to_pylist()}
    names = [name for name in written.told["averages"] if name.startswith("aten::")]
    assert len(names) > 10
    for name in names:
        calls, self_us = written.told["averages"][name]
        assert ours[name]["calls"] == calls, name
        assert float(ours[name]["self_ns"]) / 1000 == pytest.approx(self_us, abs=0.01 * calls), name


def test_steps_links_and_shapes_are_found(written: Written) -> None:
    with Reader(open_run(written.path)) as reader:
        (found,) = reader.query(
            """SELECT (SELECT any_value(rule) FROM steps) AS rule, (SELECT count(*) FROM steps) AS steps,
                      (SELECT count(*) FROM links WHERE kind = 'forward_backward') AS links,
                      (SELECT count(*) FROM args WHERE json LIKE '%float64%') > 0 AS has_shapes"""
        ).to_pylist()
    assert found["rule"] == "optimizer"
    assert found["steps"] == 2
    assert found["links"] > 2
    assert found["has_shapes"]


def test_a_packed_trace_is_the_same(written: Written, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(written.path.read_bytes()))
    packed, plain = kineto.read(path), kineto.read(written.path)
    assert (packed.start_ns == plain.start_ns).all()
    assert packed.names == plain.names


@pytest.mark.parametrize("cut", [0.3, 0.99])
def test_a_packed_trace_that_was_cut_opens_to_the_cut(
    written: Written, tmp_path: Path, cut: float
) -> None:
    path = tmp_path / "trace.json.gz"
    content = gzip.compress(written.path.read_bytes())
    path.write_bytes(content[: int(len(content) * cut)])
    found, whole = kineto.read(path), kineto.read(written.path)
    assert 0 < len(found.start_ns) <= len(whole.start_ns)
    # The end may have been behind the last event.
    is_told = "trace_cut" in {problem.code for problem in found.problems}
    assert is_told or len(found.start_ns) == len(whole.start_ns)


@pytest.mark.parametrize(
    "wrong",
    [
        '"ts": 1e400',
        '"ts": -123456789012345678901234.5',
        '"dur": 923372036854775807',
    ],
)
def test_times_that_cannot_be_cost_their_event_alone(tmp_path: Path, wrong: str) -> None:
    good = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 5, "dur": 3}'
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents": [{good}, {good[:-1]}, {wrong}}}]}}')
    content = kineto.read(path)
    assert content.dur_ns.tolist() == [3000]
    assert [problem.code for problem in content.problems] == ["events_rejected"]


@pytest.mark.parametrize(
    "wrong",
    [
        '"tid": 99999999999999999999999',
        '"pid": 99999999999999999999999',
        '"args": {"Sequence number": 99999999999999999999}',
        '"args": {"Fwd thread id": -99999999999999999999}',
        '"args": {"correlation": 99999999999999999999, "External id": -1e400}',
    ],
)
def test_other_numbers_that_cannot_be_are_not_believed(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "trace.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 5, "dur": 3, '
    path.write_text(f'{{"traceEvents": [{event}{wrong}}}]}}')
    content = kineto.read(path)
    assert content.dur_ns.tolist() == [3000]
    assert [content.more[name].tolist() for name in ("seq", "origin")] == [[-1], [0]]
    assert content.problems == []
