"""A process that is forked off the session."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from layerscope.capture.forked import may_fork

ROOT = Path(__file__).resolve().parent.parent.parent

FORKS = """
import os, sys, time
from layerscope.capture.forked import fork, may_fork

kept, other = os.pipe(), os.pipe()
sys.stdout.write("not flushed")

def work():
    os.write(1, " ".join(sorted(os.listdir("/proc/self/fd"))).encode() + b"\\n")
    os.write(1, open("/proc/self/cmdline", "rb").read().rstrip(b"\\0") + b"\\n")
    os.write(1, f"{os.getpgrp() == os.getpid()}\\n".encode())
    os.read(kept[0], 1)
    raise ValueError("at its end")

assert may_fork()
log = open(sys.argv[1], "wb")
process = fork(["what.it.is", "for"], work, [kept[0]], log)
os.write(kept[1], b"x")
said, _ = process.communicate(timeout=30)
sys.stdout.write(f": {said.decode().splitlines()} {process.returncode} {kept[0]}")
"""


def test_a_forked_process_has_what_it_is_given_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"

    done = subprocess.run(
        [sys.executable, "-c", FORKS, log],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )

    kept = done.stdout.rpartition(" ")[2]
    descriptors = sorted(["0", "1", "2", kept])
    (listed, command_line, leads) = done.stdout.partition("['")[2].partition("']")[0].split("', '")
    # The list itself needs one more while it is read.
    assert [number for number in listed.split() if number in descriptors] == descriptors
    assert len(listed.split()) == len(descriptors) + 1
    assert command_line == "what.it.is\\x00for"
    assert leads == "True"
    assert done.stdout.startswith("not flushed: ")
    assert done.stdout.count("not flushed") == 1
    assert "] 1 " in done.stdout
    assert "ValueError: at its end" in log.read_text()


def test_nothing_is_forked_off_a_process_with_threads() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    assert not may_fork()
    over.set()
    thread.join()
