"""The raw file: whatever happens to it, what is read is what was written, in order, up to the damage."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.collect import layout, spool

numbers = st.integers(0, 2**32 - 1)


@st.composite
def chunks(draw: st.DrawFn) -> spool.Chunk:
    kind = draw(st.integers(spool.PROCESS, spool.END))
    payload = draw(st.binary(max_size=60)) * draw(st.sampled_from([1, 1, 20]))
    if kind == spool.RECORDS:
        size = layout.RECORD.itemsize
        payload = (payload + bytes(size))[: max(len(payload) // size, 1) * size]
    return spool.Chunk(kind, draw(numbers), draw(numbers), draw(st.integers(0, 2**64 - 1)), payload)


files = st.lists(chunks(), max_size=8)


def write(path: Path, parts: list[spool.Chunk]) -> list[int]:
    """Append `parts`; returns the size of the file after each."""
    writer = spool.SpoolWriter(path)
    sizes = [writer.size_bytes]
    for part in parts:
        writer.write(part.kind, part.payload, part.key, part.count, part.first)
        sizes.append(writer.size_bytes)
    writer.close()
    assert path.stat().st_size == sizes[-1]
    return sizes


def read(path: Path) -> tuple[list[spool.Chunk], spool.SpoolReader]:
    reader = spool.SpoolReader(path)
    return list(reader.chunks()), reader


def folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="layerscope-spool-")


@given(files)
def test_what_was_written_is_read(parts: list[spool.Chunk]) -> None:
    with folder() as name:
        write(Path(name) / "spool", parts)
        found, reader = read(Path(name) / "spool")

        assert found == parts
        assert not reader.damaged
        assert reader.left_bytes == 0


@given(files, st.data())
def test_a_file_cut_anywhere_opens_up_to_the_cut(parts: list[spool.Chunk], data: st.DataObject) -> None:
    with folder() as name:
        path = Path(name) / "spool"
        sizes = write(path, parts)
        cut = data.draw(st.integers(0, sizes[-1]))
        os.truncate(path, cut)
        found, reader = read(path)

        whole = sum(size <= cut for size in sizes[1:])
        assert found == parts[:whole]
        assert not reader.damaged
        assert reader.left_bytes == cut - sizes[whole]


@given(files, st.data())
def test_a_wrong_byte_ends_the_reading_and_is_never_taken_for_data(
    parts: list[spool.Chunk], data: st.DataObject
) -> None:
    with folder() as name:
        path = Path(name) / "spool"
        sizes = write(path, parts)
        if not sizes[-1]:
            return
        at = data.draw(st.integers(0, sizes[-1] - 1))
        content = bytearray(path.read_bytes())
        content[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        found, reader = read(path)

        assert found == parts[: sum(size <= at for size in sizes[1:])]
        assert reader.damaged
        assert list(reader.chunks()) == []


@given(files, files, st.data())
def test_a_writer_that_comes_back_appends_behind_the_last_whole_chunk(
    before: list[spool.Chunk], after: list[spool.Chunk], data: st.DataObject
) -> None:
    """The one before it was killed, perhaps in the middle of a chunk."""
    with folder() as name:
        path = Path(name) / "spool"
        sizes = write(path, before)
        cut = data.draw(st.integers(0, sizes[-1]))
        os.truncate(path, cut)
        whole = sum(size <= cut for size in sizes[1:])
        early = spool.SpoolReader(path)  # has read up to the torn chunk already
        assert list(early.chunks()) == before[:whole]
        write(path, after)

        found, reader = read(path)
        assert found == before[:whole] + after
        assert not reader.damaged
        assert reader.left_bytes == 0
        assert list(early.chunks()) == after


@given(files, st.lists(st.integers(0, 400), max_size=12))
def test_a_file_that_grows_is_read_to_the_same_chunks(parts: list[spool.Chunk], steps: list[int]) -> None:
    with folder() as name:
        path, growing = Path(name) / "spool", Path(name) / "growing"
        write(path, parts)
        content = path.read_bytes()
        growing.touch()
        reader = spool.SpoolReader(growing)
        found: list[spool.Chunk] = []
        at = 0
        for step in [*steps, len(content)]:
            with growing.open("ab") as file:
                file.write(content[at : at + step])
            at += step
            found += reader.chunks()

        assert found == parts
        assert not reader.damaged


def test_damage_is_not_cut_off_by_a_writer_that_comes_back(tmp_path: Path) -> None:
    """It may be the only trace of what happened."""
    path = tmp_path / "spool"
    sizes = write(path, [spool.Chunk(spool.POLL, 0, 0, 0, b"x" * 32)] * 3)
    content = bytearray(path.read_bytes())
    content[sizes[1] + 40] ^= 1
    path.write_bytes(content)

    spool.SpoolWriter(path).close()

    assert path.read_bytes() == bytes(content)


@pytest.mark.parametrize("taken", [0, 1, 20, 60])
def test_a_disk_that_is_full_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    path = tmp_path / "spool"
    writer = spool.SpoolWriter(path)
    writer.write(spool.NAMES, b"first")
    size = writer.size_bytes
    true_write = os.write

    def full(fd: int, data: bytes) -> int:
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        return true_write(fd, data[:taken])

    with monkeypatch.context() as context:
        context.setattr(os, "write", full)
        with pytest.raises(OSError, match=r"space|part") as failed:
            writer.write(spool.NAMES, bytes(100))
    assert failed.value.errno == errno.ENOSPC
    assert (path.stat().st_size, writer.size_bytes) == (size, size)
    writer.write(spool.NAMES, b"second")
    writer.close()

    assert [chunk.payload for chunk in read(path)[0]] == [b"first", b"second"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.getuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small tmpfs cannot be mounted here: needs root and the right to mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_on_a_disk_that_is_really_full_every_chunk_is_there_or_refused(small_disk: Path) -> None:
    writer = spool.SpoolWriter(small_disk / "spool")
    written: list[bytes] = []
    errors: list[int | None] = []
    for number in range(40):
        payload = os.urandom(5000) + bytes([number])
        try:
            writer.write(spool.NAMES, payload)
            written.append(payload)
        except OSError as error:
            errors.append(error.errno)
    writer.close()

    assert set(errors) == {errno.ENOSPC}
    assert [chunk.payload for chunk in read(small_disk / "spool")[0]] == written
