"""`layerscope flame`: what it prints and writes, and what it says about wrong words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.model.schema import SCHEMA_VERSION
from tests.recordings import MS, Recording

MAIN = ("python <module> train.py:9", "python main train.py:5")


def made(weight: int = 10 * MS) -> Recording:
    recording = Recording()
    for number in range(4):
        recording.add_sample(
            recording.add_stack(*MAIN, f"operators op{number % 2}"), weight, step=number
        )
    recording.add_sample(recording.add_stack(*MAIN), 5 * MS, kind="offcpu", state="lock")
    recording.add_span("aten::mm", 0, 500)
    return recording


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with two recordings."""
    monkeypatch.chdir(tmp_path)
    made(5 * MS).write(tmp_path / "before.layerscope")
    made().write(tmp_path / "train.layerscope")
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli.main(["flame", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_without_a_file_there_is_a_tree_and_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["flame"]) == 0

    printed = capsys.readouterr()
    assert printed.out.splitlines()[:2] == ["CPU time: train", "40.0 ms of CPU time in 4 samples"]
    assert printed.err == "Next: layerscope flame -o flame.svg\n"
    assert cli.main(["flame", "train", "--kind", "offcpu", "--diff", "before", "-q"]) == 0
    assert capsys.readouterr().err == ""
    assert cli.main(["flame", "train", "--kind", "offcpu"]) == 0
    assert capsys.readouterr().err == "Next: layerscope flame train --kind offcpu -o flame.svg\n"


def test_json_is_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    answer = asked(capsys, "train", "--step", "1:3")

    assert list(answer)[:6] == ["schema", "command", "run", "table", "columns", "rows"]
    assert (answer["schema"], answer["command"], answer["run"]) == (
        SCHEMA_VERSION,
        "flame",
        "train.layerscope",
    )
    names = [column["name"] for column in answer["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in answer["rows"]]
    assert [(row["depth"], row["name"], row["own_ns"], row["total_ns"]) for row in rows] == [
        (0, "<module>", 0, 20 * MS),
        (1, "main", 0, 20 * MS),
        (2, "op0", 10 * MS, 10 * MS),
        (2, "op1", 10 * MS, 10 * MS),
    ]
    assert answer["problems"] == []
    columns = {
        column["name"]: column["unit"]
        for column in asked(capsys, "train", "--diff", "before")["columns"]
    }
    assert columns["change_ns"] == "ns"


@pytest.mark.parametrize("suffix", [".svg", ".html", ".folded", ".speedscope.json"])
def test_a_file_is_written_and_left_alone_the_next_time(
    suffix: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"x{suffix}"
    assert cli.main(["flame", "train", "-o", name]) == 0

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{name}: 4 frames, ")
    assert "Next: " in printed.err
    content = (folder / name).read_bytes()
    assert cli.main(["flame", "before", "-o", name]) == 125
    assert "exists and was left as it is. --force replaces it" in capsys.readouterr().err
    assert (folder / name).read_bytes() == content
    assert cli.main(["flame", "before", "-o", name, "--force", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert dict(zip([c["name"] for c in answer["columns"]], answer["rows"][0], strict=True)) == {
        "file": name, "frames": 4, "left_out": 0, "whole": 20 * MS, "bytes": (folder / name).stat().st_size,
    }  # fmt: skip
    assert [file.name for file in folder.iterdir() if file.name.startswith(".x")] == []


def test_every_option_reaches_the_picture(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--kind",
        "wall",
        "--thread",
        "python",
        "--time",
        ":1",
        "--layers",
        "python,waits",
        "--idle",
        "--invert",
    ]
    assert (
        cli.main(["flame", "train", *words, "--by", "line", "--title", "Mine", "-o", "x.svg", "-q"])
        == 0
    )

    text = (folder / "x.svg").read_text()
    assert "<title>Mine</title>" in text
    assert "thread python, time :1, layers python,waits" in text
    assert "main (train.py:5)" in text
    answer = asked(capsys, "train", *words)
    assert sorted(row[4] for row in answer["rows"] if row[1] is None) == [
        "main",
        "waits for a lock",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--kind", "gpus"],
            "there is no kind 'gpus'. Did you mean 'gpu'? The kinds are cpu, offcpu, wall, operators, primitives, gpu, pagef",
        ),
        (
            ["--by", "core"],
            "a flame graph cannot be shown by 'core'. Possible here: thread, process, rank",
        ),
        (["--layers", "cobol"], "there is no layer of frames 'cobol'. They are python, modules, "),
        (["--step", "x"], "--step x is no step: 10 is one, 10:20 are the steps 10 to 19"),
        (["--step", "5:5"], "--step 5:5 is no step"),
        (
            ["--time", "4:2"],
            "--time 4:2 is no stretch of time: 1.5:4 are the seconds from 1.5 to 4",
        ),
        (["--time", "now"], "--time now is no stretch of time"),
        (["--thread", "nobody"], "there is no thread 'nobody'. The threads are python 100"),
        (
            ["--module", "Net"],
            "there is no module 'Net'. No modules were recorded with these stacks",
        ),
        (["--phase", "lunch"], "there is no phase 'lunch'. The phases are loading, forward, "),
        (
            ["--phase", "forward"],
            "nothing of kind cpu is left to show. Leave out some of --thread, --step, ",
        ),
        (["--kind", "pagefaults"], "nothing of kind pagefaults is left to show. Kinds are cpu, "),
        (
            ["-o", "x.png"],
            "'x.png' names no format. The extension chooses it: .folded, .html, .speedscope.json, .svg",
        ),
        (["--flip"], "--flip turns a picture over. Add -o FILE.svg or -o FILE.html"),
        (["--flip", "-o", "x.folded"], "--flip turns a picture over. Add -o FILE.svg"),
        (["-o", "no/x.svg"], "no/x.svg lies in a folder that does not exist"),
        (
            ["--diff", "nothing"],
            "there is no recording 'nothing'. Make one: layerscope run train.py",
        ),
        (["--nonsense"], "unrecognized arguments: --nonsense. See layerscope flame --help"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_125(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["flame", "train", *words]) == 125

    error = capsys.readouterr().err
    assert error.startswith(f"layerscope: {sentence}")
    assert error.count("\n") == 1


def test_threads_have_a_frame_each_unless_that_is_declined(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = made()
    loader = recording.add_thread(recording.process, 102, "loader")
    recording.add_sample(recording.add_stack("python load a.py:1"), 20 * MS, track=loader)
    recording.write(folder / "threads.layerscope")

    def outermost(*words: str) -> set[str]:
        return {row[4] for row in asked(capsys, "threads", *words)["rows"] if row[1] is None}

    assert outermost() == {"python 100", "loader 102"}
    assert outermost("--by", "none") == {"<module>", "load"}
    assert outermost("--by", "line") == {"<module>", "load"}
    assert outermost("--by", "state") == {"running"}


def test_a_recording_without_samples_says_how_to_make_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = Recording()
    recording.add_span("aten::mm", 0, 5)
    recording.write(folder / "plain.layerscope")

    assert cli.main(["flame", "plain"]) == 125
    assert capsys.readouterr().err == (
        "layerscope: plain.layerscope has no samples: no stacks were recorded. They are recorded without `--without "
        "stacks`; a program that ends within a tenth of a second may have none\n"
    )
    assert cli.main(["flame", "plain", "--kind", "operators", "-q"]) == 0
    assert "5 ns in operators in 1 span" in capsys.readouterr().out
    assert cli.main(["flame", "plain", "--diff", "train"]) == 125


def test_losses_are_said_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = made()
    recording.add_gap("ring_full", 1204)
    recording.add_problem("stacks", "threads were missed", "wait less", lost="12 threads")
    recording.write(folder / "lossy.layerscope")

    assert cli.main(["flame", "lossy"]) == 0
    printed = capsys.readouterr().err
    assert "Not everything was recorded (stacks): `layerscope summary` says why." in printed
    assert "Lost: 1,204 records" in printed
    assert len(asked(capsys, "lossy")["problems"]) == 2


def test_a_full_disk_is_said_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from layerscope.show.flame import svg

    def write(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(svg, "write", write)
    assert cli.main(["flame", "train", "-o", "x.svg"]) == 125
    assert (
        "x.svg was not written: No space left on device. Nothing else was changed"
        in capsys.readouterr().err
    )
    assert not [file for file in folder.iterdir() if "x.svg" in file.name]
