"""Questions of findings that other processes and machines must not answer."""

from __future__ import annotations

from pathlib import Path

from layerscope.analyse.findings.rules.cpu_taken_by_others import MACHINE
from layerscope.analyse.findings.rules.library_below_cpu import SET_BY_PROGRAM
from layerscope.analyse.findings.workload import Workload
from layerscope.recording.reader import Reader
from tests.analyse.memory.made import start_of, training


def test_the_time_of_each_machine_is_its_own(tmp_path: Path) -> None:
    recording = training(10)
    other = recording.add_process(200, host="there")
    for process, first in ((0, 1000), (other, 500_000)):
        readings = [(start_of(step), first + 10 * step) for step in (2, 5)]
        recording.add_counter(process, "machine_cpu_ns", readings, "ns", domain="machine")

    with Reader(recording.write(tmp_path / "made")) as reader:
        workload = Workload(reader)
        (row,) = workload.rows(MACHINE.format(process=workload.process))

    assert row["grown_ns"] == 30


def test_what_another_program_sets_is_not_set_by_this_one(tmp_path: Path) -> None:
    recording = training(10)
    other = recording.add_thread(recording.add_process(200), 200, "python")
    marks = recording.rows.setdefault("marks", [])
    about = {"at_ns": 5, "kind": "setting"}
    marks.append({"track": other, "name": "ONEDNN_MAX_CPU_ISA=SSE41", **about})
    marks.append({"track": recording.thread, "name": "DNNL_MAX_CPU_ISA=AVX2", **about})

    with Reader(recording.write(tmp_path / "made")) as reader:
        workload = Workload(reader)
        found = workload.rows(SET_BY_PROGRAM.format(process=workload.process))

    assert found == [{"name": "DNNL_MAX_CPU_ISA=AVX2"}]
