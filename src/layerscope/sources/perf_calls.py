"""Calls and returns that `perf script` prints of a trace of the processor (Intel PT, with
`-F +flags,+callindent`): stacks, and how long each was the one that ran.

    COMM  PID/TID [CPU] TIME:   FLAGS   SYMBOL CALLED OR LEFT   ADDRESS SYMBOL+OFFSET (OBJECT)

What was open when a trace begins is not known: a function that returns without a call was called
before, and so was one that calls. One that returns in the place of another one was jumped to.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct, field

from layerscope.model.events import Problem
from layerscope.model.layers import STACKS
from layerscope.sources.call_stacks import CallStacks, OpenCalls
from layerscope.sources.imported import Imported, ImportedProcess, ImportedTrack
from layerscope.sources.text_chunks import chunks, with_short_lines

MEANING = "calls and returns that perf script prints"
_FLAGS = (
    rb"(?P<flags>call|return|syscall|sysret|int|iret|jmp|jcc|async|hw int|tx abrt|tr strt|tr end|"
    rb"tr end\s+\w+|vmentry|vmexit)"
)
_LINE = re.compile(
    rb"^\s*(?P<comm>\S.*?)\s+(?:(?P<pid>-?\d{1,9})/)?(?P<tid>-?\d{1,9})\s+(?:\[(?P<cpu>\d+)\]\s+)?"
    rb"(?P<second>\d{1,9})\.(?P<fraction>\d{6,9}):\s+" + _FLAGS + rb"\s{2,}"
    rb"(?P<symbol>\S(?:.*?\S)?)?\s+(?P<ip>[0-9a-f]+)\s+(?P<own>\S.*?)(?:\+0x[0-9a-f]+)?\s+"
    rb"\((?P<object>.*)\)\s*$"
)
_RECOGNISED = re.compile(
    rb"^[ \t]*\S[^\n]*?\s(?:-?\d+/)?-?\d+\s+(?:\[\d+\]\s+)?\d+\.\d{6,9}:\s+"
    rb"(?:call|return|syscall|sysret|tr strt|tr end)\s{2,}[^\n]*\s[0-9a-f]+ [^\n]*\([^\n]*\)\s*$",
    re.MULTILINE,
)
_ERROR = b"instruction trace error"
_OPENS, _CLOSES = ("call", "syscall", "int", "hw int"), ("return", "sysret", "iret")
_LOST = ("tr strt", "tr end", "tx abrt")
_KERNEL = re.compile(r"^\[(kernel|guest\.kernel|[a-z0-9_]+\])|\.ko(\.\w+)?$|vmlinux")
_NO_MODULE = ("[unknown]", "[vdso]", "[vsyscall]")


def recognises(head: bytes) -> bool:
    """Whether a file that begins so has calls and returns."""
    return b"\0" not in head and _RECOGNISED.search(with_short_lines(head)) is not None


def read(path: Path) -> Imported:
    """The calls in the text `path`, which may be packed with gzip."""
    calls = _Calls()
    for chunk, _ in chunks(path):
        for line in chunk.splitlines():
            calls.add(line)
    return calls.imported()


class _Calls(Struct):
    """What was read so far. `objects`: by function, the file that it is in."""

    stacks: CallStacks = field(default_factory=CallStacks)
    tracks: list[ImportedTrack] = field(default_factory=list)
    processes: dict[int, ImportedProcess] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    rejected: int = 0
    errors: int = 0
    example: str = ""
    _open: dict[tuple[int, int], OpenCalls] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def add(self, line: bytes) -> None:
        """Take in a line."""
        told = _LINE.match(line)
        if told is None:
            self._add_other(line)
            return
        comm, own, object_ = (_text(told[name]) for name in ("comm", "own", "object"))
        tid = int(told["tid"])
        pid = int(told["pid"] or tid)
        at_ns = int(told["second"]) * 10**9 + int(told["fraction"].ljust(9, b"0"))
        calls = self._calls(pid, tid, comm)
        flags = " ".join(_text(told["flags"]).split())
        symbol = _text(told["symbol"] or b"")
        if own != "[unknown]":
            self.objects.setdefault(own, object_)
        if own != "[unknown]" and (flags in _OPENS or flags in _CLOSES):
            calls.found_in(self._number(own))
        if flags in _OPENS and symbol:
            calls.call(self._number(symbol), at_ns)
        elif flags in _CLOSES:
            known = own if own != "[unknown]" else symbol
            calls.finish(self._number(known), at_ns, is_tail=True)
        elif flags.startswith(_LOST):
            calls.forget(at_ns)
        else:
            calls.until(at_ns)

    def imported(self) -> Imported:
        """Everything that was read."""
        names = list(self._numbers)
        stacks = self.stacks
        for name in names:
            object_ = self.objects.get(name)
            is_kernel = bool(object_ and _KERNEL.search(object_)) and object_ not in _NO_MODULE
            layer = "kernel" if is_kernel else "native"
            known = stacks.frames.add(layer, name, object=object_)
            self._numbers[name] = known
        by_number = list(self._numbers.values())
        for at, frame in enumerate(stacks.frame):
            stacks.frame[at] = by_number[frame]
        return Imported(
            tracks=self.tracks or [ImportedTrack(0, "nothing")],
            processes=list(self.processes.values()) or [ImportedProcess()],
            stacks=stacks.imported(stacks.first_ns),
            problems=self._problems(),
        )

    def _add_other(self, line: bytes) -> None:
        if _ERROR in line:
            self.errors += 1
        elif line.strip() and not line.startswith(b"#"):
            self.rejected += 1
            self.example = self.example or _text(line)[:200]

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _calls(self, pid: int, tid: int, comm: str) -> OpenCalls:
        found = self._open.get((pid, tid))
        if found is None:
            if pid not in self.processes:
                self.processes[pid] = ImportedProcess(name=comm, pid=max(pid, 0))
            process = list(self.processes).index(pid)
            found = self._open[pid, tid] = OpenCalls(self.stacks, len(self.tracks))
            self.tracks.append(ImportedTrack(process, comm, tid))
        return found

    def _problems(self) -> list[Problem]:
        found = []
        remedy = "record with a larger buffer: perf record -m,64M"
        if self.errors:
            what = f"the processor's trace has {self.errors:,} gaps"
            found.append(Problem(STACKS, "trace_gaps", what, remedy, "calls in them"))
        if self.rejected:
            what = f"{self.rejected:,} lines are no call, first: {self.example}"
            remedy = "look whether the text was cut"
            found.append(Problem(STACKS, "lines_rejected", what, remedy, "these lines"))
        unmatched = sum(calls.unmatched for calls in self._open.values())
        if unmatched:
            what = f"{unmatched:,} functions were called before the trace began, or in a gap of it"
            remedy = "record from the beginning of the program"
            lost = "what called these functions"
            found.append(Problem(STACKS, "calls_unseen", what, remedy, lost))
        return found


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")
