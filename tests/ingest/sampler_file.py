"""The raw file of the sampler made by hand, as native/sampler writes it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from layerscope.rawfile import raw_file, sampler_file

PYTHON_3_11 = 11


class SamplerFile:
    """One process with numbered threads; stacks are given as lists of names of frames, the
    outermost first.

    A frame "py:NAME" is one of Python, "made:NAME" code that told its name, "jit:NUMBER" an address
    outside of files, "[kernel]" and "[cut]" those; all others are functions of an object in which
    nothing has a name: frames told apart by nothing but the object.
    """

    def __init__(
        self, raw: Path, pid: int, start_ns: int = 0, name: str = raw_file.SAMPLER_FILE, switches: bool = True
    ) -> None:  # fmt: skip
        self._file = raw_file.SpoolWriter(raw / name)
        self._frames: dict[str, int] = {}
        self._stacks: dict[tuple[int, int], int] = {}
        self._codes = self._mades = 0
        self._write(sampler_file.SETTINGS, json.dumps({"hz": 99, "switches": switches}).encode())
        self.rows(
            sampler_file.PROCESSES, sampler_file.PROCESS, [(0, pid, 1, PYTHON_3_11, start_ns, 0)]
        )
        head = np.zeros(1, sampler_file.OBJECT)
        path = b"/usr/lib/libnothing.so"
        head["path_bytes"] = len(path)
        self._write(sampler_file.OBJECTS, head.tobytes() + path.ljust(24, b"\0"))

    def _write(self, kind: int, payload: bytes) -> None:
        self._file.write(kind, payload)

    def rows(self, kind: int, dtype: np.dtype, rows: list[tuple]) -> None:
        """A chunk of rows."""
        self._write(kind, np.array(rows, dtype).tobytes())

    def process(self, number: int, pid: int, ppid: int, start_ns: int, end_ns: int = 0) -> None:
        """One more process."""
        self.rows(
            sampler_file.PROCESSES,
            sampler_file.PROCESS,
            [(number, pid, ppid, PYTHON_3_11, start_ns, end_ns)],
        )

    def thread(
        self,
        number: int,
        tid: int,
        start_ns: int,
        end_ns: int = 0,
        name: bytes = b"",
        process: int = 0,
    ) -> None:
        """A thread of one of the processes."""
        self.rows(
            sampler_file.THREADS,
            sampler_file.THREAD,
            [(number, process, tid, 0, start_ns, end_ns, name)],
        )

    def account(self, at_ns: int, thread: int, *values: int, migrations: int = 0) -> None:
        """What the system has accounted for a thread: run, delay, user, system, voluntary, forced,
        minor, major.
        """
        self.rows(
            sampler_file.ACCOUNTS, sampler_file.ACCOUNT, [(at_ns, thread, migrations, *values)]
        )

    def _frame(self, name: str) -> int:
        if name not in self._frames:
            self._frames[name] = number = len(self._frames)
            kind, of, address = sampler_file.NATIVE, 0, number
            if name.startswith("py:"):
                kind, of, address = sampler_file.PYTHON, number, 0
                self._code(number, name[3:])
            elif name.startswith("made:"):
                kind, of, address = sampler_file.MADE, self._made(name[5:]), 16
            elif name.startswith("jit:"):
                kind, address = sampler_file.JIT, int(name[4:])
            elif name in ("[kernel]", "[cut]"):
                kind = sampler_file.KERNEL if name == "[kernel]" else sampler_file.CUT
            self.rows(sampler_file.FRAMES, sampler_file.FRAME, [(number, kind, of, 0, address)])
        return self._frames[name]

    def _made(self, name: str) -> int:
        head = np.array(
            [(self._mades, 0, 4096, 100, len(name.encode()), 0)], sampler_file.MADE_CODE
        )
        self._write(
            sampler_file.MADES,
            head.tobytes() + name.encode().ljust(-(-len(name.encode()) // 8) * 8, b"\0"),
        )
        self._mades += 1
        return self._mades - 1

    def _code(self, number: int, name: str) -> None:
        # Codes are numbered one after the other: those between are never named.
        while self._codes <= number:
            text = name.encode() + b"/a/train.py"
            head = np.array(
                [(self._codes, 0, 7, len(name.encode()), 11, 0, PYTHON_3_11, 0)], sampler_file.CODE
            )
            self._write(
                sampler_file.CODES, head.tobytes() + text.ljust(-(-len(text) // 8) * 8, b"\0")
            )
            self._codes += 1

    def stack(self, *frames: str) -> int:
        """The number of a stack."""
        around = sampler_file.NONE
        for depth, name in enumerate(frames):
            frame = self._frame(name)
            if (around, frame) not in self._stacks:
                number = self._stacks[around, frame] = len(self._stacks)
                self.rows(sampler_file.STACKS, sampler_file.STACK, [(number, around, frame, depth)])
            around = self._stacks[around, frame]
        return around

    def cpu(self, at_ns: int, thread: int, stack: int, weight_ns: int, kernel_ns: int = 0) -> None:
        """A sample on a CPU."""
        row = (
            at_ns,
            thread,
            stack,
            weight_ns,
            kernel_ns,
            sampler_file.CPU,
            0,
            1,
            0,
            0,
            sampler_file.NONE,
        )
        self.rows(sampler_file.SAMPLES, sampler_file.SAMPLE, [row])

    def wait(
        self, at_ns: int, thread: int, stack: int, dur_ns: int, system_call: int, **more: int
    ) -> None:
        """A wait; `more`: file, flags, waker."""
        flags, file, waker = (
            more.get("flags", sampler_file.EXACT),
            more.get("file", 0),
            more.get("waker", sampler_file.NONE),
        )
        row = (
            at_ns,
            thread,
            stack,
            dur_ns,
            0,
            sampler_file.OFFCPU,
            flags,
            1,
            system_call,
            file,
            waker,
        )
        self.rows(sampler_file.SAMPLES, sampler_file.SAMPLE, [row])

    def faults(self, at_ns: int, thread: int, stack: int, count: int) -> None:
        """A sample of page faults."""
        row = (at_ns, thread, stack, 0, 0, sampler_file.FAULT, 0, count, 0, 0, sampler_file.NONE)
        self.rows(sampler_file.SAMPLES, sampler_file.SAMPLE, [row])

    def end(self, until_ns: int) -> None:
        """The sampler's last words."""
        self._write(sampler_file.POLL, np.array([until_ns], "<u8").tobytes())
        self._write(sampler_file.END, b"{}")
