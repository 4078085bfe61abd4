"""The raw file of the sampler made by hand, as native/sampler writes it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from layerscope.collect import sampled, spool

PYTHON_3_11 = 11


class SamplerFile:
    """One process with numbered threads; stacks are given as lists of names of frames, the outermost first.

    A frame "py:NAME" is one of Python, "made:NAME" code that told its name, "jit:NUMBER" an address outside of files,
    "[kernel]" and "[cut]" those; all others are functions of an object in which nothing has a name: frames told apart
    by nothing but the object.
    """

    def __init__(
        self, raw: Path, pid: int, start_ns: int = 0, name: str = sampled.FILE, switches: bool = True
    ) -> None:  # fmt: skip
        self._file = spool.SpoolWriter(raw / name)
        self._frames: dict[str, int] = {}
        self._stacks: dict[tuple[int, int], int] = {}
        self._codes = self._mades = 0
        self._write(sampled.SETTINGS, json.dumps({"hz": 99, "switches": switches}).encode())
        self.rows(sampled.PROCESSES, sampled.PROCESS, [(0, pid, 1, PYTHON_3_11, start_ns, 0)])
        head = np.zeros(1, sampled.OBJECT)
        path = b"/usr/lib/libnothing.so"
        head["path_bytes"] = len(path)
        self._write(sampled.OBJECTS, head.tobytes() + path.ljust(24, b"\0"))

    def _write(self, kind: int, payload: bytes) -> None:
        self._file.write(kind, payload)

    def rows(self, kind: int, dtype: np.dtype, rows: list[tuple]) -> None:
        """A chunk of rows."""
        self._write(kind, np.array(rows, dtype).tobytes())

    def process(self, number: int, pid: int, ppid: int, start_ns: int, end_ns: int = 0) -> None:
        """One more process."""
        self.rows(sampled.PROCESSES, sampled.PROCESS, [(number, pid, ppid, PYTHON_3_11, start_ns, end_ns)])

    def thread(
        self, number: int, tid: int, start_ns: int, end_ns: int = 0, name: bytes = b"", process: int = 0
    ) -> None:
        """A thread of one of the processes."""
        self.rows(sampled.THREADS, sampled.THREAD, [(number, process, tid, 0, start_ns, end_ns, name)])

    def account(self, at_ns: int, thread: int, *values: int, migrations: int = 0) -> None:
        """What the system has accounted for a thread: run, delay, user, system, voluntary, forced, minor, major."""
        self.rows(sampled.ACCOUNTS, sampled.ACCOUNT, [(at_ns, thread, migrations, *values)])

    def _frame(self, name: str) -> int:
        if name not in self._frames:
            self._frames[name] = number = len(self._frames)
            kind, of, address = sampled.NATIVE, 0, number
            if name.startswith("py:"):
                kind, of, address = sampled.PYTHON, number, 0
                self._code(number, name[3:])
            elif name.startswith("made:"):
                kind, of, address = sampled.MADE, self._made(name[5:]), 16
            elif name.startswith("jit:"):
                kind, address = sampled.JIT, int(name[4:])
            elif name in ("[kernel]", "[cut]"):
                kind = sampled.KERNEL if name == "[kernel]" else sampled.CUT
            self.rows(sampled.FRAMES, sampled.FRAME, [(number, kind, of, 0, address)])
        return self._frames[name]

    def _made(self, name: str) -> int:
        head = np.array([(self._mades, 0, 4096, 100, len(name.encode()), 0)], sampled.MADE_CODE)
        self._write(sampled.MADES, head.tobytes() + name.encode().ljust(-(-len(name.encode()) // 8) * 8, b"\0"))
        self._mades += 1
        return self._mades - 1

    def _code(self, number: int, name: str) -> None:
        # Codes are numbered one after the other: those between are never named.
        while self._codes <= number:
            text = name.encode() + b"/a/train.py"
            head = np.array([(self._codes, 0, 7, len(name.encode()), 11, 0, PYTHON_3_11, 0)], sampled.CODE)
            self._write(sampled.CODES, head.tobytes() + text.ljust(-(-len(text) // 8) * 8, b"\0"))
            self._codes += 1

    def stack(self, *frames: str) -> int:
        """The number of a stack."""
        around = sampled.NONE
        for depth, name in enumerate(frames):
            frame = self._frame(name)
            if (around, frame) not in self._stacks:
                number = self._stacks[around, frame] = len(self._stacks)
                self.rows(sampled.STACKS, sampled.STACK, [(number, around, frame, depth)])
            around = self._stacks[around, frame]
        return around

    def cpu(self, at_ns: int, thread: int, stack: int, weight_ns: int, kernel_ns: int = 0) -> None:
        """A sample on a CPU."""
        row = (at_ns, thread, stack, weight_ns, kernel_ns, sampled.CPU, 0, 1, 0, 0, sampled.NONE)
        self.rows(sampled.SAMPLES, sampled.SAMPLE, [row])

    def wait(self, at_ns: int, thread: int, stack: int, dur_ns: int, system_call: int, **more: int) -> None:
        """A wait; `more`: file, flags, waker."""
        flags, file, waker = more.get("flags", sampled.EXACT), more.get("file", 0), more.get("waker", sampled.NONE)
        row = (at_ns, thread, stack, dur_ns, 0, sampled.OFFCPU, flags, 1, system_call, file, waker)
        self.rows(sampled.SAMPLES, sampled.SAMPLE, [row])

    def faults(self, at_ns: int, thread: int, stack: int, count: int) -> None:
        """A sample of page faults."""
        row = (at_ns, thread, stack, 0, 0, sampled.FAULT, 0, count, 0, 0, sampled.NONE)
        self.rows(sampled.SAMPLES, sampled.SAMPLE, [row])

    def end(self, until_ns: int) -> None:
        """The sampler's last words."""
        self._write(sampled.POLL, np.array([until_ns], "<u8").tobytes())
        self._write(sampled.END, b"{}")
