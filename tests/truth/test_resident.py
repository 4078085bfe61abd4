"""What the resident memory of a program is made of: hardly anything of it has no name."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.analyse import tables
from layerscope.analyse.result import select
from layerscope.recording.reader import Reader
from tests.recorded import record

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]

PROGRAM = """
import time
import torch

words = [str(number) for number in range(400_000)]  # 23 MB of small objects
weights = torch.randn(4_000_000)
net = torch.nn.Linear(512, 512)
until = time.monotonic() + 2.5
while time.monotonic() < until:
    net(torch.randn(64, 512)).sum().backward()
"""


@pytest.mark.parametrize("options", [(), ("--without", "stacks")])
def test_all_but_a_twentieth_has_a_name(
    program_python: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    recorded = record(program_python, PROGRAM, tmp_path, options=("--layers=+memory", *options))
    with Reader(recorded.run) as reader:
        result = select(tables.build(reader, "resident", None))
        assert result.data is not None
        found = {row["part"]: row["bytes"] for row in result.data.to_pylist()}

    assert 16e6 < found["tensors"] < 22e6
    assert found["Python objects"] > 40e6  # what torch imports, and the words
    unknown = found.get("other anonymous", 0) - found.get("not resident", 0)
    assert unknown < 0.05 * sum(found.values())
