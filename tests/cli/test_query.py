"""`layerscope query`: SQL over the tables of a recording, and nothing else."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.model.schema import TABLES
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from tests.recorded import ROOT
from tests.recordings import MS, Recording

# A name that DuckDB would take for a pattern, and that must be quoted in SQL.
NAME = "train[1]'s.layerscope"


@pytest.fixture(autouse=True)
def recording(folder: Path) -> Run:
    """A recording of 60 spans in an empty folder, with something that it lacks."""
    made = Recording()
    for number in range(60):
        made.add_span(f"op{number % 3}", number * MS, number * 1000)
    made.add_problem("ranges", "nobody marked any", "mark some", "ranges")
    return made.write(folder / NAME)


def asked(capfd: pytest.CaptureFixture[str], *words: str) -> dict[str, list[list[object]]]:
    assert cli.main(["query", *words, "--json"]) == 0
    found: dict[str, list[list[object]]] = json.loads(capfd.readouterr().out)
    return found


def test_the_answer_has_the_form_of_every_table(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = asked(
        capfd,
        "SELECT name, sum(self_ns) AS self_ns, count(*) AS calls FROM spans GROUP BY name ORDER BY 2",
    )

    assert found["rows"] == [["op0", 570_000, 20], ["op1", 590_000, 20], ["op2", 610_000, 20]]
    assert found["columns"] == [
        {"name": "name", "type": "string", "unit": ""},
        {"name": "self_ns", "type": "int64", "unit": "ns"},
        {"name": "calls", "type": "int64", "unit": ""},
    ]
    assert (found["command"], found["table"], found["run"]) == (
        "query",
        "query",
        str(folder / NAME),
    )
    assert [problem["what"] for problem in found["problems"]] == ["nobody marked any"]  # type: ignore[call-overload]


def test_times_are_for_people_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(
            [
                "query",
                "SELECT name, start_ns, dur_ns, 5 AS x_bytes, 0.5 AS a_share FROM spans",
                "--top=3",
            ]
        )
        == 0
    )

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Not everything was recorded (ranges): `layerscope summary` says why."
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "name start_ns dur_ns x_bytes a_share",
        "op0 0.000000 s 0 ns 5 bytes 50.0 %",
        "op1 0.001000 s 1.00 µs 5 bytes 50.0 %",
        "op2 0.002000 s 2.00 µs 5 bytes 50.0 %",
        "57 more rows; --top 0 shows all.",
    ]


def test_comma_separated_values_are_all_rows_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["query", "SELECT span, dur_ns FROM spans ORDER BY span DESC", "--csv"]) == 0

    printed = capsys.readouterr()
    assert printed.out.splitlines()[:2] == ["span,dur_ns", "59,59000"]
    assert len(printed.out.splitlines()) == 61
    assert (
        printed.err
        == "layerscope: Not everything was recorded (ranges): `layerscope summary` says why.\n"
    )


@pytest.mark.parametrize(
    ("expression", "type_", "value"),
    [
        ("sum(dur_ns)", "int64", 1_770_000),
        ("max(track)", "int32", 0),
        ("avg(dur_ns)", "float64", 29_500.0),
        ("1.25::DECIMAL(5,2)", "float64", 1.25),
        ("'nan'::DOUBLE", "float64", None),
        ("count(*) > 5", "bool", True),
        ("NULL", "string", None),
        ("'größer ''x'' \U0001f600'", "string", "größer 'x' \U0001f600"),
        ("[1, NULL, 3]", "string", "[1,null,3]"),
        ("{'a': [1]}", "string", '{"a":[1]}'),
        ("'\\xFF'::BLOB", "string", "ff"),
        ("DATE '2026-01-02'", "string", "2026-01-02"),
        ("TIMESTAMP '2026-01-02 03:04:05'", "string", "2026-01-02 03:04:05.000000"),
        ("INTERVAL 2 DAYS", "string", "0 months 2 days 0 ns"),
        ("'a'::ENUM('a', 'b')", "string", "a"),
        ("18446744073709551615::UBIGINT / 2", "float64", 9.223372036854775808e18),
    ],
)
def test_every_type_of_duckdb_has_one_here(
    expression: str, type_: str, value: object, capfd: pytest.CaptureFixture[str]
) -> None:
    found = asked(capfd, f"SELECT {expression} AS x FROM spans")

    assert found["columns"][0]["type"] == type_  # type: ignore[call-overload]
    assert found["rows"][0] == [value]


def test_two_columns_of_one_name_are_both_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert asked(capfd, "SELECT 1 AS a, 2 AS a")["rows"] == [[1, 2]]
    assert cli.main(["query", "SELECT 1 AS a, 2 AS a", "--top", "0", "-q"]) == 0
    assert [line.split() for line in capfd.readouterr().out.splitlines()[1:]] == [
        ["a", "a", "2"],
        ["1", "2"],
    ]


def test_an_answer_without_rows_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    sql_query = "SELECT name FROM spans WHERE false"
    assert asked(capfd, sql_query)["rows"] == []
    assert cli.main(["query", sql_query]) == 0
    assert capfd.readouterr().out.splitlines()[1:] == ["The answer has no rows."]
    assert cli.main(["query", sql_query, "--csv", "-q"]) == 0
    assert capfd.readouterr() == ("name\n", "")


def test_without_a_question_the_tables_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--tables"], [NAME], ["--tables", NAME]):
        rows = {row[0]: row[1:] for row in asked(capfd, *words)["rows"]}
        assert rows["spans"][0] == 60
        assert str(rows["steps"][1]).startswith("step, process, rule")
    assert cli.main(["query"]) == 0
    assert capfd.readouterr().err == 'Next: layerscope query "SELECT * FROM steps"\n'


def test_the_question_comes_from_standard_input(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["-"], ["-", NAME], [NAME, "-"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO("-- how many\nSELECT count(*) FROM spans;\n"))
        assert asked(capfd, *words)["rows"] == [[60]]


@pytest.mark.parametrize("text", [b"SELECT '\xff'", b""])
def test_standard_input_that_is_no_question_is_a_sentence(
    text: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), "utf-8"))
    assert cli.main(["query", "-"]) == 125
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["SELECT '\udcff'"], "the question is not UTF-8"),
        (
            ["SELECT * FROM nosuch"],
            "Table with name nosuch does not exist. The tables are processes, tracks, spans",
        ),
        (
            ["SELECT * FROM spanz"],
            '(did you mean "spans"?). The tables are processes, tracks, spans',
        ),
        (["SELECT spam FROM steps"], "Table steps has step, process, rule"),
        (["SELEC 1"], 'the question is not SQL: syntax error at or near "SELEC"'),
        (["  -- nothing"], "the question is empty. The tables are"),
        (["SELECT 1; SELECT 2"], "one statement at a time, not 2"),
        (["SELECT name::INTEGER FROM spans"], "the question cannot be answered: Could not convert"),
        (
            ["SELECT 9223372036854775807::HUGEINT * 2 AS x"],
            'column "x" holds a number beyond 64 bits',
        ),
        (["SELECT 1", "nowhere"], "there is no recording 'nowhere'"),
        (["SELECT", "1", "FROM"], "not 3 words: put the question into quotes"),
        (["SELECT 1", "--top", "-1"], "--top -1 is not a number of rows"),
        (["--tables", NAME, "SELECT 1"], "--tables takes a recording and no question"),
    ],
)
def test_a_wrong_question_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["query", *words]) == 125

    printed = capsys.readouterr()
    assert sentence in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    "question",
    [
        "SELECT * FROM read_text('{secret}')", "SELECT * FROM '{secret}'", "FROM read_csv('{secret}')",
        "SELECT * FROM glob('{folder}/*')", "SELECT * FROM read_parquet('{folder}/*/*/*.parquet')",
        "COPY spans TO '{folder}/out.csv'", "EXPLAIN ANALYZE COPY spans TO '{folder}/out.csv'",
        "ATTACH '{folder}/out.db'", "EXPORT DATABASE '{folder}/out'", "INSTALL httpfs", "LOAD httpfs",
        "SET memory_limit = '100GB'", "PRAGMA version", "CREATE TABLE x AS SELECT 1", "DROP VIEW spans", "CHECKPOINT",
        "SELECT * FROM path", "SELECT * FROM query('COPY spans TO ''{folder}/out.csv''')",
    ],
)  # fmt: skip
def test_a_question_reaches_nothing_but_the_recording(
    question: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,treasure\n")
    before = sorted(tmp_path.rglob("*"))

    assert cli.main(["query", question.format(secret=secret, folder=folder), "--json"]) == 125

    printed = capsys.readouterr()
    assert "treasure" not in printed.out + printed.err
    assert len(printed.err.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_recording_stays_as_it_is(recording: Run) -> None:
    before = {file: file.stat().st_mtime_ns for file in recording.path.rglob("*")}
    assert cli.main(["query", "SELECT count(*) FROM spans", "--csv"]) == 0
    assert {file: file.stat().st_mtime_ns for file in recording.path.rglob("*")} == before


@pytest.mark.slow
def test_what_does_not_fit_into_memory_goes_to_disk_and_leaves_nothing_there(
    recording: Run, tmp_path: Path
) -> None:
    from layerscope.analyse import sql_query

    with Reader(open_run(recording.path)) as reader:
        sql = "SELECT i, hash(i)::DOUBLE AS h FROM range(6000000) t(i) ORDER BY h"
        answer = sql_query.ask(reader, sql, memory_bytes=60_000_000)
        assert sum(piece.num_rows for piece in answer.pieces) == 6_000_000
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_damaged_table_is_a_sentence(recording: Run, capsys: pytest.CaptureFixture[str]) -> None:
    file = recording.path / "spans" / "all.parquet"
    file.write_bytes(file.read_bytes()[:-50])

    assert cli.main(["query", "SELECT * FROM spans"]) == 125
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_packed_recording_answers(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pack", NAME, "-o", "packed.layerscope.zip", "-q"]) == 0
    assert asked(capfd, "SELECT count(*) FROM spans", "packed")["rows"] == [[60]]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--json", "--top=3"])
def test_an_interrupt_ends_a_long_question_and_leaves_nothing(
    form: str, folder: Path, tmp_path: Path
) -> None:
    code = (
        "import sys, tempfile; sys.path.insert(0, sys.argv[1]); tempfile.tempdir = sys.argv[2];"
        "from layerscope import cli; from layerscope.analyse import sql_query;"
        "print('here', file=sys.stderr, flush=True);"
        "sys.exit(cli.main(['query', 'SELECT i, count(*) FROM range(3000000000) t(i) GROUP BY i', sys.argv[3]]))"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", code, str(ROOT / "src"), str(tmp_path / "temporary"), form],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert asking.stderr
        assert asking.stderr.readline() == "here\n"
        time.sleep(1)
        asking.send_signal(signal.SIGINT)
        _, said = asking.communicate(timeout=60)
    finally:
        asking.kill()
    assert asking.returncode == 130
    assert said == ""
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_column_that_was_given_no_name_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["query", "SELECT count(*), sum(dur_ns) FROM spans WHERE name = 'op0'"]) == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["count_star()", "sum(dur_ns)"] in lines
    assert ["20", "570000"] in lines


def test_every_column_can_be_named_without_quotes(recording: Run) -> None:
    """No word of SQL is the name of a column."""
    with Reader(recording) as reader:
        for table in TABLES.values():
            columns = ", ".join(f"{column.name} AS {column.name}" for column in table.columns)
            assert reader.query(f"SELECT {columns} FROM {table.name}").num_columns == len(
                table.columns
            )
