"""Each of our own processes is killed at a random moment, one or two a run: what is missing is
counted or said.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.session.test_faults import (
    PATIENCE_S,
    Busy,
    check_parents,
    children,
    command_line,
    expected,
    made_and_lost,
)
from tests.session.test_faults import busy as busy  # the fixture

pytestmark = pytest.mark.stress

NAMES = {
    "drainer": b"layerscope.capture.drainer",
    "converter": b"_convert",
    "sampler": b"layerscope-sampler",
}


def ours(busy: Busy, who: str) -> int | None:
    """The pid of one of our processes; None where it is not there now."""
    if who == "session":
        return busy.process.pid
    program = busy.program()
    for pid in children(busy.process.pid):
        line = command_line(pid)
        if (
            who in NAMES
            and NAMES[who] in line
            and (who == "sampler" or b"layerscope-sampler" not in line)
        ):
            return pid
        if who == "witness" and pid != program and line == command_line(busy.process.pid):
            return pid
    return None


def kills(seed: int) -> Iterator[tuple[str, float]]:
    """Who is killed, and after how many seconds."""
    chance = random.Random(seed)
    everybody = ["drainer", "converter", "sampler", "witness", "session"]
    for _ in range(chance.choice((1, 1, 2, 4))):
        who = everybody[seed % 5] if chance.random() < 0.7 else chance.choice(everybody)
        yield who, chance.uniform(0.05, 1.2)
        if who == "session":
            return


@pytest.mark.parametrize("seed", range(30))
def test_what_a_kill_costs_is_said(seed: int, busy: Busy) -> None:
    killed = []
    for who, after_s in kills(seed):
        time.sleep(after_s)
        if pid := ours(busy, who):
            beside = [child for child in children(busy.process.pid) if child != busy.program()]
            os.kill(pid, signal.SIGKILL)
            killed.append(who)
    time.sleep(0.5)
    if "session" in killed:
        busy.process.wait()
        assert busy.process.stdin
        assert busy.process.stdout
        busy.process.stdin.write(b"\n")
        busy.process.stdin.flush()
        made = int(busy.process.stdout.read())
        end = time.monotonic() + PATIENCE_S
        while any(Path(f"/proc/{pid}").exists() for pid in beside) and time.monotonic() < end:
            time.sleep(0.05)
    else:
        made = busy.end()

    busy.operators()  # converts what no converter did
    recorded = busy.recorded()
    kept, lost = made_and_lost(recorded)
    print(
        f"seed {seed}: {killed}, {kept} kept, {lost} lost of {expected(made)}, {[*recorded.problems()]}"
    )
    if set(killed) == {"session", "drainer"} and killed[-1] == "session":
        assert "session_killed" in recorded.problems()
    else:
        assert kept + lost == expected(made), killed
    if not set(killed) <= {"converter", "witness"}:
        assert recorded.problems(), killed
    check_parents(recorded)
