"""Tables in the report: the rows of `layerscope table`, and which of them there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.analyse import tables
from layerscope.recording.reader import Reader
from layerscope.show.report.tables import BY, names_in_report, report_tables
from tests.recordings import Recording
from tests.replayed import replay
from tests.show.report_page import unpacked


@pytest.mark.parametrize("name", ["train", "threads", "mxnet"])
def test_rows_are_those_of_the_command(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = replay(name, tmp_path).run
    path = run.path
    with Reader(run) as reader:
        found = report_tables(reader)
        for table in found:
            words = table.about["command"].split()[1:]
            assert cli.main([words[0], str(path), *words[1:], "--json"]) == 0
            told = json.loads(capsys.readouterr().out)
            columns = unpacked(table.block())
            rows = [list(row) for row in zip(*columns, strict=True)]
            assert rows == told["rows"]
            assert table.about["rows"] == len(told["rows"])
            names = [column["name"] for column in table.about["columns"]]
            assert names == [column["name"] for column in told["columns"]]


def test_every_table_is_there_and_divided_ones_where_they_have_rows(tmp_path: Path) -> None:
    with Reader(Recording().write(tmp_path / "train.layerscope")) as reader:
        found = report_tables(reader)

    assert [
        table.about["name"] for table in found if table.about["by"] is None
    ] == names_in_report()
    assert set(names_in_report()) == set(tables.names()) - {"spans"}
    for table in found:
        assert table.about["meaning"]
        assert table.about["rows"] or table.about["empty"]
        assert table.about["by"] is None or table.about["rows"]


def test_what_divides_a_table_is_known_to_it() -> None:
    for name, by in BY.items():
        assert set(by) <= set(tables.load(name).BY)
