"""The library under sanitizers: as one program with the driver, so that every access is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.building import NATIVE, build_with_agent, sanitized
from tests.native_interface.driven import alone

OURS = [*sorted((NATIVE / "interface").glob("*.c")), *sorted((NATIVE / "chunks").glob("*.c"))]
SOURCES = [Path(__file__).with_name("driver.c"), *OURS]
BUSY = (
    "threads", "config filename=busy.json max_size=4MB", "state run", "push net outer", "* many net busy 20000",
    "@1 push - a", "@2 push - b", "begin - carried 1", "@1 end 1", "@1 pop", "@2 leave", "@3 push_at_end", "@3 leave",
    "sleep 300", "counter net c 5",
    "marker - m 1", "step", "pause", "* many net unseen 100", "resume", "* many net busy 20000", "dump 0",
)  # fmt: skip
# A thread of ours in a forked child is more than the sanitizer of threads can follow.
FORK = ("fork", "push - child", "* many net busy 2000", "pop", "dump 1", "parent")
END = ("pop", "pop", "dump 1", "state run", "push - last", "exit 0")


def built(folder: Path, sanitizer: str) -> Path:
    """The driver under a sanitizer."""
    flags = ("-I", str(NATIVE / "include"), *sanitized(folder, sanitizer))
    return build_with_agent(folder / "driver", SOURCES, *flags)


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_nothing_is_wrong_with_memory_or_order(tmp_path: Path, sanitizer: str) -> None:
    program = built(tmp_path, sanitizer)
    options = {
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1",
        "TSAN_OPTIONS": "halt_on_error=1",
    }
    fork = FORK if sanitizer != "thread" else ()
    driven = alone(program, tmp_path, *BUSY, *fork, *END, env=options)
    driven.name = "busy"
    assert (driven.status, driven.stderr) == (0, "")
    (row,) = driven.rows("SELECT sum(count)::BIGINT AS count FROM totals WHERE name = 'busy'")
    assert row["count"] + driven.lost() >= 8 * 20_000
    assert {"outer", "a", "carried", *(["child"] if fork else [])} <= {
        row["name"] for row in driven.rows("SELECT name FROM totals")
    }
