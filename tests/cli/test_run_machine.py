"""What a recording keeps of its machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from layerscope.host import machine
from layerscope.recording.run import Run, RunInfo
from layerscope.session import create


def test_a_recording_keeps_all_facts_and_its_name_first() -> None:
    info = create._first_info(["train.py"])
    read_back = msgspec.json.decode(msgspec.json.encode(info), type=RunInfo)
    found, here = machine.of_json(read_back.host), machine.facts()

    assert next(iter(read_back.host)) == "name"
    assert (found.name, found.process) == (os.uname().nodename, None)
    assert (found.cpu, found.isa, found.kernel) == (here.cpu, here.isa, here.kernel)
    assert read_back.granted_cpus == here.cpu.granted


def test_no_process_is_started_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)

    assert create._first_info(["train.py"]).host["name"]


@pytest.mark.slow
def test_a_narrower_mask_of_the_recorder_is_that_of_the_program(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    words = [
        sys.executable,
        "-m",
        "layerscope",
        "run",
        "-q",
        "-o",
        "narrow",
        "--",
        sys.executable,
        "-c",
        "pass",
    ]
    subprocess.run(
        words,
        cwd=tmp_path,
        check=True,
        timeout=120,
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    )
    recorded = Run.open(tmp_path / "narrow.layerscope").info

    assert machine.of_json(recorded.host).cpu.allowed == (cpu,)
    assert recorded.granted_cpus is not None
    assert recorded.granted_cpus <= 1


def test_facts_that_an_imported_trace_has_not_are_not_known() -> None:
    info = msgspec.structs.replace(create._first_info(["x"]), host={"name": "elsewhere"})

    assert (info.granted_cpus, info.host_fact("cpu", "model"), info.host_fact("name", "x")) == (
        None,
        None,
        None,
    )
