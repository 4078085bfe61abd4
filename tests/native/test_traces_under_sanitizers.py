"""The scans of traces and of XSpaces under sanitizers: files that were changed anywhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.native.building import NATIVE, ROOT, build, sanitizer_flag
from tests.repeated import times
from tests.sources.test_xplane import Plane, message

DRIVERS = ROOT / "tests" / "native"


def trace() -> str:
    args = {"External id": 7, "Input Dims": [[2, 3], []], "text": 'a "b" \\ c', "nan": None}
    spans = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": f"op {n}" if n else "",
            "pid": 1,
            "tid": 2,
            "ts": n + 0.125,
            "dur": 1,
        }
        for n in range(30)
    ]
    memory = {"ph": "i", "name": "[memory]", "ts": 3, "args": {"Addr": 5, "Bytes": -64}}
    counter = {"ph": "C", "name": "c", "ts": 4, "args": {"a": 1, "b": 2.5e3, "c": "none"}}
    events = [*({**span, "args": args} for span in spans), memory, counter]
    about = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "numSms": 80}]}
    return json.dumps({**about, "traceEvents": events, "traceName": "a"}, indent=1)


def line() -> bytes:
    """Events of XLA."""
    plane = Plane("/host:CPU")
    hlo = {
        "hlo_op": "dot.3",
        "correlation_id": 1 << 40,
        "program_id": (1 << 64) - 7,
        "long": "x" * 300,
    }
    events = [plane.event(f"event {n % 7}", n, 5, **hlo, number=n % 3) for n in range(40)]
    return message((1, 77), (2, "python"), (3, 1_000), *((4, one) for one in events))


def read_all(folder: Path, driver: str, rounds: int, *files: Path) -> None:
    """Build a driver under sanitizers, and have it read changed copies of these files."""
    flags = [sanitizer_flag(folder, name) for name in ("address", "undefined")]
    sources = [DRIVERS / driver, *sorted((NATIVE / "traces").glob("*.c"))]
    program = build(folder / "scan", sources, "-O1", "-g", *flags, "-fno-sanitize-recover=all")
    done = subprocess.run(
        [str(program), str(rounds), *map(str, files)],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == b"all were read\n", done.stderr.decode()


def test_changed_traces_are_read_without_a_fault(tmp_path: Path) -> None:
    whole = tmp_path / "trace.json"
    whole.write_text(trace())
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps(json.loads(trace())["traceEvents"]))
    read_all(tmp_path, "mutated_traces.c", times(10_000, 300), whole, listed)


def test_changed_lines_of_spaces_are_read_without_a_fault(tmp_path: Path) -> None:
    whole = tmp_path / "line.pb"
    whole.write_bytes(line())
    read_all(tmp_path, "mutated_spaces.c", times(100_000, 2_000), whole)
