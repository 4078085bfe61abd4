"""Starts the recorder beside the program and asks it for answers: processes, sockets, and nothing
of a framework.

The recorder needs libraries that the program's environment need not have, so it is looked for in
this order: $LAYERSCOPE_PYTHON, the program's own Python, the `layerscope` command on PATH. It
leaves the program at once: no child, not in its session, nothing of it open.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Answer = dict[str, Any]

NEEDED = ("msgspec", "pyarrow", "duckdb", "numpy")
READY_S = 30.0
# The recorder says every second that an answer is coming.
SILENCE_S = 10.0
PACKET_BYTES = 65536
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
NO_RECORDER = (
    "layerscope records nothing: no Python here has the libraries of its recorder. Install "
    "layerscope in this environment, or name a Python that has it in LAYERSCOPE_PYTHON"
)


class NoRecorder(Exception):
    """No recorder could be started, in a sentence."""


def start_recorder(folder: str, stem: str) -> Answer:
    """Start one for this process; what it says when it is ready: `path` and `settings`. NoRecorder
    when it cannot.
    """
    import json

    about = json.dumps({"pid": os.getpid(), "folder": folder, "stem": stem})
    reasons = []
    for command in commands():
        try:
            answer = _ready([*command, "_record", about])
        except OSError as error:
            reasons.append(str(error))
            continue
        if "settings" in answer:
            return answer
        reasons.append(answer.get("problem", "it ended at once"))
    raise NoRecorder(f"layerscope records nothing: {reasons[-1]}" if reasons else NO_RECORDER)


def commands() -> Iterator[list[str]]:
    """What may start a recorder, the best first."""
    named = os.environ.get("LAYERSCOPE_PYTHON")
    if named:
        yield [named, "-I", "-m", "layerscope"]
    if sys.executable and _has_libraries():
        yield [sys.executable, "-I", "-c", START, SOURCE, "layerscope"]
    other = _python_of_the_command()
    if other:
        yield [other, "-I", "-m", "layerscope"]


def _has_libraries() -> bool:
    """Whether this Python has them, without importing one."""
    from importlib.util import find_spec

    try:
        return all(find_spec(name) is not None for name in NEEDED)
    except (ImportError, ValueError):
        return False


def _python_of_the_command() -> str | None:
    """The Python that the `layerscope` command on PATH names in its first line."""
    import shutil

    found = shutil.which("layerscope")
    try:
        with open(found or "", "rb") as file:
            first = file.readline(1024)
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words and b"python" in words[0] else None


def _ready(command: list[str]) -> Answer:
    """Run `command` until it says that it is ready, and is no child of ours any more."""
    import json
    import select
    import subprocess

    without = ("LAYERSCOPE_AUTOSTART", "LD_PRELOAD", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = b""
    with process.stdout as out:
        ready = (
            select.poll()
        )  # a program with many open files has numbers beyond what select() takes
        ready.register(out, select.POLLIN)
        while not line.endswith(b"\n") and ready.poll(READY_S * 1000):
            more = os.read(out.fileno(), PACKET_BYTES)
            line += more
            if not more:
                break
        else:
            if not line.endswith(b"\n"):
                process.kill()
    process.wait()
    try:
        answer: Answer = json.loads(line)
    except ValueError:
        return {}
    return answer


def ask(name: str, request: Answer) -> Answer:
    """The answer of the recorder that listens to `name`. OSError when there is none any more."""
    import json
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(SILENCE_S)
        connection.connect("\0" + name)
        connection.send(json.dumps(request).encode(), socket.MSG_NOSIGNAL)
        answer = b""
        while True:
            packet = connection.recv(PACKET_BYTES)
            if not packet:
                break
            answer += packet
    if not answer.strip():
        raise OSError("the recorder ended before it could answer")
    found: Answer = json.loads(answer)
    return found
