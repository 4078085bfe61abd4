"""Recordings of GPUs with a known answer: streams, work on them, and the calls that launched it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from layerscope.recording.reader import Reader
from tests.recordings import Recording

US = 1_000


class GpuRecording:
    """One process with a thread that launches; times are in microseconds."""

    def __init__(self, rank: int | None = None) -> None:
        self.recording = Recording()
        self.recording.rows["processes"][0]["rank"] = rank
        self.streams: dict[tuple[int, int], int] = {}

    def next_rank(self, rank: int) -> None:
        """What follows is of another process."""
        recording = self.recording
        recording.process = recording.add_process(100 + rank, rank=rank)
        recording.thread = recording.add_thread(recording.process, 100 + rank, "python")
        self.streams.clear()

    def stream(self, device: int, number: int) -> int:
        """The track of a stream."""
        key = device, number
        if key not in self.streams:
            track = self.recording.add_thread(
                self.recording.process, number, f"stream {number}", kind="stream"
            )
            self.recording.rows["tracks"][track] |= {"device": device, "tid": None}
            self.streams[key] = track
        return self.streams[key]

    def call(self, name: str, start_us: float, dur_us: float) -> int:
        """A call of the runtime."""
        about = {"layer": "runtime", "kind": "launch"}
        return self.recording.add_span(name, round(start_us * US), round(dur_us * US), **about)

    def work(
        self,
        start_us: float,
        dur_us: float,
        name: str = "gemm",
        kind: str = "kernel",
        stream: int = 7,
        device: int = 0,
        launched_by: int | None = None,
        operator: int | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> int:
        """A kernel, memcpy or memset; `launched_by` is its call."""
        about = {"layer": "gpu", "kind": kind, "track": self.stream(device, stream)}
        if arguments is not None:
            about["args"] = self._args(arguments)
        span = self.recording.add_span(name, round(start_us * US), round(dur_us * US), **about)
        self._link(launched_by, span, "launch_gpu")
        self._link(operator, span, "operator_gpu")
        return span

    def _args(self, arguments: dict[str, Any]) -> int:
        rows = self.recording.rows.setdefault("args", [])
        rows.append({"args": len(rows), "json": json.dumps(arguments)})
        return len(rows) - 1

    def _link(self, cause: int | None, effect: int, kind: str) -> None:
        if cause is not None:
            link = {"from_span": cause, "to_span": effect, "kind": kind}
            self.recording.rows.setdefault("links", []).append(link)

    def reader(self, folder: Path) -> Reader:
        """The recording, written and opened."""
        return Reader(self.recording.write(folder / "made.layerscope"))
