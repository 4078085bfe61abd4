"""`layerscope clean`: what nobody needs goes, everything else stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from layerscope.capture.frameworks.torch import probe
from layerscope.ingest.open import cached_tables, open_run
from layerscope.model import cache as cache_module
from layerscope.recording.run import Run
from layerscope.session.spooling import bring_home, divert
from tests.recordings import Recording
from tests.replayed import replay

OLD_S = time.time() - 40 * 86_400


def recorded(folder: Path, name: str = "train", **info: Any) -> Run:
    made = Recording()
    made.add_span("op", 0, 5)
    return made.write(folder / f"{name}.layerscope", **{"run_id": "0123456789abcdef", **info})


def with_raw(run: Run) -> Run:
    spool = run.raw / "here-1-2" / "spool"
    spool.parent.mkdir(parents=True)
    spool.write_bytes(b"something")
    return run


def in_cache(run: Run, used_s: float | None = None) -> Path:
    """The tables of `run` in the cache, last used at `used_s`."""
    folder = cached_tables(run.info.run_id)[0]
    cache_module.make(folder)
    (folder / "tables.json").write_text("{}" * 50)
    cache_module.remember(folder, run.path)
    if used_s is not None:
        used_long_ago(folder, used_s)
    return folder


def used_long_ago(folder: Path, used_s: float = OLD_S) -> None:
    note = json.loads((folder / cache_module.ORIGIN).read_text())
    (folder / cache_module.ORIGIN).write_text(json.dumps({**note, "used_s": used_s}))


def cleaned(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], list[str]]:
    """What was removed: path -> row; and what is said beside it."""
    assert cli.main(["clean", *words, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    names = [column["name"] for column in told["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in told["rows"]]
    assert (told["command"], told["table"]) == ("clean", "clean")
    return {row["path"]: row for row in rows}, told["notes"]


def test_with_nothing_to_remove_it_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(folder)
    assert cli.main(["clean"]) == 0
    assert capsys.readouterr().out == "There is nothing to remove.\n"
    assert cli.main(["clean", "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert run.path.exists()


def test_tables_of_a_recording_that_is_gone_go(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = with_raw(recorded(folder))
    tables = in_cache(run)
    assert cleaned(capfd) == ({}, ["There is nothing to remove."])

    shutil.rmtree(run.path)

    rows, notes = cleaned(capfd, "--dry-run")
    assert rows[str(tables)]["why"] == f"the recording {run.path} is gone"
    assert rows[str(tables)]["bytes"] > 100
    assert not rows[str(tables)]["removed"]
    assert tables.exists()
    assert notes[0].endswith("would be given back: run it without --dry-run.")

    rows, notes = cleaned(capfd)
    assert rows[str(tables)]["removed"]
    assert not tables.exists()
    assert cleaned(capfd)[0] == {}


def test_tables_that_were_not_used_for_long_go_if_they_can_be_made_again(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    again = in_cache(with_raw(recorded(folder, "again", run_id="a")), OLD_S)
    run = recorded(folder, "never", run_id="b")
    (run.path / "tables.json").unlink()
    never = in_cache(run, OLD_S)
    lately = in_cache(with_raw(recorded(folder, "lately", run_id="c")))

    rows, notes = cleaned(capfd)

    assert set(rows) == {str(again)}
    assert rows[str(again)]["why"] == "not used for 40 days; it is made again when needed"
    assert f"Kept {never}: the recording {run.path} has nothing to make them of again." in notes
    assert never.exists()
    assert lately.exists()
    assert set(cleaned(capfd, "--all")[0]) == {str(lately)}


def test_tables_of_a_disk_that_is_not_mounted_stay(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "disk").mkdir()
    tables = in_cache(recorded(folder / "disk"), OLD_S)
    shutil.rmtree(folder / "disk")
    assert set(cleaned(capfd)[0]) == set()
    assert tables.exists()


def test_an_unpacked_recording_goes_with_its_file_or_unused(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded(folder)
    assert cli.main(["pack", "train", "-q"]) == 0
    unpacked = open_run(folder / "train.layerscope.zip").path.parent
    assert cleaned(capfd)[0] == {}

    assert set(cleaned(capfd, "--all")[0]) == {str(unpacked)}
    assert open_run(folder / "train.layerscope.zip").path.parent == unpacked
    (folder / "train.layerscope.zip").unlink()
    assert cleaned(capfd)[0][str(unpacked)]["why"] == f"{folder / 'train.layerscope.zip'} is gone"
    assert (folder / "train.layerscope").exists()


def test_answers_about_a_torch_that_is_gone_go(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "build_id", lambda library: library.name)
    for name in ("here", "gone"):
        (folder / name).write_text("a library")
        probe.keep(folder / name, probe.ProbeAnswer("good"))
    (folder / "gone").unlink()

    rows, _ = cleaned(capfd)

    assert [row["why"] for row in rows.values()] == [f"{folder / 'gone'} is gone"]
    assert probe.known(folder / "here")


def diverted(folder: Path, run: Run, spool: Path) -> Path:
    """The raw files of `run` in `spool`, with something in them."""
    divert(run, str(spool))
    place = run.raw.readlink()
    (place / "here-1-2").mkdir()
    (place / "here-1-2" / "spool").write_bytes(b"something")
    return place


@pytest.mark.parametrize("where", ["temporary", "elsewhere"])
def test_raw_files_of_a_recording_that_is_gone_go(
    where: str, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = recorded(folder)
    place = diverted(folder, run, tmp_path / where)
    _, notes = cleaned(capfd)
    assert f"Kept {place}: the recording {run.path} has no others." in notes
    assert place.exists()

    shutil.rmtree(run.path)

    _, notes = cleaned(capfd)
    assert notes[0].startswith(
        f"Kept {place}: the recording {run.path} is gone since less than a day; if it was moved"
    )
    assert place.exists()

    used_long_ago(place)
    assert cleaned(capfd)[0][str(place)]["why"] == f"the recording {run.path} is gone"
    assert not place.exists()
    cleaned(capfd)
    assert cleaned(capfd) == ({}, ["There is nothing to remove."])
    assert not list((tmp_path / "home").rglob(cache_module.ORIGIN))


def test_raw_files_that_came_home_leave_nothing(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = recorded(folder)
    place = diverted(folder, run, tmp_path / "elsewhere")
    assert bring_home(run) == ""
    assert not place.exists()
    assert [path.name for path in run.raw.rglob("*")] == ["here-1-2", "spool"]
    assert cleaned(capfd) == ({}, ["There is nothing to remove."])


def test_raw_files_that_a_process_has_open_stay(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = recorded(folder)
    place = diverted(folder, run, tmp_path / "temporary")
    shutil.rmtree(run.path)
    with (place / "here-1-2" / "spool").open():
        assert cleaned(capfd, "--all")[0] == {}
    assert set(cleaned(capfd, "--all")[0]) == {str(place)}


def test_a_recording_that_was_moved_keeps_its_raw_files_when_it_was_opened(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = recorded(folder)
    place = diverted(folder, run, tmp_path / "elsewhere")
    run.path.rename(folder / "moved.layerscope")
    used_long_ago(place)
    (folder / "moved.layerscope" / "tables.json").write_text("{}")
    open_run(folder / "moved.layerscope")

    _, notes = cleaned(capfd)

    assert f"Kept {place}: the recording {folder / 'moved.layerscope'} has no others." in notes
    assert place.exists()


def test_what_is_not_ours_stays(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Folders of our name without our note, links, and what others put beside ours."""
    temporary, cache = tmp_path / "temporary", tmp_path / "home/.cache/layerscope"
    (temporary / "layerscope-0123456789abcdef" / "here-1-2").mkdir(parents=True)
    (temporary / f"layerscope-{os.getuid()}").mkdir(mode=0o700)
    (temporary / f"layerscope-{os.getuid()}" / "train.layerscope").mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("precious")
    cache_module.make(cache / "tables")
    (cache / "tables" / "link").symlink_to(tmp_path / "precious")
    (temporary / "layerscope-0123456789abcde0").symlink_to(tmp_path / "precious")
    cache_module.make(cache / "tables" / "unknown")
    run = recorded(folder, run_id="x")
    tables = in_cache(run)
    (tables / "link").symlink_to(tmp_path / "precious")
    shutil.rmtree(run.path)

    assert set(cleaned(capfd, "--all")[0]) == {str(tables)}

    assert (tmp_path / "precious" / "file").read_text() == "precious"
    assert (temporary / "layerscope-0123456789abcdef").exists()
    assert (temporary / f"layerscope-{os.getuid()}" / "train.layerscope").exists()
    assert (cache / "tables" / "unknown").exists()


