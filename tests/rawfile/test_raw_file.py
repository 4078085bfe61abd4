"""The raw file: whatever happens to it, what is read is what was written, in order, up to the
damage.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.rawfile import dtypes, layout, raw_file

numbers = st.integers(0, 2**32 - 1)


@st.composite
def chunks(draw: st.DrawFn) -> raw_file.Chunk:
    kind = draw(st.integers(raw_file.PROCESS, raw_file.END))
    payload = draw(st.binary(max_size=60)) * draw(st.sampled_from([1, 1, 20]))
    if kind == raw_file.RECORDS:
        size = dtypes.RECORD.itemsize
        payload = (payload + bytes(size))[: max(len(payload) // size, 1) * size]
    return raw_file.Chunk(
        kind, draw(numbers), draw(numbers), draw(st.integers(0, 2**64 - 1)), payload
    )


files = st.lists(chunks(), max_size=8)


def write(path: Path, parts: list[raw_file.Chunk]) -> list[int]:
    """Append `parts`; returns the size of the file after each."""
    writer = raw_file.SpoolWriter(path)
    sizes = [writer.size_bytes]
    for part in parts:
        writer.write(part.kind, part.payload, part.key, part.count, part.first)
        sizes.append(writer.size_bytes)
    writer.close()
    assert path.stat().st_size == sizes[-1]
    return sizes


def read(path: Path) -> tuple[list[raw_file.Chunk], raw_file.SpoolReader]:
    reader = raw_file.SpoolReader(path)
    return list(reader.chunks()), reader


def folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="layerscope-spool-")


@given(files)
def test_what_was_written_is_read(parts: list[raw_file.Chunk]) -> None:
    with folder() as name:
        write(Path(name) / "spool", parts)
        found, reader = read(Path(name) / "spool")

        assert found == parts
        assert not reader.damaged
        assert reader.left_bytes == 0


@given(files, st.data())
def test_a_file_cut_anywhere_opens_up_to_the_cut(
    parts: list[raw_file.Chunk], data: st.DataObject
) -> None:
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
    parts: list[raw_file.Chunk], data: st.DataObject
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
    before: list[raw_file.Chunk], after: list[raw_file.Chunk], data: st.DataObject
) -> None:
    """The one before it was killed, perhaps in the middle of a chunk."""
    with folder() as name:
        path = Path(name) / "spool"
        sizes = write(path, before)
        cut = data.draw(st.integers(0, sizes[-1]))
        os.truncate(path, cut)
        whole = sum(size <= cut for size in sizes[1:])
        early = raw_file.SpoolReader(path)  # has read up to the torn chunk already
        assert list(early.chunks()) == before[:whole]
        write(path, after)

        found, reader = read(path)
        assert found == before[:whole] + after
        assert not reader.damaged
        assert reader.left_bytes == 0
        assert list(early.chunks()) == after


@given(files, st.lists(st.integers(0, 400), max_size=12))
def test_a_file_that_grows_is_read_to_the_same_chunks(
    parts: list[raw_file.Chunk], steps: list[int]
) -> None:
    with folder() as name:
        path, growing = Path(name) / "spool", Path(name) / "growing"
        write(path, parts)
        content = path.read_bytes()
        growing.touch()
        reader = raw_file.SpoolReader(growing)
        found: list[raw_file.Chunk] = []
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
    sizes = write(path, [raw_file.Chunk(raw_file.POLL, 0, 0, 0, b"x" * 32)] * 3)
    content = bytearray(path.read_bytes())
    content[sizes[1] + 40] ^= 1
    path.write_bytes(content)

    raw_file.SpoolWriter(path).close()

    assert path.read_bytes() == bytes(content)


@pytest.mark.parametrize("taken", [0, 1, 20, 60])
def test_a_disk_that_is_full_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    path = tmp_path / "spool"
    writer = raw_file.SpoolWriter(path)
    writer.write(raw_file.NAMES, b"first")
    size = writer.size_bytes
    true_write = os.write

    def full(fd: int, data: bytes) -> int:
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        return true_write(fd, data[:taken])

    with monkeypatch.context() as context:
        context.setattr(os, "write", full)
        with pytest.raises(OSError, match=r"space|part") as failed:
            writer.write(raw_file.NAMES, bytes(100))
    assert failed.value.errno == errno.ENOSPC
    assert (path.stat().st_size, writer.size_bytes) == (size, size)
    writer.write(raw_file.NAMES, b"second")
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
    writer = raw_file.SpoolWriter(small_disk / "spool")
    written: list[bytes] = []
    errors: list[int | None] = []
    for number in range(40):
        payload = os.urandom(5000) + bytes([number])
        try:
            writer.write(raw_file.NAMES, payload)
            written.append(payload)
        except OSError as error:
            errors.append(error.errno)
    writer.close()

    assert set(errors) == {errno.ENOSPC}
    assert [chunk.payload for chunk in read(small_disk / "spool")[0]] == written


def spans_of(count: int, first: int) -> np.ndarray:
    """Records of spans with a counter's record between them."""
    records = np.zeros(count, dtypes.RECORD)
    records["start"] = np.arange(first, first + count)
    records["kind"][1::3] = layout.COUNTER
    records["kind"][2::3] = layout.EXTRA
    return records


