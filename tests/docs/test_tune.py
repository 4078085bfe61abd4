"""docs/tune.md says what there is: its commands are understood, its options and objectives are the
command's.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.cli import tune
from layerscope.tune import objective
from tests.attempts import once_in_three
from tests.recorded import ROOT, layerscope

PAGE = (ROOT / "docs" / "tune.md").read_text()
COMMANDS = [
    line.partition("  #")[0].strip()
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("layerscope ")
]
PROGRAM = """
import sys, time
time.sleep(0.1)
print("speed", 10.5)
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_understood(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM)
    _, verb, *words = shlex.split(command)
    assert cli.main([verb, "--dry-run", *words]) == 0, command
    assert "Nothing was run." in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [line for line in COMMANDS if "--metric" in line or "--presets" in line]
)
@pytest.mark.timeout(900)
@once_in_three
def test_those_that_suit_a_small_program_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (tmp_path / "train.py").write_text(PROGRAM)
    _, verb, *words = shlex.split(command)
    done = layerscope(verb, "--budget", "0.5", "--no-why", "--json", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["notes"][0].startswith(
        "No measurable difference: keep the defaults."
    )


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 7


def test_options_and_objectives_are_those_of_the_command() -> None:
    parser = argparse.ArgumentParser()
    tune.configure(parser)
    known = {name for action in parser._actions for name in action.option_strings}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - {"--epochs", "--workers"}
    assert named <= known
    # What is only for scripts and tests of the order need not be explained.
    assert {name for name in known if name.startswith("--")} - named <= {
        "--budget",
        "--help",
        "--seed",
        "--quiet",
    }
    assert set(re.findall(r"`(\w+)`(?=,? (?:`p99`)?,? ?\|)", PAGE)) <= {*objective.NAMES, "bf16"}
    assert all(f"`{name}`" in PAGE for name in objective.NAMES)
