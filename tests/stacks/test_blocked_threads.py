"""Stacks of waiting threads, read from outside: SP and PC are all that /proc tells; gdb stops them
and knows all.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.building import build
from tests.stacks.oracles import HERE, STRICT, UNWINDER, held

SCRIPT = """
import gdb
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
for thread in gdb.selected_inferior().threads():
    thread.switch()
    print("thread", thread.ptid[1])
    frame = gdb.newest_frame()
    while frame is not None:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            print(hex(frame.pc()))
        frame = frame.older()
"""


def by_thread(text: str, more: int) -> dict[int, list[int]]:
    """The return addresses of each thread; `more` is added to all but the first."""
    found: dict[int, list[int]] = {}
    frames: list[int] = []
    for line in text.splitlines():
        if header := re.match(r"thread (\d+)", line):
            frames = found.setdefault(int(header[1]), [])
        elif re.fullmatch(r"(0x)?[0-9a-f]+", line):
            frames.append(int(line, 16) + (more if frames else 0))
    return found


def gdb_says(pid: int, folder: Path) -> dict[int, list[int]]:
    """What gdb finds; the test is skipped where it cannot be asked."""
    gdb = shutil.which("gdb")
    if gdb is None:
        pytest.skip("there is no gdb")
    script = folder / "frames.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [gdb, "-batch", "-nx", "-p", str(pid), "-x", str(script)],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if "thread" not in done.stdout:
        pytest.skip(f"gdb cannot be asked here: {done.stderr.strip()[-300:]}")
    return by_thread(done.stdout, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", ["-O0", "-O2", "-O3 -fomit-frame-pointer", "-O2 -fno-omit-frame-pointer"]
)
def test_as_gdb_says(tmp_path: Path, flags: str) -> None:
    """sem_wait, a mutex, sleep, poll and read, below frames that end where the unknown rbp says."""
    blocked = build(tmp_path / "blocked", [HERE / "blocked.c", *UNWINDER], *STRICT)
    waiting = build(tmp_path / "waiting", [HERE / "waiting.c"], *flags.split())
    with held([str(waiting)]) as pid:
        done = subprocess.run(
            [str(blocked), str(pid)], capture_output=True, text=True, timeout=60, check=True
        )
        theirs = gdb_says(pid, tmp_path)
    assert len(theirs) == 5
    assert by_thread(done.stdout, 1) == theirs
    assert all(int(how) & 1 for how in re.findall(r"how (\d+)", done.stdout))
