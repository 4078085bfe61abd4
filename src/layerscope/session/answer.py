"""Answer one request of a program that is being recorded (internal).

The request is JSON: `stats` asks for sums by name, `dump` for a Chrome trace in a file. It comes by
the socket that is standard input, with the descriptor of the one that takes the answer, in packets;
until it is ready a blank a second says that it is coming.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.model.errors import LayerscopeError

if TYPE_CHECKING:
    from layerscope.recording.run import Run

# Instead of a request: it comes by the socket that is standard input.
BY_STANDARD_INPUT = "-"
NICE = 10
REQUEST_BYTES = 65536
# What an answer needs.
NEEDED = (
    "layerscope.analyse.aggregates",
    "layerscope.ingest.conversion",
    "layerscope.ingest.open",
)
PACKET_BYTES = 32768
STILL_HERE_S = 1.0


def be_quiet() -> None:
    """Nothing that the terminal tells the program ends us, and we leave it the CPUs."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICE)


def answer_request(recording: Path, request: dict[str, Any]) -> int:
    """Make the answer, send it, and exit with 0 whatever it was."""
    with _asker() as send:
        try:
            answer = answer_to(recording, request)
        except (LayerscopeError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            answer = {"error": reason}
        send(json.dumps(answer).encode())
    return 0


def wait_for_request() -> dict[str, Any] | None:
    """The request, as soon as there is one; standard input is where the answer goes then. None: no
    request comes any more.
    """
    from layerscope.recording.reader import warm_up

    for module in NEEDED:
        importlib.import_module(module)
    warm_up()
    with socket.socket(fileno=os.dup(0)) as requests:
        text, where, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 1)
    if not text:
        return None
    os.dup2(where[0], 0)
    os.close(where[0])
    request: dict[str, Any] = json.loads(text)
    return request


def answer_to(recording: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to `request` about all that the raw files of `recording` hold by now."""
    from layerscope.analyse.aggregates import aggregates
    from layerscope.ingest.open import as_it_is_now
    from layerscope.recording.reader import Reader

    since_ns, until_ns = int(request["since_ns"]), request.get("until_ns")
    with as_it_is_now(recording) as run:
        if request["what"] == "stats":
            with Reader(run) as reader:
                return aggregates(reader, since_ns, int(request["until_ns"]), int(request["pid"]))
        write_trace(run, Path(request["file"]), since_ns, until_ns)
        return {"file": request["file"]}


def write_trace(run: Run, file: Path, since_ns: int, until_ns: int | None) -> None:
    """Write what started in [since_ns, until_ns) as a Chrome trace to `file`, complete by
    rename.
    """
    from layerscope.show.exports.trace import write

    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        write(run, temporary, since_ns, until_ns)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _asker() -> Iterator[Any]:
    """Calls what it yields with the answer; meanwhile whoever asked hears that we are at it."""
    try:
        connection = socket.socket(fileno=0)
    except OSError:
        yield lambda answer: None
        return
    done = threading.Event()

    def still_here() -> None:
        while not done.wait(STILL_HERE_S):
            with contextlib.suppress(OSError):
                connection.send(b" ", socket.MSG_NOSIGNAL)

    thread = threading.Thread(target=still_here, daemon=True)
    thread.start()

    def send(answer: bytes) -> None:
        done.set()
        thread.join()
        with contextlib.suppress(OSError):
            for start in range(0, len(answer), PACKET_BYTES):
                connection.send(answer[start : start + PACKET_BYTES], socket.MSG_NOSIGNAL)
        connection.close()  # whoever asked does not wait for our end

    yield send
    done.set()
