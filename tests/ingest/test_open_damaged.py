"""Recordings whose tables were damaged: made again from the raw files, or refused in one true
sentence.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.complete import COMPLETE
from layerscope.recording.reader import Reader, table_files
from layerscope.recording.run import Run
from tests.ingest.small_recording import write_tables_only, write_with_raw

pytestmark = pytest.mark.usefixtures("folder")
TOLD = "SELECT name, dur_ns, self_ns, step FROM spans ORDER BY start_ns"


def flipped_footer(file: Path) -> None:
    """A byte of a column's name that is no UTF-8 any more."""
    content = bytearray(file.read_bytes())
    place = content.rindex(b"self_ns")
    content[place] ^= 0xFF
    file.write_bytes(content)


def damaged_page(file: Path) -> None:
    """The header of the first page."""
    content = bytearray(file.read_bytes())
    content[4:12] = b"\xff" * 8
    file.write_bytes(content)


def flipped_in_a_page(file: Path) -> None:
    """A byte in the values: nothing in the format notices it."""
    content = bytearray(file.read_bytes())
    content[len(content) // 4] ^= 1
    file.write_bytes(content)


def without_a_column(file: Path) -> None:
    pq.write_table(pq.read_table(file).drop_columns(["self_ns"]), file)


def with_another_type(file: Path) -> None:
    data = pq.read_table(file)
    place = data.schema.get_field_index("self_ns")
    pq.write_table(data.set_column(place, "self_ns", data["self_ns"].cast(pa.string())), file)


DAMAGE = [
    flipped_footer,
    damaged_page,
    flipped_in_a_page,
    without_a_column,
    with_another_type,
    Path.unlink,
]


def spans(run: Run) -> Path:
    (file,) = table_files(run, "spans")
    return file


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_tables_are_made_again_from_the_raw_files_and_it_is_said(
    damage: Callable[[Path], None], folder: Path
) -> None:
    written = write_with_raw(folder / "train.layerscope")
    with Reader(open_run(written.path)) as reader:
        before = reader.query(TOLD).to_pylist()
    damage(spans(written))

    with Reader(open_run(written.path)) as reader:
        after = reader.query(TOLD).to_pylist()
        (problem,) = reader.query("SELECT code, what, remedy FROM problems").to_pylist()

    assert before
    assert after == before
    assert problem["code"] == "tables_damaged"
    assert "spans" in problem["what"]
    assert "were made again from its raw files" in problem["what"]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    "command",
    [
        ["query", "SELECT * FROM spans", "train"],
        ["table", "train", "operators"],
        ["flame", "train", "--kind", "operators"],
        ["export", "train", "train.json"],
        ["pack", "train"],
    ],
    ids=lambda command: command[0],
)
def test_without_raw_files_every_command_says_what_is_damaged_in_one_sentence(
    damage: Callable[[Path], None],
    command: list[str],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(spans(write_tables_only(folder / "train.layerscope")))

    assert cli.main(command) == 125

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("layerscope: the tables of train.layerscope are damaged (")
    assert "there are no raw files to make them from again" in printed.err


@pytest.mark.parametrize("damage", [without_a_column, with_another_type])
def test_columns_are_compared_with_the_schema_where_no_checksum_is_known(
    damage: Callable[[Path], None], folder: Path
) -> None:
    run = write_tables_only(folder / "train.layerscope")
    damage(spans(run))
    state = (run.path / COMPLETE).read_text()
    (run.path / COMPLETE).write_text(state[: state.index(',"files"')] + "}")

    with pytest.raises(
        ReadError,
        match=r"spans.all\.parquet has (no column self_ns|a column self_ns of type string)",
    ):
        open_run(run.path)


def test_damaged_tables_of_a_packed_recording_in_the_cache_are_unpacked_again(folder: Path) -> None:
    write_tables_only(folder / "train.layerscope")
    cli.main(["pack", "-q"])
    shutil.rmtree(folder / "train.layerscope")
    flipped_footer(spans(open_run(folder / "train.layerscope.zip")))

    with Reader(open_run(folder / "train.layerscope.zip")) as reader:
        assert reader.rows("spans") == 2


def test_damaged_tables_of_a_file_of_another_program_are_made_from_it_again(folder: Path) -> None:
    (folder / "stacks.folded").write_text("main;train;gemm 10\nmain;load 5\n")
    damaged = open_run(folder / "stacks.folded")
    (file,) = table_files(damaged, "stacks")
    without_a_column_of_stacks = pq.read_table(file).drop_columns(["depth"])
    pq.write_table(without_a_column_of_stacks, file)

    with Reader(open_run(folder / "stacks.folded")) as reader:
        assert reader.query("SELECT max(depth) AS depth FROM stacks").to_pylist() == [{"depth": 2}]


def test_a_page_that_turns_out_to_be_damaged_is_called_so_by_what_reads_without_the_database(
    folder: Path,
) -> None:
    run = write_tables_only(folder / "train.layerscope")
    damaged_page(spans(run))

    with Reader(run) as reader, pytest.raises(ReadError, match="is damaged: "):
        reader.arrays("spans", ["span", "start_ns"])
