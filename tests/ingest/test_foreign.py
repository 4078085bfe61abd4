"""A file of another program where a recording is expected: it is opened like one, and never
touched.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.ingest.limits import IngestLimits
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader

LOG = """started
mkldnn_verbose,info,Intel(R) MKL-DNN v0.19.0 (Git Hash 41bee20d),Intel(R) AVX512
mkldnn_verbose,create,reorder,jit:uni,undef,in:f32_oihw out:f32_Ohwi16o,num:1,32x16x3x3,0.5
mkldnn_verbose,exec,reorder,jit:uni,undef,in:f32_oihw out:f32_Ohwi16o,num:1,32x16x3x3,2
mkldnn_verbose,exec,reorder,jit:uni,undef,in:f32_oihw out:f32_Ohwi16o,num:1,32x16x3x3,3
mkldnn_verbose,exec,inner_product,gemm:blas,forward_inference,fsrc:nc fwei:oi fbia:x fdst:nc,,mb8ic32oc10,4
onednn_verbose,v1,primitive,create:cache_miss,cpu,matmul,brg,undef,src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 \
dst:f32::blocked:ab::f0,,,64x128:128x32,0.25
onednn_verbose,v1,primitive,create:cache_hit,cpu,matmul,brg,undef,src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 \
dst:f32::blocked:ab::f0,,,64x128:128x32,0.125
onednn_verbose,v1,primitive,exec,cpu,matmul,brg,undef,src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 \
dst:f32::blocked:ab::f0,,,64x128:128x32,1
"""


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log in an empty working folder, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_text(LOG)
    return tmp_path / "log.txt"


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    told = json.loads(capsys.readouterr().out)
    names = [column["name"] for column in told["columns"]]
    return [dict(zip(names, row, strict=True)) for row in told["rows"]]


def test_the_totals_are_those_of_awk(capsys: pytest.CaptureFixture[str]) -> None:
    """The articles add up the last column: of exec lines by primitive, and of create lines, old and
    new spelling.
    """
    expected: dict[tuple[str, str], float] = defaultdict(float)
    for line in LOG.splitlines():
        told = re.search(r",(exec|create)(?::\w+)?,(?:cpu,)?(\w+),.*,([0-9.]+)$", line)
        if told:
            expected["execute" if told[1] == "exec" else "create", told[2]] += float(told[3]) * 1e6
    question = "SELECT kind, name, sum(dur_ns) AS total_ns FROM spans GROUP BY ALL"
    assert cli.main(["query", "log.txt", question, "--json"]) == 0
    assert {(row["kind"], row["name"]): row["total_ns"] for row in rows(capsys)} == expected
    assert cli.main(["table", "log.txt", "primitives", "--json"]) == 0
    assert {(row["kind"], row["name"]): row["total_ns"] for row in rows(capsys)} == expected


def test_primitives_have_their_fields(log: Path) -> None:
    with Reader(open_run(log)) as reader:
        found = reader.query(
            "SELECT p.* FROM primitives p JOIN spans s USING (span) WHERE s.name = 'matmul' ORDER BY s.start_ns"
        ).to_pylist()
    assert [row["cache_hit"] for row in found] == [False, True, None]
    assert {row["flop"] for row in found} == {2 * 64 * 128 * 32}
    assert {row["library"] for row in found} == {"oneDNN"}


def test_the_header_is_in_the_recording(log: Path) -> None:
    run = open_run(log)
    assert run.info.versions == {"oneDNN": "v0.19.0"}
    assert run.info.environment == {"isa": "Intel(R) AVX512"}


@pytest.mark.parametrize("words", [["table", "primitives", "log.txt"], ["table", "log.txt", "spans"],
                                   ["table", "log.txt", "threads"], ["table", "log.txt", "processes"],
                                   ["query", "SELECT count(*) AS n FROM primitives", "log.txt"],
                                   ["diff", "log.txt", "log.txt"], ["export", "log.txt", "out.json"],
                                   ["export", "log.txt", "out.fxt"], ["pack", "log.txt"]])  # fmt: skip
def test_every_command_takes_a_log(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 0, capsys.readouterr().err


def test_a_word_that_is_a_file_asks_which_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["table", "log.txt"]) == 125
    assert "which table of log.txt?" in capsys.readouterr().err


def test_a_packed_log_in_a_folder_that_cannot_be_written(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = log.parent / "closed"
    folder.mkdir()
    (folder / "log.txt.gz").write_bytes(gzip.compress(LOG.encode()))
    folder.chmod(0o500)
    try:
        assert cli.main(["table", "closed/log.txt.gz", "primitives", "--json"]) == 0
    finally:
        folder.chmod(0o700)
    assert len(rows(capsys)) == 5
    assert [entry.name for entry in folder.iterdir()] == ["log.txt.gz"]


def test_a_log_is_read_once_and_again_when_it_grows(log: Path) -> None:
    first = open_run(log).path
    assert open_run(log).path == first
    log.write_text(LOG * 2)
    second = open_run(log)
    assert second.path != first
    with Reader(second) as reader:
        assert reader.query("SELECT count(*) AS n FROM spans").to_pylist() == [{"n": 14}]


@pytest.mark.parametrize("epoch_spans", [1, 7, 8, 1000])
def test_what_lies_in_a_partition_of_a_graph_stays_with_it(
    epoch_spans: int, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many calls are looked at in one go."""
    monkeypatch.setattr(
        "layerscope.ingest.conversion.limits_of", lambda *_: IngestLimits(epoch_spans=epoch_spans)
    )
    monkeypatch.setattr("layerscope.sources.foreign_spans.PIECE_SPANS", epoch_spans)
    inner = LOG.splitlines()[-1]
    partition = "onednn_verbose,v1,graph,exec,cpu,1,matmul_post_ops,a;b,,in0,fpm:strict,d,3"
    log.write_text("\n".join([inner, inner, partition] * 10))
    with Reader(open_run(log)) as reader:
        found = reader.query(
            """SELECT outer_.name, count(*) AS calls, sum(inner_.self_ns) AS inner_ns, max(outer_.self_ns) AS self_ns
               FROM spans inner_ JOIN spans outer_ ON inner_.parent = outer_.span GROUP BY ALL"""
        ).to_pylist()
        whole = reader.query("SELECT sum(self_ns) AS ns FROM spans").to_pylist()
    assert found == [
        {"name": "matmul_post_ops", "calls": 20, "inner_ns": 20_000_000, "self_ns": 1_000_000}
    ]
    assert whole == [{"ns": 30_000_000}]


