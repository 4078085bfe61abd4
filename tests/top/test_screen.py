"""`layerscope top` in a terminal: what is on the screen, and what keys do to it."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import pytest

from tests.top.conftest import Running
from tests.top.terminal import Screen, Terminal

TABLE_HEADINGS = {
    "f": "function (file)",
    "o": "No operators yet",
    "p": "No primitives yet",
    "s": "function (object)",
    "t": "ready     wait     idle",
    "w": "waits for, in function",
}


def has_rows(screen: Screen) -> bool:
    """Whether a whole screen with functions is there: its last line is drawn last."""
    is_whole = not screen.is_alternate or "? keys" in screen.lines[-1]
    return is_whole and "square" in screen.text and "last" in screen.text


def test_the_first_screen_says_what_the_program_does(program: Running) -> None:
    with Terminal("top", cwd=program.folder) as terminal:
        screen = terminal.wait_for(has_rows)

        assert screen.is_alternate
        first, second = screen.lines[:2]
        assert "program.py" in first
        assert f"pid {program.pid}" in first
        assert "running" in first
        assert second.startswith("CPU ")
        assert "memory" in second
        assert "function (file)" in screen.text
        # The last line has the keys, whole.
        assert screen.lines[-1].startswith("f functions  o operators")
        assert screen.lines[-1].endswith("? keys")
        assert "…" not in screen.lines[-1]
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.is_restored()


def test_the_heaviest_function_comes_first_with_its_share(program: Running) -> None:
    with Terminal("top", cwd=program.folder) as terminal:
        lines = terminal.wait_for(has_rows).lines
        heading = next(at for at, line in enumerate(lines) if "function (file)" in line)
        terminal.press("q")
        assert terminal.end() == 0

    share, _, _, _, _, *name = lines[heading + 1].replace(" %", "%").split()
    assert "program.py" in " ".join(name)
    assert float(share.rstrip("%")) > 30


def test_keys_choose_the_table(program: Running) -> None:
    with Terminal("top", "looping", cwd=program.folder) as terminal:
        terminal.wait_for(has_rows)
        for key, heading in TABLE_HEADINGS.items():
            terminal.press(key)
            terminal.wait_for_text(heading)
        terminal.press("t")
        terminal.wait_for_text("waiting ")
        terminal.press("w")
        terminal.wait_for_text("sleep  waits")
        terminal.press("?")
        screen = terminal.wait_for_text("count anew from now", "quit")
        assert "…" not in screen.text
        terminal.press("q")
        assert terminal.end() == 0


def test_space_holds_the_screen_and_r_counts_anew(program: Running) -> None:
    with Terminal("top", "--interval", "0.1", cwd=program.folder) as terminal:
        terminal.wait_for(has_rows)
        terminal.press(" ")
        terminal.wait_for_text("Held: space goes on.")
        held = [line for line in terminal.screen.lines if "squares" in line]
        terminal.press("t")
        terminal.wait_for_text("ready     wait")
        terminal.press("f")
        screen = terminal.wait_for(has_rows)
        assert [line for line in screen.lines if "squares" in line] == held
        terminal.press(" ")
        terminal.wait_for(lambda screen: "Held" not in screen.text)
        assert "since start" in terminal.screen.text
        terminal.press("r")
        terminal.wait_for(lambda screen: "since r" in screen.text and has_rows(screen))
        terminal.press("q")
        assert terminal.end() == 0


@pytest.mark.parametrize(("width", "height"), [(60, 12), (40, 8), (132, 50)])
def test_a_resized_window_is_filled_and_nothing_is_wider(
    width: int, height: int, program: Running
) -> None:
    with Terminal("top", cwd=program.folder) as terminal:
        terminal.wait_for(has_rows)
        terminal.resize(width, height)

        screen = terminal.wait_for(lambda screen: has_rows(screen))

        assert len(screen.lines) == height
        assert screen.lines[0].startswith("python")
        assert screen.lines[-1].startswith("f ")
        terminal.press("q")
        assert terminal.end() == 0


def test_ctrl_c_leaves_the_terminal_as_it_was(program: Running) -> None:
    with Terminal("top", cwd=program.folder) as terminal:
        terminal.wait_for(has_rows)
        terminal.press("\x03")

        assert terminal.end() == 0
        assert terminal.is_restored()
        assert "Traceback" not in terminal.screen.text
    assert program.process.poll() is None


def test_ctrl_z_gives_the_terminal_back_until_it_is_continued(program: Running) -> None:
    with Terminal("top", cwd=program.folder) as terminal:
        terminal.wait_for(has_rows)
        terminal.press("\x1a")
        terminal.wait_for(lambda screen: not screen.is_alternate)
        status = Path(f"/proc/{terminal.process.pid}/stat")
        terminal.wait_for(lambda _: status.read_text().rpartition(")")[2].split()[0] == "T")
        assert terminal.is_restored()

        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for(lambda screen: screen.is_alternate and has_rows(screen))
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.is_restored()


def test_ended_from_outside_it_leaves_nothing(bare_program: Running) -> None:
    temporary = temporary_of(bare_program)
    with Terminal(
        "top", str(bare_program.pid), cwd=bare_program.folder, TMPDIR=str(temporary)
    ) as terminal:
        terminal.wait_for(has_rows)
        terminal.process.send_signal(signal.SIGTERM)

        assert terminal.end() == 128 + signal.SIGTERM
        assert terminal.is_restored()
    assert list(temporary.glob("layerscope-top-*")) == []
    assert bare_program.process.poll() is None


def test_a_killed_watcher_takes_what_it_has_started_with_it(bare_program: Running) -> None:
    temporary = temporary_of(bare_program)
    with Terminal(
        "top", str(bare_program.pid), cwd=bare_program.folder, TMPDIR=str(temporary)
    ) as terminal:
        terminal.wait_for(has_rows)
        (folder,) = temporary.glob("layerscope-top-*")
        assert beside(folder)
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait()

    until = time.monotonic() + 30
    while folder.exists() or beside(folder):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert bare_program.process.poll() is None


def temporary_of(running: Running) -> Path:
    """A folder for temporary files of this test alone."""
    folder = running.folder / "temporary"
    folder.mkdir()
    return folder


def beside(folder: Path) -> list[Path]:
    """The processes that were told of this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder) in (process / "cmdline").read_text():
                found.append(process)
    return found


