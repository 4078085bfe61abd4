"""`layerscope platform`: what it prints and compares, and how it ends. tests/platform tries the
checks themselves.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from layerscope import cli
from layerscope.checks import document, measurements
from layerscope.host import machine as machines
from layerscope.host.machine import Machine
from layerscope.model.measured import Measured, Rate
from layerscope.model.schema import SCHEMA_VERSION
from tests.checks.machines import EIGHT, WELL, machine, seen
from tests.recorded import record

COLUMNS = ["code", "subject", "state", "evidence", "consequence", "remedy"]
Show = Callable[[Machine], None]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name
        for name in os.environ
        if re.match(r"OMP_|MKL_|KMP_|OPENBLAS_|GOMP_|MALLOC_|LD_PRELOAD", name)
    ]:
        monkeypatch.delenv(name)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Show:
    """Have the command find itself on another machine."""

    def become(other: Machine) -> None:
        monkeypatch.setattr(machines, "facts", lambda pid=None: other)

    return become


def told(capfd: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert cli.main(["platform", "--json", *words]) == status
    return dict(json.loads(capfd.readouterr().out))


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert cli.main(["platform", *words]) == status
    return capsys.readouterr().out


def test_this_machine_is_told_in_json(capfd: pytest.CaptureFixture[str]) -> None:
    found = told(capfd)

    assert [column["name"] for column in found["columns"]] == COLUMNS
    assert (found["schema"], found["command"], found["table"], found["run"]) == (
        SCHEMA_VERSION,
        "platform",
        "checks",
        "",
    )
    assert sum(found["totals"].values()) == len(found["rows"]) > 15
    assert len(found["machine"]["cpu"]["allowed"]) == len(os.sched_getaffinity(0))
    assert (found["watched"], found["measured"], found["problems"]) == (None, None, [])
    assert len({row[0] for row in found["rows"]}) == len(found["rows"])


def test_people_read_one_line_for_each_check_worst_first(
    on: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    on(machine(cpu={"granted": 1.0}, memory={"thp": "madvise"}))
    lines = said(capsys).splitlines()

    assert lines[0] == "well, Test CPU, Linux 6.8.0"
    assert lines[1] == (
        "warning  threads       libraries count 8 CPUs and start as many threads, but 1 CPU is granted. Threads take "
        "turns, and those that spin for work waste the time of those that have some."
    )
    assert lines[2] == "                       Remedy: export OMP_NUM_THREADS=1"
    states = [line.split()[0] for line in lines[1:-1] if not line.startswith(" ")]
    assert states == ["warning", "note", "note", "note", *["ok"] * (len(states) - 4)]
    assert lines[-1] == f"1 warning, 3 notes, {len(states) - 4} ok"


def test_the_next_command_is_named_on_stderr(on: Show, capsys: pytest.CaptureFixture[str]) -> None:
    on(WELL)
    assert cli.main(["platform"]) == 0
    assert (
        capsys.readouterr().err
        == "Next: layerscope platform --measure, or --pid PID for a program that runs\n"
    )


def test_a_name_that_a_terminal_would_obey_is_printed_harmlessly(
    on: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    on(machine(name="a\x1b[2Jb", cpu={"governor": "\x1b]0;x\x07"}))
    assert "\x1b" not in said(capsys)


@pytest.mark.parametrize(
    ("changes", "level", "status"),
    [
        ({}, "warning", 0), ({"memory": {"thp": "madvise"}}, "warning", 0), ({"cpu": {"granted": 1.0}}, "warning", 1),
        ({"cpu": {"granted": 1.0}}, "error", 0), ({"memory": {"available_bytes": 1}}, "error", 1),
        ({"memory": {"available_bytes": 1}}, "warning", 1),
    ],
)  # fmt: skip
def test_a_level_decides_about_the_status(
    changes: dict[str, Any], level: str, status: int, on: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    on(machine(**changes))
    assert said(capsys, "--quiet", "--fail-on", level, status=status) == ""
    said(capsys, "--json", "--fail-on", level, status=status)
    said(capsys, status=0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--watch", "-1"], "--watch takes seconds from 0 to 86,400, not -1"),
        (["--watch", "nan"], "--watch takes seconds from 0 to 86,400, not nan"),
        (["--pid", "me"], "argument --pid: invalid int value: 'me'"),
        (["--fail-on", "note"], "invalid choice: 'note'"),
        (["--compare", "nowhere"], "there is no recording 'nowhere'"),
        (["extra"], "unrecognized arguments: extra"),
    ],
)
def test_bad_words_get_one_sentence(
    words: list[str], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["platform", *words]) == 125
    printed = capsys.readouterr()
    assert printed.out == ""
    assert sentence in printed.err
    assert printed.err.count("\n") == 1


def test_a_variable_of_any_bytes_is_no_failure(
    on: Show, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    on(WELL)
    monkeypatch.setenv("OMP_STACKSIZE", "\udcff\x1b[2J")
    assert told(capfd)["variables"]["OMP_STACKSIZE"] == "\ufffd\x1b[2J"


def test_watching_looks_at_the_machine(capfd: pytest.CaptureFixture[str]) -> None:
    found = told(capfd, "--watch", "0.2")
    assert found["watched"]["seconds"] >= 0.2
    assert 0 <= found["watched"]["busy_share"] <= 1
    assert found["watched"]["process_cpus"] is None


def test_what_is_measured_is_shown_and_kept_in_json(
    on: Show, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    on(WELL)
    asked: list[str] = []

    def measure(python: str, machine: Machine) -> Measured:
        assert machine is WELL
        asked.append(python)
        return Measured(
            python,
            "2026-01-01T00:00:00Z",
            1.0,
            (),
            (Rate("MKL", "float32", 1, 1024, 120.0, 9, 0.01),),
            (),
        )

    monkeypatch.setattr(measurements, "measure", measure)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    found = told(capfd, "--measure")
    assert asked == [os.path.join(sys.prefix, "bin", "python")]
    assert found["measured"]["rates"][0]["gflop_per_s"] == 120.0
    assert any("MKL" in row[3] for row in found["rows"])
    assert cli.main(["platform", "--measure"]) == 0
    assert capfd.readouterr().err == "Next: layerscope tune -- python train.py\n"


def written(path: Path, other: Machine) -> str:
    """A file of --json that was made on `other`."""
    checks = document.Seen(other)
    rows = [document.row(check) for check in document.judge.judged(checks)]
    columns = [{"name": name, "type": "string", "unit": ""} for name in document.COLUMNS]
    path.write_bytes(
        msgspec.json.encode({"columns": columns, "rows": rows, **document.facts(checks)})
    )
    return str(path)


def test_what_differs_is_told(on: Show, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = written(
        tmp_path / "b.json",
        machine(
            name="b",
            cpu={"granted": 2.0, "boost": False},
            cgroup={"cpus": 2.0},
            memory={"total_bytes": 10**10},
        ),
    )
    on(WELL)
    found = told(capfd, "--compare", other)

    assert (found["table"], [column["name"] for column in found["columns"]]) == (
        "differences", ["subject", "here", "there", "why"],
    )  # fmt: skip
    rows = {row[0]: tuple(row[1:3]) for row in found["rows"]}
    assert found["rows"][0][0] == "CPUs granted"
    assert rows["CPUs granted"] == ("8", "2")
    assert rows["boost"] == ("on", "off")
    assert rows["limit of CPU time"] == ("none", "2 CPUs")
    assert rows["memory"] == ("64.0 GB", "10.0 GB")
    assert rows["check: threads"][1].startswith("warning: libraries count 8 CPUs")
    assert "cores" not in rows
    assert found["machine"]["name"] == "well"


def test_differences_are_a_table_for_people(
    on: Show, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = written(tmp_path / "b.json", machine(name="b", cpu={"governor": "powersave"}))
    on(WELL)
    lines = said(capsys, "--compare", other).splitlines()
    assert lines[0].split("  ")[0] == "what"
    assert re.match(r"governor +performance +powersave +how soon the clock rises$", lines[1])
    same = written(tmp_path / "c.json", machine(name="c"))
    assert said(capsys, "--compare", same) == "Nothing that matters differs between well and c.\n"
    assert said(capsys, "--quiet", "--compare", other) == ""


@pytest.mark.slow
def test_the_machine_of_a_recording_is_compared(
    tmp_path: Path,
    program_python: str,
    native_agent: Path,
    capfd: pytest.CaptureFixture[str],
    on: Show,
) -> None:
    assert record(program_python, "print('hello')\n", tmp_path).status == 0
    recording = str(tmp_path / "recording.layerscope")
    here = machines.facts()
    rows = told(capfd, "--compare", recording)["rows"]
    assert [row for row in rows if not row[0].startswith("check: ")] == []
    on(WELL)
    assert cli.main(["pack", recording, "-o", str(tmp_path / "packed")]) == 0
    packed = next(tmp_path.glob("packed*"))
    capfd.readouterr()
    for other in (recording, str(packed)):
        rows = {row[0]: row[1:3] for row in told(capfd, "--compare", other)["rows"]}
        assert rows["CPU"] == ["Test CPU", here.cpu.model]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"machine": 1}',
        b'{"machine": {"name": "x"}}',
        b"\xff\xfe",
        b'{"rows": [[1]]}',
    ],
)
def test_other_files_are_refused_in_words(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").write_bytes(content)
    assert cli.main(["platform", "--compare", str(tmp_path / "other")]) == 125
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "layerscope platform --json > there.json" in printed.err
    assert printed.err.count("\n") == 1


def test_facts_come_back_from_json_as_they_were() -> None:
    about = seen(watched={}, variables={"OMP_NUM_THREADS": "8"}, cpu={"faster": EIGHT[:4]})
    data = msgspec.json.decode(msgspec.json.encode(document.facts(about)))
    assert document.side(data, "x").machine == about.machine


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom layerscope import cli\nassert cli.main(['platform', '--quiet']) == 0\n"
        "print([name for name in ('numpy', 'pyarrow', 'duckdb', 'rich', 'torch', 'asyncio') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
