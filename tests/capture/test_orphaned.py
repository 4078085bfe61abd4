"""What a drainer does whose session was killed: it takes what is handed over, and does not wait for
anybody.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from layerscope.capture.drainer import Drainer
from layerscope.capture.handing_over import close_door
from layerscope.capture.orphaned import OrphanedDoor, answer
from layerscope.rawfile import layout, raw_file
from layerscope.rawfile.json_files import SESSION
from layerscope.rawfile.page import ProcessPage
from tests.capture.shared_memory import START, Page, Ring, Session

PATIENCE_S = 60


class Listening:
    """A socket of a session, and those who hand memory over there."""

    def __init__(self) -> None:
        self.name = f"\0layerscope-test-{os.getpid()}-{secrets.token_hex(6)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(self.name)
        self.socket.listen(100)

    def connect(self) -> socket.socket:
        """Somebody who has said nothing yet."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(self.name)
        except OSError:
            connection.close()
            raise
        return connection

    def hand_over(self, kind: int, fd: int) -> None:
        """As the agent does it."""
        data = layout.MESSAGE.pack(layout.MESSAGE_MAGIC, kind, os.getpid(), 0, START)
        with self.connect() as connection:
            socket.send_fds(connection, [data], [fd])


@pytest.fixture
def listening() -> Iterator[Listening]:
    made = Listening()
    yield made
    made.socket.close()


def kinds_in(door: OrphanedDoor) -> list[int]:
    """The kinds of memory that come through it now."""
    return [message["type"] for message, _ in door.take()]


def test_one_who_says_nothing_keeps_nobody_waiting(listening: Listening) -> None:
    page, ring = Page(), Ring()
    door = OrphanedDoor(listening.socket, os.getpid())
    with listening.connect() as silent:
        listening.hand_over(layout.SEND_PROCESS, page.fd)
        listening.hand_over(layout.SEND_RING, ring.fd)
        assert kinds_in(door) == [layout.SEND_PROCESS, layout.SEND_RING]
        assert kinds_in(door) == []
        data = layout.MESSAGE.pack(layout.MESSAGE_MAGIC, layout.SEND_NAMES, os.getpid(), 0, START)
        socket.send_fds(silent, [data], [ring.fd])
        assert kinds_in(door) == [layout.SEND_NAMES]
        assert silent.recv(1) == b""
    door.close()


def test_a_question_ends_without_an_answer(listening: Listening) -> None:
    door = OrphanedDoor(listening.socket, os.getpid())
    with listening.connect() as asking:
        asking.send(json.dumps({"what": "where"}).encode())
        assert kinds_in(door) == []
        assert asking.recv(1) == b""
    door.close()


def test_a_closed_door_refuses_whoever_else_holds_it(listening: Listening) -> None:
    with listening.socket.dup():
        listening.connect().close()
        close_door(listening.socket)
        with pytest.raises(ConnectionRefusedError):
            listening.connect()


def test_a_process_that_asks_is_answered_as_others_with_its_library_were() -> None:
    good = Page(
        library=b"/a/libtorch_cpu.so",
        probe=layout.PROBE_GOOD,
        sequence_offset=40,
        forward_thread_offset=48,
    )
    same = Page(library=b"/a/libtorch_cpu.so", sequence_offset=-1, forward_thread_offset=-1)
    other = Page(library=b"/b/libtorch_cpu.so", sequence_offset=-1)
    silent = Page(sequence_offset=-1)
    pages = [ProcessPage(page.fd) for page in (good, same, other, silent)]
    answer(pages)

    assert same.fields["probe"] == layout.PROBE_GOOD
    assert same.fields["sequence_offset"] == 40
    assert same.fields["forward_thread_offset"] == 48
    assert other.fields["probe"] == layout.PROBE_REFUSED
    assert other.fields["sequence_offset"] == -1
    assert silent.fields["probe"] == layout.PROBE_PENDING
    silent.fields["library"] = b"/a/libtorch_cpu.so"
    answer(pages)
    assert silent.fields["probe"] == layout.PROBE_GOOD


class Orphan:
    """A drainer in a thread, of a program that sleeps."""

    def __init__(self, raw: Path, listening: Listening) -> None:
        self.session = Session()
        self.program = subprocess.Popen(["sleep", "600"])
        self.drainer = Drainer(self.session.theirs, raw, listening.socket)
        self._thread = threading.Thread(target=self.drainer.run)
        main = {"type": "main", "pid": self.program.pid, "start_ns": 1, "base": None}
        self.session.ours.send(json.dumps(main).encode())

    def begin(self) -> None:
        """Kill the session, and let the drainer go on."""
        self.session.ours.close()
        self._thread.start()

    def end(self) -> None:
        """End the program, and with it the drainer."""
        self.program.kill()
        self.program.wait()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive()
        for process in self.drainer.processes.values():
            process.close()
        self.session.close()


@pytest.fixture
def orphan(tmp_path: Path, listening: Listening) -> Iterator[Orphan]:
    made = Orphan(tmp_path, listening)
    yield made
    if made.program.returncode is None:
        made.end()


def records_in(raw: Path) -> int:
    """How many records the raw files hold."""
    return sum(
        chunk.count
        for file in raw.glob("*/spool")
        for chunk in raw_file.SpoolReader(file).chunks()
        if chunk.kind == raw_file.RECORDS
    )


def test_what_comes_after_the_kill_is_taken_and_then_nobody_is_let_in(
    tmp_path: Path, listening: Listening, orphan: Orphan
) -> None:
    page = Page()
    rings = [Ring(index) for index in range(20)]
    orphan.begin()
    listening.hand_over(layout.SEND_PROCESS, page.fd)
    damaged = os.memfd_create("damaged")
    listening.hand_over(layout.SEND_RING, damaged)
    for ring in rings:
        ring.put(10)
        listening.hand_over(layout.SEND_RING, ring.fd)
    orphan.end()

    assert records_in(tmp_path) == 200
    (problem,) = json.loads((tmp_path / SESSION).read_text())["problems"]
    assert problem["code"] == "session_killed"
    with pytest.raises(ConnectionRefusedError):
        listening.connect()


def test_a_session_killed_before_it_heard_everything_has_lost_nothing_it_sent(
    tmp_path: Path, orphan: Orphan
) -> None:
    page, ring = Page(), Ring()
    ring.put(10)
    orphan.session.theirs.send(b"nobody reads it")
    orphan.session.give_all(page, ring)
    orphan.begin()
    orphan.end()

    assert records_in(tmp_path) == 10
