"""A program in C that records itself: no `layerscope run`, no Python in its process."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from layerscope.model.secrets import kept_environment, mask
from tests.hostile.settings import mounted
from tests.languages import german
from tests.native_interface.driven import TIMEOUT_S, Drive, Driven
from tests.recorded import layerscope


def well(driven: Driven) -> Driven:
    """`driven`, which must have ended without a word and without a loss."""
    assert (driven.status, driven.stdout, driven.stderr) == (0, "", "")
    assert driven.lost() == 0
    assert driven.problems() == []
    return driven


def test_ranges_counters_marks_and_steps_are_what_the_program_said(drive: Drive) -> None:
    driven = well(
        drive(
            "state run", "frame net epoch 0", "push net forward", "push - convolution", "pop", "pop", "step",
            "push net backward", "counter net loss -9223372036854775808", "counter net loss 9223372036854775807",
            "counter - batch 3", "pop", "step", "marker net saved 0", "end 0", "step",
        )
    )  # fmt: skip
    spans = driven.spans()
    assert [(span["name"], span["kind"], span["domain"], span["parent_name"]) for span in spans] == [
        ("epoch", "frame", "net", None), ("forward", "task", "net", "epoch"), ("convolution", "task", None, "forward"),
        ("backward", "task", "net", "epoch"),
    ]  # fmt: skip
    assert all(
        span["dur_ns"] > 0 and span["layer"] == "ranges" and not span["unfinished"]
        for span in spans
    )
    assert driven.counted("loss") == [-(2**63), 2**63 - 1]
    assert driven.counted("batch") == [3]
    assert driven.counted("threads")[0] == 2  # the program's and ours
    assert driven.marks() == [
        ("step", "step"),
        ("step", "step"),
        ("marker", "saved"),
        ("step", "step"),
    ]
    steps = driven.rows("SELECT rule FROM steps")
    assert [row["rule"] for row in steps] == ["mark"] * 3
    assert open_run(driven.recording).info.state == "finished"


def test_commands_read_it_like_any_recording(drive: Drive) -> None:
    driven = well(
        drive("state run", "push net forward", "pop", "step", "push net forward", "pop", "step")
    )
    table = layerscope("table", "--json", "driver", "spans", cwd=driven.folder)
    assert table.returncode == 0, table.stderr
    assert table.stdout.count('"forward"') == 2


def test_without_run_there_is_no_thread_no_file_and_nothing_recorded(drive: Drive) -> None:
    idle = drive(
        "threads",
        "push a b",
        "counter a b 1",
        "pop",
        "marker a b 1",
        "step",
        "begin a b 0",
        "threads",
        "end 0",
    )
    before, after = idle.stdout.splitlines()
    assert before == after
    assert before.startswith("1 threads")
    assert list(idle.folder.iterdir()) == []


def test_no_descriptor_is_kept_while_it_records(drive: Drive) -> None:
    driven = drive("threads", "state run", "push a b", "pop", "dump 0", "threads")
    assert [line.split(", ")[1] for line in driven.stdout.splitlines()] == [
        driven.stdout.split(", ")[1].split("\n")[0]
    ] * 2
    assert driven.tree() == [("b", None)]


def test_nothing_is_recorded_between_pause_and_resume(drive: Drive) -> None:
    driven = well(
        drive(
            "push - early", "state run", "push - before", "pop", "pause", "push - between", "counter - c 1", "pop",
            "step", "pause", "resume", "resume", "push - after", "pop", "state stop", "push - late", "pop", "pop",
        )
    )  # fmt: skip
    assert driven.tree() == [("before", None), ("after", None)]
    assert driven.marks() == [
        ("paused", "profiler"),
        ("resumed", "profiler"),
        ("paused", "profiler"),
    ]
    assert driven.counted("c") == []


def test_a_pop_ends_the_push_that_it_belongs_to_whatever_was_recorded(drive: Drive) -> None:
    driven = drive(
        "push - unseen", "state run", "push - seen", "pop", "pop", "pop", "push - last", "pop"
    )
    assert driven.stdout == "pop: layerscope_pop without a layerscope_push on this thread\n"
    assert driven.tree() == [("seen", None), ("last", None)]


def test_threads_have_their_own_ranges_and_may_end_each_others(drive: Drive) -> None:
    driven = well(
        drive(
            "state run", "push - main", "@1 push - first", "@2 push - second", "begin - carried 3", "@1 pop", "@2 pop",
            "@2 end 3", "pop", "@1 leave", "@3 push - sixth", "@3 pop", "end 3", "push - free", "pop",
        )
    )  # fmt: skip
    spans = {span["name"]: span for span in driven.spans()}
    assert spans["carried"]["tid"] == spans["main"]["tid"] == driven.pid
    assert spans["carried"]["parent_name"] == "main"
    assert len({spans[name]["tid"] for name in ("main", "first", "second")}) == 3
    assert spans["free"]["parent_name"] is None
    assert len(spans) == 6


def test_every_text_is_taken(drive: Drive) -> None:
    long = "é" * 1000
    driven = drive(
        "state run", f"push {long} x{long}", "pop", "push - a\nb", "pop", "push - \udcff", "pop"
    )
    assert (driven.status, driven.stdout, driven.stderr) == (0, "", "")
    spans = driven.spans()
    assert [span["name"] for span in spans] == ["x" + "é" * 349, "a b", "\N{REPLACEMENT CHARACTER}"]
    assert spans[0]["domain"] == "é" * 150


def test_deep_pushes_are_popped_to_the_end(drive: Drive) -> None:
    deep = 600
    driven = drive("state run", *["push - deep"] * deep, *["pop"] * deep, "push - flat", "pop")
    assert (driven.status, driven.stdout) == (0, "")
    names = [name for name, parent in driven.tree() if parent is None]
    assert names == ["deep", "flat"]
    assert len(driven.tree()) == 512 + 1


@pytest.mark.parametrize("ends", ["exit 0", "dump 1"])
def test_a_recording_goes_on_after_it_was_complete(drive: Drive, ends: str) -> None:
    driven = well(
        drive(
            "state run", "begin - outlasts 1", "push - first", "pop", "dump 1", "dump 1", "end 1", "push - unseen",
            "pop", "state run", "push - second", "pop", "dump 0", "push - third", "pop", ends,
        )
    )  # fmt: skip
    assert driven.tree() == [
        ("outlasts", None),
        ("first", "outlasts"),
        ("second", None),
        ("third", None),
    ]
    assert not any(span["unfinished"] for span in driven.spans())
    assert open_run(driven.recording).info.state == "finished"


def test_what_is_open_at_the_end_is_unfinished(drive: Drive) -> None:
    driven = well(
        drive("state run", "push - outer", "push - inner", "@1 push - of a thread", "exit 0")
    )
    assert {(span["name"], span["unfinished"]) for span in driven.spans()} == {
        ("outer", True), ("inner", True), ("of", True),
    }  # fmt: skip


def test_a_killed_program_leaves_all_but_the_last_poll(drive: Drive) -> None:
    driven = drive("state run", "push - long", "many - short 1000", "sleep 700", "kill")
    assert driven.status == -signal.SIGKILL
    assert [span["unfinished"] for span in driven.spans() if span["name"] == "long"] == [True]
    assert driven.tree().count(("short", "long")) == 1000
    assert driven.problems() == ["not_finished"]
    assert open_run(driven.recording).info.state == "killed"


@pytest.mark.parametrize("complete", [False, True])
def test_a_program_whose_first_thread_ends_first_ends_with_its_last(
    drive: Drive, complete: bool
) -> None:
    begun = ["state run", "push - early", "pop"]
    driven = drive(*begun, *(["dump 1"] if complete else []), "outlive 300")
    assert (driven.status, driven.stdout, driven.stderr) == (0, "said at the end", "")
    assert driven.tree() == [("early", None)] + ([] if complete else [("late", None)])
    assert driven.problems() == []
    assert open_run(driven.recording).info.state == "finished"


def test_numbers_have_a_point_whatever_the_language(drive: Drive, tmp_path: Path) -> None:
    (tmp_path / "languages").mkdir()
    variables = german(tmp_path / "languages")
    driven = well(
        drive("language", "config max_size=2.5GB dump_period=0.5", "state run", env=variables)
    )
    assert json.loads((driven.recording / "run.json").read_text())["host"]["cpu"]["granted"] > 0


def test_a_recording_is_read_while_the_program_runs(driver: Path, tmp_path: Path) -> None:
    commands = ["state run", "push - done", "pop", "push - goes", "sleep 1000", "sleep 60000"]
    process = subprocess.Popen([str(driver), *commands], cwd=tmp_path)
    try:
        give_up = time.monotonic() + TIMEOUT_S
        driven = Driven(tmp_path, process.pid, 0, "", "")
        names: list[str] = []
        while "goes" not in names and time.monotonic() < give_up:
            time.sleep(0.2)
            if list(driven.recording.glob("raw/*/spool")):
                names = [name for name, _ in driven.tree()]
        assert names == ["done", "goes"]
        assert open_run(driven.recording).info.state == "running"
    finally:
        process.kill()
        process.wait()


def test_a_child_has_a_file_of_its_own_and_leaves_its_parents_ranges_alone(drive: Drive) -> None:
    driven = drive(
        "state run", "begin - outer 0", "push - pushed", "fork", "end 0", "pop", "push - of the child", "pop",
        "counter - c 5", "parent", "pop", "end 0", "push - last", "pop",
    )  # fmt: skip
    child = int(driven.stdout.split()[1])
    assert (driven.status, driven.stderr) == (0, "")
    assert driven.tree() == [("outer", None), ("pushed", "outer"), ("last", None)]
    assert driven.tree(child) == [("of", None)]
    assert driven.problems() == []
    assert driven.rows(f"SELECT ppid FROM processes WHERE pid = {child}") == [{"ppid": driven.pid}]
    assert len(list(driven.recording.glob("raw/*/spool"))) == 2


def test_a_child_outlives_its_parents_recording(drive: Drive) -> None:
    driven = drive(
        "state run",
        "push - parents",
        "pop",
        "dump 1",
        "fork",
        "state run",
        "push - childs",
        "pop",
        "parent",
    )
    child = int(driven.stdout.split()[1])
    assert driven.tree() == [("parents", None)]
    assert driven.tree(child) == [("childs", None)]


def test_the_name_is_that_of_the_file_or_of_the_program_and_the_first_that_is_free(
    drive: Drive,
) -> None:
    assert drive("say", "state run", "say").stdout.splitlines()[1].endswith("/driver.layerscope")
    assert drive("state run", "say").stdout.endswith("/driver-2.layerscope\n")
    named = drive(
        "config filename=out/deep/run.1.json",
        "state run",
        "say",
        "chdir /",
        "push - a",
        "pop",
        "dump 1",
    )
    assert named.stdout == f"{named.folder}/out/deep/run.1.layerscope\n"
    named.name = "out/deep/run.1"
    assert named.tree() == [("a", None)]


def test_what_cannot_be_is_said_and_changes_nothing(drive: Drive, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = drive(
        "config unknown=1", "config profile_all=maybe", "config max_size=1kB", "config max_size=2.5GB",
        "config dump_period=0", "config profile_process=driver", "config filename=", "state walk", "state -", "dump 1",
        "config filename=file/in.json", "state run", "push a b", "pop",
    ).stdout.splitlines()  # fmt: skip
    assert [line.split(":")[0] for line in said] == [
        "config", "config", "config", "config", "config", "config", "state", "state", "dump", "state",
    ]  # fmt: skip
    assert "'unknown'" in said[0]
    assert "Not a directory" in said[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_every_key_of_the_python_module_is_known(drive: Drive) -> None:
    from layerscope.profiler import DEFAULTS

    pairs = [f"{key}={value}" for key, value in DEFAULTS.items()]
    done = drive(*(f"config {' '.join(pairs[at : at + 6])}" for at in range(0, len(pairs), 6)))
    assert (done.status, done.stdout) == (0, "")


def test_secrets_are_masked_and_only_some_variables_kept(drive: Drive) -> None:
    words = [
        "state run",
        "--password",
        "hunter2",
        "--api-key=abc",
        "x=https://me:secret@host/ http://a:b@c",
        "exit 0",
    ]
    variables = {
        "OMP_NUM_THREADS": "2",
        "TORCH_TOKEN": "x",
        "HOME_OF": "y",
        "MKL_NOTE": 'a"\\\n\udcff',
    }
    driven = drive(*words, env=variables)
    info = json.loads((driven.recording / "run.json").read_text())
    assert info["command"][1:] == mask(words)
    wanted = kept_environment({**os.environ, **variables})
    assert info["environment"] == {**wanted, "MKL_NOTE": 'a"\\\n\N{REPLACEMENT CHARACTER}'}


def of_at_most(limit_bytes: int) -> Callable[[], None]:
    """A limit for files of the program."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))


