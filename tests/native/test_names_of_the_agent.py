"""Names: a pointer is a hint only, nothing is read behind a name's end, and every name comes
through.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.native.driven import Drive


def names_by_start(drive: Drive, lines: str) -> list[str]:
    driven = drive("start()\n" + textwrap.dedent(lines))
    assert (driven.status, driven.stderr) == (0, "")
    assert not driven.rows("SELECT * FROM gaps")
    return [span["name"] for span in driven.spans()]


def test_50_names_at_one_address_are_50_names(drive: Drive) -> None:
    names = names_by_start(
        drive,
        """
        buffer = ctypes.create_string_buffer(64)
        for step in list(range(50)) + [7, 7, 8]:
            ctypes.memmove(buffer, b"step_%d" % step + b"\\0", len(b"step_%d" % step) + 1)
            op(ctypes.addressof(buffer))
        """,
    )

    assert names == [f"step_{step}" for step in [*range(50), 7, 7, 8]]


def test_names_that_share_a_beginning_at_one_address_are_told_apart(drive: Drive) -> None:
    """Every length around the words that are compared, longer and shorter than the one before."""
    names = names_by_start(
        drive,
        """
        buffer = ctypes.create_string_buffer(64)
        for length in list(range(40)) + list(range(40, -1, -3)):
            ctypes.memmove(buffer, b"x" * length + b"\\0", length + 1)
            op(ctypes.addressof(buffer))
        """,
    )

    assert [len(name) for name in names] == [*range(40), *range(40, -1, -3)]


def test_names_at_every_alignment_are_read_right(drive: Drive) -> None:
    names = names_by_start(
        drive,
        """
        buffer = ctypes.create_string_buffer(256)
        base = (ctypes.addressof(buffer) + 63) // 64 * 64
        for round in range(2):
            for shift in range(16):
                text_here = b"aligned by %d in round %d" % (shift, round)
                ctypes.memmove(base + shift, text_here + b"\\0", len(text_here) + 1)
                op(base + shift); op(base + shift)
        """,
    )

    assert names == [
        f"aligned by {shift} in round {turn}"
        for turn in range(2)
        for shift in range(16)
        for _ in range(2)
    ]


def test_a_name_at_the_end_of_a_page_is_not_read_beyond(drive: Drive) -> None:
    """Behind the page lies one that nobody may read: a byte too far would be the end of the
    program.
    """
    names = names_by_start(
        drive,
        """
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        pages = libc.mmap(None, 8192, 3, 0x22, -1, 0)
        assert libc.mprotect(pages + 4096, 4096, 0) == 0
        for length in range(40):
            at = pages + 4096 - length - 1
            # First a longer name at that address, as far as the page goes, then others of its length.
            for letter in b"abca":
                ctypes.memset(at, letter, length)
                ctypes.memset(at + length, 0, 1)
                op(at)
            if length:  # a shorter one where a longer one was
                ctypes.memset(at + length - 1, 0, 1)
                op(at)
        at = pages + 4096 - 1200  # longer than any name is kept
        ctypes.memset(at, ord("z"), 1199)
        op(at); op(at)
        """,
    )

    expected: list[str] = []
    for length in range(40):
        expected += [letter * length for letter in "abca"] + (
            ["a" * (length - 1)] if length else []
        )
    assert names == [*expected, "z" * 1024, "z" * 1024]


def test_long_names_are_cut_and_counted_as_one(drive: Drive) -> None:
    names = names_by_start(
        drive,
        """
        for length in (1023, 1024, 1025, 2000, 2000):
            op("n" * length)
        op("n" * 1024 + "different behind the cut")
        """,
    )

    assert [len(name) for name in names] == [1023, 1024, 1024, 1024, 1024, 1024]


def test_a_name_that_is_not_utf8_does_not_stop_anything(drive: Drive) -> None:
    names = names_by_start(
        drive, r"op(b'\xff\xfe caf\xe9'); op('größe ☃'); op(b'cut \xe2\x98'); op(b'')"
    )

    assert names == ["\ufffd\ufffd caf\ufffd", "größe ☃", "cut \ufffd", ""]


def test_100_000_names_grow_across_segments_and_all_come_through(drive: Drive) -> None:
    driven = drive(
        """
        start()
        buffer = ctypes.create_string_buffer(64)
        address = ctypes.addressof(buffer)
        for number in range(100_000):
            buffer.value = b"name number %d" % number
            end(torch.fake_begin(address, 0, number, 0))
        op("last")
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    (row,) = driven.rows(
        "SELECT count(*) AS n, count(DISTINCT name) AS names, "
        "count(*) FILTER (name = 'name number ' || sequence) AS right FROM spans WHERE sequence IS NOT NULL"
    )
    lost = driven.losses().get("ring_full", 0)
    assert row == {"n": 100_000 - lost, "names": 100_000 - lost, "right": 100_000 - lost}
    (handed,) = driven.door.handed.values()
    assert len(handed.names) > 3


@pytest.mark.slow
@pytest.mark.stress
def test_names_beyond_the_first_million_are_recorded_without_their_names(drive: Drive) -> None:
    driven = drive(
        """
        start()
        buffer = ctypes.create_string_buffer(64)
        address = ctypes.addressof(buffer)
        for number in range((1 << 20) + 1000):
            buffer.value = b"%d" % number
            end(torch.fake_begin(address, 0, number, 0))
            if number % 1000 == 0:
                time.sleep(0.0005)
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    (row,) = driven.rows(
        "SELECT count(*) AS n, count(*) FILTER (name <> sequence::VARCHAR) AS other, "
        "min(sequence) FILTER (name <> sequence::VARCHAR) AS first, "
        "count(*) FILTER (name <> sequence::VARCHAR AND name <> '(other names)') AS wrong FROM spans"
    )
    assert row["n"] + driven.losses().get("ring_full", 0) == (1 << 20) + 1000
    assert (row["first"], row["wrong"]) == ((1 << 20) - 1, 0)
    assert int(driven.door.page(driven.pid)["lost_names"]) == 1001


def test_two_threads_that_bring_the_same_new_name_share_its_number(drive: Drive) -> None:
    driven = drive(
        """
        start()
        barrier = threading.Barrier(4)
        def work():
            for number in range(500):
                barrier.wait()
                op(f"new name {number}")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    rows = driven.rows("SELECT name, count(*) AS n FROM spans GROUP BY name")
    assert {row["name"]: row["n"] for row in rows} == {
        f"new name {number}": 4 for number in range(500)
    }
    (handed,) = driven.door.handed.values()
    used = int.from_bytes(handed.names[0][16:24], "little")
    text = handed.names[0][64 : 64 + used]
    assert text.count(b"new name 77\0") == 1


def test_kinds_of_ranges_are_told_by_the_names_torch_gives(drive: Drive) -> None:
    driven = drive(
        """
        start()
        op("Optimizer.step#SGD.step", RANGE)
        op("Optimizer.zero_grad#SGD.zero_grad", RANGE)
        op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", RANGE)
        op("enumerate(DataLoader)# without the rest", RANGE)
        op("my own range", RANGE)
        op("Optimizer.step#SGD.step", FUNCTION)
        """
    )

    assert (driven.status, driven.stderr) == (0, "")
    assert [span["kind"] for span in driven.spans()] == [
        "optimizer", "optimizer", "loader", "range", "range", "function"
    ]  # fmt: skip
