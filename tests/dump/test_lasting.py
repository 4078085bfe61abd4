"""How long a wait has lasted at least: `dump` says for how long a thread has not run."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from layerscope.model.running import ProcessNow, Snapshot, ThreadNow, Wait
from layerscope.show.dump_text import lines
from tests.dump.dumped import dump, running

pytestmark = pytest.mark.usefixtures("native_agent")
S = 1_000_000_000


def shown(*rests_ns: int | None) -> str:
    """The line above the stack of threads that wait for the same."""
    threads = [
        ThreadNow(1, 10 + i, f"t{i}", "waiting", (), Wait("lock", "a Lock"), rests_ns=one)
        for i, one in enumerate(rests_ns)
    ]
    snapshot = Snapshot([ProcessNow(1, ("python",), threads)], [])
    return [line for _, line in lines(snapshot)][2]


def test_a_long_wait_is_said_with_its_lower_bound() -> None:
    assert shown(72 * S) == 'Thread 10 "t0" waits for a Lock, for at least 1 min 12 s'
    assert shown(3 * S, 90 * S).endswith("wait for a Lock, for at least 3 s")


def test_a_short_wait_and_one_that_is_not_known_are_said_as_before() -> None:
    assert shown(S - 1) == 'Thread 10 "t0" waits for a Lock'
    assert shown(None) == 'Thread 10 "t0" waits for a Lock'
    assert shown(90 * S, None).endswith("wait for a Lock")


def test_a_thread_that_has_not_run_since_we_looked_rests_longer_each_time(tmp_path: Path) -> None:
    if not Path("/proc/self/sched").exists():
        pytest.skip("this kernel does not tell when a thread ran (CONFIG_SCHED_DEBUG)")
    text = (
        "import threading, time\n"
        "def counts():\n"
        "    while True: pass\n"
        "threading.Thread(target=counts, daemon=True, name='counts').start()\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with running([sys.executable], text) as process:
        first = dump(process.pid, tmp_path).threads
        time.sleep(0.3)
        second = dump(process.pid, tmp_path).threads
    # The scheduler's clock stands still while a virtual machine has no CPU.
    assert second["MainThread"]["rests_ns"] - first["MainThread"]["rests_ns"] > 0.1 * S
    assert second["counts"]["rests_ns"] is None
