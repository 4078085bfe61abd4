"""`layerscope pack`: one file that opens anywhere, tells no more than it should, and cannot do harm."""

from __future__ import annotations

import io
import os
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layerscope import cli
from layerscope.cli._open import open_run
from layerscope.errors import ReadError
from layerscope.model.schema import TABLES
from layerscope.store import redacted
from layerscope.store.reader import Reader
from layerscope.store.run import Run
from tests.cli.raw_file import write_raw
from tests.recorded import layerscope, record
from tests.recordings import MS, Recording

SECRETS = (
    "planted-host", "alice", "planted_folder", "planted_argument", "hunter2", "planted_value", "planted_range",
    "planted_task", "planted_mark", "planted_counter", "planted_domain", "planted_thread", "planted_source",
    "planted_argument_of_a_span", "planted_id", "planted_recording",
)  # fmt: skip
COMMAND = ["/home/alice/planted_folder/bin/python3.11", "-u", "/home/alice/planted_folder/train.py", "planted_argument"]


def secretive() -> Recording:
    """A recording with a secret in every place that may hold one."""
    recording = Recording()
    recording.rows["processes"][0] |= {"host": "planted-host", "argv": " ".join(COMMAND)}
    recording.rows["tracks"][0]["name"] = "planted_thread"
    recording.add_thread(0, 101, "pt_autograd_0")
    recording.add_span("aten::mm", 0, 5 * MS, module=0)
    recording.add_span("planted_range", 0, MS, kind="range", args=0)
    recording.add_span("planted_range", 2 * MS, MS, kind="range")
    recording.add_span("epoch", 0, MS, kind="range")
    recording.add_span("ProfilerStep#7", 0, MS, kind="range")
    recording.add_span("planted_task", 0, MS, layer="ranges", kind="task")
    recording.rows["totals"] = [
        {"process": 0, "layer": "operators", "kind": kind, "name": name, "count": 1, "total_ns": 1, "min_ns": 1, "max_ns": 1}
        for kind, name in (("function", "aten::mm"), ("range", "planted_range"), ("task", "planted_task"))
    ]  # fmt: skip
    recording.rows["modules"] = [
        {"module": 0, "parent": None, "path": "Net", "class": "Net", "line": "/home/alice/planted_source.py:3"}
    ]
    recording.rows["args"] = [{"args": 0, "json": '{"text": "planted_argument_of_a_span"}'}]
    recording.rows["marks"] = [{"track": 0, "at_ns": 5, "kind": "marker", "name": "planted_mark", "args": 0}]
    recording.add_counter(0, "cpu_ns", [(0, 1)], "ns")
    recording.add_counter(0, "planted_counter", [(0, 1)])
    recording.add_thread(0, 0, "planted_domain", kind="counter")
    what = "/home/alice/planted_folder/lib.so on planted-host refused 'planted_argument' and planted_value"
    recording.add_problem("operators", what, "see ~/planted_folder/log", lost="some")
    return recording