def test_a_cache_that_others_may_write_is_left_alone(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = recorded(folder)
    tables = in_cache(run)
    shutil.rmtree(run.path)
    (tmp_path / "home/.cache/layerscope").chmod(0o777)
    assert cleaned(capfd)[0] == {}
    assert tables.exists()


def test_spilled_files_of_a_killed_question_go(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone, young, live = (
        tmp_path / "temporary" / f"layerscope-spill-{pid}-0123456{number}"
        for number, pid in enumerate((ended.pid, ended.pid, os.getpid()))
    )
    for place in (gone, young, live):
        place.mkdir()
        (place / "duckdb_temp_storage-0.tmp").write_bytes(b"x" * 1000)
    for place in (gone, live):
        os.utime(place, (OLD_S, OLD_S))
    assert set(cleaned(capfd)[0]) == {str(gone)}


def test_a_named_recording_goes_with_all_that_belongs_to_it(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = recorded(folder)
    other = recorded(folder, "other", run_id="other")
    tables, others = in_cache(run), in_cache(other)
    place = diverted(folder, run, tmp_path / "elsewhere")
    notes = [cache / run.info.run_id for cache in cache_module.caches(cache_module.SPOOLS)[:1]]

    assert set(cleaned(capfd, "train", "--dry-run")[0]) == {
        str(path) for path in (run.path, tables, place, *notes)
    }
    assert run.path.exists()
    assert set(cleaned(capfd, "train")[0]) == {
        str(path) for path in (run.path, tables, place, *notes)
    }

    assert [path.name for path in folder.iterdir()] == ["other.layerscope"]
    assert not any(path.exists() for path in (tables, place, *notes))
    assert others.exists()


def test_a_packed_recording_goes_when_it_is_named(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded(folder)
    assert cli.main(["pack", "train", "-q"]) == 0
    assert set(cleaned(capfd, "train.layerscope.zip")[0]) == {str(folder / "train.layerscope.zip")}
    assert [path.name for path in folder.iterdir()] == ["train.layerscope"]


def test_what_must_not_go_is_a_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import zipfile

    noted = recorded(folder, "noted", run_id="noted")
    (noted.path / "notes.txt").write_text("mine")
    (folder / "link.layerscope").symlink_to(noted.path)
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        archive.writestr("a.jpg", "a picture")
    (folder / "plain").mkdir()
    before = sorted(folder.rglob("*"))
    sentences = {
        "noted": "holds notes.txt, which is no part of a recording. Move it away first; nothing was removed",
        "link": "is a link, nothing was removed",
        "photos.zip": "is not a packed recording",
        "plain": "is not a layerscope recording",
        "nowhere": "there is no recording 'nowhere'",
    }
    for name, sentence in sentences.items():
        assert cli.main(["clean", name]) == 125
        assert sentence in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_a_recording_that_is_being_made_stays(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "layerscope"])
    try:
        host = {"name": os.uname().nodename}
        run = recorded(folder, state="running", session_pid=session.pid, host=host)
        in_cache(run, OLD_S)
        assert cli.main(["clean", "train"]) == 125
        assert "is being recorded, nothing was removed" in capsys.readouterr().err
        assert cli.main(["clean"]) == 0
        assert capsys.readouterr().out == "There is nothing to remove.\n"
    finally:
        session.kill()
        session.wait()
    assert cli.main(["clean", "train", "-q"]) == 0
    assert list(folder.iterdir()) == []


def test_when_one_cannot_be_removed_the_rest_is_done(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runs = [recorded(folder, name, run_id=name) for name in ("a", "b")]
    first, second = [in_cache(run) for run in runs]
    for run in runs:
        shutil.rmtree(run.path)
    real = os.rename

    def refuse(source: Path, target: Path) -> None:
        if source == first:
            raise OSError(30, "Read-only file system")
        real(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        assert cli.main(["clean"]) == 125
    assert (
        f"{first} cannot be removed: Read-only file system. The rest is done"
        in capfd.readouterr().err
    )
    assert first.exists()
    assert not second.exists()


def test_a_real_recording_goes_without_a_trace(tmp_path: Path) -> None:
    found = replay("train", tmp_path)
    assert cli.main(["clean", str(found.run.path), "-q"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_what_machines_reached_goes_when_it_is_old(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "home/.cache/layerscope/platform"
    cache_module.make(cache)
    for name, age_s in (
        ("new.json", 0.0),
        ("old.json", 40 * 86_400.0),
        ("half.7.tmp", 7_200.0),
        ("fresh.8.tmp", 0.0),
    ):
        (cache / name).write_text("{}")
        os.utime(cache / name, (time.time() - age_s,) * 2)

    assert set(cleaned(capfd)[0]) == {str(cache / "old.json"), str(cache / "half.7.tmp")}
    assert set(cleaned(capfd, "--all")[0]) == {str(cache / "new.json")}
    assert [path.name for path in cache.iterdir()] == ["fresh.8.tmp"]
