"""Small recordings with a known answer: say what ran, get a run folder that the real reader
opens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerscope.ingest.open import mark_complete
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.recording.run import (
    ExitState,
    LayerState,
    ProgramState,
    RecordingCost,
    Run,
    RunInfo,
)
from layerscope.recording.writer import write_rows

MS = 1_000_000
S = 1_000_000_000


@dataclass
class Recording:
    """Collects rows; `write` makes the folder. One process with one thread is there from the
    start.
    """

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    process: int = 0
    thread: int = 0

    def __post_init__(self) -> None:
        if not self.rows.get("processes"):
            self.process = self.add_process(100)
            self.thread = self.add_thread(self.process, 100, "python")

    def _add(self, table: str, key: str, **row: Any) -> int:
        rows = self.rows.setdefault(table, [])
        rows.append({key: len(rows), **row})
        return len(rows) - 1

    def add_process(self, pid: int, start_ns: int = 0, **more: Any) -> int:
        row = {"pid": pid, "host": "here", "argv": "python train.py", "start_ns": start_ns, **more}
        return self._add("processes", "process", **row)

    def add_thread(self, process: int, tid: int, name: str, kind: str = "thread") -> int:
        return self._add(
            "tracks", "track", process=process, kind=kind, tid=tid, name=name, start_ns=0
        )

    def add_span(
        self, name: str, start_ns: int, dur_ns: int, parent: int | None = None, **more: Any
    ) -> int:
        """A span with no children yet; it takes its duration out of its parent's self time."""
        above = self.rows["spans"][parent] if parent is not None else None
        if above:
            above["self_ns"] -= dur_ns
        row = {
            "track": above["track"] if above else self.thread,
            "parent": parent,
            "depth": above["depth"] + 1 if above else 0,
            "start_ns": start_ns,
            "dur_ns": dur_ns,
            "self_ns": dur_ns,
            "layer": "operators",
            "kind": "function",
            "name": name,
            "step": above["step"] if above else None,
            "weight": 1,
            "unfinished": False,
            **more,
        }
        return self._add("spans", "span", **row)

    def add_primitive(
        self, name: str, start_ns: int, dur_ns: int, operator: int | None = None, told: dict[str, Any] | None = None,
        **more: Any,
    ) -> int:  # fmt: skip
        """An execution that `operator` asked for on its thread; `told`: further columns of table
        `primitives`.

        Time of a primitive is in its operator's self time, which is by layer.
        """
        above = self.rows["spans"][operator] if operator is not None else None
        place = (
            {"track": above["track"], "step": above["step"], "depth": above["depth"] + 1}
            if above
            else {}
        )
        span = self.add_span(
            name, start_ns, dur_ns, **{"layer": "primitives", "kind": "execute", **place, **more}
        )
        self.rows["spans"][span]["parent"] = operator
        about = {
            "span": span,
            "operator": operator,
            "library": "oneDNN",
            "primitive_kind": name,
            **(told or {}),
        }
        self.rows.setdefault("primitives", []).append(about)
        return span

    def add_step(
        self, step: int, start_ns: int, phases_ns: tuple[int, int, int, int, int], **more: Any
    ) -> None:
        """A step of the phases loading, forward, backward, optimizer, other."""
        names = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
        phases = dict(zip(names, phases_ns, strict=True))
        row = {
            "process": self.process,
            "rule": "optimizer",
            "start_ns": start_ns,
            "dur_ns": sum(phases_ns),
        }
        self.rows.setdefault("steps", []).append(
            {"step": step, "warmup": False, "weight": 1, **row, **phases, **more}
        )

    def add_counter(
        self,
        process: int,
        name: str,
        readings: Iterable[tuple[int, int]],
        unit: str = "count",
        domain: str = "process",
    ) -> None:
        """Readings of the system about a process, or, with another `domain`, a counter of the
        program's own.
        """
        about = {"process": process, "kind": "counter", "name": domain}
        tracks = self.rows["tracks"]
        track = next((t["track"] for t in tracks if about.items() <= t.items()), None)
        if track is None:
            track = self._add("tracks", "track", **about, start_ns=0)
        self.rows.setdefault("counters", []).extend(
            {"track": track, "at_ns": at_ns, "name": name, "value": value, "unit": unit}
            for at_ns, value in readings
        )

    def add_stack(self, *frames: str) -> int:
        """The key of a stack, the outermost frame first: `python train train.py:12`, `operators
        aten::mm`, `native gemm libtorch.so`. What was added before is added once.
        """
        parent = None
        for depth, words in enumerate(frames):
            layer, _, rest = words.partition(" ")
            name, _, where = (
                rest.partition(" ") if layer in ("python", "native") else (rest, "", "")
            )
            file, _, line = where.partition(":")
            of_python = {"file": file or None, "line": int(line) if line else None}
            about = {
                "layer": layer,
                "name": name,
                **(of_python if layer == "python" else {"object": file or None}),
            }
            frame = self._once("frames", "frame", about)
            parent = self._once(
                "stacks", "stack", {"parent": parent, "frame": frame, "depth": depth}
            )
        assert parent is not None
        return parent

    def _once(self, table: str, key: str, row: dict[str, Any]) -> int:
        for known in self.rows.setdefault(table, []):
            if row.items() <= known.items():
                return int(known[key])
        return self._add(table, key, **row)

    def add_sample(
        self, stack: int | None, weight_ns: int = 10 * MS, at_ns: int = 0, **more: Any
    ) -> None:
        """A sample of CPU time; with kind="offcpu" a wait, whose `state` says for what."""
        kind = more.get("kind", "cpu")
        row = {
            "at_ns": at_ns, "track": self.thread, "stack": stack, "weight_ns": weight_ns, "count": 1, "kind": kind,
            "state": "lock" if kind == "offcpu" else "user", "idle": False, "exact": kind == "offcpu", **more,
        }  # fmt: skip
        self.rows.setdefault("samples", []).append(row)

    def add_block(self, size: int, at_ns: int, dur_ns: int | None, **more: Any) -> None:
        """A tensor on the CPU; without a duration it is never released."""
        row = {
            "track": self.thread, "at_ns": at_ns, "dur_ns": dur_ns, "bytes": size, "device": "cpu",
            "allocator": "tensor", "operator": "aten::empty", "module": None, "line": "", "phase": "other",
            "is_lost": False, **more,
        }  # fmt: skip
        self.rows.setdefault("allocations", []).append(row)

    def add_gap(
        self, reason: str, lost: int | None, track: int | None = None, process: int | None = None,
        start_ns: int = 0,
    ) -> None:  # fmt: skip
        row = {
            "track": track,
            "process": process,
            "start_ns": start_ns,
            "end_ns": start_ns + 1,
            "lost": lost,
            "reason": reason,
        }
        self.rows.setdefault("gaps", []).append(row)

    def add_problem(
        self, layer: str, what: str, remedy: str, lost: str = "", code: str = "test"
    ) -> None:
        row = {"layer": layer, "code": code, "what": what, "remedy": remedy, "lost": lost}
        self.rows.setdefault("problems", []).append(row)

    def write(self, path: Path, **info: Any) -> Run:
        """The recording as a folder at `path`; `info` replaces fields of its `run.json`."""
        run = Run.create(path, run_info(**info))
        for table, rows in self.rows.items():
            write_rows(path, table, rows)
        mark_complete(path, run.raw, {table: len(rows) for table, rows in self.rows.items()})
        return run


def run_info(**changes: Any) -> RunInfo:
    """The `run.json` of a program that ran for 2 s and went well."""
    fields: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "layerscope": "0.1.0",
        "run_id": "test",
        "state": "finished",
        "command": ["python", "examples/train.py", "--epochs", "1"],
        "cwd": "/somewhere",
        "environment": {},
        "host": {"cpu": {"granted": 4}},
        "started_utc": "2026-01-01T00:00:00Z",
        "start_ns": 0,
        "exit": ExitState(code=0),
        "layers": [LayerState("operators", "recorded", cpu_ns=20 * MS)],
        "program": ProgramState(2 * S, 1800 * MS, 200 * MS, 300_000_000, 5000, 2),
        "cost": RecordingCost(4 * MS, 30 * MS, 20 * MS, 4_000_000, 2_400_000),
        "versions": {"python": "3.11.7", "torch": "2.13.0+cpu"},
    }
    return RunInfo(**{**fields, **changes})
