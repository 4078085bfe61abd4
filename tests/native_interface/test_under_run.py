"""A program in C with layerscope.h under `layerscope run`: one recording, which `run` makes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from layerscope.capture.agent import LIBRARY
from tests.native.door import Door
from tests.native_interface.driven import Drive
from tests.recorded import layerscope


def test_everything_goes_into_the_recording_of_run_from_the_start_on(
    drive_under_run: Drive,
) -> None:
    driven = drive_under_run(
        "push net early", "pop", "step", "state run", "push net forward", "counter net loss -5", "pop", "step", "say",
        "marker - saved 0", "pause", "push - unseen", "pop", "resume", "@1 push - thread", "@1 pop", "push - open",
    )  # fmt: skip
    assert (driven.status, driven.stdout) == (0, "\n")
    assert [(span["name"], span["domain"], span["kind"]) for span in driven.spans()] == [
        ("early", "net", "task"), ("forward", "net", "task"), ("thread", None, "task"), ("open", None, "task"),
    ]  # fmt: skip
    assert [span["unfinished"] for span in driven.spans()] == [False, False, False, True]
    assert driven.counted("loss") == [-5]
    assert driven.marks() == [
        ("step", "step"), ("step", "step"), ("marker", "saved"), ("paused", "profiler"), ("resumed", "profiler"),
    ]  # fmt: skip
    assert [path.name for path in driven.folder.iterdir()] == ["recording.layerscope"]
    assert driven.lost() == 0


def test_marked_steps_alone_are_steps(drive_under_run: Drive) -> None:
    driven = drive_under_run(*["step"] * 4)
    assert driven.status == 0
    assert driven.spans() == []
    steps = layerscope(
        "table", str(driven.folder / "recording.layerscope"), "steps", "--json", cwd=driven.folder
    )
    table = json.loads(steps.stdout)
    rule = [column["name"] for column in table["columns"]].index("rule")
    assert [row[rule] for row in table["rows"]] == ["mark"] * 3


def test_a_window_that_the_program_ends_in_is_said(tmp_path: Path, driver: Path) -> None:
    done = layerscope(
        "run", "-o", "recording", "--steps", "2:40", "--", str(driver), *["step"] * 6, cwd=tmp_path
    )
    assert done.returncode == 0
    said = "the program ended before the window (steps 2 to 39): step 5 was the last to begin."
    assert said in " ".join(done.stderr.split())
    assert "Not recorded" not in done.stderr


def test_a_killed_program_loses_nothing(drive_under_run: Drive) -> None:
    driven = drive_under_run("push - open", "many - short 5000", "kill")
    assert [span["unfinished"] for span in driven.spans() if span["name"] == "open"] == [True]
    assert driven.tree().count(("short", "open")) == 5000


def test_children_record_for_themselves(drive_under_run: Drive) -> None:
    driven = drive_under_run(
        "begin - outer 0", "fork", "end 0", "push - childs", "pop", "state run", "dump 0", "_exit 0", "parent", "end 0",
    )  # fmt: skip
    assert driven.status == 0
    child = int(driven.stdout.split()[1])
    assert driven.tree() == [("outer", None)]
    assert driven.tree(child) == [("childs", None)]


@pytest.mark.slow
def test_dump_writes_the_trace(drive_under_run: Drive) -> None:
    driven = drive_under_run(
        "config filename=made/trace.json", "state run", "push net forward", "pop", "dump 0", "push net backward", "pop",
        "dump 1",
    )  # fmt: skip
    assert (driven.status, driven.stdout) == (0, "")
    trace = json.loads((driven.folder / "made" / "trace.json").read_text())
    assert {"forward", "backward"} <= {event.get("name") for event in trace["traceEvents"]}


@pytest.mark.slow
def test_a_trace_that_cannot_be_written_is_said(drive_under_run: Drive, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    driven = drive_under_run("config filename=file/trace.json", "push - a", "pop", "dump 1")
    assert driven.status == 0
    assert driven.stdout.startswith("dump: the trace could not be written: ")
    assert driven.tree() == [("a", None)]


def test_windows_of_steps_hold(driver: Path, tmp_path: Path) -> None:
    loop = [command for step in range(6) for command in (f"push - work{step}", "pop", "step")]
    command = ["run", "-q", "-o", "recording", "--steps", "2:4", "--", str(driver), *loop]
    assert layerscope(*command, cwd=tmp_path).returncode == 0
    found = layerscope(
        "query", "--csv", "SELECT name FROM spans ORDER BY start_ns", "recording", cwd=tmp_path
    )
    assert found.stdout.split() == ["name", "work2", "work3"]


def test_a_rank_that_is_left_out_records_nothing_and_fails_nothing(
    driver: Path, tmp_path: Path
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    door = Door(raw)
    try:
        agent = driver_environment(door.name, "ranks=1")
        left_out = alone_in(driver, tmp_path, agent, {"RANK": "0", "WORLD_SIZE": "2"})
        recorded = alone_in(driver, tmp_path, agent, {"RANK": "1", "WORLD_SIZE": "2"})
    finally:
        door.close()
    assert left_out == recorded == (0, "")
    assert len(door.handed) == 1


def test_a_recorder_that_is_gone_is_said_once_it_is_asked_for(driver: Path, tmp_path: Path) -> None:
    agent = driver_environment("layerscope-nobody-is-here", "")
    status, said = alone_in(driver, tmp_path, agent, {})
    assert status == 0
    assert said.startswith("state: the recorder of `layerscope run` does not answer")
    assert list(tmp_path.iterdir()) == []


def driver_environment(socket: str, more: str) -> str:
    """The variable by which the recorder that listens to `socket` is found."""
    return f"socket={socket};tsc=0;library={LIBRARY};{more}"


def alone_in(driver: Path, folder: Path, agent: str, variables: dict[str, str]) -> tuple[int, str]:
    """Status and output of a driver that finds `agent` in its environment."""

    environment = {**os.environ, **variables, "LAYERSCOPE_AGENT": agent}
    command = [str(driver), "push - a", "pop", "state run", "push - b", "pop"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.split("\n")[0]