def test_where_files_are_smaller_than_a_ring_nothing_is_recorded_and_nothing_happens(
    drive: Drive,
) -> None:
    driven = drive("state run", "push - a", "pop", preexec_fn=of_at_most(256 << 10))
    assert (driven.status, driven.stderr) == (0, "")


@pytest.mark.slow
def test_where_files_are_small_there_are_several(drive: Drive) -> None:
    driven = well(
        drive("state run", *["many - busy 40000", "sleep 300"] * 5, preexec_fn=of_at_most(4 << 20))
    )
    assert driven.rows("SELECT sum(count)::BIGINT AS count FROM totals") == [{"count": 200_000}]
    assert len(list(driven.recording.glob("raw/*/spool-0000?"))) >= 1


@pytest.mark.slow
def test_on_a_full_disk_everything_is_there_or_counted(drive: Drive, tmp_path: Path) -> None:
    with mounted("tmpfs", "size=2m", tmp_path / "disk"):
        filled = "config filename=disk/full.json"
        driven = drive(
            filled, "state run", *["many - busy 40000", "sleep 300"] * 5, "many - late 1000"
        )
        assert (driven.status, driven.stderr) == (0, "")
        copied = tmp_path / "full.layerscope"
        shutil.copytree(tmp_path / "disk" / "full.layerscope", copied)
    driven.name = "full"
    (row,) = driven.rows("SELECT sum(count)::BIGINT AS count FROM totals")
    assert 0 < row["count"] < 201_000
    assert row["count"] + driven.lost() == 201_000
    assert {gap["reason"] for gap in driven.rows("SELECT DISTINCT reason FROM gaps")} == {
        "disk_full"
    }


