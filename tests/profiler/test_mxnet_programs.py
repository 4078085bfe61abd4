"""`layerscope.profiler` in programs of MXNet's Module interface and of a distributed store: its
counts are MXNet's own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.profiler import library

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
# What MXNet's profiler does not count: executions without a name, steps, waits for batches.
NOT_THEIRS = re.compile(r"\(no name\)|Optimizer\.update#.*|.*\.__next__")


def run(python: str, program: str, folder: Path) -> Any:
    """What it prints, both profilers counting."""
    path = {"PYTHONPATH": f"{PROGRAMS}:{library.variables()['PYTHONPATH']}"}
    text = (PROGRAMS / program).read_text()
    done = library.run(python, text, folder, "-W", "ignore", arguments=("--library",), **path)
    return json.loads(done.stdout)


def without_ours_alone(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if not NOT_THEIRS.fullmatch(name)}


def test_the_module_interface(mxnet1_python: str, native_agent: Path, tmp_path: Path) -> None:
    found = run(mxnet1_python, "mxnet_module.py", tmp_path)

    assert found["ours"]["Optimizer.update#Module.SGD"] == 4
    assert found["theirs"]["_backward_FullyConnected"] == 4 * 2
    assert without_ours_alone(found["ours"]) == found["theirs"]


def test_workers_of_a_distributed_store(
    mxnet_python: str, native_agent: Path, tmp_path: Path
) -> None:
    found = run(mxnet_python, "mxnet_store.py", tmp_path)

    assert sorted(found) == ["0", "1"]
    for worker in found.values():
        assert worker["theirs"]["KVStoreDistDefaultPush"] >= 3
        assert without_ours_alone(worker["ours"]) == worker["theirs"]
