"""FIFOs with a name: `dump` says which, and who has the other end open."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.dump.dumped import running, settled

pytestmark = pytest.mark.usefixtures("native_agent")
WRITES = """
import os, sys, time
kept = os.open(sys.argv[1], os.O_WRONLY)
print("ready", flush=True)
time.sleep(600)
"""
READS = """
import os, sys, threading
def begin(name, does):
    threading.Thread(target=does, name=name, daemon=True).start()
kept = os.open("talk", os.O_RDONLY)
begin("reads", lambda: os.read(kept, 1))
begin("opens", lambda: open("alone"))
begin("opens to write", lambda: open(sys.argv[1], "w"))
print("ready", flush=True)
threading.Event().wait()
"""


def test_a_fifo_is_named_with_its_path_and_its_peer(tmp_path: Path) -> None:
    for name in ("talk", "alone", "whole"):
        os.mkfifo(tmp_path / name)
    # Whoever opens an end alone waits for the other one.
    first = os.open(tmp_path / "talk", os.O_RDONLY | os.O_NONBLOCK)
    talk, whole = str(tmp_path / "talk"), str(tmp_path / "whole")
    with running([sys.executable, "-I", "-c", WRITES, talk]) as writer:
        os.close(first)
        command = [sys.executable, "-I", "-c", READS, whole]
        with running(command, cwd=tmp_path) as process:
            found = settled(process.pid, tmp_path, ["reads", "opens", "opens to write"])
    threads = found.threads
    assert found.wait("reads") == found.wait("opens") == found.wait("opens to write") == "pipe"
    assert threads["reads"]["waits_for"] == f"data in the FIFO {talk}"
    assert [one["pid"] for one in threads["reads"]["on"]] == [writer.pid]
    assert threads["reads"]["on"][0]["how"] == "can write into it"
    alone = tmp_path / "alone"
    assert threads["opens"]["waits_for"].startswith(f"the FIFO {alone} to be opened for writing")
    assert threads["opens to write"]["waits_for"].startswith(
        f"the FIFO {whole} to be opened for reading"
    )
