"""The session's side of the agent, as small as it can be: listens, keeps the memory that driven
processes hand over, answers the probe's question, and passes everything on to a drainer.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.capture.drainer import Drainer
from layerscope.capture.drainer_messages import END
from layerscope.rawfile import dtypes, layout

ROOT = Path(__file__).resolve().parent.parent.parent
# Where tests/native/fake_torch.c keeps the two members that the agent reads by offset.
SEQUENCE_OFFSET, FORWARD_THREAD_OFFSET = 8, 16
PATIENCE_S = 60


@dataclass
class Handed:
    """What one process handed over, still mapped here after its death."""

    pid: int
    pages: list[Any] = field(default_factory=list)
    rings: list[mmap.mmap] = field(default_factory=list)
    names: list[mmap.mmap] = field(default_factory=list)
    samples: list[mmap.mmap] = field(
        default_factory=list
    )  # areas of samples: there is no sampler here

    def headers(self) -> list[Any]:
        """The headers of the rings, as they are now."""
        return [np.frombuffer(ring, dtypes.RING, 1)[0] for ring in self.rings]

    def records(self, ring: int) -> np.ndarray:
        """All records of a ring that was never overtaken, as they are now."""
        published = int(self.headers()[ring]["published"])
        return np.frombuffer(self.rings[ring], dtypes.RECORD, published, layout.RING_HEADER)


class Door:
    """Where the agent of a driven process knocks. `drainer`: 'thread', 'process', or '' for
    none.
    """

    def __init__(self, raw: Path, drainer: str = "thread", accepts: bool = True) -> None:
        self.raw = raw
        self.raw.mkdir(parents=True, exist_ok=True)
        self.name = f"layerscope-test-{os.getpid()}-{secrets.token_hex(6)}"
        self.handed: dict[tuple[int, int], Handed] = {}
        self.drainers: list[subprocess.Popen[bytes]] = []
        self.failed: BaseException | None = None
        self._messages: list[tuple[dict[str, Any], int]] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("\0" + self.name)
        self._listener.listen(4096)
        self._control: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._accepting = threading.Thread(target=self._accept_all, daemon=True)
        if drainer == "thread":
            self._drain_here()
        elif drainer == "process":
            self.start_drainer()
        if accepts:
            self._accepting.start()

    def _drain_here(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def drain() -> None:
            drainer = Drainer(theirs, self.raw)
            try:
                drainer.run()
            except BaseException as error:
                self.failed = error
            for process in drainer.processes.values():
                process.close()
            theirs.close()

        self._thread = threading.Thread(target=drain, daemon=True)
        self._thread.start()

    def start_drainer(self) -> subprocess.Popen[bytes]:
        """Start a real drainer process, as the session does: a later one is told everything
        again.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            sys.executable,
            "-m",
            "layerscope.capture.drainer",
            str(theirs.fileno()),
            str(self.raw),
            "-1",
        ]
        drainer = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
        theirs.close()
        self._control = ours
        self.drainers.append(drainer)
        for message, fd in self._messages:
            self._tell(message, fd)
        return drainer

    def kill_drainer(self) -> None:
        """SIGKILL for the newest drainer."""
        self.drainers[-1].send_signal(signal.SIGKILL)
        self.drainers[-1].communicate(timeout=PATIENCE_S)
        if self._control is not None:
            self._control.close()
            self._control = None

    def _accept_all(self) -> None:
        while True:
            stopping = self._stop.is_set()
            ready, _, _ = select.select([self._listener], [], [], 0 if stopping else 0.02)
            if ready:
                self._accept()
            elif stopping:
                return

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            data, fds, _, _ = socket.recv_fds(connection, layout.MESSAGE.size, 1)
            if len(data) < layout.MESSAGE.size:
                return  # killed between connecting and sending
        magic, kind, pid, index, process_start = layout.MESSAGE.unpack(data)
        assert magic == layout.MESSAGE_MAGIC
        handed = self.handed.setdefault((pid, process_start), Handed(pid))
        memory = mmap.mmap(fds[0], os.fstat(fds[0]).st_size)
        {
            layout.SEND_PROCESS: handed.pages, layout.SEND_RING: handed.rings, layout.SEND_NAMES: handed.names,
            layout.SEND_SAMPLES: handed.samples,
        }[kind].append(memory)  # fmt: skip
        if kind == layout.SEND_SAMPLES:
            os.close(fds[0])
            return
        if kind == layout.SEND_PROCESS:
            page = np.frombuffer(memory, dtypes.PAGE, 1)
            page["sequence_offset"], page["forward_thread_offset"] = (
                SEQUENCE_OFFSET,
                FORWARD_THREAD_OFFSET,
            )
            page["probe"] = layout.PROBE_GOOD
        message = {"type": kind, "pid": pid, "index": index, "process_start": process_start}
        self._messages.append((message, fds[0]))
        self._tell(message, fds[0])

    def _tell(self, message: dict[str, Any], fd: int) -> None:
        if self._control is not None:
            socket.send_fds(self._control, [json.dumps(message).encode()], [fd])

    def stop_listening(self) -> None:
        """From now on a connection is refused."""
        self._stop.set()
        if self._accepting.ident is not None:
            self._accepting.join(PATIENCE_S)
        self._listener.close()

    def close(self) -> None:
        """Take what has arrived, let the drainer take everything once more, and end it."""
        if self._listener.fileno() >= 0:
            self.stop_listening()
        if self._control is not None:
            with contextlib.suppress(OSError):  # it was killed
                self._control.send(json.dumps({"type": END}).encode())
            self._control.shutdown(socket.SHUT_WR)
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive(), "the drainer does not end"
            if self.failed is not None:
                raise self.failed
        for drainer in self.drainers:
            drainer.communicate(timeout=PATIENCE_S)
        if self._control is not None:
            self._control.close()
            self._control = None
        for _, fd in self._messages:
            os.close(fd)
        self._messages.clear()

    def page(self, pid: int) -> Any:
        """The process page of `pid`, as it is now."""
        (handed,) = [handed for (number, _), handed in self.handed.items() if number == pid]
        return np.frombuffer(handed.pages[0], dtypes.PAGE, 1)[0]
