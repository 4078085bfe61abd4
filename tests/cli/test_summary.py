"""The commands `summary` and `list`: what `run` printed, again, and what recordings there are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from layerscope import cli
from tests.recorded import ROOT
from tests.replayed import replay

PERF = ROOT / "tests" / "golden" / "perf"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_summary_of_a_recording_is_printed_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replay("train", folder, "train")

    assert cli.main(["summary"]) == 0
    newest = capsys.readouterr().out
    assert "8 steps" in newest
    assert "\nOverhead: " in newest
    assert newest.endswith("\nNext: layerscope report\n")
    assert cli.main(["summary", "train"]) == 0
    assert capsys.readouterr().out == newest.replace(
        "\nNext: layerscope report\n", "\nNext: layerscope report train\n"
    )


def test_files_of_other_programs_have_a_summary(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(PERF / "file.txt", folder / "stacks.txt")

    assert cli.main(["summary", "stacks.txt"]) == 0

    printed = capsys.readouterr().out
    assert printed.startswith("layerscope: stacks.txt.\n")
    assert "\nFunction, with what it calls" in printed
    assert "not recorded" not in printed.lower()
    assert "Overhead:" not in printed
    assert "Next: layerscope report stacks.txt\n" in printed


def test_a_log_of_onednn_has_a_summary_and_a_flame_graph(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        "onednn_verbose,v1,info,oneDNN v3.7.1 (commit 1)",
        "onednn_verbose,v1,primitive,exec,cpu,matmul,brg:avx512_core,undef,src:f32::blocked:ab::f0 "
        "wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,64x64:64x64,2.5",
    ]
    (folder / "verbose.log").write_text("\n".join(lines) + "\n")

    assert cli.main(["summary", "verbose.log"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("layerscope: verbose.log.\n")
    assert "matmul brg:avx512_core" in printed
    assert cli.main(["flame", "verbose.log", "--kind", "primitives"]) == 0
    assert "2.50 ms in primitives in 1 span" in capsys.readouterr().out


def test_recordings_are_listed_the_newest_first(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, started in (
        ("old", "2026-01-01T00:00:00+00:00"),
        ("new", "2026-02-01T00:00:00+00:00"),
    ):
        path = replay("train", folder, name).run.path
        about = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps({**about, "started_utc": started}))
    (folder / "broken.layerscope").mkdir()
    (folder / "broken.layerscope" / "run.json").write_text("{")
    assert cli.main(["pack", "old", "-q"]) == 0
    capsys.readouterr()

    assert cli.main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [column["name"] for column in listed["columns"]] == [
        "recording", "state", "started_utc", "command", "wall_ns", "size_bytes",
    ]  # fmt: skip
    assert [row[:2] for row in listed["rows"][:2]] == [["new", "finished"], ["old", "finished"]]
    assert sorted(row[:2] for row in listed["rows"][2:]) == [
        ["broken", "damaged"], ["old.layerscope.zip", "packed"],
    ]  # fmt: skip
    assert all(row[5] > 0 for row in listed["rows"])


def test_a_folder_without_recordings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    assert (
        capsys.readouterr().out == f"No recording in {folder}. Make one: layerscope run train.py\n"
    )
    assert cli.main(["list", "nowhere"]) == 125
    assert "nowhere is not a folder" in capsys.readouterr().err
