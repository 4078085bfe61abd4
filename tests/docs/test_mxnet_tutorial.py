"""The commands of the tutorials about MXNet run as they stand there, and find what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.docs.tutorials import Tutorial
from tests.mxnet_folder import mxnet_folder
from tests.recorded import ROOT

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


def test_the_flame_graphs_find_what_they_say(
    mxnet2_python: str, native_agent: Path, perf_events: None, tmp_path: Path
) -> None:
    page = "tutorials/mxnet_flame_graphs.md"
    commands = Tutorial(page, ("mlp.py",), tmp_path, mxnet2_python)

    assert "400 steps, the first" in commands.run().stderr
    commands.run()
    objects = {row["object"] for row in commands.rows()}
    assert "[jit]" in objects
    commands.run()
    longest = commands.rows()[0]
    assert (longest["state"], longest["line"].rpartition("/")[2]) == ("join", "mlp.py:32")
    faults = commands.run().stdout
    assert "import mxnet" in faults

    commands.run()
    commands.run()
    graphs = {path.name for path in tmp_path.glob("*.html")}
    assert graphs == {"mlp.html", "waits.html", "onednn.html"}
    verdicts = {row["name"]: row["verdict"] for row in commands.rows()}
    assert verdicts["FullyConnected"] == "faster"
    assert commands.left == []


def test_the_program_in_c_finds_what_it_says(
    mxnet2_python: str, native_agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXNET", str(mxnet_folder(mxnet2_python)))
    runpy.run_path(str(ROOT / "examples" / "native" / "build.py"))["build_mxnet_mlp"](tmp_path)
    commands = Tutorial("tutorials/mxnet_c.md", (), tmp_path, mxnet2_python)

    assert "mxnet 2.0.0b1" in commands.run().stderr
    operators = {row["name"]: row["count"] for row in commands.rows()}
    assert operators["FullyConnected"] == 420
    calls = {row["name"]: row["calls"] for row in commands.rows()}
    assert calls["MXAutogradBackwardEx"] == 120

    assert "120 steps" in commands.run().stderr
    ranges = {(row["range"], row["name"]): row["count"] for row in commands.rows()}
    assert ranges["batch", "FullyConnected"] == 360
    assert ranges["none", "FullyConnected"] == 60
    marks = {(row["kind"], row["name"]): row["marks"] for row in commands.rows()}
    assert marks["marker", "test ends"] == 2
    commands.run()
    theirs = {row["name"]: row["count"] for row in commands.rows()}
    assert theirs["FullyConnected"] == 360
    assert commands.left == []
