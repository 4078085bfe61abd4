"""What the drainer says about a process: its rank, the clock of its host, and the names of its
threads.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from layerscope.capture import drainer as drainer_module
from layerscope.capture.drainer import Drainer
from layerscope.host.clock import monotonic_clock
from layerscope.rawfile import raw_file
from tests.capture.shared_memory import Page, Ring, Session

PR_SET_NAME = 15


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session()
    yield made
    made.close()


def told(raw: Path, kind: int = raw_file.PROCESS) -> list[dict[str, Any]]:
    """What the chunks of a kind say, in order."""
    (file,) = raw.glob("*/spool")
    return [json.loads(chunk.payload) for chunk in raw_file.SpoolReader(file).chunks(only=(kind,))]


def ranks(raw: Path) -> list[tuple[int | None, int | None]]:
    return [(about.get("rank"), about.get("world_size")) for about in told(raw)]


def test_the_rank_of_a_process_is_told_at_once(tmp_path: Path, session: Session) -> None:
    session.give_all(Page(rank=3, world_size=8), Ring())
    session.run_to_the_end(Drainer(session.theirs, tmp_path))

    assert ranks(tmp_path)[-1] == (3, 8)
    assert ranks(tmp_path).count((3, 8)) == 1


@pytest.mark.parametrize(("rank", "world_size"), [(-1, -1), (0, 0), (3, -1), (-1, 8)])
def test_a_rank_without_a_world_is_none(
    tmp_path: Path, session: Session, rank: int, world_size: int
) -> None:
    session.give_all(Page(rank=rank, world_size=world_size), Ring())
    session.run_to_the_end(Drainer(session.theirs, tmp_path))

    assert set(ranks(tmp_path)) == {(None, None)}


def test_a_rank_that_is_known_only_later_is_told_at_the_end(
    tmp_path: Path, session: Session
) -> None:
    page = Page(rank=-1, world_size=-1)
    session.give_all(page, Ring())
    drainer = Drainer(session.theirs, tmp_path)
    drainer._receive()
    page.fields["rank"], page.fields["world_size"] = 1, 2
    session.run_to_the_end(drainer)

    assert ranks(tmp_path)[0] == (None, None)
    assert ranks(tmp_path)[-1] == (1, 2)


def test_every_process_says_which_clock_its_times_are_on(tmp_path: Path, session: Session) -> None:
    session.give_all(Page())
    session.run_to_the_end(Drainer(session.theirs, tmp_path))

    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert {about["monotonic_clock"] for about in told(tmp_path)} == {monotonic_clock()}
    assert monotonic_clock().startswith(boot)


def test_a_thread_that_is_named_late_has_its_name(tmp_path: Path, session: Session) -> None:
    """The process of the ring is this one, and so is its thread."""
    before = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    session.give_all(Page(), Ring())
    drainer = Drainer(session.theirs, tmp_path)
    drainer._receive()
    (process,) = drainer.processes.values()
    libc = ctypes.CDLL(None)
    try:
        found = [drainer._thread_names(process)]
        libc.prctl(PR_SET_NAME, b"pt_data_worker", 0, 0, 0)
        found += [drainer._thread_names(process) for _ in range(drainer_module.LOOKS_AT_A_NAME)]
    finally:
        libc.prctl(PR_SET_NAME, before.encode(), 0, 0, 0)

    assert found == [{os.getpid(): before}, {os.getpid(): "pt_data_worker"}, {}, {}]
