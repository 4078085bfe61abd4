"""`profile_memory` of the library: what tensors hold, while it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.profiler import library

pytestmark = pytest.mark.slow

PROGRAM = """
import json
import torch
from layerscope import profiler

KIB = 1024
before = torch.empty(100 * KIB)
profiler.set_config(profile_memory=True)
profiler.set_state("run")
first, second = torch.empty(KIB), torch.empty(2 * KIB)
del first
profiler.set_state("stop")
print(profiler.dumps(format="json"))
profiler.set_config(profile_memory=False)
profiler.set_state("run")
unseen = torch.empty(7 * KIB)
profiler.set_state("stop")
"""
KIB = 1024


def test_tensors_are_recorded_while_it_is_asked_for(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    done = library.run(program_python, PROGRAM, tmp_path)

    storage = json.loads(done.stdout)["Memory"]["Device Storage"]["Memory: cpu/0"]
    # In kB of 1,000 bytes: after the first, the second, and the release of the first.
    assert storage["Count"] == 3
    assert storage["Min"] == pytest.approx(4 * KIB / 1000)
    assert storage["Max"] == pytest.approx(12 * KIB / 1000)
    sizes = library.recorded(tmp_path / "program.layerscope").rows(
        "SELECT bytes FROM allocations WHERE allocator = 'tensor' ORDER BY at_ns"
    )
    assert [row["bytes"] for row in sizes] == [4 * KIB, 8 * KIB]
