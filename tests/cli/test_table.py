"""`layerscope table` and the door of the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from layerscope import __version__, cli
from layerscope.model.schema import SCHEMA_VERSION
from tests.recordings import MS, Recording

KNOWN = (
    "collectives, compilations, copies, counters, critical, dispatch, functions, gpu, idle, kernels, "
    "launches, lines, memory, modules, nodes, operators, peak, primitives, processes, queue, "
    "ranks, resident, roles, roofline, "
    "sequences, spans, steps, stragglers, symbols, threads, waits"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with one recording of 20 spans."""
    monkeypatch.chdir(tmp_path)
    recording = Recording()
    for number in range(20):
        recording.add_span(f"op{number % 3}", number * MS, number * 1000)
    recording.write(tmp_path / "train.layerscope")
    return tmp_path


def test_an_option_may_stand_between_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["table", "train", "--top", "1", "operators", "-q"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "name",
        "op1",
        "2",
    ]
    assert cli.main(["export", "train", "--force", "out.csv", "-q"]) == 0, capsys.readouterr().err
    assert cli.main(["table", "train", "--nonsense", "operators"]) == 125
    assert capsys.readouterr().err.startswith("layerscope: unrecognized arguments: --nonsense")


def test_a_table_of_the_newest_recording_names_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["table", "operators"]) == 0

    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["name", "op1", "op0", "op2"]
    assert printed.err == "Next: layerscope table spans\n"


@pytest.mark.parametrize(
    "words",
    [
        ["train", "operators"],
        ["operators", "train"],
        ["train.layerscope", "operators"],
        ["train.layerscope/", "operators"],
        ["operators", "./train"],
    ],
)
def test_the_recording_may_stand_before_or_after_and_without_its_suffix(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["table", *words, "--csv"]) == 0

    assert capsys.readouterr().out.startswith("name,count,total_ns")


def test_the_next_command_is_about_the_same_recording(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["table", "train", "operators"])

    assert capsys.readouterr().err == "Next: layerscope table train spans\n"


@pytest.mark.parametrize("table", ["spans", "primitives", "functions"])
def test_the_next_command_shows_something(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    """This recording has neither steps nor primitives nor samples."""
    cli.main(["table", "train", table])

    assert capsys.readouterr().err == "Next: layerscope summary train\n"


def test_the_next_command_is_not_the_same_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = Recording()
    recording.add_primitive("convolution", 20, 90, None, {})
    recording.write(folder / "network.layerscope")

    cli.main(["table", "network", "primitives"])
    assert capsys.readouterr().err == "Next: layerscope table network primitives --by shape\n"
    cli.main(["table", "network", "primitives", "--by", "shape"])
    assert capsys.readouterr().err == "Next: layerscope table network spans\n"


def test_the_newest_recording_is_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = Recording()
    recording.add_span("newer", 0, 5)
    recording.write(folder / "again.layerscope")
    os.utime(folder / "train.layerscope" / "run.json", (1, 1))

    cli.main(["table", "operators", "--csv"])

    assert "newer" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["-q"], ["--quiet"], ["--json"], ["--csv"]])
def test_quiet_and_machine_outputs_leave_stderr_alone(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["table", "operators", *options]) == 0

    assert capsys.readouterr().err == ""


def test_spans_print_fifteen_rows_and_say_how_many_are_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.main(["table", "spans", "-q"])

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 15 + 1 + 1
    assert lines[-2].startswith("all 20 spans")
    assert lines[-1] == "5 more rows; --top 0 shows all."