def test_clean_does_not_take_a_log_for_a_recording(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_run(log)
    assert cli.main(["clean", "log.txt"]) != 0
    assert log.read_text() == LOG
    assert "log.txt" in capsys.readouterr().err


def test_what_was_made_of_a_log_goes_with_it(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = open_run(log).path
    log.unlink()
    assert cli.main(["clean"]) == 0, capsys.readouterr().err
    assert not made.exists()


def test_a_file_that_nobody_knows_is_refused_with_what_could_be_read(tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("nothing of the kind")
    with pytest.raises(
        ReadError,
        match=r"notes.csv is no recording, nor a file that can be read as one: .*a log of ",
    ):
        open_run(tmp_path / "notes.csv")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["table", "log.txt", "functions"],
            "There are no samples of stacks in the file: record them with",
        ),
        (["flame", "log.txt"], "there are no samples of stacks in the file. Record them with"),
        (["flame", "log.txt", "--kind", "gpu"], "nothing of kind gpu was recorded. Kinds are "),
    ],
)
def test_what_a_file_does_not_have_is_said_of_the_file(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(words)
    told = capsys.readouterr()
    assert sentence in told.out + told.err


def test_a_name_with_control_characters_is_one_line_of_the_summary(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\n\x1b[31mb.txt"
    log.rename(log.parent / name)
    assert cli.main(["summary", name]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert told.splitlines()[-1] == r"Next: layerscope report 'a\n\x1b[31mb.txt'"
