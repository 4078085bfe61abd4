"""Sorted tables in the user's cache."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from layerscope.session import leftovers
from layerscope.symbols import Symbols, kept, object_tables
from layerscope.symbols.kept import Kept
from layerscope.symbols.symbol_table import ROW, is_sound
from tests.symbols.elf_programs import addresses_in, output, program, tool


def some_rows(count: int, first: int = 0) -> np.ndarray:
    rows = np.zeros(count, ROW)
    rows["start"] = np.arange(first, first + count)
    rows["end"] = rows["start"] + 1
    rows["outer"] = -1
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "layerscope" / "symbols"


def not_asked() -> np.ndarray:
    pytest.fail("it was made again")


def test_what_was_made_is_kept_for_us_alone(folder: Path) -> None:
    made = Kept(folder).rows("key", lambda: some_rows(20_000), is_sound, 10_000)
    found = Kept(folder).rows("key", not_asked, is_sound, 10_000)

    assert np.array_equal(made, found)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_small_tables_are_not_kept(folder: Path) -> None:
    Kept(folder).rows("key", lambda: some_rows(10), is_sound, 10_000)
    assert not folder.exists()


def test_without_a_cache_it_is_made_each_time() -> None:
    made: list[int] = []

    def make() -> np.ndarray:
        made.append(1)
        return some_rows(20_000)

    for _ in range(2):
        Kept(None).rows("key", make, is_sound, 10_000)
    assert len(made) == 2


def unsorted() -> np.ndarray:
    return some_rows(20_000)[::-1]


def circle() -> np.ndarray:
    rows = some_rows(20_000)
    rows["outer"][7] = 7
    return rows


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", b"x" * 100, unsorted, circle, lambda: np.zeros(5), "pickle"]
)
def test_what_is_damaged_is_made_again(folder: Path, content: object) -> None:
    Kept(folder).rows("key", lambda: some_rows(20_000), is_sound, 10_000)
    (file,) = folder.iterdir()
    if isinstance(content, bytes):
        file.write_bytes(file.read_bytes()[:300] if content == b"\x93NUMPY" else content)
    else:
        rows = content() if callable(content) else np.array([{"a": 1}], object)
        with file.open("wb") as out:
            np.save(out, rows, allow_pickle=True)

    expected = some_rows(20_000, 5)
    assert np.array_equal(Kept(folder).rows("key", lambda: expected, is_sound, 10_000), expected)
    assert np.array_equal(Kept(folder).rows("key", not_asked, is_sound, 10_000), expected)


def test_the_oldest_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_BYTES_MOST", 20_000 * ROW.itemsize * 3 + 1000)
    for number in range(3):
        Kept(folder).rows(f"key{number}", lambda: some_rows(20_000), is_sound, 10_000)
    for number, file in enumerate(sorted(folder.iterdir())):
        os.utime(file, (number, number))
    Kept(folder).rows("key0", not_asked, is_sound, 10_000)  # used just now
    Kept(folder).rows("new", lambda: some_rows(20_000), is_sound, 10_000)

    assert [file.name.split("-")[0] for file in sorted(folder.iterdir())] == ["key0", "key2", "new"]


def test_clean_removes_what_nobody_uses(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(2):
        Kept(folder).rows(f"key{number}", lambda: some_rows(20_000), is_sound, 10_000)
    (folder / "half.tmp").touch()
    for name in ("key0-1.npy", "half.tmp"):
        os.utime(folder / name, (1, 1))

    def found(everything: bool) -> set[str]:
        # Where the home cannot be written, names are kept among the temporary files: those are of
        # other runs.
        return {one.path.name for one in leftovers.find(everything) if one.path.parent == folder}

    assert found(everything=False) == {"key0-1.npy", "half.tmp"}
    assert found(everything=True) == {"key0-1.npy", "key1-1.npy", "half.tmp"}


def test_many_write_at_once(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(
            pool.map(
                lambda _: Kept(folder).rows("key", lambda: some_rows(20_000), is_sound, 10_000),
                range(16),
            )
        )

    assert all(np.array_equal(result, some_rows(20_000)) for result in results)
    assert [file.suffix for file in folder.iterdir()] == [".npy"]


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert (
        len(
            Kept(tmp_path / "file" / "symbols").rows(
                "key", lambda: some_rows(20_000), is_sound, 10_000
            )
        )
        == 20_000
    )
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    Kept(tmp_path / "open" / "symbols").rows("key", lambda: some_rows(20_000), is_sound, 10_000)
    assert not list((tmp_path / "open").rglob("*.npy"))


def test_names_and_lines_are_the_same_from_the_cache(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_tables, "SYMBOLS_LEAST", 1)
    monkeypatch.setattr(object_tables, "LINES_LEAST", 1)
    file = program(tmp_path, "-O0", "-g")
    addresses = addresses_in(file)
    found = []
    for cache in (None, folder, folder):
        with Symbols(cache) as symbols:
            named = symbols.native(str(file), b"", addresses)
            found.append((named.name, named.file, named.line.tolist()))
        for names in folder.glob("*-names-*"):  # of addresses, which would be asked first
            names.unlink()

    assert found[0] == found[1] == found[2]
    assert {file.name.split("-")[-4] for file in folder.iterdir()} == {"own", "lines"}


def test_a_file_and_what_is_left_of_it_when_stripped_do_not_share_a_table(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same build id, and one path after the other."""
    monkeypatch.setattr(object_tables, "SYMBOLS_LEAST", 1)
    monkeypatch.setattr(object_tables, "LINES_LEAST", 1)
    file = program(tmp_path, "-O0", "-Wl,--build-id=sha1")
    addresses = addresses_in(file)
    with Symbols(folder) as symbols:
        assert "outer::Square::sides() const" in symbols.native(str(file), b"", addresses).name
    output(tool("strip"), str(file))
    with Symbols(folder) as symbols:
        assert "outer::Square::sides() const" not in symbols.native(str(file), b"", addresses).name