def write_segments(path: Path) -> None:
    """A raw file of three segments with two chunks of records in each."""
    writer = raw_file.SpoolWriter(path)
    for chunk in range(6):
        if chunk in (2, 4):
            writer.rotate()
        writer.write(raw_file.RECORDS, spans_of(300, 300 * chunk).tobytes(), 7, 300, 300 * chunk)
        writer.write(raw_file.POLL, bytes(32))
    writer.close()


def test_segments_are_read_as_one_file_while_they_grow(tmp_path: Path) -> None:
    reader = raw_file.SpoolReader(tmp_path / "spool")
    writer = raw_file.SpoolWriter(tmp_path / "spool")
    seen = []
    for number in range(9):
        if number % 3 == 2:
            writer.rotate()
        writer.write(raw_file.NAMES, b"%d" % number)
        if number % 2:
            seen += [chunk.payload for chunk in reader.chunks()]
    writer.close()
    # A writer that comes later goes on in the last segment.
    again = raw_file.SpoolWriter(tmp_path / "spool")
    assert not again.is_new
    again.write(raw_file.NAMES, b"9")
    again.close()
    seen += [chunk.payload for chunk in reader.chunks()]

    assert seen == [b"%d" % number for number in range(10)]
    assert (reader.damaged, reader.left_bytes) == (False, 0)
    assert len(raw_file.segments(tmp_path / "spool")) == 4


def test_a_stripped_segment_keeps_all_but_its_spans(tmp_path: Path) -> None:
    path = tmp_path / "one" / "spool"
    write_segments(path)
    before = raw_file.raw_bytes(tmp_path)
    freed = raw_file.strip(raw_file.segments(path)[1])

    assert 0 < freed == before - raw_file.raw_bytes(tmp_path)
    chunks = list(raw_file.SpoolReader(path).chunks())
    kinds = [chunk.kind for chunk in chunks]
    whole, went = [raw_file.RECORDS, raw_file.POLL], [raw_file.STRIPPED, raw_file.POLL]
    assert kinds == [*whole, *whole, *went, *went, *whole, *whole]
    for chunk in chunks[4:8:2]:
        count, stays = raw_file.of_stripped(chunk.payload)
        assert (chunk.key, chunk.count, count) == (7, 300, 100)
        assert stays["start"].tolist() == list(range(chunk.first + 1, chunk.first + 300, 3))
    assert raw_file.strip(raw_file.segments(path)[1]) == 0


def test_a_segment_that_is_damaged_is_not_stripped_and_those_after_it_are_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "one" / "spool"
    write_segments(path)
    middle = raw_file.segments(path)[1]
    content = bytearray(middle.read_bytes())
    content[len(content) // 2] ^= 0xFF
    middle.write_bytes(content)

    assert raw_file.strip(middle) == 0
    assert middle.read_bytes() == bytes(content)
    reader = raw_file.SpoolReader(path)
    firsts = [chunk.first for chunk in reader.chunks() if chunk.kind == raw_file.RECORDS]
    assert reader.damaged
    assert (firsts[:2], firsts[-2:]) == ([0, 300], [1200, 1500])
    assert sorted(tmp_path.glob("one/*")) == raw_file.segments(path)


def test_a_stripped_segment_is_never_larger_and_its_counters_and_readings_stay_small(
    tmp_path: Path,
) -> None:
    path = tmp_path / "one" / "spool"
    writer = raw_file.SpoolWriter(path)
    for at in range(100):  # every 0.1 s
        writer.write(raw_file.COUNTERS, bytes([at]) * 24)
        writer.write(raw_file.POLL, np.array([at, at * 10**8, 0, 0], "<i8").tobytes())
    writer.write(raw_file.TOTALS, b"sums")
    writer.close()
    before = path.stat().st_size
    assert raw_file.strip(path, keeps_sums=False) > before // 2

    chunks = list(raw_file.SpoolReader(path).chunks())
    polls = [
        int.from_bytes(chunk.payload[:8], "little")
        for chunk in chunks
        if chunk.kind == raw_file.POLL
    ]
    assert polls == [*range(0, 100, 10), 99]
    counted = [chunk.payload for chunk in chunks if chunk.kind == raw_file.COUNTERS]
    assert counted == [b"".join(bytes([at]) * 24 for at in range(100))]
    assert raw_file.TOTALS not in {chunk.kind for chunk in chunks}

    marks = np.zeros(300, dtypes.RECORD)
    marks["kind"], marks["start"] = layout.MARK, np.random.default_rng(0).integers(0, 2**60, 300)
    other = tmp_path / "two" / "spool"
    writer = raw_file.SpoolWriter(other)
    writer.write(raw_file.RECORDS, marks.tobytes(), 7, 300, 0)
    writer.close()
    content = other.read_bytes()
    assert raw_file.strip(other) == 0
    assert other.read_bytes() == content