def write_secretive(path: Path) -> Run:
    environment = {"OMP_NUM_THREADS": "2", "VIRTUAL_ENV": "/home/alice/planted_value", "LD_PRELOAD": "planted_value"}
    host = {"name": "planted-host", "cpus": 4, "cpu_model": "A CPU", "kernel": "6.1.0-planted_value", "planted_id": 1}
    run = secretive().write(
        path, command=COMMAND, cwd="/home/alice/planted_folder", environment=environment, host=host, run_id="planted_id"
    )
    (path / "summary.txt").write_text("planted_range took long\n")
    (path / "raw" / "session.json").write_text('{"why": "hunter2"}')
    return run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, a home and temporary files of their own."""
    for name in ("work", "home", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "work"


def content(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    with Reader(run) as reader:
        return {table: reader.query(f'SELECT * FROM "{table}" ORDER BY ALL').to_pylist() for table in TABLES}


def everything_in(archive: Path) -> Iterator[bytes]:
    """Every byte of a packed recording, however it is written: names, entries, and all values in its Parquet."""
    yield archive.read_bytes()
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            data = opened.read(name)
            yield name.encode()
            yield data
            if name.endswith(".parquet"):
                file = pq.ParquetFile(io.BytesIO(data))
                yield repr((file.metadata, file.schema_arrow, file.metadata.metadata)).encode()
                for column in file.read().columns:
                    for chunk in column.chunks:
                        yield repr(chunk.to_pylist()).encode()
                        # A dictionary may hold a value that no row has any more.
                        yield repr(chunk.dictionary.to_pylist()).encode() if hasattr(chunk, "dictionary") else b""


def test_a_recording_that_was_packed_opens_elsewhere_with_every_table_equal(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = content(write_secretive(folder / "train.layerscope"))

    assert cli.main(["pack"]) == 0

    printed = capsys.readouterr()
    assert printed.out.startswith("train.layerscope.zip: ")
    assert printed.out.endswith(", the tables and the raw files\n")
    assert printed.err == "Next: layerscope table train.layerscope.zip operators\n"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(folder / "train.layerscope.zip", elsewhere / "from alice.zip")
    shutil.rmtree(folder / "train.layerscope")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", str(tmp_path / "another home"))
    run = open_run(Path("from alice.zip"))
    assert content(run) == original
    assert run.name == "train"
    assert (run.raw / "session.json").exists()
    assert (run.path / "summary.txt").read_text() == "planted_range took long\n"
    assert list(elsewhere.iterdir()) == [elsewhere / "from alice.zip"]


@pytest.mark.parametrize("name", ["train.layerscope.zip", "./train.layerscope.zip", "train.layerscope", "train", None])
def test_a_packed_recording_is_named_as_a_folder_is(
    name: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_secretive(folder / "train.layerscope")
    cli.main(["pack", "train", "-q"])
    shutil.rmtree(folder / "train.layerscope")

    assert cli.main(["table", *([name] if name else []), "operators", "--csv", "-q"]) == 0

    assert "aten::mm,1,5000000" in capsys.readouterr().out


def test_it_is_unpacked_once_and_again_when_the_cache_has_lost_a_file(folder: Path, tmp_path: Path) -> None:
    write_secretive(folder / "train.layerscope")
    cli.main(["pack", "-q"])

    first = open_run(folder / "train.layerscope.zip").path
    before = (first / "run.json").stat().st_ino
    assert open_run(folder / "train.layerscope.zip").path == first
    assert (first / "run.json").stat().st_ino == before
    shutil.rmtree(first / "spans")
    again = open_run(folder / "train.layerscope.zip")
    assert len(content(again)["spans"]) == 6
    assert [path.name for path in first.parent.parent.iterdir()] == [first.parent.name]
    assert first.is_relative_to(tmp_path / "home" / ".cache" / "layerscope" / "packed")


def test_another_content_under_the_same_name_is_another_recording(folder: Path) -> None:
    for name in ("aten::mm", "aten::bmm"):
        recording = Recording()
        recording.add_span(name, 0, 5)
        recording.write(folder / "train.layerscope")
        assert cli.main(["pack", "--force", "-q"]) == 0
        shutil.rmtree(folder / "train.layerscope")
        assert content(open_run(folder / "train.layerscope.zip"))["spans"][0]["name"] == name


def test_the_same_recording_gives_the_same_bytes(folder: Path) -> None:
    write_secretive(folder / "train.layerscope")
    for option in ([], ["--redact"], ["--drop-raw"]):
        cli.main(["pack", *option, "-o", "one", "--force", "-q"])
        cli.main(["pack", *option, "-o", "two", "--force", "-q"])

        assert (folder / "one.layerscope.zip").read_bytes() == (folder / "two.layerscope.zip").read_bytes()


def test_a_raw_recording_is_converted_first_and_opens_without_its_raw_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_raw(folder / "train.layerscope")
    before = {path: path.read_bytes() for path in (folder / "train.layerscope" / "raw").rglob("*") if path.is_file()}
    original = content(open_run(folder / "train.layerscope"))
    assert original["spans"]

    assert cli.main(["pack", "--drop-raw", "-o", "small.layerscope"]) == 0

    assert "small.layerscope.zip" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in before} == before
    with zipfile.ZipFile("small.layerscope.zip") as archive:
        assert not [name for name in archive.namelist() if "/raw/" in name]
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    shutil.rmtree(folder / "train.layerscope")
    assert content(open_run(folder / "small.layerscope.zip")) == original


def test_a_packed_recording_can_be_packed_again(folder: Path) -> None:
    write_secretive(folder / "train.layerscope")
    cli.main(["pack", "-q"])

    assert cli.main(["pack", "train.layerscope.zip", "--redact", "-o", "safe.zip", "-q"]) == 0

    assert content(open_run(folder / "safe.zip"))["spans"]


def test_a_file_that_exists_is_kept_unless_forced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_secretive(folder / "train.layerscope")
    (folder / "train.layerscope.zip").write_text("mine")

    assert cli.main(["pack"]) == 125
    assert "exists already. --force overwrites it" in capsys.readouterr().err
    assert (folder / "train.layerscope.zip").read_text() == "mine"
    assert cli.main(["pack", "--force"]) == 0
    assert zipfile.is_zipfile("train.layerscope.zip")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["other"], "there is no recording 'other'"),
        (["train", "-o", "nowhere/x"], "there is no folder nowhere"),
        (["train", "-o", "."], "-o . is a folder. Name a file in it"),
    ],
)
def test_what_cannot_be_packed_is_a_sentence(
    words: list[str], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_secretive(folder / "train.layerscope")

    assert cli.main(["pack", *words]) == 125

    assert sentence in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["train.layerscope"]


def test_a_full_disk_leaves_no_half_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_secretive(folder / "train.layerscope")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)

    assert cli.main(["pack"]) == 125

    assert [path.name for path in folder.iterdir()] == ["train.layerscope"]


# -- redaction ---------------------------------------------------------------------------------------


def test_nothing_of_a_redacted_recording_says_whose_it_is(folder: Path) -> None:
    write_secretive(folder / "planted_recording.layerscope")
    in_whole = b"".join((cli.main(["pack", "-o", "whole", "-q"]), *everything_in(folder / "whole.layerscope.zip"))[1:])
    assert [secret for secret in SECRETS if secret.encode() not in in_whole] == []

    assert cli.main(["pack", "--redact", "-o", "safe", "-q"]) == 0

    for data in everything_in(folder / "safe.layerscope.zip"):
        assert [secret for secret in SECRETS if secret.encode() in data] == []


def test_a_redacted_recording_keeps_its_numbers_and_the_names_of_the_framework(folder: Path) -> None:
    original = content(write_secretive(folder / "train.layerscope"))
    cli.main(["pack", "--redact", "-o", "safe", "-q"])

    run = open_run(folder / "safe.layerscope.zip")

    tables = content(run)
    names = {row["name"] for row in tables["spans"]}
    assert {"aten::mm", "epoch", "ProfilerStep#7"} < names
    assert len(names) == 5
    assert {row["name"] for row in tables["totals"]} - {"aten::mm"} == names - {"aten::mm", "epoch", "ProfilerStep#7"}
    assert [row["path"] for row in tables["modules"]] == ["Net"]
    assert {row["name"] for row in tables["tracks"]} >= {"pt_autograd_0", "process"}
    assert tables["processes"][0]["argv"] == "python3.11 train.py"
    assert tables["problems"][0]["what"] == "(path) on *** refused '***' and ***"
    assert tables["problems"][0]["remedy"] == "see (path)"
    assert run.info.command == ["python3.11", "train.py"]
    assert run.info.environment == {"LD_PRELOAD": "***", "OMP_NUM_THREADS": "***", "VIRTUAL_ENV": "***"}
    assert run.info.host == {"cpus": 4, "cpu_model": "A CPU", "kernel": "6.1.0"}
    texts = {(table.name, c.name) for table in TABLES.values() for c in table.columns if c.type in ("string", "name")}
    for table in set(tables) - {"args"}:
        for here, there in zip(sorted(original[table], key=numbers), sorted(tables[table], key=numbers), strict=True):
            same = {key for key in here if (table, key) not in texts and key != "args"}
            assert {key: here[key] for key in same} == {key: there[key] for key in same}


def numbers(row: dict[str, Any]) -> list[tuple[str, int]]:
    return [(key, value) for key, value in row.items() if isinstance(value, int) and key != "args"]


def test_every_column_of_text_was_decided_about() -> None:
    # Whoever adds one must say whether it may leave the machine; until then it is dropped.
    texts = {f"{t.name}.{c.name}" for t in TABLES.values() for c in t.columns if c.type in ("string", "name")}

    assert texts >= redacted._KEPT | redacted._CHANGED
    assert not redacted._KEPT & redacted._CHANGED


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python train.py --key x", "python train.py"),
        ("/usr/bin/python3.12 -u -X dev /home/a b/c d/train.py --data /x.py", "python3.12 train.py"),
        ("python -m package.train --x y.py", "python -m package.train"),
        ("python -c import secret; secret.py", "python -c"),
        ("python --config secret.py", "python"),
        ("python tool --config secret.py", "python"),
        ("/home/Jane Doe/bin/train secret", "(program)"),
        ("", "(program)"),
    ],
)
def test_of_a_command_line_only_the_program_is_left(command: str, program: str) -> None:
    assert redacted.program_of(command) == program


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12)).map(" ".join))
@example("python -m x -c y.py")
def test_a_program_has_no_folder_in_its_name(command: str) -> None:
    assert "/" not in redacted.program_of(command)


# -- files that are not what they say ----------------------------------------------------------------


def packed(folder: Path) -> Path:
    write_secretive(folder / "train.layerscope")
    cli.main(["pack", "-q"])
    shutil.rmtree(folder / "train.layerscope")
    return folder / "train.layerscope.zip"


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_file_that_was_cut_is_a_sentence(share: float, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = packed(folder)
    whole = archive.read_bytes()
    archive.write_bytes(whole[: int(share * len(whole))])

    assert cli.main(["table", "train", "operators"]) == 125

    printed = capsys.readouterr()
    assert "train.layerscope.zip is damaged or cut off" in printed.err
    assert printed.err.endswith("Nothing was unpacked. Ask for the file again, or for the folder it was made of\n")


@pytest.mark.parametrize("place", [0.1, 0.3, 0.6, 0.9])
def test_a_changed_byte_is_noticed_or_changes_nothing(place: float, folder: Path) -> None:
    archive = packed(folder)
    original = content(open_run(archive))
    data = bytearray(archive.read_bytes())
    data[int(place * len(data))] ^= 0xFF
    archive.write_bytes(data)

    try:
        opened = content(open_run(archive))
    except ReadError as error:
        assert "Nothing was unpacked" in str(error)
    else:
        assert opened == original


def archive_of(entries: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] = lambda info: None) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in entries.items():
            info = zipfile.ZipInfo("x")
            info.filename = name
            change(info)
            archive.writestr(info, data)
    return stream.getvalue()


RUN_JSON = {"train.layerscope/run.json": b"{}"}


def as_link(info: zipfile.ZipInfo) -> None:
    info.external_attr = (stat.S_IFLNK | 0o777) << 16


@pytest.mark.parametrize(
    "name",
    [
        "../escaped",
        "train.layerscope/../../escaped",
        "train.layerscope/raw/../../../escaped",
        "/escaped",
        "train.layerscope//escaped",
        "train.layerscope/./escaped",
        "train.layerscope\\..\\escaped",
        "other.layerscope/escaped",
    ],
)
def test_an_archive_cannot_write_outside_its_folder(name: str, folder: Path, tmp_path: Path) -> None:
    (folder / "evil.zip").write_bytes(archive_of({**RUN_JSON, name: b"evil"}))

    with pytest.raises(ReadError):
        open_run(folder / "evil.zip")

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder / "evil.zip"]
    assert not Path("/escaped").exists()


def test_links_duplicates_and_bombs_are_refused(folder: Path, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.layerscope/run.json", "{}")
        archive.writestr("train.layerscope/bomb", bytes(10_000_000))
    link = archive_of(RUN_JSON, as_link)
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = io.BytesIO()
        with zipfile.ZipFile(twice, "w") as archive:
            archive.writestr("train.layerscope/run.json", "{}")
            archive.writestr("train.layerscope/run.json", "{}")

    for data, sentence in (
        (stream.getvalue(), "would grow to 10,000,002 bytes"),
        (link, "holds an entry 'train.layerscope/run.json' that no packed recording has"),
        (twice.getvalue(), "holds entries that no packed recording has"),
    ):
        (folder / "evil.zip").write_bytes(data)
        with pytest.raises(ReadError, match=sentence):
            open_run(folder / "evil.zip")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder / "evil.zip"]


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"notes.txt": b"hello"},
        {"train/run.json": b"{}"},
        {"train.layerscope/raw/spool": b""},
        {"a.layerscope/run.json": b"{}", "b.layerscope/run.json": b"{}"},
    ],
)
def test_an_archive_of_something_else_is_not_a_recording(entries: dict[str, bytes], folder: Path) -> None:
    (folder / "photos.zip").write_bytes(archive_of(entries))

    with pytest.raises(ReadError, match="is not a packed recording: layerscope pack makes one"):
        open_run(folder / "photos.zip")


def test_an_archive_that_was_packed_again_with_compression_opens(folder: Path) -> None:
    archive = packed(folder)
    original = content(open_run(archive))
    with zipfile.ZipFile(archive) as opened, zipfile.ZipFile("again.zip", "w", zipfile.ZIP_DEFLATED) as again:
        again.mkdir("train.layerscope")
        for name in opened.namelist():
            again.writestr(name, opened.read(name))

    assert content(open_run(folder / "again.zip")) == original


def test_without_a_cache_it_opens_from_a_temporary_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(folder)
    (tmp_path / "a file").write_text("no folder can be made here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))

    run = open_run(archive)

    assert run.path.is_relative_to(tmp_path / "temporary")
    assert stat.S_IMODE((tmp_path / "temporary" / f"layerscope-{os.getuid()}").stat().st_mode) == 0o700


def test_with_no_folder_at_all_the_sentence_says_what_to_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(folder)
    (tmp_path / "a file").write_text("no folder can be made here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a file"))

    with pytest.raises(ReadError, match="set XDG_CACHE_HOME to a folder that can be written, or unzip it"):
        open_run(archive)


def test_a_temporary_folder_that_others_may_write_is_not_trusted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(folder)
    (tmp_path / "a file").write_text("no folder can be made here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    planted = tmp_path / "temporary" / f"layerscope-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)

    with pytest.raises(ReadError, match="cannot be unpacked"):
        open_run(archive)


# -- a real program ----------------------------------------------------------------------------------

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
def test_a_real_recording_is_packed_whole_and_redacted(program_python: str, tmp_path: Path, folder: Path) -> None:
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
