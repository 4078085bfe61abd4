"""The journal: a race that was interrupted anywhere goes on as if it had not been."""

from __future__ import annotations

import json
import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec.structs import replace

from layerscope.model.errors import ReadError, RunError
from layerscope.tune.journal import Journal
from layerscope.tune.measurement import FAILED, Measurement
from layerscope.tune.race import Outcome
from layerscope.tune.setting import DEFAULT
from tests.tune.simulated import QUESTION, Simulated, journal, settings

STAGES = [settings("good", "bad", "like"), settings("more", "less")]


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


def simulated(seed: int) -> Simulated:
    def change(measurement: Measurement) -> Measurement:
        is_it = "less" in measurement.setting
        return (
            replace(measurement, fault=FAILED, why="it ended with status 1")
            if is_it
            else measurement
        )

    return Simulated({"good": 0.6, "bad": 1.5}, cv=0.2, seed=seed, overhead_s=0.3, change=change)


def raced(path: Path, seed: int, runs: int | None = None) -> Outcome | None:
    """The outcome with this journal; None where it was interrupted after so many new runs."""
    program = simulated(seed)
    # Another day, another clock.
    program.now_s = 1000.0 * seed

    def run(setting, number):  # type: ignore[no-untyped-def]
        if runs is not None and len(program.runs) >= runs:
            raise Interrupted
        return program.run(setting, number)

    from layerscope.tune.race import race
    from tests.tune.simulated import WALL

    kept = journal(path)
    try:
        return race(STAGES, run, WALL, 300.0, clock=program.clock, seed=seed, journal=kept)
    except Interrupted:
        return None
    finally:
        kept.close()


@pytest.mark.slow
@given(
    st.integers(0, 50),
    st.lists(st.integers(0, 25), max_size=4),
    st.lists(st.integers(0, 5000), max_size=4),
)
@hypothesis_settings(max_examples=40)
def test_a_race_that_is_interrupted_and_resumed_ends_as_one_that_was_not(
    seed: int, interruptions: list[int], torn: list[int]
) -> None:
    expected = simulated(seed).race(STAGES, minutes=5, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        outcome = None
        for number, runs in enumerate(interruptions):
            outcome = raced(path, seed, runs)
            if number < len(torn):
                # The last words were not written any more.
                content = path.read_bytes()
                path.write_bytes(content[: max(0, len(content) - torn[number])])
        assert (outcome if outcome is not None and not torn else raced(path, seed)) == expected
        assert raced(path, seed, runs=0) == expected  # nothing is left to run


def test_every_measurement_is_on_disk_as_soon_as_it_is_made(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    kept = journal(path)
    kept.add(Measurement(DEFAULT.name, 1, 1.25, 2.5, 1 << 20, metric=0.1, why="üñí \ud800 \n"), 1.5)
    lines = path.read_bytes().splitlines()
    assert json.loads(lines[0])["question"]["program"] == ["python", "train.py"]
    assert json.loads(lines[1])["took_s"] == 1.5
    kept.close()
    again = journal(path)
    assert again.kept == 1
    found = again.next(DEFAULT, 1)
    assert found == (
        Measurement(DEFAULT.name, 1, 1.25, 2.5, 1 << 20, metric=0.1, why="üñí \ud800 \n"),
        1.5,
    )
    assert again.next(DEFAULT, 2) is None
    again.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("program", ("python", "other.py")), ("seed", 2), ("options", {"objective": "p50"}), ("machine", "another"),
        ("files", {"/x/train.py": "0123"}), ("environment", {"MKL_NUM_THREADS": "1"}), ("commands", ("env A=1 x",)),
    ],
)  # fmt: skip
def test_a_journal_of_another_question_is_refused(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "journal"
    journal(path).close()
    before = path.read_bytes()
    with pytest.raises(
        ReadError, match=f"another question: its {name} is .*remove it to start again"
    ):
        journal(path, replace(QUESTION, **{name: value}))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b"hello\n", b"{}\n", b"[1]\n", b"\x00\xff\n", b'{"question": 3}\n', b"[" * 100_000 + b"\n"],
)
def test_what_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ReadError, match="no journal"):
        journal(path)
    assert path.read_bytes() == content


def test_a_damaged_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal(path).close()
    path.write_bytes(path.read_bytes() + b'{"measurement": {"setting": "x"}, "took_s": 1}\n')
    with pytest.raises(ReadError, match="damaged"):
        journal(path)


def test_a_measurement_that_is_not_due_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    kept = journal(path)
    kept.add(Measurement("good", 1, 1.0, 1.0, 1), 1.0)
    kept.close()
    again = journal(path)
    with pytest.raises(ReadError, match="'good' in round 1 where 'default' is due in round 1"):
        again.next(DEFAULT, 1)
    again.close()


def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="it is no file; name another one"):
        Journal(tmp_path, QUESTION)
    with pytest.raises(RunError, match="it is no file"):
        Journal(Path("/dev/zero"), QUESTION)
    with pytest.raises(RunError, match="No such file or directory; name another one"):
        Journal(tmp_path / "missing" / "journal", QUESTION)


def test_a_full_disk_is_one_sentence_and_what_was_whole_is_kept(tmp_path: Path) -> None:
    kept = journal(tmp_path / "journal")
    kept.add(Measurement("default", 1, 1.0, 1.0, 1), 1.0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, ((tmp_path / "journal").stat().st_size + 20, limits[1])
    )
    try:
        with pytest.raises(RunError, match="journal cannot be written: File too large"):
            kept.add(Measurement("good", 1, 1.0, 1.0, 1), 1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    kept.close()
    again = journal(tmp_path / "journal")
    assert again.kept == 1
    again.close()
