"""Recordings of real PyTorch programs whose answer is known beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorded import Recorded, record

THREE_THREADS_AND_FIFTY_RANGES = """
import threading, torch
def work():
    a, b = torch.ones(8, 8), torch.ones(8, 8)
    for _ in range(50):
        torch.mm(a, b)
threads = [threading.Thread(target=work) for _ in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
for i in range(50):
    with torch.autograd.profiler.record_function(f"step_{i}"):
        torch.ones(4).add_(1)
"""

ELSEWHERE = """
import threading, time, torch
torch.zeros(1)
far = torch.autograd.profiler.record_function("far")
far.__enter__()
torch.ones(2)
time.sleep(0.05)
ender = threading.Thread(target=lambda: far.__exit__(None, None, None))
ender.start()
ender.join()
for _ in range(10):
    torch.full((2,), 3.0)
"""

OUT_OF_ORDER = """
import torch
R = torch.autograd.profiler.record_function
a, b = R("first"), R("second")
a.__enter__(); b.__enter__()
a.__exit__(None, None, None)
torch.ones(2)
b.__exit__(None, None, None)
torch.zeros(2)
"""


@pytest.fixture(scope="module")
def recorded(
    native_agent: Path, program_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    return record(program_python, THREE_THREADS_AND_FIFTY_RANGES, folder)


def test_operators_of_every_thread_are_counted(recorded: Recorded) -> None:
    assert recorded.value("select count(*) from spans where name = 'aten::mm'") == 150
    per_thread = recorded.rows(
        "select track, count(*) n from spans where name = 'aten::mm' group by track"
    )
    assert [row["n"] for row in per_thread] == [50, 50, 50]


def test_ranges_with_different_names_at_one_address_stay_different(recorded: Recorded) -> None:
    names = recorded.rows("select name, count(*) n from spans where kind = 'range' group by name")
    assert {row["name"]: row["n"] for row in names} == {f"step_{i}": 1 for i in range(50)}


def test_a_range_ended_on_another_thread_keeps_its_start_and_its_track(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, ELSEWHERE, tmp_path)

    (far,) = recorded.rows("select * from spans where name = 'far'")
    (ones,) = recorded.rows("select * from spans where name = 'aten::ones'")
    (zeros,) = recorded.rows("select * from spans where name = 'aten::zeros'")
    assert far["track"] == zeros["track"] == ones["track"]
    assert far["start_ns"] >= zeros["start_ns"] + zeros["dur_ns"]
    assert far["dur_ns"] >= 50_000_000
    assert (far["depth"], ones["depth"], ones["parent"]) == (0, 1, far["span"])
    later = recorded.rows("select depth, parent from spans where name = 'aten::full'")
    assert later == [{"depth": 0, "parent": None}] * 10


def test_ranges_ended_out_of_order_do_not_shift_the_depth(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, OUT_OF_ORDER, tmp_path)

    rows = {row["name"]: row for row in recorded.rows("select * from spans where depth < 3")}
    assert (rows["first"]["depth"], rows["second"]["depth"], rows["aten::ones"]["depth"]) == (
        0,
        1,
        2,
    )
    assert rows["second"]["parent"] == rows["first"]["span"]
    assert rows["aten::ones"]["parent"] == rows["second"]["span"]
    assert (rows["aten::zeros"]["depth"], rows["aten::zeros"]["parent"]) == (0, None)


def test_a_backward_function_is_linked_to_its_operator(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    program = """
import threading, torch
from torch import nn
model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.randn(3, 8)
losses = []
def forward():
    losses.append(model(x).sum())
for _ in range(10):
    there = threading.Thread(target=forward)
    there.start()
    there.join()
    losses.pop().backward()
"""
    recorded = record(program_python, program, tmp_path)

    links = recorded.rows(
        "select f.name as forward, b.name as backward, count(*) n, bool_and(f.track != b.track) as other_thread "
        "from links join spans f on f.span = from_span join spans b on b.span = to_span group by all"
    )
    counts = {(row["forward"], row["backward"]): row["n"] for row in links}
    assert counts[("aten::relu", "ReluBackward0")] == 10
    assert counts[("aten::sum", "SumBackward0")] == 10
    assert counts[("aten::addmm", "AddmmBackward0")] == 10
    assert all(row["other_thread"] for row in links)


@pytest.mark.slow
def test_a_profiler_of_the_program_counts_the_same_and_so_do_we(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    program = """
import collections, json, sys, torch
from torch.profiler import profile, ProfilerActivity
def work():
    x = torch.ones(16, 16, requires_grad=True)
    for i in range(20):
        with torch.autograd.profiler.record_function(f"r{i % 3}"):
            (x @ x).relu().sum().backward()
work()
with profile(activities=[ProfilerActivity.CPU]) as p:
    work()
work()
counts = collections.Counter(e.name() for e in p.profiler.kineto_results.events())
print(json.dumps(counts, sort_keys=True))
"""
    import json
    import subprocess

    alone = subprocess.run(
        [program_python, "-c", program], capture_output=True, text=True, check=True, timeout=120
    ).stdout

    recorded = record(program_python, program, tmp_path)

    assert recorded.stdout == alone
    ours = {
        row["name"]: row["n"]
        for row in recorded.rows("select name, count(*) n from spans group by name")
    }
    theirs = json.loads(alone)
    assert {name: n * 3 for name, n in theirs.items()} == {name: ours.get(name) for name in theirs}