def test_a_recording_that_is_removed_meanwhile_is_said_and_harms_nothing(
    driver: Path, tmp_path: Path
) -> None:
    commands = ["state run", "push - a", "pop", "say", "sleep 1500", "push - b", "pop", "dump 1"]
    process = subprocess.Popen(
        [str(driver), *commands], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, process.stdout as said:
        recording = Path(said.readline().strip())
        while recording.exists():  # a file may come while its folder goes
            shutil.rmtree(recording, ignore_errors=True)
        assert said.readline().startswith("dump: the recording ")
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_millions_from_many_threads_are_there_or_counted(drive: Drive) -> None:
    driven = drive("state run", "* many net busy 400000", "dump 1")
    (row,) = driven.rows("SELECT sum(count)::BIGINT AS count FROM totals WHERE name = 'busy'")
    assert row["count"] + driven.lost() == 4 * 400_000
    assert row["count"] > 0
    assert driven.problems() == []


@pytest.mark.slow
def test_a_recording_keeps_within_its_size_and_its_sums_stay_exact(drive: Drive) -> None:
    driven = drive("config max_size=4MB", "state run", *["many - busy 50000", "sleep 250"] * 10)
    (row,) = driven.rows("SELECT sum(count)::BIGINT AS count FROM totals WHERE name = 'busy'")
    gaps = {
        gap["reason"]: gap["lost"]
        for gap in driven.rows("SELECT reason, sum(lost)::BIGINT AS lost FROM gaps GROUP BY 1")
    }
    assert row["count"] + gaps.get("ring_full", 0) == 500_000
    assert gaps["max_size"] > 0
    raw_bytes = sum(file.stat().st_size for file in driven.recording.glob("raw/*/spool*"))
    assert raw_bytes < 4_000_000 + 2 * 50_000 * 32  # the last look, and what came before the next
