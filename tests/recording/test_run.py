"""`run.json` and the folder around it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.model.errors import ReadError, RunError, UsageError
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.recording.ranks import LAUNCH, read_launch
from layerscope.recording.run import (
    ExitState,
    LayerState,
    Run,
    RunInfo,
    TableState,
    free_name,
    newest,
)
from tests.recordings import run_info


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "train.layerscope", run_info())


def test_what_was_saved_is_opened(tmp_path: Path) -> None:
    info = run_info(
        state="killed", command=["python", "größe.py", "--a=b c\n"], environment={"OMP_NUM_THREADS": "2"},
        exit=ExitState(signal=9), layers=[LayerState("operators", "recorded", "why", 5, 2, 7, 11)],
        tables=[TableState("spans", 3)], host={"cpu": {"granted": 1.5, "model": "x"}}, start_ns=2**62,
    )  # fmt: skip
    Run.create(tmp_path / "a.layerscope", info)

    again = Run.open(tmp_path / "a.layerscope")
    assert again.info == info
    assert (again.name, again.path, again.raw) == (
        "a",
        tmp_path / "a.layerscope",
        tmp_path / "a.layerscope" / "raw",
    )
    assert again.tables_path == again.path


def test_every_field_of_the_design_is_in_the_file(run: Run) -> None:
    assert {
        "schema", "layerscope", "run_id", "state", "command", "cwd", "environment", "host", "started_utc",
        "finished_utc", "exit", "layers", "window", "weight_policy", "tables",
    } <= set(json.loads((run.path / "run.json").read_text()))  # fmt: skip


def test_a_new_recording_is_complete_and_ignored_by_git(run: Run) -> None:
    assert sorted(path.name for path in run.path.iterdir()) == [".gitignore", "raw", "run.json"]
    assert (run.path / ".gitignore").read_text() == "*\n"


def test_a_recording_is_never_made_over_another(run: Run) -> None:
    with pytest.raises(
        RunError, match=r"cannot make the recording .*train.*: File exists\. Choose another place"
    ):
        Run.create(run.path, run_info())


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="Not a directory") as failed:
        Run.create(tmp_path / "file" / "a.layerscope", run_info())
    assert failed.value.status == 125


def test_a_reader_sees_the_old_file_until_the_new_one_is_complete(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.info.state = "running"
    seen: list[str] = []
    replace = os.replace

    def look_first(source: Path, target: Path) -> None:
        seen.append(Run.open(run.path).info.state)
        assert json.loads(Path(source).read_text())["state"] == "running"
        replace(source, target)

    monkeypatch.setattr(os, "replace", look_first)
    run.save()

    assert seen == ["finished"]
    assert Run.open(run.path).info.state == "running"


def test_a_save_that_fails_leaves_the_old_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    run.info.state = "running"
    with pytest.raises(OSError, match="No space"):
        run.save()

    assert Run.open(run.path).info.state == "finished"


def test_a_newer_schema_is_refused_in_words_even_if_nothing_else_is_known(run: Run) -> None:
    newer = {"schema": 99, "all": "different", "state": 7}
    (run.path / "run.json").write_text(json.dumps(newer))
    with pytest.raises(
        ReadError,
        match=r"was recorded by a newer layerscope \(schema 99; this one reads up to \d+\)\. Update",
    ):
        Run.open(run.path)


def test_fields_that_only_a_newer_layerscope_of_the_same_schema_knows_are_no_harm(run: Run) -> None:
    content = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps(content | {"mood": "good"}))

    assert Run.open(run.path).info == run.info


def test_words_in_the_recording_are_not_taken_for_its_schema(tmp_path: Path) -> None:
    Run.create(tmp_path / "a.layerscope", run_info(command=["echo", '"schema": 99', "schema: 99"]))

    assert Run.open(tmp_path / "a.layerscope").info.schema == SCHEMA_VERSION


@pytest.mark.parametrize("name", ["run.json", ""])
def test_what_is_no_recording_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(ReadError, match="is not a layerscope recording"):
        Run.open(tmp_path / name)


def test_what_is_neither_a_file_nor_a_folder_is_refused_with_the_remedy(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReadError, match="into a file, and open that"):
        Run.open(tmp_path / "pipe")


CONTENT = msgspec.json.format(msgspec.json.encode(run_info()), indent=1)


@given(st.integers(0, len(CONTENT) - 1))
def test_a_file_cut_anywhere_is_damaged_in_words(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    (folder / "run.json").write_bytes(CONTENT[:cut])
    with pytest.raises(
        ReadError, match=r"run\.json is damaged .* The raw files beside it are untouched"
    ):
        Run.open(folder)


@given(st.integers(0, len(CONTENT) - 1), st.binary(min_size=1, max_size=4))
def test_a_file_with_any_other_bytes_opens_or_is_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, at: int, instead: bytes
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    (folder / "run.json").write_bytes(CONTENT[:at] + instead + CONTENT[at + len(instead) :])
    words = ""
    try:
        assert isinstance(Run.open(folder).info, RunInfo)
    except ReadError as error:
        words = str(error)
    assert not words or "damaged" in words or "newer" in words


def test_a_free_name_counts_up_and_never_takes_one_that_exists(tmp_path: Path) -> None:
    names = []
    for _ in range(4):
        path = free_name(tmp_path, "train")
        names.append(path.name)
        path.mkdir()
        if len(names) == 2:
            path.rmdir()
            path.write_text("a file is in the way too")
    assert names == [
        "train.layerscope",
        "train-2.layerscope",
        "train-3.layerscope",
        "train-4.layerscope",
    ]


def test_the_newest_recording_is_the_one_that_was_saved_last(tmp_path: Path) -> None:
    for number, name in enumerate(["a", "b", "c"]):
        Run.create(tmp_path / f"{name}.layerscope", run_info())
        os.utime(tmp_path / f"{name}.layerscope" / "run.json", ns=(0, [5, 9, 7][number]))
    (tmp_path / "empty.layerscope").mkdir()

    assert newest(tmp_path) == tmp_path / "b.layerscope"


def test_no_recording_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no recording in .*\. Make one: layerscope run train\.py"
    ):
        newest(tmp_path)


@pytest.mark.parametrize("number", [2**63, 10**30, -(10**30), 1.5, "1", None])
def test_a_number_that_no_table_can_hold_is_damage(run: Run, number: object) -> None:
    content = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps(content | {"start_ns": number}))

    with pytest.raises(ReadError, match=r"run\.json is damaged"):
        Run.open(run.path)


@pytest.mark.parametrize("size", ["-1", "1e3", str(10**18), '"4"', "[" * 100_000])
def test_a_launch_that_cannot_be_meant_is_none(tmp_path: Path, size: str) -> None:
    whole = '{"key": "k", "launcher": "l", "job": "j", "world_size": 4}'
    (tmp_path / LAUNCH).write_text(whole)
    assert read_launch(tmp_path)
    (tmp_path / LAUNCH).write_text(whole.replace("4", size))

    assert read_launch(tmp_path) is None
