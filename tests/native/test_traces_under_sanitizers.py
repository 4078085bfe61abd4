"""The scan of traces under sanitizers: traces that were changed anywhere, in pieces of any size."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.native.building import NATIVE, ROOT, build, sanitizer_flag
from tests.repeated import times

DRIVER = ROOT / "tests" / "native" / "mutated_traces.c"


def trace() -> str:
    args = {"External id": 7, "Input Dims": [[2, 3], []], "text": 'a "b" \\ c', "nan": None}
    spans = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": f"op {n}",
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


def test_changed_traces_are_read_without_a_fault(tmp_path: Path) -> None:
    flags = [sanitizer_flag(tmp_path, name) for name in ("address", "undefined")]
    sources = [DRIVER, *sorted((NATIVE / "traces").glob("*.c"))]
    program = build(tmp_path / "scan", sources, "-O1", "-g", *flags, "-fno-sanitize-recover=all")
    whole = tmp_path / "trace.json"
    whole.write_text(trace())
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps(json.loads(trace())["traceEvents"]))
    rounds = str(times(10_000, 300))
    done = subprocess.run(
        [str(program), rounds, str(whole), str(listed)],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == b"all were read\n", done.stderr.decode()
