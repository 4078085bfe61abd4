"""Tables in the report: the rows of `layerscope table`, and which of them there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.analyse import tables
from layerscope.recording.reader import Reader
from layerscope.show.report.contents import ReportContents
from layerscope.show.report.tables import BY, NOT_KNOWN, names_in_report, report_tables
from tests.recordings import MS, Recording
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
            if table.by is not None and not table.has_rows:
                continue
            words = table.about()["command"].split()[1:]
            assert cli.main([words[0], str(path), *words[1:], "--json"]) == 0
            told = json.loads(capsys.readouterr().out)
            columns = unpacked(table.block())
            rows = [list(row) for row in zip(*columns, strict=True)]
            assert rows == told["rows"]
            assert table.about()["rows"] == len(told["rows"])
            names = [column["name"] for column in table.about()["columns"]]
            assert names == [column["name"] for column in told["columns"]]


def test_every_table_is_there_and_divided_ones_where_they_have_rows(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_span("aten::mm", 0, MS)
    with Reader(recording.write(tmp_path / "train.layerscope")) as reader:
        found = ReportContents(reader).head()["tables"]
        names = [table["name"] for table in found if table["by"] is None]

    assert names == names_in_report()
    assert set(names) == set(tables.names()) - {"spans"}
    divided = {(table["name"], table["by"]) for table in found if table["by"]}
    assert ("operators", "kind") in divided
    assert ("operators", "primitive") not in divided
    for table in found:
        assert table["meaning"]
        assert table["rows"] or (table["empty"] and not table["by"])


def test_what_is_served_names_divided_tables_before_they_are_made(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_span("aten::mm", 0, MS)
    with Reader(recording.write(tmp_path / "train.layerscope")) as reader:
        contents = ReportContents(reader, is_live=True)
        later = [table for table in contents.head()["tables"] if table["by"]]
        assert {table["rows"] for table in later} == {NOT_KNOWN}
        assert all(table["block"] in contents.names for table in later)
        made = {}
        for table in later:
            blocks = {block.name: unpacked(block) for block in contents.made_with(table["block"])}
            made[table["command"]] = blocks[f"about {table['block']}"], blocks[table["block"]]

    about, columns = made["layerscope table operators --by kind"]
    assert (about["rows"], columns[0]) == (1, ["function"])
    about, columns = made["layerscope table operators --by primitive"]
    assert (about["rows"], columns) == (0, [])
    assert about["empty"].startswith("operators cannot be shown by primitive: No primitives")


def test_what_divides_a_table_is_known_to_it() -> None:
    for name, by in BY.items():
        assert set(by) <= set(tables.load(name).BY)