def test_a_killed_watcher_leaves_the_program_alone(program: Running) -> None:
    with Terminal("top", cwd=program.folder) as terminal:
        terminal.wait_for(has_rows)
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait()
    assert program.process.poll() is None


def test_without_colours_there_are_none(program: Running) -> None:
    with Terminal("top", cwd=program.folder, NO_COLOR="1") as terminal:
        terminal.wait_for(has_rows)
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.screen.colours == 0


def test_a_terminal_that_moves_no_cursor_gets_one_screen_after_the_other(program: Running) -> None:
    with Terminal("top", "--for", "1.5", cwd=program.folder, TERM="dumb") as terminal:
        assert terminal.end() == 0
        assert not terminal.screen.is_alternate
        assert has_rows(terminal.screen)


def test_when_the_program_ends_its_last_table_stays(short_program: Running) -> None:
    with Terminal("top", cwd=short_program.folder) as terminal:
        terminal.wait_for(has_rows)
        short_program.end()

        assert terminal.end() == 0
        assert terminal.is_restored()
        text = terminal.screen.text
        assert "The program has ended." in text
        assert "squares" in text
        # A line that is longer than the window goes on in the next one.
        assert "Next: layerscope summary looping.layerscope" in text.replace("\n", "")


def test_a_program_that_nobody_records_is_watched_from_outside(bare_program: Running) -> None:
    temporary = temporary_of(bare_program)
    with Terminal(
        "top", str(bare_program.pid), cwd=bare_program.folder, TMPDIR=str(temporary)
    ) as terminal:
        screen = terminal.wait_for(has_rows)
        assert f"pid {bare_program.pid}" in screen.lines[0]
        assert "while watched" in screen.text
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.is_restored()
    assert bare_program.process.poll() is None
    assert list(temporary.glob("layerscope-top-*")) == []
    assert list(bare_program.folder.glob("*.layerscope")) == []


def test_q_ends_pages_on_a_terminal_that_moves_no_cursor(program: Running) -> None:
    with Terminal("top", cwd=program.folder, TERM="dumb") as terminal:
        terminal.wait_for(has_rows)
        terminal.press("q")
        assert terminal.end() == 0
        assert terminal.is_restored()


def test_a_narrow_window_has_whole_facts(program: Running) -> None:
    with Terminal("top", cwd=program.folder) as terminal:
        terminal.wait_for(has_rows)
        terminal.resize(40, 10)
        screen = terminal.wait_for(has_rows)

        assert all("…" not in line for line in (screen.lines[1], screen.lines[-1]))
        terminal.press("q")
        assert terminal.end() == 0
