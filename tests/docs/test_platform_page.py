"""docs/platform.md runs: its commands, and every line that it explains is one that a check has."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.checks import judge
from tests.checks.machines import LIBRARIES, seen
from tests.cpu_groups import spinning
from tests.recorded import ROOT

PAGE = (ROOT / "docs" / "platform.md").read_text()


@pytest.mark.slow
def test_its_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = re.search(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert lines
    commands = [line.partition("  #")[0].strip() for line in lines[1].splitlines()]
    monkeypatch.chdir(tmp_path)
    assert len(commands) == 6
    with spinning(1) as pid:
        for command in commands:
            words, _, target = command.removeprefix("layerscope ").partition(" > ")
            status = cli.main(shlex.split(words.replace("$PID", str(pid))))
            printed = capfd.readouterr()
            assert status in ((0, 1) if "--fail-on" in command else (0,)), command
            assert not printed.err or printed.err.startswith("Next: "), command
            if target:
                Path(target).write_text(printed.out)
                assert json.loads(printed.out)["machine"]["name"] == os.uname().nodename


def test_every_line_that_checks_print_is_explained() -> None:
    about = seen(
        watched={}, variables={"LD_PRELOAD": "missing.so"}, isa={"amx": "usable"},
        process={"libraries": (*LIBRARIES, "/usr/lib/libopenblas.so.0")},
    )  # fmt: skip
    explained = " ".join(re.findall(r"^\| ([^|]+) \|", PAGE, re.MULTILINE))
    for check in judge.judged(about):
        assert check.subject in explained, check.subject
