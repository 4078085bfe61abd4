"""The drainer: a process of its own that empties the rings of the program into raw files.

It runs at normal priority and does nothing else: it copies, seals, counts. (At nice 19 beside two
busy cores a drainer loses most of what it should take.) The session hands it every memfd that the
program's processes give away, and takes over when it dies: a second drainer gets the same memory
and goes on where `consumed` says. A drainer whose session was killed goes on to the end of the
program, and takes itself what is handed over from then on.

usage: python -m layerscope.capture.drainer CONTROL_FD RAW_FOLDER LISTENER_FD
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.capture import counters
from layerscope.capture.agent import clock_reading
from layerscope.capture.drained_process import DrainedProcess
from layerscope.capture.drainer_messages import DONE, END, MARK, WINDOW
from layerscope.capture.orphaned import OrphanedDoor, answer, leave_word, reopened
from layerscope.rawfile import layout, raw_file
from layerscope.rawfile.json_files import read_options
from layerscope.rawfile.page import ProcessPage
from layerscope.rawfile.windows import WindowControl

if TYPE_CHECKING:
    from layerscope.capture.rings import Columns, Ring, RingWatch

# At least this often everything is taken, counters are read and the clocks are compared.
KNOT_S = 0.2
# Before that a ring is emptied when it is a quarter full: fewer, larger chunks compress better.
DRAIN_FROM_PART = 4
# A worker gives its thread a name only after its first operators.
LOOKS_AT_A_NAME = 3
DISK_RETRY_S = 1.0
# The converter keeps the recording within its size by taking spans out of old segments. Where there
# is none, or it is far behind, the drainer stops at this share of what may be kept.
LAST_RESORT_SHARE = 0.97
SLICE_NS = 100_000
RESERVE = "reserve"
RESERVE_BYTES = 256 << 10
# What the process page counts, under the names that the last chunk of a spool has.
PAGE_COUNTS = (
    "lost_without_ring",
    "lost_without_ring_first",
    "lost_without_ring_last",
    "lost_names",
    "callbacks",
    "agent_cpu_ns",
    "window_steps",
    "open_requests",
)
_SYS_SCHED_SETATTR = 314


class Drainer:
    """Takes memory from the control socket and empties it until the session says that this is the
    end.
    """

    def __init__(
        self, control: socket.socket, raw: Path, listener: socket.socket | None = None
    ) -> None:
        self.control = control
        control.setblocking(False)
        self.listener = listener  # of the session
        self.door: OrphanedDoor | None = None  # the same, once that was killed
        self.is_over = False
        self.is_orphan = False  # the session was killed
        self.is_outside = False  # the program runs already, and longer than it is recorded
        self.raw = raw
        self.processes: dict[tuple[int, int], DrainedProcess] = {}
        self.main: DrainedProcess | None = None
        # Which process reports what its control group has used.
        self.groups: dict[tuple[Path, ...], DrainedProcess] = {}
        self.machine = counters.MachineSource()
        self.disk_full_until = 0.0
        self.disk_full_ns: list[list[int]] = []  # [from, to] on CLOCK_MONOTONIC
        self.host = os.uname().nodename
        self.windows = WindowControl(raw)
        self.orders: list[dict[str, Any]] = []  # of the session, that are not done yet
        self.done: list[int] = []  # numbers of those that the session does not know to be done
        options = read_options(raw)
        self.most_bytes = LAST_RESORT_SHARE * raw_file.most_bytes(options)
        self.options = options
        self.is_full = False
        self.fresh_bytes = 0  # written since `is_full` was looked at
        self.watch: RingWatch | None = None  # from the first ring on
        self.columns: Columns | None = None
        self._keep_reserve()

    def run(self) -> None:
        """Poll to the end of the session or, when that is killed, of the program; then take
        everything once more.
        """
        next_knot = 0.0
        while not self.is_over:
            self._listen(next_knot)
            self._follow_orders()
            self.windows.advance(self.processes.values())
            self._say_done()
            now = time.monotonic()
            at_knot = now >= next_knot or self.is_over
            if at_knot:
                next_knot = now + KNOT_S
                self._look_at_size()
            for key, process in list(self.processes.items()):
                gone = at_knot and process.is_gone()
                self._drain(process, at_knot)
                if gone and not self.is_over and self._finish(process):
                    self._forget(key, process)
        self._release_reserve()
        for process in self.processes.values():
            self._finish(process)
        if self.is_orphan:
            leave_word(self.raw)

    def _look_at_size(self) -> None:
        """Whether the recording has the size that it may have, after every quarter of a segment."""
        if self.is_full or self.fresh_bytes > raw_file.segment_bytes(self.options) / 4:
            self.is_full = raw_file.raw_bytes(self.raw) > self.most_bytes
            self.fresh_bytes = 0

    def _listen(self, next_knot: float) -> None:
        """Take what the session sends, until the next knot or until a ring fills up."""
        until = min(next_knot, time.monotonic() + self.windows.look_again_s())
        source = self.door if self.is_orphan else self.control
        came = self._wait(-1 if source is None else source.fileno(), until)
        if self.is_orphan:
            self._go_on_alone()
        elif came and not self._receive() and not self.is_over:
            self._become_orphan()

    def _become_orphan(self) -> None:
        """The session was killed: what the program hands over, nobody else takes now."""
        self.is_orphan = True
        self._follow_orders()
        self.windows.forget_session()
        if self.listener is not None and self.main is not None and not self.is_outside:
            self.door = reopened(self.listener, self.main.pid)

    def _go_on_alone(self) -> None:
        # Looked at first: what the program handed over before its end can be taken by now.
        is_gone = self.is_outside or self.main is None or self.main.is_gone()
        if self.door is not None:
            for message, fd in self.door.take():
                # It may be damaged memory; the next one must still be taken.
                with contextlib.suppress(OSError, ValueError, struct.error):
                    self._register(message, fd)
            self._answer()
            if is_gone:
                self.door.close()
        self.is_over = is_gone

    def _answer(self) -> None:
        """Answer processes that ask, as the session would have done."""
        pages = (process.page for process in self.processes.values())
        answer([page for page in pages if page is not None])

    def _wait(self, descriptor: int, until: float) -> bool:
        if self.watch is not None:
            return self.watch.wait(descriptor, round(until * 1e9))
        poll = select.poll()
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
        left_s = max(until - time.monotonic(), 0.0)
        return bool(poll.poll(left_s * 1000))

    def _keep_reserve(self) -> None:
        """Hold back some space, so that a full disk still takes the account of what was lost."""
        with contextlib.suppress(OSError), (self.raw / RESERVE).open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)

    def _release_reserve(self) -> None:
        with contextlib.suppress(OSError):
            (self.raw / RESERVE).unlink()

    def _receive(self) -> bool:
        """Everything that waits on the control socket. False: nothing more will come."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.control, 4096, 1)
            except BlockingIOError:
                return True
            except ConnectionResetError:
                continue  # it was killed before it heard all that we said; what it sent is here
            except OSError:
                return False
            if not data:
                return False
            try:
                self._register(json.loads(data), fds[0] if fds else -1)
            finally:
                for fd in fds:
                    os.close(fd)

    def _register(self, message: dict[str, Any], fd: int) -> None:
        self.is_over |= message["type"] == END
        if message["type"] in (WINDOW, MARK):
            self.orders.append(message)
        if message["type"] in (END, WINDOW, MARK):
            return
        if message["type"] == "main":
            self.windows.start_ns = message["start_ns"]
            base = message.get("base")  # of one that ran before
            self.is_outside = base is not None
            pid, start_ns = message["pid"], message["start_ns"]
            self.main = self._begin((pid, 0), pid, start_ns, base)
            return
        key = (message["pid"], message["process_start"])
        process = self.processes.get(key)
        if message["type"] == layout.SEND_PROCESS:
            if process is None:
                process = self._adopt_main(key) or self._begin(
                    key, message["pid"], message["process_start"]
                )
            process.page = ProcessPage(fd)
            self._write(process, raw_file.PROCESS, process.describe())
        elif process is None:
            return  # its page never arrived: nothing can be said about it
        elif message["type"] == layout.SEND_RING:
            self._add_ring(process, fd)
        else:
            from layerscope.capture.rings import NamesSegment

            process.segments.append(NamesSegment(fd))

    def _follow_orders(self) -> None:
        """Do what the session has asked for; what cannot be done stays."""
        left = []
        for order in self.orders:
            if order["type"] == WINDOW:
                self.windows.until_ns = order["until_ns"]
            elif not self._mark(order):
                left.append(order)
                continue
            self.done.append(order["number"])
        self.orders = left

    def _mark(self, order: dict[str, Any]) -> bool:
        """Write a mark into the file of the program, else of another process."""
        processes = list(self.processes.values())
        process = self.main if self.main in processes else next(iter(processes), None)
        about = {"at_ns": order["at_ns"], "name": order["name"]}
        payload = json.dumps(about).encode()
        return process is not None and self._write(process, raw_file.OUTSIDE, payload)

    def _say_done(self) -> None:
        """Tell the session what of its orders is done."""
        for number in self.done:
            with contextlib.suppress(OSError):
                self.control.send(json.dumps({DONE: number}).encode())
        self.done.clear()

    def _add_ring(self, process: DrainedProcess, fd: int) -> None:
        from layerscope.capture.rings import Columns, Ring, RingWatch, SpanSums

        ring = Ring(fd)
        process.sums = process.sums or SpanSums()
        # The one before us may have died between writing records and saying so to the program.
        ring.set("consumed", max(ring.consumed, process.sealed.get(ring.index, 0)))
        process.rings.append(ring)
        self.columns = self.columns or Columns()
        self.watch = self.watch or RingWatch()
        self._follow_rings()

    def _follow_rings(self) -> None:
        if self.watch is not None:
            rings = [ring for process in self.processes.values() for ring in process.rings]
            self.watch.follow(rings)

    def _adopt_main(self, key: tuple[int, int]) -> DrainedProcess | None:
        """The program itself was known before its agent spoke up: one process, one file."""
        main = self.main
        if main is None or main.pid != key[0] or main.page is not None:
            return None
        self.processes.pop((main.pid, 0), None)
        self.processes[key] = main
        return main

    def _begin(
        self, key: tuple[int, int], pid: int, start_ns: int, base: dict[str, int] | None = None
    ) -> DrainedProcess:
        folder = self.raw / f"{self.host}-{pid}-{start_ns}"
        process = DrainedProcess(pid, start_ns, folder, base)
        if not process.file.is_new:  # a drainer before us began it
            from layerscope.capture.rings import sums_of

            process.sums, process.sealed = sums_of(folder / "spool")
        self.processes[key] = process
        self._write(process, raw_file.PROCESS, process.describe())
        self._write(process, raw_file.POLL, _clocks())
        return process

    def _forget(self, key: tuple[int, int], process: DrainedProcess) -> None:
        del self.processes[key]
        self.groups = {
            group: watched for group, watched in self.groups.items() if watched is not process
        }
        process.close()
        self._follow_rings()
        with contextlib.suppress(OSError):
            self.control.send(json.dumps({"gone": key[0], "process_start": key[1]}).encode())

    def _write(
        self,
        process: DrainedProcess,
        kind: int,
        payload: raw_file.Payload,
        key: int = 0,
        count: int = 0,
        first: int = 0,
    ) -> bool:
        """Append a chunk. False: the disk is full; what it was about stays where it is for now."""
        before = process.file.size_bytes
        try:
            process.file.write(kind, payload, key, count, first)
            self.fresh_bytes += process.file.size_bytes - before
        except OSError:
            now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            if not self.disk_full_until:
                self.disk_full_ns.append([now_ns, now_ns])
            self.disk_full_ns[-1][1] = now_ns
            self.disk_full_until = time.monotonic() + DISK_RETRY_S
            return False
        if self.disk_full_until:
            self.disk_full_until = 0.0
            self.disk_full_ns[-1][1] = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return True

    def _drain(self, process: DrainedProcess, at_knot: bool) -> None:
        if time.monotonic() < self.disk_full_until:
            return
        wanted = [
            ring
            for ring in process.rings
            if at_knot or ring.waiting() >= ring.capacity // DRAIN_FROM_PART
        ]
        # The order matters: after the clock every record that is taken now and ended before it is
        # in this poll; after `published` every name that those records use is in its segment.
        reading = _clocks() if wanted or at_knot else b""
        ends = [ring.published for ring in wanted]
        if (wanted or at_knot) and not self._take_names(process):
            return
        for ring, end in zip(wanted, ends, strict=True):
            self._take_records(process, ring, end)
        if at_knot:
            self._knot(process, reading)

    def _take_names(self, process: DrainedProcess) -> bool:
        for segment in process.segments:
            fresh = segment.fresh()
            if fresh:
                if not self._write(
                    process, raw_file.NAMES, fresh, segment.segment, 0, segment.taken
                ):
                    return False
                segment.taken += len(fresh)
        return True

    def _take_records(self, process: DrainedProcess, ring: Ring, end: int) -> None:
        if end == ring.consumed or process.sums is None or self.columns is None:
            return
        first = ring.consumed
        count = ring.take(end, self.columns)
        payload: raw_file.Payload = self.columns.taken(count)
        kind = raw_file.RECORDS
        if self.is_full:
            kind, payload = raw_file.STRIPPED, raw_file.stripped_rows(ring.rows(end))
        if self._write(process, kind, payload, ring.index, count, first):
            ring.count(end, process.sums)
            ring.set("consumed", end)

    def _knot(self, process: DrainedProcess, reading: bytes) -> None:
        sample = process.counters.sample()
        group = process.group.look()
        if group and self.groups.setdefault(group, process) is process:
            sample += process.group.sample()
        if process is next(iter(self.processes.values()), None):
            sample += self.machine.sample()
        if sample:
            self._write(process, raw_file.COUNTERS, sample)
        names = self._thread_names(process)
        if names:
            self._write(process, raw_file.THREADS, json.dumps(names).encode())
        self._write(process, raw_file.POLL, reading)
        is_full = process.file.size_bytes > raw_file.segment_bytes(
            self.options, len(self.processes)
        )
        if is_full and self._write_totals(process):
            with contextlib.suppress(OSError):
                process.file.rotate()

    def _write_totals(self, process: DrainedProcess) -> bool:
        sums = process.sums.packed() if process.sums is not None else b""
        return self._write(process, raw_file.TOTALS, sums)

    def _thread_names(self, process: DrainedProcess) -> dict[int, str]:
        """Names of threads, as the operating system has them, if they are new or others than
        before.
        """
        names = {}
        for ring in process.rings:
            tid = ring.number("tid")
            known = process.thread_names.setdefault(tid, [])
            if len(known) >= LOOKS_AT_A_NAME or not ring.number("track"):
                continue
            with contextlib.suppress(OSError):
                file = Path(f"/proc/{process.pid}/task/{tid}/comm")
                name = file.read_text(errors="replace").strip()
                if name not in known:
                    names[tid] = name
                known.append(name)
        return names

    def _finish(self, process: DrainedProcess) -> bool:
        """The last word on a process: what is still open on every thread, and what was lost. False:
        no room for it.
        """
        losses = []
        fits = True
        for ring in process.rings:
            ring.set("closed", 1)
            depth, slots = ring.open_spans()
            if depth and ring.number("track"):
                head = struct.pack("<QQ", ring.number("track"), ring.number("tid"))
                fits &= self._write(process, raw_file.OPEN, head + slots, ring.index, depth)
            left, full, deep = ring.abandoned()
            if left or full or deep:
                first, last = ring.number("lost_first"), ring.number("lost_last")
                losses.append([ring.index, left, full, deep, first, last])
        about: dict[str, Any] = {
            "losses": losses,
            "disk_full_ns": self.disk_full_ns,
            "alive": process.dead_since is None and not process.has_ended(),
            "unread": process.counters.unread
            | ({"cgroup": "not mounted"} if process.group.group.is_hidden else {}),
        }
        # The program may give itself a rank or a role after its start.
        if process.place_in_job() != process.reported:
            fits &= self._write(process, raw_file.PROCESS, process.describe())
        if process.page is not None:
            about.update({name: process.page.number(name) for name in PAGE_COUNTS})
        fits &= self._write_totals(process)
        fits &= self._write(process, raw_file.LOSS, json.dumps(about).encode())
        fits &= self._write(process, raw_file.POLL, _clocks())
        # Without the rest there is no end: it is all said again when there is room.
        return fits and self._write(process, raw_file.END, b"{}")


