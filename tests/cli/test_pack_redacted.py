"""`layerscope pack --redact`: nothing in the file says whose recording it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.model.schema import TABLES
from layerscope.recording import redacted
from tests.cli.secretive import SECRETS, content, everything_in, secretive, write_secretive
from tests.recorded import layerscope, record
from tests.recordings import Recording

pytestmark = pytest.mark.usefixtures("folder")


def test_nothing_of_a_redacted_recording_says_whose_it_is(folder: Path) -> None:
    write_secretive(folder / "planted_recording.layerscope")
    in_whole = b"".join(
        (cli.main(["pack", "-o", "whole", "-q"]), *everything_in(folder / "whole.layerscope.zip"))[
            1:
        ]
    )
    assert [secret for secret in SECRETS if secret.encode() not in in_whole] == []

    assert cli.main(["pack", "--redact", "-o", "safe", "-q"]) == 0

    for data in everything_in(folder / "safe.layerscope.zip"):
        assert [secret for secret in SECRETS if secret.encode() in data] == []


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (
            "--step-mark mine: yours: nothing was recorded by that name",
            "--step-mark ***: nothing was recorded by that name",
        ),
        ("copy /a/b from n1 to it; n12 is not n1", "copy (path) from *** to it; n12 is not ***"),
        ("see /srv/of alice/it.layerscope/raw", "see (path) ***/***/raw"),
    ],
)
def test_a_sentence_repeats_nothing_that_the_user_named(said: str, kept: str, folder: Path) -> None:
    place = folder / "of alice"
    place.mkdir()
    recording = Recording()
    recording.rows["processes"][0]["host"] = "n1"
    recording.add_problem("operators", said, "")
    recording.write(place / "it.layerscope")
    assert cli.main(["pack", str(place / "it"), "--redact", "-o", "safe", "-q"]) == 0

    (problem,) = content(open_run(folder / "safe.layerscope.zip"))["problems"]

    assert problem["what"] == kept


def test_a_redacted_recording_keeps_its_numbers_and_the_names_of_the_framework(
    folder: Path,
) -> None:
    original = content(write_secretive(folder / "train.layerscope"))
    cli.main(["pack", "--redact", "-o", "safe", "-q"])

    run = open_run(folder / "safe.layerscope.zip")

    tables = content(run)
    names = {row["name"] for row in tables["spans"]}
    assert {"aten::mm", "epoch", "ProfilerStep#7"} < names
    assert len(names) == 5
    assert {row["name"] for row in tables["totals"]} - {"aten::mm"} == names - {
        "aten::mm",
        "epoch",
        "ProfilerStep#7",
    }
    assert [row["path"] for row in tables["modules"]] == ["Net"]
    of_frames = [(row["name"].partition("-")[0], row["object"]) for row in tables["frames"]]
    assert of_frames == [
        ("function", None), ("wait", None), ("function", None), ("at::native::add", "libtorch_cpu.so"),
        ("range", None), ("[jit]", "[jit]"), ("jit_avx512_core_brgemm_t.3", "[jit]"), ("function", "[jit]"),
    ]  # fmt: skip
    assert {row["name"] for row in tables["tracks"]} >= {"pt_autograd_0", "process"}
    assert tables["processes"][0]["argv"] == "python3.11 train.py"
    assert tables["problems"][0]["what"] == "(path) on *** refused '***' and ***"
    assert tables["problems"][0]["remedy"] == "see (path)"
    assert run.info.command == ["python3.11", "train.py"]
    assert run.info.environment == {
        "LD_PRELOAD": "***",
        "OMP_NUM_THREADS": "***",
        "VIRTUAL_ENV": "***",
    }
    assert run.info.host == {
        "cpu": {"granted": 4, "model": "A CPU"},
        "kernel": {"release": "6.1.0"},
    }
    texts = {
        (table.name, c.name)
        for table in TABLES.values()
        for c in table.columns
        if c.type in ("string", "name")
    }
    for table in set(tables) - {"args"}:
        for here, there in zip(
            sorted(original[table], key=numbers), sorted(tables[table], key=numbers), strict=True
        ):
            same = {key for key in here if (table, key) not in texts and key != "args"}
            assert {key: here[key] for key in same} == {key: there[key] for key in same}


def numbers(row: dict[str, Any]) -> list[tuple[str, int]]:
    return [(key, value) for key, value in row.items() if isinstance(value, int) and key != "args"]


def test_a_recording_without_stacks_is_redacted(folder: Path) -> None:
    recording = secretive()
    for table in ("frames", "stacks", "samples"):
        recording.rows[table] = []
    recording.write(folder / "train.layerscope")

    assert cli.main(["pack", "--redact", "-o", "safe", "-q"]) == 0
    assert content(open_run(folder / "safe.layerscope.zip"))["frames"] == []


def test_every_column_of_text_was_decided_about() -> None:
    # Whoever adds one must say whether it may leave the machine; until then it is dropped.
    texts = {
        f"{t.name}.{c.name}"
        for t in TABLES.values()
        for c in t.columns
        if c.type in ("string", "name")
    }

    assert texts >= redacted._KEPT | redacted._CHANGED
    assert not redacted._KEPT & redacted._CHANGED


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python train.py --key x", "python train.py"),
        ("/usr/bin/python3.12 -u -X dev /srv/a b/c d/train.py --data /x.py", "python3.12 train.py"),
        ("python -m package.train --x y.py", "python -m package.train"),
        ("python -c import secret; secret.py", "python -c"),
        ("python tool --config secret.py", "python"),
        ("/srv/Jane Doe/bin/train secret", "(program)"),
        ("", "(program)"),
    ],
)
def test_of_a_command_line_only_the_program_is_left(command: str, program: str) -> None:
    assert redacted.program_of(command) == program


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12)).map(" ".join))
@example("python -m x -c y.py")
def test_a_program_has_no_folder_in_its_name(command: str) -> None:
    assert "/" not in redacted.program_of(command)


PROGRAM = """
import sys, torch
from torch.profiler import record_function
for step in range(3):
    with record_function(f"planted_range {step}"):
        torch.ones(5, 5) @ torch.ones(5, 5)
print(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.usefixtures("native_agent")
def test_a_real_recording_is_packed_whole_and_redacted(
    program_python: str, tmp_path: Path, folder: Path
) -> None:
    made = record(program_python, PROGRAM, folder, "planted_argument")
    assert made.status == 0
    original = content(made.run)
    for options in ([], ["--redact", "-o", "safe"]):
        assert layerscope("pack", *options, cwd=folder).returncode == 0
    made.run.path.rename(tmp_path / "gone")

    assert content(open_run(folder / "recording.layerscope.zip")) == original
    safe = content(open_run(folder / "safe.layerscope.zip"))

    assert len(safe["spans"]) == len(original["spans"])
    assert safe["processes"][0]["argv"].endswith(" program.py")
    secrets = ("planted", str(folder), os.uname().nodename + "-", str(tmp_path))
    for data in everything_in(folder / "safe.layerscope.zip"):
        assert [secret for secret in secrets if secret.encode() in data] == []
