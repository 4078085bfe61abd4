"""Where layerscope keeps what is not a recording, and whom it trusts there."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from layerscope.model import cache


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and temporary files of their own."""
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "home"


def temporary(tmp_path: Path) -> Path:
    return tmp_path / "temporary" / f"layerscope-{os.getuid()}"


def test_the_cache_comes_before_the_temporary_folder_and_nothing_is_made_yet(
    home: Path, tmp_path: Path
) -> None:
    assert cache.caches("tables") == [
        home / ".cache/layerscope/tables",
        temporary(tmp_path) / "tables",
    ]
    assert not any(home.iterdir())


def test_the_named_cache_comes_before_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache.caches("probe")[0] == tmp_path / "cache/layerscope/probe"


@pytest.mark.parametrize(
    "variables",
    [
        {"HOME": ""}, {"HOME": "/dev/null/nowhere"}, {"HOME": "relative"}, {"XDG_CACHE_HOME": "/dev/null/nowhere"},
        {"XDG_CACHE_HOME": "/dev/null"}, {"HOME": "/dev/null"},
    ],
)  # fmt: skip
def test_without_a_home_there_is_the_temporary_folder(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache.caches("tables") == [temporary(tmp_path) / "tables"]


def test_what_is_made_is_for_us_alone(home: Path) -> None:
    folder = cache.caches("tables")[0] / "4711"
    cache.make(folder)
    made = [folder, folder.parent, folder.parent.parent, home / ".cache"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in made} == {0o700}
    cache.make(folder)  # a second time is no error


@pytest.mark.parametrize("at", ["", "packed"])
def test_a_folder_that_others_may_write_is_left_out(at: str, home: Path, tmp_path: Path) -> None:
    planted = home / ".cache/layerscope" / at
    planted.mkdir(parents=True)
    planted.chmod(0o777)
    assert cache.caches("packed") == [temporary(tmp_path) / "packed"]
    with pytest.raises(PermissionError):
        cache.make(home / ".cache/layerscope/packed")


def test_a_link_is_left_out(home: Path, tmp_path: Path) -> None:
    (home / ".cache").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (home / ".cache/layerscope").symlink_to(tmp_path / "elsewhere")
    assert cache.caches("packed") == [temporary(tmp_path) / "packed"]


def test_with_nothing_to_trust_there_is_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    temporary(tmp_path).write_text("somebody was here first")
    assert cache.caches("packed") == []
    other = cache.temporary()
    assert other.parent == tmp_path / "temporary"
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


def test_the_temporary_folder_is_always_the_same(tmp_path: Path) -> None:
    assert cache.temporary() == cache.temporary() == temporary(tmp_path)


def test_what_a_folder_was_made_from_is_remembered(tmp_path: Path) -> None:
    cache.remember(tmp_path, tmp_path / "größer\n.layerscope")
    found = cache.origin(tmp_path)
    assert found
    assert (found.path, found.is_here) == (str(tmp_path / "größer\n.layerscope"), True)


@pytest.mark.parametrize(
    "note",
    [
        None,
        b"",
        b"\xff",
        b"[1]",
        b'{"path": "/a"}',
        b'{"path": 1, "host": 2, "used_s": ""}',
        b'{"path": "/a\\u0000", "host": "h", "used_s": 1}',
        b'{"path": "/a", "host": "h", "used_s": 1%s}' % (b"0" * 400),
        b"[" * 100_000,
    ],
)
def test_a_note_that_makes_no_sense_is_none(note: bytes | None, tmp_path: Path) -> None:
    if note is not None:
        (tmp_path / cache.ORIGIN).write_bytes(note)
    assert cache.origin(tmp_path) is None


@pytest.mark.parametrize("named", [True, False])
def test_the_working_folder_is_no_temporary_one_unless_it_is_named(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes it where no other can be written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, str(tmp_path) if named else "/nowhere")
    cache.settle_temporary()
    assert tempfile.gettempdir() == (str(tmp_path) if named else "/dev/shm")


def test_without_any_temporary_folder_there_is_shared_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile._get_default_tempdir", none)
    monkeypatch.setattr("tempfile.tempdir", None)
    cache.settle_temporary()
    assert tempfile.gettempdir() == "/dev/shm"
