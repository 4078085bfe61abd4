"""Packed recordings that are not what they say: cut, damaged, or made to do harm."""

from __future__ import annotations

import io
import os
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from tests.cli.secretive import content, write_secretive

pytestmark = pytest.mark.usefixtures("folder")


def packed(folder: Path) -> Path:
    write_secretive(folder / "train.layerscope")
    cli.main(["pack", "-q"])
    shutil.rmtree(folder / "train.layerscope")
    return folder / "train.layerscope.zip"


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_file_that_was_cut_is_a_sentence(
    share: float, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = packed(folder)
    whole = archive.read_bytes()
    archive.write_bytes(whole[: int(share * len(whole))])

    assert cli.main(["table", "train", "operators"]) == 125

    printed = capsys.readouterr()
    assert "train.layerscope.zip is damaged or cut off" in printed.err
    assert printed.err.endswith(
        "Nothing was unpacked. Ask for the file again, or for the folder it was made of\n"
    )


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
        opened = {"refused": [{"why": str(error)}]}
    refused = "Nothing was unpacked" in str(opened) or "is not a packed recording" in str(opened)
    assert refused or opened == original


def archive_of(
    entries: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] = lambda info: None
) -> bytes:
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
        ".",
        "escaped",
        "train.layerscope/run.json/escaped",
        f"train.layerscope/{'x' * 256}",
        "train.layerscope/" + "/".join(["x" * 100] * 30),
    ],
)
def test_an_archive_cannot_write_outside_its_folder(
    name: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "evil.zip").write_bytes(archive_of({**RUN_JSON, name: b"evil"}))

    with pytest.raises(
        ReadError, match=r"holds an entry .* that no packed recording has\. Nothing was unpacked"
    ):
        open_run(folder / "evil.zip")

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [folder / "evil.zip"]
    assert not Path("/escaped").exists()


def test_links_duplicates_and_bombs_are_refused(folder: Path, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.layerscope/run.json", "{}")
        archive.writestr("train.layerscope/bomb", bytes(10_000_000))
    link = archive_of(RUN_JSON, as_link)
    twice = archive_of({**RUN_JSON, "train.layerscope/sun.json": b"{}"}).replace(
        b"sun.json", b"run.json"
    )

    for data, sentence in (
        (stream.getvalue(), "would grow to 10,000,002 bytes"),
        (link, "holds an entry 'train.layerscope/run.json' that no packed recording has"),
        (twice, "holds entries that no packed recording has"),
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
def test_an_archive_of_something_else_is_not_a_recording(
    entries: dict[str, bytes], folder: Path
) -> None:
    (folder / "photos.zip").write_bytes(archive_of(entries))

    with pytest.raises(ReadError, match="is not a packed recording: layerscope pack makes one"):
        open_run(folder / "photos.zip")


def test_an_archive_that_was_packed_again_with_compression_opens(folder: Path) -> None:
    archive = packed(folder)
    original = content(open_run(archive))
    with (
        zipfile.ZipFile(archive) as opened,
        zipfile.ZipFile("again.zip", "w", zipfile.ZIP_DEFLATED) as again,
    ):
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
    assert (
        stat.S_IMODE((tmp_path / "temporary" / f"layerscope-{os.getuid()}").stat().st_mode) == 0o700
    )


def test_with_no_folder_at_all_the_sentence_says_what_to_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = packed(folder)
    (tmp_path / "a file").write_text("no folder can be made here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a file"))

    with pytest.raises(
        ReadError, match="set XDG_CACHE_HOME to a folder that can be written, or unzip it"
    ):
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