def _clocks() -> bytes:
    """A reading of the clocks as a chunk holds it."""
    return struct.pack("<4q", *clock_reading())


def ask_for_low_latency() -> None:
    """Ask the scheduler for short slices: woken sooner, at the same share of the CPU as everybody.

    Linux 6.12 and later take the slice of a normal task from `sched_runtime` of sched_setattr(2),
    in ns; older ones and other machines leave things as they are. Beside four busy tasks on two
    cores it made the difference between some lost records and none.
    """
    if os.uname().machine != "x86_64":
        return
    # struct sched_attr: size, policy SCHED_OTHER, flags, nice, priority, runtime, deadline, period,
    # util_min, util_max
    attributes = struct.pack("<IIQiIQQQII", 56, 0, 0, 0, 0, SLICE_NS, 0, 0, 0, 0)
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).syscall(_SYS_SCHED_SETATTR, 0, attributes, 0)


def drain(control: int, raw: str, listener: int) -> None:
    """Be the drainer; standard output gets one line of JSON at the end: what it cost."""
    # The terminal's Ctrl-C is for the program; we end when the session says so.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    ask_for_low_latency()
    door = socket.socket(fileno=listener) if listener >= 0 else None
    Drainer(socket.socket(fileno=control), Path(raw), door).run()
    with contextlib.suppress(OSError):  # nobody reads it when the session was killed
        os.write(1, json.dumps({"cpu_ns": time.process_time_ns()}).encode())


if __name__ == "__main__":
    drain(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
