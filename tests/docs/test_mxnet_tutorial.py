"""The commands of the tutorial about MXNet run as they stand there, and find what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.tutorials import Tutorial

pytestmark = pytest.mark.slow


def test_the_tutorial_finds_what_it_says(
    mxnet2_python: str, native_agent: Path, tmp_path: Path
) -> None:
    commands = Tutorial(
        "tutorials/mxnet.md", ("clock.py", "train.py", "custom.py"), tmp_path, mxnet2_python
    )

    clock = commands.run()
    assert re.search(r"dot returned after .* ms\nits result was there after .* ms", clock.stdout)
    assert re.search(r"(?m)^_npi_dot .* 1$", clock.stderr)

    summary = commands.run().stderr
    assert "40 steps, the first" in summary
    assert "convolutions (oneDNN)" in summary
    assert "--granularity operator" in summary
    first = commands.rows()[0]
    assert (first["step"], first["rule"], first["warmup"]) == (0, "optimizer", True)

    lines = (tmp_path / "train.py").read_text().splitlines()
    found = {row["name"]: row for row in commands.rows()}
    assert (
        lines[int(found["ImperativeBulk"]["line"].rpartition(":")[2]) - 1].strip()
        == "loss.backward()"
    )
    assert found["Convolution"]["count"] == 80
    assert {(row["module"], row["count"]) for row in commands.rows()} == {
        ("HybridSequential.0", 40),
        ("HybridSequential.2", 40),
    }
    awaited = {row["awaited"]: row["calls"] for row in commands.rows()}
    assert awaited["_npi_mean"] == 40

    assert "MXNet executed each operator alone" in " ".join(commands.run().stderr.split())
    names = {row["name"] for row in commands.rows()}
    assert "_backward_Convolution" in names
    assert "ImperativeBulk" not in names

    commands.run()
    counts = {row["name"]: row["count"] for row in commands.rows()}
    assert counts["MyAddOne::pure_python"] == counts["_backward_MyAddOne::pure_python"] == 10
    assert counts["MyAddOne::_npi_add_scalar"] == 10
    assert commands.left == []
