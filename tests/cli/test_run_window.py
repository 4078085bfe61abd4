"""The options of `run` that say which window is recorded."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from layerscope.cli import _window as window_options
from layerscope.model.errors import UsageError
from layerscope.rawfile import layout
from layerscope.rawfile.windows import RequestedWindow, WindowControl, state_at
from tests.recorded import layerscope


def window(*words: str) -> RequestedWindow | None:
    """What these options ask for."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    window_options.configure(parser)
    return window_options.window_of(parser.parse_args(words))


@pytest.mark.parametrize(
    ("words", "expected", "says"),
    [
        (("--steps", "5:9"), RequestedWindow(first=5, last=9), "steps 5 to 8"),
        (("--steps", ":1"), RequestedWindow(first=0, last=1), "step 0"),
        (("--steps", "5:"), RequestedWindow(first=5), "from step 5 on"),
        (("--steps", "5:", "--for", "2.5"), RequestedWindow(first=5, for_s=2.5), "from step 5 on, for 2.5 s"),
        (("--steps", "5:9", "--every", "50"), RequestedWindow(first=5, last=9, every=50), "steps 5 to 8, and so every 50 steps"),
        (("--after", "3"), RequestedWindow(after_s=3.0), "from 3 s on"),
        (("--for", "3"), RequestedWindow(for_s=3.0), "from the start, for 3 s"),
        (("--for", "1", "--every", "60"), RequestedWindow(for_s=1.0, every=60.0), "from the start, for 1 s, and so every 60 s"),
    ],
)  # fmt: skip
def test_a_window_is_read_and_said_in_words(
    words: tuple[str, ...], expected: RequestedWindow, says: str
) -> None:
    found = window(*words)

    assert found == expected
    assert found is not None
    assert found.says() == says


def test_without_options_everything_is_recorded() -> None:
    assert window() is None


@pytest.mark.parametrize(
    "words",
    [
        ("--steps", "5"), ("--steps", ":"), ("--steps", "a:b"), ("--steps=-1:4",), ("--steps", "1.5:4"),
        ("--steps", ""),
        ("--steps", "9:5"), ("--steps", "5:5"), ("--steps", "0:99999999999"), ("--steps", "٣:٤"),
        ("--steps", "1:2", "--after", "3"), ("--steps", "1:2", "--for", "3"), ("--steps", "1:", "--every", "5"),
        ("--steps", "1:5", "--every", "4"), ("--steps", "1:5", "--every", "0"), ("--steps", "1:5", "--every", "1.5"),
        ("--steps", "1:5", "--every", "x"), ("--every", "5"), ("--after", "1", "--every", "5"),
        ("--for", "5", "--every", "5"), ("--for", "0"), ("--for=-1",), ("--after=-1",), ("--after", "soon"),
        ("--for", "inf"), ("--for", "nan"), ("--after", "1e400"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refused:
        window(*words)

    assert "\n" not in str(refused.value)
    assert "--" in str(refused.value)


def test_a_wrong_window_starts_nothing(tmp_path: Path) -> None:
    done = layerscope("run", "--steps", "9:5", "touch", "started", cwd=tmp_path)

    assert done.returncode not in (0, None)
    assert done.stderr.startswith("layerscope: --steps 9:5 holds no step")
    assert list(tmp_path.iterdir()) == []


def test_the_recording_says_its_window(tmp_path: Path) -> None:
    done = layerscope("run", "-o", "recording", "--steps", "3:5", "true", cwd=tmp_path)

    assert done.returncode == 0
    folder = tmp_path / "recording.layerscope"
    assert json.loads((folder / "run.json").read_text())["window"] == "steps 3 to 4"
    assert "Only a window was recorded: steps 3 to 4." in (folder / "summary.txt").read_text()


def test_time_opens_and_closes() -> None:
    assert [state_at(RequestedWindow(after_s=1, for_s=2), spent_s) for spent_s in (0, 0.9, 1, 2.9, 3, 100)] == [
        layout.CAPTURE_CLOSED, layout.CAPTURE_CLOSED, layout.CAPTURE_OPEN, layout.CAPTURE_OPEN, layout.CAPTURE_OVER, layout.CAPTURE_OVER,
    ]  # fmt: skip
    assert [state_at(RequestedWindow(for_s=1, every=10), spent_s) for spent_s in (0, 1, 10, 10.9, 11)] == [
        layout.CAPTURE_OPEN, layout.CAPTURE_CLOSED, layout.CAPTURE_OPEN, layout.CAPTURE_OPEN, layout.CAPTURE_CLOSED,
    ]  # fmt: skip
    assert state_at(RequestedWindow(after_s=1), 1e9) == layout.CAPTURE_OPEN


def test_a_damaged_file_of_options_means_no_window(tmp_path: Path) -> None:
    for text in ("", "[]", '{"window": 3}', '{"window": {"first": 1, "unknown": 2}}'):
        (tmp_path / "options.json").write_text(text)
        steering = WindowControl(tmp_path)

        assert steering.window is None
        steering.advance([])


class Page:
    """Where a process is told whether its window is open."""

    def __init__(self) -> None:
        self.said = {"window": layout.CAPTURE_NOTHING}

    def number(self, name: str) -> int:
        return self.said[name]

    def set(self, name: str, value: int) -> None:
        self.said[name] = value


class Told:
    """A process of the program."""

    def __init__(self) -> None:
        self.pid = 1
        self.page: Any = Page()

    def hears(self, control: WindowControl) -> int:
        control.advance([self])
        return int(self.page.number("window"))


def test_a_budget_is_open_until_the_session_says_otherwise_and_after_its_death(
    tmp_path: Path,
) -> None:
    (tmp_path / "options.json").write_text('{"window": {"budget": 0.05}}')
    control, process = WindowControl(tmp_path), Told()
    assert process.hears(control) == layout.CAPTURE_OPEN
    control.until_ns = 0
    assert process.hears(control) == layout.CAPTURE_CLOSED
    control.forget_session()
    assert process.hears(control) == layout.CAPTURE_OPEN


def test_what_was_paused_by_hand_stays_so_without_a_session(tmp_path: Path) -> None:
    (tmp_path / "options.json").write_text('{"window": {"steered": true}}')
    control, process = WindowControl(tmp_path), Told()
    control.forget_session()
    assert process.hears(control) == layout.CAPTURE_CLOSED
