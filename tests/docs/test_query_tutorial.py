"""docs/query.md runs: every question of it has an answer about a real recording."""

from __future__ import annotations

import json
import re
import shlex
import sys
from io import StringIO
from pathlib import Path

import pytest

from layerscope import cli
from tests.recorded import ROOT, record

pytestmark = pytest.mark.slow

PROGRAM = """
import time
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
# Long enough for samples to be in operators.
end = time.thread_time() + 0.5
x = torch.randn(256, 256)
while time.thread_time() < end:
    x = x @ x / 16
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


def test_the_tutorial_runs(
    tmp_path: Path, program_python: str, native_agent: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    page = (ROOT / "docs" / "query.md").read_text()
    questions = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^layerscope (query.*?)(?:  #.*)?$", page, re.MULTILINE)
    assert record(program_python, PROGRAM, tmp_path, options=()).status == 0
    (tmp_path / "recording.layerscope").rename(tmp_path / "train.layerscope")
    monkeypatch.chdir(tmp_path)

    assert len(questions) == 10
    for question in questions:
        assert cli.main(["query", question, "--json"]) == 0, question
        answer = json.loads(capfd.readouterr().out)
        assert answer["rows"], question
        assert all(
            column["unit"]
            for column in answer["columns"]
            if column["name"].endswith(("_ns", "_bytes"))
        )
    calls = {name: calls for name, calls, _ in answer["rows"]}
    assert calls["aten::addmm"] == 2 * 8
    assert len(lines) == 4
    for line in lines:
        monkeypatch.setattr(sys, "stdin", StringIO(questions[0]))
        assert cli.main(shlex.split(line.replace("< question.sql", ""))) == 0, line
    assert "aten::addmm" in capfd.readouterr().out