def test_machine_outputs_hold_every_row_unless_told_otherwise(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    cli.main(["table", "spans", "--csv"])
    cli.main(["table", "spans", "--json", "--top", "3"])

    *csv_lines, json_line = capsysbinary.readouterr().out.splitlines()
    assert len(csv_lines) == 1 + 20
    assert [row[5] for row in json.loads(json_line)["rows"]] == [19000, 18000, 17000]


def test_json_names_the_recording_and_the_command(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    cli.main(["table", "train", "steps", "--json"])

    answer = json.loads(capsysbinary.readouterr().out)
    assert (answer["command"], answer["run"], answer["table"]) == (
        "table",
        "train.layerscope",
        "steps",
    )
    assert answer["rows"] == []


def test_where_sort_and_top_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["table", "operators", "--where", "count > 6", "--sort=+name", "--top", "1", "--csv"])

    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["name", "op0"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table"], f"name a table: layerscope table operators. The tables are {KNOWN}"),
        (["table", "train"], f"which table of train? The tables are {KNOWN}"),
        (
            ["table", "ops"],
            f"there is no table 'ops'. Did you mean 'copies'? The tables are {KNOWN}",
        ),
        (
            ["table", "train", "ops"],
            f"there is no table 'ops'. Did you mean 'copies'? The tables are {KNOWN}",
        ),
        (
            ["table", "other", "operators"],
            "there is no recording 'other'. Make one: layerscope run train.py",
        ),
        (["table", "a", "b", "c"], "at most a recording and one table, not 3 words: a b c"),
        (
            ["table", "operators", "--by", "shape"],
            "operators cannot be shown by shape: no layer recorded",
        ),
        (
            ["table", "operators", "--sort", "size"],
            "table operators has no column 'size'. Its columns are name, count",
        ),
        (
            ["table", "operators", "--where", "size > 1"],
            "--where 'size > 1' cannot be used: Referenced column",
        ),
        (
            ["table", "operators", "--top", "many"],
            "argument --top: invalid int value: 'many'. See layerscope table --help",
        ),
        (["table", "operators", "--csv", "--json"], "not allowed with argument --csv"),
        (
            ["table", "operators", "--colour"],
            "unrecognized arguments: --colour. See layerscope table --help",
        ),
        (["table", "operators", "--qui"], "unrecognized arguments: --qui"),
        (["tabel"], "there is no command 'tabel'. Did you mean 'table'? The commands are "),
        (["os"], "there is no command 'os'. The commands are "),
        (["_open"], "there is no command '_open'. The commands are "),
        (["--colour"], "unrecognized arguments: --colour. See layerscope --help"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_125(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 125

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("layerscope: ")
    assert sentence in printed.err
    assert len(printed.err.splitlines()) == 1


def test_a_folder_without_a_recording_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    assert cli.main(["table", "operators"]) == 125
    assert (
        f"no recording in {tmp_path / 'empty'}. Make one: layerscope run train.py"
        in capsys.readouterr().err
    )

    assert cli.main(["table", str(tmp_path / "empty"), "operators"]) == 125
    assert "is not a layerscope recording" in capsys.readouterr().err


def test_a_recording_of_a_newer_schema_is_refused_in_words(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "train.layerscope" / "run.json"
    file.write_text(file.read_text().replace(f'"schema": {SCHEMA_VERSION}', '"schema": 99'))

    assert cli.main(["table", "operators"]) == 125
    assert "was recorded by a newer layerscope (schema 99" in capsys.readouterr().err


def test_a_damaged_table_is_a_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.layerscope" / "spans" / "all.parquet").write_bytes(b"PAR1 and then nothing")

    assert cli.main(["table", "operators"]) == 125
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_without_a_command_the_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0

    printed = capsys.readouterr().out
    assert "table" in printed
    assert "_open" not in printed


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"layerscope {__version__}\n"


def test_the_help_of_table_lists_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["table", "--help"])

    printed = capsys.readouterr().out
    assert "usage: layerscope table [RUN] NAME [options]" in printed
    assert all(f"  {name} " in printed for name in KNOWN.split(", "))


VERB = '''"""Say something. It is said at once."""
def configure(parser):
    parser.add_argument("word")
def run(arguments):
    if arguments.word == "interrupt":
        raise KeyboardInterrupt
    if arguments.word == "broken":
        raise BrokenPipeError
    print(arguments.word)
    return 7
'''


def test_a_verb_is_a_file_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "saying.py").write_text(VERB)
    (tmp_path / "_hidden.py").write_text(VERB)
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])

    assert cli.main(["saying", "hello"]) == 7
    assert cli.main(["_hidden", "you"]) == 7
    assert capsys.readouterr().out == "hello\nyou\n"
    assert "saying" in cli.verbs()
    assert "_hidden" not in cli.verbs()
    assert cli.main(["saying", "interrupt"]) == 130


def test_one_verb_imports_no_other_and_no_reader(tmp_path: Path) -> None:
    (tmp_path / "saying.py").write_text(VERB)
    code = (
        "import sys; from layerscope import cli; cli.__path__.append(sys.argv[1]); cli.main(['saying', 'hello']);"
        "print(sorted(m for m in sys.modules if m in ('numpy', 'pyarrow', 'duckdb', 'rich')"
        " or m.startswith('layerscope.cli.')))"
    )

    command = [sys.executable, "-c", code, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())

    assert ran.stdout.splitlines() == ["hello", "['layerscope.cli.saying']"]


def environment(**more: str) -> dict[str, str]:
    """The tests may have found our source by a relative path, and they have changed the folder."""
    return {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2]), **more}


def table_process(stdout: int | IO[str], **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "layerscope", "table", "spans", "-q"]
    return subprocess.run(
        command,
        text=True,
        check=False,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment(**more),
    )


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = table_process(writing)
    finally:
        os.close(writing)

    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_full_disk_is_a_sentence() -> None:
    with open("/dev/full", "w") as full:
        ended = table_process(full)

    assert ended.returncode == 125
    assert ended.stderr == "layerscope: cannot write the output: No space left on device\n"


def test_names_that_the_encoding_lacks_are_printed_with_substitutes() -> None:
    ended = table_process(subprocess.PIPE, PYTHONIOENCODING="ascii")

    assert ended.returncode == 0
    assert "19.0 \\xb5s" in ended.stdout
