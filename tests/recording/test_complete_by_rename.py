"""A folder of the cache that several processes make at once."""

from __future__ import annotations

from pathlib import Path

from layerscope.recording.packed import complete_by_rename


def write(draft: Path, text: str = "whole") -> None:
    (draft / "x.layerscope").mkdir()
    (draft / "x.layerscope" / "run.json").write_text(text)
    (draft / "x.layerscope" / "link").symlink_to("/nowhere")


def content(folder: Path) -> str:
    return (folder / "x.layerscope" / "run.json").read_text()


def test_what_another_process_has_made_meanwhile_stays(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    with complete_by_rename(tmp_path, folder) as slow:
        write(slow, "slow")
        with complete_by_rename(tmp_path, folder) as fast:
            write(fast, "fast")
        made = folder.stat().st_ino
    assert folder.stat().st_ino == made  # somebody reads it
    assert content(folder) == "fast"
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_what_has_lost_files_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "key"
    for lost in ("run.json", "link"):
        with complete_by_rename(tmp_path, folder) as draft:
            write(draft)
        assert content(folder) == "whole"
        (folder / "x.layerscope" / lost).unlink()
    with complete_by_rename(tmp_path, folder) as draft:
        write(draft)
    assert content(folder) == "whole"
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_an_empty_folder_and_none_are_both_taken(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "none"):
        with complete_by_rename(tmp_path, tmp_path / name) as draft:
            write(draft)
        assert content(tmp_path / name) == "whole"
