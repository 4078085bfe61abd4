"""Windows that are opened and closed from outside hold what ran in them, in all processes, and
nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from layerscope.capture.sampler import rights
from tests.live.steered import PLAIN, TRAINS, steered
from tests.recorded import Recorded, layerscope


def ranges(recorded: Recorded, beginning: str) -> list[str]:
    """The ranges whose names begin so."""
    rows = recorded.rows(
        f"SELECT name FROM spans WHERE name LIKE '{beginning} %' AND kind = 'range' ORDER BY name"
    )
    return [row["name"] for row in rows]


def test_windows_hold_exactly_what_ran_while_they_were_open(
    program_python: str, tmp_path: Path
) -> None:
    with steered(program_python, TRAINS, tmp_path) as program:
        program.tell("steps", 2)
        opened = program.command("start")
        program.tell("steps", 3)
        before_ns = program.tell("clock")
        program.command("mark", "the first one")
        after_ns = program.tell("clock")
        closed = program.command("stop", str(program.pid))
        for what in ("steps", "in_thread", "in_child"):
            program.tell(what, 1)
        program.command("start", "recording")
        for what in ("steps", "in_thread", "in_child", "in_program"):
            program.tell(what, 2)
        again = program.command("start", str(program.session.pid), "--for", "1000")
        program.command("stop")
        twice = program.command("stop")
        for what in ("steps", "in_thread", "in_child"):
            program.tell(what, 3)
        recorded = program.end()

    assert recorded.status == 0
    assert (opened["open"], opened["was_open"], opened["closes_ns"]) == (True, False, None)
    assert (closed["open"], closed["was_open"]) == (False, True)
    assert (again["open"], again["was_open"]) == (True, True)
    assert again["closes_ns"] == pytest.approx(again["at_ns"] + 1000e9, abs=10e9)
    assert (twice["open"], twice["was_open"]) == (False, False)

    assert ranges(recorded, "step") == [f"step {number}" for number in (2, 3, 4, 6, 7)]
    # The first step of a window began when the one before it ended: it is not whole.
    assert [row["step"] for row in recorded.rows("SELECT step FROM steps ORDER BY 1")] == [3, 4, 7]
    assert ranges(recorded, "thread") == ["thread 2"]
    assert ranges(recorded, "child") == ["child 2"]
    assert ranges(recorded, "program") == ["program 2"]
    marks = recorded.rows(
        "SELECT marks.kind, marks.name, at_ns, tid FROM marks JOIN tracks USING (track) "
        f"WHERE tid = {program.pid} AND marks.kind <> 'setting' ORDER BY at_ns"
    )
    assert [row["kind"] for row in marks] == [
        *("opened", "outside", "closed", "opened", "closed"),
    ]
    assert marks[1]["name"] == "the first one"
    assert before_ns < marks[1]["at_ns"] < after_ns
    assert recorded.rows("SELECT * FROM gaps") == []
    assert recorded.rows("SELECT code FROM problems") == []


def test_stacks_are_sampled_while_a_window_is_open(program_python: str, tmp_path: Path) -> None:
    if rights()["cpu_clock"]:
        pytest.skip("the kernel gives no events, and timers of the program tick all the time")
    with steered(program_python, PLAIN, tmp_path, ["--paused"]) as program:
        program.tell("while_closed", 300)
        for _ in range(12):  # so many samplers: what is called stacks.10 comes behind stacks.9
            program.command("start")
            program.tell("while_open", 80)
            program.command("stop")
            program.tell("while_closed", 80)
        recorded = program.end()

    found = recorded.rows(
        "SELECT frames.name, count(*) AS n FROM stacks JOIN frames USING (frame) "
        "WHERE frames.name LIKE '%while_%' GROUP BY 1"
    )
    assert [row["name"] for row in found] == ["while_open"]
    used_ns = recorded.value("SELECT sum(weight_ns) FROM samples WHERE kind = 'cpu'")
    # Without what the program used before the first window and between the others.
    assert 860e6 < used_ns < 1300e6
    assert recorded.rows("SELECT * FROM gaps") == []


@pytest.mark.parametrize("for_", [(), ("--for", "1")])
def test_a_session_that_is_killed_leaves_the_window_to_the_drainer(
    for_: tuple[str, ...], program_python: str, tmp_path: Path
) -> None:
    with steered(program_python, TRAINS, tmp_path) as program:
        program.command("start", *for_)
        program.tell("steps", 2)
        drainer = drainer_of(program.session.pid)
        program.session.send_signal(signal.SIGKILL)
        program.session.wait()
        time.sleep(3 if for_ else 0)
        program.tell("steps", 2)
        # They hand over memory of their own.
        for what in ("in_thread", "in_child") if for_ else ("in_thread", "in_child", "in_program"):
            program.tell(what, 1)
        refused = layerscope("stop", "recording", cwd=tmp_path)
        assert program.session.stdin is not None
        program.session.stdin.close()
        ended(program.pid)  # nobody waits for it any more
        ended(drainer)
        recorded = program.end()

    assert (refused.returncode, refused.stdout) == (125, "")
    assert "does not answer: it has ended" in refused.stderr
    kept = (0, 1) if for_ else (0, 1, 2, 3)
    assert ranges(recorded, "step") == [f"step {number}" for number in kept]
    for where in ("thread", "child", "program"):
        assert ranges(recorded, where) == ([] if for_ else [f"{where} 1"])


def drainer_of(session: int) -> int:
    """The process that writes the raw files."""
    for child in Path(f"/proc/{session}/task/{session}/children").read_text().split():
        files = [os.readlink(file) for file in Path(f"/proc/{child}/fd").iterdir()]
        if any(file.endswith("/spool") for file in files):
            return int(child)
    raise AssertionError("there is no drainer")


def test_another_drainer_goes_on_with_the_window(program_python: str, tmp_path: Path) -> None:
    with steered(program_python, TRAINS, tmp_path) as program:
        program.command("start")
        program.tell("steps", 2)
        os.kill(drainer_of(program.session.pid), signal.SIGKILL)
        program.command("mark", "it is gone")
        program.tell("steps", 2)
        program.tell("in_program", 1)
        program.command("stop")
        program.tell("steps", 2)
        recorded = program.end()

    assert ranges(recorded, "step") == ["step 0", "step 1", "step 2", "step 3"]
    assert ranges(recorded, "program") == ["program 1"]
    marks = "SELECT name FROM marks WHERE kind = 'outside'"
    assert recorded.rows(marks) == [{"name": "it is gone"}]


def test_a_program_that_is_killed_in_a_window_leaves_its_steps(
    program_python: str, tmp_path: Path
) -> None:
    with steered(program_python, TRAINS, tmp_path) as program:
        program.tell("steps", 1)
        program.command("start")
        program.tell("steps", 3)
        os.kill(program.pid, signal.SIGKILL)
        recorded = program.end()

    assert ranges(recorded, "step") == ["step 1", "step 2", "step 3"]
    assert recorded.rows("SELECT * FROM gaps") == []


def test_a_run_that_nobody_starts_says_so(program_python: str, tmp_path: Path) -> None:
    with steered(program_python, TRAINS, tmp_path) as program:
        program.tell("steps", 3)
        recorded = program.end()

    assert recorded.value("SELECT count(*) FROM spans") == 0
    assert recorded.rows("SELECT code FROM problems") == [{"code": "window_never_opened"}]


def test_what_cannot_be_started_is_said_in_one_sentence(tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        done = layerscope(*words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr.count("\n") == 1
        return done.stderr.removeprefix("layerscope: ")

    assert refused("start").startswith(f"no recording is being made in {tmp_path}. ")
    assert refused("stop", "nothing") == (
        "there is no recording 'nothing'. Make one: layerscope run train.py\n"
    )
    assert refused("start", str(2**22 + 1)) == f"there is no process {2**22 + 1}\n"
    assert refused("start", str(os.getpid())).startswith(
        f"process {os.getpid()} is in no recording that is being made. "
    )
    assert refused("start", "--for", "soon").startswith("--for soon is no number of seconds")
    assert refused("mark", " ").startswith("a mark needs a name")
    assert refused("mark", "recording", "two", "words").startswith("a mark has one name")
    assert refused("run", "--paused", "--steps", "3:5", "touch", "made").startswith(
        "--paused leaves it to `layerscope start`"
    )
    assert list(tmp_path.iterdir()) == []

    for options, why in (
        ((), "records everything"),
        (("--for", "500"), "opens its window by itself"),
    ):
        folder = tmp_path / str(len(options))
        folder.mkdir()
        with steered(sys.executable, PLAIN, folder, (*options, "--without", "stacks")) as program:
            assert f"{why}" in refused("start", str(program.path))
            assert "only one that was made with" in refused("stop", str(program.pid))
            assert program.command("mark", str(program.pid), "a mark")["name"] == "a mark"
            assert refused("mark", str(program.pid), "é" * 600).startswith("the recording ")
            recorded = program.end()
        assert "is complete: it has ended" in refused("start", str(program.path))
        assert recorded.rows("SELECT kind, name FROM marks") == [
            {"kind": "outside", "name": "a mark"}
        ]


def test_of_several_recordings_here_one_has_to_be_named(tmp_path: Path) -> None:
    without = ("--paused", "--without", "stacks")
    with steered(sys.executable, PLAIN, tmp_path, without) as first:
        named = (*without, "-o", "second")
        with steered(sys.executable, PLAIN, tmp_path, named) as second:
            done = layerscope("start", cwd=tmp_path)
            assert done.returncode == 125
            assert done.stderr == (
                "layerscope: 2 recordings are being made here: recording, second. Name the one you "
                "mean\n"
            )
            assert second.command("start", "second")["open"]
        assert first.command("start")["open"]


def ended(pid: int) -> None:
    """Wait for a process that is no child of ours."""
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)
