"""What was found about addresses, kept for the next recording."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from layerscope.symbols import Named, Symbols, object_tables, separate
from layerscope.symbols.kept import Kept
from layerscope.symbols.known_addresses import KnownAddresses
from tests.symbols.elf_programs import addresses_in, program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "layerscope" / "symbols"


def told(named: Named) -> tuple[list[str], list[str], list[str | None], list[int]]:
    return named.name, named.short, named.file, named.line.tolist()


def asked(folder: Path | None, file: Path, addresses: np.ndarray) -> Named:
    with Symbols(folder) as symbols:
        return symbols.native(str(file), b"", addresses)


def some(count: int) -> Named:
    names = [f"name{number}" for number in range(count)]
    return Named(names, names, [None, *names[1:]], np.arange(count, dtype=np.int32))


def nothing_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*_: object) -> None:
        pytest.fail("tables of the file were opened")

    monkeypatch.setattr(object_tables.ObjectTables, "find", find)


def test_known_addresses_are_told_without_opening_tables(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = program(tmp_path, "-O0", "-g")
    addresses = addresses_in(file)
    expected = asked(None, file, addresses)
    # Half of them first, so that the others are added to what is kept.
    asked(folder, file, addresses[::2])
    assert told(asked(folder, file, addresses)) == told(expected)
    nothing_opened(monkeypatch)
    again = np.concatenate([addresses[::-1], addresses[:1]])
    found = asked(folder, file, again)

    assert found.name == [*expected.name[::-1], expected.name[0]]
    assert told(asked(folder, file, addresses)) == told(expected)


def test_a_debug_file_that_came_later_is_read(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debug = tmp_path / "beside.debug"
    monkeypatch.setattr(separate, "places", lambda *_: [debug])
    file = program(tmp_path, "-O0")
    addresses = addresses_in(file)
    asked(folder, file, addresses)
    with monkeypatch.context() as within:
        nothing_opened(within)
        asked(folder, file, addresses)
    debug.write_bytes(b"")
    looked: list[int] = []
    find: Callable[..., object] = object_tables.ObjectTables.find
    monkeypatch.setattr(
        object_tables.ObjectTables, "find", lambda *all_: looked.append(1) or find(*all_)
    )
    asked(folder, file, addresses)

    assert looked


def test_a_file_that_was_written_anew_is_looked_at_anew(tmp_path: Path, folder: Path) -> None:
    file = program(tmp_path, "-O0", "-Wl,--build-id=0x1234")
    addresses = addresses_in(file)
    before = asked(folder, file, addresses)
    file.write_bytes(file.read_bytes().replace(b"Square", b"Circle"))
    os.utime(file, (1, 1))

    assert asked(folder, file, addresses).name == [
        name.replace("Square", "Circle") for name in before.name
    ]


def test_what_is_damaged_counts_as_nothing(folder: Path) -> None:
    addresses = np.arange(5, dtype=np.uint64)
    KnownAddresses(Kept(folder), "key").learn(addresses, some(5))
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    assert KnownAddresses(Kept(folder), "key").rows_of(addresses).tolist() == [0, 1, 2, 3, 4]
    for place in range(len(whole)):
        file.write_bytes(whole[:place])
        KnownAddresses(Kept(folder), "key")
    for place in range(128, len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert set(KnownAddresses(Kept(folder), "key").rows_of(addresses).tolist()) == {-1}


def test_what_is_not_known_can_be_asked(folder: Path) -> None:
    known = KnownAddresses(Kept(folder), "key")
    assert known.rows_of(np.array([0, 1 << 63], np.uint64)).tolist() == [-1, -1]
    known.learn(np.array([7], np.uint64), some(1))
    assert known.rows_of(np.array([7, 8, 0], np.uint64)).tolist() == [0, -1, -1]
    kernel = 0xFFFFFFFF81000000
    known.learn(np.array([kernel + 2], np.uint64), some(1))
    near = np.array([kernel + offset for offset in range(4)], np.uint64)
    assert known.rows_of(near).tolist() == [-1, -1, 1, -1]


def test_lines_that_a_limit_left_out_are_looked_for_again(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = program(tmp_path, "-O1", "-g")
    addresses = addresses_in(file)
    with monkeypatch.context() as within:
        within.setattr("layerscope.symbols.dwarf_lines.PROGRAM_BYTES", 10)
        assert set(asked(folder, file, addresses).file) == {None}

    assert told(asked(folder, file, addresses)) == told(asked(None, file, addresses))


def test_a_file_that_is_kept_open_may_go(tmp_path: Path) -> None:
    file = program(tmp_path, "-O0", "-g")
    addresses = addresses_in(file)
    expected = told(asked(None, file, addresses))
    open_before = len(os.listdir("/proc/self/fd"))
    with Symbols(None) as symbols:
        symbols.keep_open(str(file))
        file.unlink()
        assert told(symbols.native(str(file), b"", addresses)) == expected
    assert len(os.listdir("/proc/self/fd")) == open_before
