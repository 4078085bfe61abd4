"""Programs that run already, recorded from outside: what they do is read right, and they notice
nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.recorded import Recorded, layerscope

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]
PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
PATIENCE_S = 30.0
LEFT_OUT = "[frames left out]"
TREE = """
    WITH RECURSIVE below(stack, names, kinds) AS (
        SELECT stack, [f.name], [f.layer] FROM stacks s JOIN frames f USING (frame)
        WHERE s.parent IS NULL
        UNION ALL SELECT s.stack, list_append(b.names, f.name), list_append(b.kinds, f.layer)
        FROM below b JOIN stacks s ON s.parent = b.stack JOIN frames f USING (frame)
    )
"""


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A program that has printed its first line and runs until its standard input is closed."""
    program = subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield program
    finally:
        if program.poll() is None:
            program.kill()
        program.communicate()


def attach(pid: int, folder: Path, *options: str) -> Recorded:
    """Record it from outside."""
    done = layerscope("attach", str(pid), "-o", "attached", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return Recorded(
        open_run(folder / "attached.layerscope"), done.returncode, done.stdout, done.stderr
    )


def chains(recorded: Recorded) -> list[tuple[list[str], int]]:
    """Functions of Python of each sample on a CPU, the outermost first, and its CPU time; a None
    where frames are left out.
    """
    rows = recorded.rows(
        f"{TREE} SELECT names, kinds, sum(weight_ns) AS ns FROM samples JOIN below USING (stack) "
        "WHERE kind = 'cpu' GROUP BY ALL"
    )
    return [
        (
            [
                name if kind == "python" else ""
                for name, kind in zip(row["names"], row["kinds"])
                if kind == "python" or name == LEFT_OUT
            ],
            int(row["ns"]),
        )
        for row in rows
    ]


def test_nobody_is_called_by_who_does_not_call(tmp_path: Path) -> None:
    with running(str(PROGRAMS / "calling.py")) as program:
        assert program.stdout is not None
        calls = {(caller, callee) for caller, callee in json.loads(program.stdout.readline())}
        recorded = attach(program.pid, tmp_path, "--for", "5", "--rate", "999")
        out, _ = program.communicate("", timeout=PATIENCE_S)
    assert (out, program.returncode) == ("done\n", 0)

    found = chains(recorded)
    wrong = [
        chain
        for chain, _ in found
        for caller, callee in zip(chain, chain[1:])
        if caller and callee and (caller, callee) not in calls
    ]
    assert not wrong
    whole_ns = sum(ns for chain, ns in found if chain[:1] == ["<module>"])
    assert whole_ns > 0.2 * sum(ns for _, ns in found)
