"""docs/profiler.md runs: the tutorial's code, one block after the other, in one program."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.profiler import library
from tests.recorded import ROOT

pytestmark = pytest.mark.slow


def convolutions(file: Path) -> int:
    """Backward convolutions in a trace."""
    events = json.loads(library.written(file))["traceEvents"]
    return sum(event["name"] == "aten::convolution_backward" for event in events)


def test_the_tutorial_runs(tmp_path: Path, program_python: str, native_agent: Path) -> None:
    page = (ROOT / "docs" / "profiler.md").read_text()
    text = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))

    done = library.run(program_python, text, tmp_path)

    assert done.stderr == ""
    assert done.stdout.endswith(f"{tmp_path}/profile_output.layerscope\n")
    tables = done.stdout.split("Profile Statistics:")
    counts = [
        int(found)
        for found in re.findall(r"^aten::convolution_backward +(\d+)", done.stdout, re.MULTILINE)
    ]
    assert len(tables) == 3
    assert counts == [2 * 3]  # two of a network, three iterations; the last table is after a reset
    assert re.search(r"^MyAddOne +1 ", tables[2], re.MULTILINE)
    found = library.recorded(tmp_path / "profile_output.layerscope")
    assert found.value(
        "SELECT count(*) FROM spans WHERE name = 'aten::convolution_backward'"
    ) == 2 * (3 + 2 + 1)
    assert found.value("SELECT count(*) FROM spans WHERE name = 'an iteration'") == 2
    assert convolutions(tmp_path / "profile_output.json") == 2 * 3
    # What ran since its dump comes into it when the recording is complete.
    end = time.monotonic() + library.PATIENCE_S
    while convolutions(tmp_path / "my_add_one.json") != 2 * 3 and time.monotonic() < end:
        time.sleep(0.1)
    assert convolutions(tmp_path / "my_add_one.json") == 2 * 3
