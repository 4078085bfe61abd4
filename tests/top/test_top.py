"""`layerscope top` without a terminal: text, JSON, and what it says where it cannot watch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorded import ROOT, layerscope
from tests.replayed import replay
from tests.top.conftest import Running


def test_once_prints_one_screen(program: Running) -> None:
    done = layerscope("top", "--once", cwd=program.folder)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert f"pid {program.pid}" in lines[0]
    assert [line for line in lines if line.endswith("computes (program.py)")]
    assert done.stdout.count("function (file)") == 1


def test_once_shows_the_table_that_is_asked_for(program: Running) -> None:
    done = layerscope("top", "looping", "--once", "--show", "threads", cwd=program.folder)

    assert done.returncode == 0, done.stderr
    assert any("waiting" in line for line in done.stdout.splitlines())


def test_a_pipe_gets_one_screen_after_the_other(program: Running) -> None:
    done = layerscope("top", "--interval", "0.2", "--for", "1", cwd=program.folder)

    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert done.stdout.count("function (file)") > 1


def test_json_is_one_object_a_line(program: Running) -> None:
    words = ("--json", "--interval", "0.2", "--for", "1", "--top", "3")
    done = layerscope("top", str(program.pid), *words, cwd=program.folder)

    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(objects) > 1
    for one in objects:
        assert (one["command"], one["table"]) == ("top", "functions")
        assert one["run"] == "looping.layerscope"
        assert len(one["rows"]) <= 3
        assert all(len(row) == len(one["columns"]) for row in one["rows"])
        assert one["program"]["pid"] == program.pid
    times_ns = [one["program"]["at_ns"] for one in objects]
    assert times_ns == sorted(times_ns)
    names = [column["name"] for column in objects[-1]["columns"]]
    first = dict(zip(names, objects[-1]["rows"][0], strict=True))
    assert first["file"].endswith("program.py")
    assert 0 < first["window_self_ns"] <= first["self_ns"]


def test_the_whole_is_never_less_than_the_window(program: Running) -> None:
    for table in ("functions", "symbols", "threads", "waits"):
        words = ("--json", "--once", "--top", "0", "--show", table)
        done = layerscope("top", *words, cwd=program.folder)
        answer = json.loads(done.stdout)
        names = [column["name"] for column in answer["columns"]]
        for values in answer["rows"]:
            row = dict(zip(names, values, strict=True))
            sums = [name for name in names if name.startswith("window_") and "share" not in name]
            assert sums
            for name in sums:
                assert row[name] <= row[name.removeprefix("window_")]


def test_ctrl_c_ends_lines_with_the_status_of_an_interrupt(program: Running) -> None:
    command = [sys.executable, "-m", "layerscope", "top", "--json"]
    with subprocess.Popen(command, cwd=program.folder, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert errors == ""


def test_when_the_program_ends_it_says_what_comes_next(short_program: Running) -> None:
    command = [sys.executable, "-m", "layerscope", "top", "--json", "--top", "1"]
    with subprocess.Popen(command, cwd=short_program.folder, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        short_program.end()
        lines, errors = process.communicate(timeout=60)

    assert process.returncode == 0
    assert json.loads(lines.splitlines()[-1])["notes"] == ["The program has ended."]
    assert "has ended. Next: layerscope summary looping.layerscope" in errors


def test_once_watches_a_program_that_nobody_records(bare_program: Running) -> None:
    done = layerscope("top", str(bare_program.pid), "--once", cwd=bare_program.folder)

    assert done.returncode == 0, done.stderr
    assert "computes (program.py)" in done.stdout
    assert bare_program.process.poll() is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "no recording in"),
        (("missing",), "there is no recording 'missing'"),
        (("recording",), "recording.layerscope is complete"),
        (("4194303",), "there is no process 4194303"),
        (("--interval", "0"), "--interval 0: it takes 0.1 to 3,600 seconds"),
        (("--top", "-1"), "--top -1 is not a number of rows"),
        (("--show", "nothing"), "nothing"),
    ],
)
def test_what_cannot_be_watched_is_said_in_a_sentence(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    replay("threads", tmp_path)

    done = layerscope("top", *words, cwd=tmp_path)

    assert done.returncode == 125
    assert done.stdout == ""
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_run_says_how_to_watch_it(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")

    words = ("run", "-v", "--without", "stacks", "-o", "a b", "--", sys.executable, "empty.py")
    done = layerscope(*words, cwd=tmp_path)

    assert done.returncode == 0
    assert "layerscope: watch it: layerscope top 'a b.layerscope'\n" in done.stderr


def test_the_command_is_listed_with_its_help() -> None:
    done = layerscope("top", "--help", cwd=ROOT)

    assert done.returncode == 0
    assert "layerscope top [PID|RUN]" in done.stdout
