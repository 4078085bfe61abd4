"""Raw files made by hand, as the drainer would have written them: a fake clock, known spans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.rawfile import counters, dtypes, layout, raw_file

FUNCTION, BACKWARD, RANGE, OPTIMIZER, LOADER, MODULE, TASK, FRAME, EVENT, EXECUTE, CREATE = range(
    11
)
TICKS_PER_NS = 3
FIRST_TICK = 2**60  # beyond what a float holds exactly
REALTIME_OFFSET_NS = 10**18


def ticks(run_ns: int) -> int:
    """What the TSC of the fake machine says at a moment of the run."""
    return FIRST_TICK + TICKS_PER_NS * run_ns


class RawFile:
    """The raw file of one process. Times are given in ns of the run."""

    def __init__(
        self, raw: Path, pid: int, start_ns: int = 0, tsc: bool = True, **about: Any
    ) -> None:
        self.pid = pid
        self.tsc = tsc
        self.path = raw / f"machine-one-{pid}-{start_ns}" / "spool"
        self._file = raw_file.SpoolWriter(self.path)
        self._names: dict[str, int] = {}
        self._segment_bytes = 0
        self._first: dict[int, int] = {}
        self.counts: dict[tuple[int, int], list[int]] = {}
        described = {
            "pid": pid,
            "start_ns": start_ns,
            "clock": "tsc" if tsc else "monotonic",
            "argv": ["python", "t.py"],
        }
        self.write(raw_file.PROCESS, json.dumps(described | about).encode())

    def write(
        self, kind: int, payload: bytes, key: int = 0, count: int = 0, first: int = 0
    ) -> None:
        """One chunk."""
        self._file.write(kind, payload, key, count, first)

    def clock(self, run_ns: int) -> int:
        """A moment of the run as the records of this process have it."""
        return ticks(run_ns) if self.tsc else run_ns

    def poll(self, run_ns: int, error_ns: int = 5) -> None:
        """The drainer compared the clocks."""
        reading = [ticks(run_ns), run_ns, run_ns + REALTIME_OFFSET_NS, error_ns]
        self.write(raw_file.POLL, np.array(reading, "<i8").tobytes())

    def number(self, name: str) -> int:
        """The number of a name; written out at its first use."""
        if name not in self._names:
            self._names[name] = len(self._names) + 1
            text = name.encode()
            entry = self._names[name].to_bytes(4, "little") + len(text).to_bytes(4, "little") + text
            entry += bytes(8 + (len(text) + 1 + 7 & ~7) - len(entry))
            self.write(raw_file.NAMES, entry, 0, 0, self._segment_bytes)
            self._segment_bytes += len(entry)
        return self._names[name]

    def span(
        self, start_ns: int, end_ns: int, depth: int, name: str, kind: int = FUNCTION, **more: int
    ) -> list[tuple]:
        """The records of one span; `more`: seq, module, and the extras forward_thread, optimizer,
        elsewhere (its track), line, args.
        """
        seq, module = more.pop("seq", -1), more.pop("module", 0)
        flags = (layout.FLAG_EXTRA if more else 0) | (
            layout.FLAG_ELSEWHERE if "elsewhere" in more else 0
        )
        number = self.number(name)
        sums = self.counts.setdefault((kind, number), [0, 0])
        sums[0] += 1
        sums[1] += self.clock(end_ns) - self.clock(start_ns)
        records = [
            (self.clock(start_ns), self.clock(end_ns), number, seq, module, depth, kind, flags)
        ]
        codes = {
            "forward_thread": layout.EXTRA_FORWARD_THREAD,
            "optimizer": layout.EXTRA_OPTIMIZER,
            "elsewhere": layout.EXTRA_ELSEWHERE,
            "line": layout.EXTRA_LINE,
            "args": layout.EXTRA_ARGS,
        }
        records += [
            (value, 0, codes[name], 0, 0, 0, layout.EXTRA, 0) for name, value in more.items()
        ]
        return records

    def thread_begin(
        self, run_ns: int, tid: int, track: int, framework_thread: int = 1
    ) -> list[tuple]:
        """The record that says whose records follow."""
        return [(self.clock(run_ns), tid, 0, framework_thread, track, 0, layout.THREAD_BEGIN, 0)]

    def thread_end(self, run_ns: int, track: int) -> list[tuple]:
        """The record of a thread's end."""
        return [(self.clock(run_ns), 0, 0, 0, track, 0, layout.THREAD_END, 0)]

    def counter(self, at_ns: int, name: str, value: int) -> list[tuple]:
        """The record of a counter of the program's."""
        return [(self.clock(at_ns), value % 2**64, self.number(name), 0, 0, 0, layout.COUNTER, 0)]

    def mark(self, at_ns: int, name: str, what: int) -> list[tuple]:
        """The record of a mark; `what` is an index into MARKS."""
        return [(self.clock(at_ns), 0, self.number(name), 0, what, 0, layout.MARK, 0)]

    def lost(self, first_ns: int, last_ns: int, full: int, deep: int = 0) -> list[tuple]:
        """The record of a loss."""
        return [(self.clock(first_ns), self.clock(last_ns), full, 0, deep, 0, layout.LOST, 0)]

    def records(self, ring: int, records: list[tuple], first: int | None = None) -> None:
        """A chunk of the records of one ring."""
        at = self._first.get(ring, 0) if first is None else first
        self.write(
            raw_file.RECORDS, np.array(records, dtypes.RECORD).tobytes(), ring, len(records), at
        )
        self._first[ring] = at + len(records)

    def open_spans(
        self, ring: int, track: int, tid: int, spans: list[tuple[int, str, int, bool]]
    ) -> None:
        """What was open at the end, outermost first: (start, name, kind, ended by another
        thread).
        """
        slots = [(self.clock(start), 2 * i + 2 + over, self.number(name), kind) for i, (start, name, kind, over) in
                 enumerate(spans)]  # fmt: skip
        head = np.array([track, tid], "<u8").tobytes()
        self.write(raw_file.OPEN, head + np.array(slots, dtypes.OPEN).tobytes(), ring, len(slots))

    def sample(self, at_ns: int, *values: int) -> None:
        """A reading of the process counters."""
        rows = np.zeros(len(values), counters.row_dtype())
        rows["at_ns"], rows["counter"], rows["value"] = at_ns, np.arange(len(values)), values
        self.write(raw_file.COUNTERS, rows.tobytes())

    def threads(self, names: dict[int, str]) -> None:
        """Names of threads."""
        self.write(raw_file.THREADS, json.dumps(names).encode())

    def sums(self) -> None:
        """The exact sums so far."""
        rows = [[kind, name, *sums] for (kind, name), sums in self.counts.items()]
        self.write(raw_file.TOTALS, np.array(rows, "<i8").tobytes())

    def rotate(self) -> None:
        """Go on in the next segment."""
        self._file.rotate()

    def end(self, run_ns: int, losses: list[list[int]] | None = None, **about: Any) -> None:
        """The drainer's last word, at `run_ns`; a loss: ring, left, full, deep, first ns, last
        ns.
        """
        told = [[*loss[:4], self.clock(loss[4]), self.clock(loss[5])] for loss in losses or []]
        self.sums()
        self.write(
            raw_file.LOSS,
            json.dumps({"losses": told, "disk_full_ns": [], "alive": False} | about).encode(),
        )
        self.poll(run_ns)
        self.write(raw_file.END, b"{}")
