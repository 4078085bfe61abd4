"""The tap: a process in the standard output of the program that takes the lines of oneDNN's verbose
log out of it.

Everything else passes as it came, byte by byte and as soon as it came. A line of the log goes from
its marker to its newline, wherever on a line of the program it begins (a progress bar has no
newline), and is written to a file with the time when it arrived. The program writes to a terminal
if its output is one, to a regular file or a pipe likewise; the tap lives until nobody can write to
it any more, so what a daemon of the program prints later passes too.

Standard library only: it must be there before the program.

usage: python -m layerscope.capture.verbose_tap KIND SOURCE_FD OUTPUT_FD CONTROL_FD LOG MODE [FILE
START]
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import termios
import time
import zlib
from pathlib import Path

from layerscope.rawfile.log_files import arrivals_of

TERMINAL, PIPE, FILE = "terminal", "pipe", "file"
# What becomes of a line of the log: it is taken out, or it stays because the user asked for it
# himself.
TAKE, KEEP = "take", "keep"
RESIZE, FINISH = b"W", b"F"
RESIZED = b"w"
_MARKERS = (b"onednn_verbose,", b"dnnl_verbose,", b"mkldnn_verbose,")
_MARKER = re.compile(b"|".join(_MARKERS))
_LONGEST = max(len(marker) for marker in _MARKERS)
# Longer than any line of the log: it is somebody else's text.
_LINE_BYTES = 1 << 20
_READ_BYTES = 1 << 16
# What could be the beginning of a marker waits so long for the rest; a prompt may end with such
# letters.
_HOLD_MS = 20
# Nothing tells of a new size of a terminal in the background, and not every file system of a write.
_IDLE_MS = 200
# What was written to a terminal arrives a little later.
_SETTLE_MS = 50
# Text of the log that is kept: four million lines or so.
MOST_LOG_BYTES = 1 << 30
_FLUSH_NS = 500_000_000
_RETRY_S = 0.2
# Of a file in the middle, so much is given back to the disk at once.
_PUNCH_BYTES = 1 << 22
_PUNCH_HOLE = 0x03  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_IN_MODIFY = 0x02
_ARRIVAL = struct.Struct("<qq")
_IGNORED = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGTSTP,
    signal.SIGTTOU,
    signal.SIGTTIN,
)


class Filter:
    """Parts a stream of bytes into what the program prints and the lines of the log."""

    def __init__(self) -> None:
        self._held = b""
        self._line: bytes | None = None  # the part of a line that has come so far

    def feed(self, data: bytes) -> tuple[bytes, list[bytes]]:
        """What passes, and the lines of the log that are complete, without their newlines."""
        data, self._held = self._held + data, b""
        passed, lines = [], []
        while data:
            if self._line is None:
                found = _MARKER.search(data)
                if found is None:
                    held = _beginning_of_marker(data)
                    passed.append(data[: len(data) - held])
                    self._held = data[len(data) - held :]
                    break
                passed.append(data[: found.start()])
                self._line, data = b"", data[found.start() :]
            part, newline, data = data.partition(b"\n")
            self._line += part
            if newline:
                lines.append(self._line)
                self._line = None
            elif len(self._line) > _LINE_BYTES:
                passed.append(self._line)
                self._line = None
        return b"".join(passed), lines

    @property
    def is_holding(self) -> bool:
        """Whether something waits that could be the beginning of a marker."""
        return bool(self._held)

    def release(self) -> bytes:
        """What waits and is no beginning of a marker after all."""
        held, self._held = self._held, b""
        return held

    def finish(self) -> tuple[bytes, list[bytes]]:
        """What is left at the end: what waits, and a line that was cut."""
        cut = [self._line] if self._line is not None else []
        self._line = None
        return self.release(), cut


def _beginning_of_marker(data: bytes) -> int:
    """How many of the last bytes could be the beginning of a marker."""
    for length in range(min(_LONGEST - 1, len(data)), 0, -1):
        if any(marker.startswith(data[-length:]) for marker in _MARKERS):
            return length
    return 0


class Log:
    """Two files: the lines, packed by gzip, and beside it when they arrived.

    The second one has a pair of int64 for all lines that came at once: ns of CLOCK_MONOTONIC, and
    the place in the unpacked text behind them.
    """

    def __init__(self, path: Path) -> None:
        self.lines = self.lost = 0
        self.error = ""
        self._size_bytes = 0
        self._packer = zlib.compressobj(1, wbits=31)  # a gzip file
        self._arrivals: list[bytes] = []
        self._flushed_ns = 0
        self._fds: list[int] = []
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            for file in (path, arrivals_of(path)):
                fd = os.open(file, flags, 0o600)
                self._fds.append(fd)
        except OSError as error:
            self._fail(error)

    def add(self, lines: list[bytes], arrival_ns: int) -> None:
        """Keep these lines."""
        text = b"".join(line + b"\n" for line in lines)
        self.lines += len(lines)
        if self.error or self._size_bytes + len(text) > MOST_LOG_BYTES:
            self.lost += len(lines)
            return
        self._size_bytes += len(text)
        self._arrivals.append(_ARRIVAL.pack(arrival_ns, self._size_bytes))
        self._write(0, self._packer.compress(text))
        if arrival_ns - self._flushed_ns > _FLUSH_NS:
            self.flush()

    def flush(self) -> None:
        """What was added so far can be read whatever happens to us."""
        if self._arrivals:
            self._flushed_ns = time.monotonic_ns()
            self._write(0, self._packer.flush(zlib.Z_SYNC_FLUSH))
            self._write(1, b"".join(self._arrivals))
            self._arrivals = []

    def close(self) -> None:
        """No more lines."""
        self.flush()
        self._write(0, self._packer.flush(zlib.Z_FINISH))
        for fd in self._fds:
            os.close(fd)
        self._fds, self.error = [], self.error or "closed"

    def _write(self, which: int, data: bytes) -> None:
        try:
            while data and not self.error:
                written = os.write(self._fds[which], data)
                data = data[written:]
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.error = error.strerror or str(error)


class OutputSource:
    """Where the program's output comes from: a pipe, or the upper end of a terminal of ours."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)

    @property
    def polled(self) -> int:
        """The descriptor that becomes readable when there is something to `read`."""
        return self.fd

    def read(self) -> bytes | None:
        """What has come, b"" for nothing yet; None: nobody can write any more."""
        try:
            return os.read(self.fd, _READ_BYTES) or None
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EIO:  # the last program has closed the terminal
                return None
            raise

    def over(self) -> None:
        """The program has ended, though others may go on."""

    def close(self) -> None:
        """Whoever writes from now on learns that nobody reads."""
        os.close(self.fd)


class FileSource(OutputSource):
    """A regular file that the program writes instead of its own: read from behind as it grows, and
    emptied.
    """

    def __init__(self, fd: int, path: Path, start: int) -> None:
        self.fd = fd
        self._path = path
        self._at = self._kept_from = start
        self._is_over = False
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._notices = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._notices >= 0:
            self._libc.inotify_add_watch(self._notices, os.fsencode(path), _IN_MODIFY)

    @property
    def polled(self) -> int:
        """As of every source; -1 where the system does not tell of writes."""
        return int(self._notices)

    def read(self) -> bytes | None:
        """As of every source. Whether anybody can still write is asked for only when the program
        has ended.
        """
        data = os.pread(self.fd, _READ_BYTES, self._at)
        self._at += len(data)
        if not data:
            self._clear_notices()
            data = os.pread(self.fd, _READ_BYTES, self._at)
            self._at += len(data)
        if self._at - self._kept_from >= _PUNCH_BYTES and not self._is_over:
            self._give_back()
        return None if not data and self._is_over and self._has_no_writer() else data

    def over(self) -> None:
        """Nobody else will open the file: its name goes."""
        self._is_over = True
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _clear_notices(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(self._notices, _READ_BYTES):
                pass

    def _give_back(self) -> None:
        """The disk gets back what was read; on file systems that cannot, the file grows until the
        end.
        """
        with contextlib.suppress(OSError):
            writable = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            offset = ctypes.c_int64(self._kept_from), ctypes.c_int64(self._at - self._kept_from)
            self._libc.fallocate(writable, _PUNCH_HOLE, *offset)
            os.close(writable)
        self._kept_from = self._at

    def _has_no_writer(self) -> bool:
        """A lease to read is granted only while nobody has the file open for writing."""
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            return (
                error.errno != errno.EAGAIN
            )  # where there are no leases nobody knows: this is the end then
        return True


class Tap:
    """Passes on what the source has to the output, less the log. `undelivered`: why the output took
    no more.
    """

    def __init__(
        self, source: OutputSource, output: int, control: socket.socket, log: Log, mode: str
    ) -> None:
        self.source = source
        self.output = output
        self.control = control
        self.log = log
        self.undelivered = ""
        self._keeps = mode == KEEP
        self._is_open = True
        self._has_told = False
        self._filter = Filter()
        self._modes = termios.tcgetattr(source.fd) if os.isatty(source.fd) else []

    def serve(self) -> None:
        """Until nobody can write to the source any more, or nobody takes what is written."""
        poll = select.poll()
        for fd in (self.source.polled, self.control.fileno()):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        while self._is_open:
            ready = {fd for fd, _ in poll.poll(_HOLD_MS if self._filter.is_holding else _IDLE_MS)}
            if self.control.fileno() in ready and not self._hear():
                poll.unregister(self.control.fileno())
                self.source.over()  # where the session was killed, the end is when nobody writes
            self.pass_on()
            if not ready:
                self._deliver(self._filter.release())
                self.log.flush()
        self._take_rest()
        self.source.close()
        while not self._has_told and self._hear():
            pass

    def pass_on(self) -> None:
        """Pass on what has come."""
        while self._is_open and (data := self.source.read()) != b"":
            if data is None:
                self._is_open = False
                return
            arrival_ns = time.monotonic_ns()
            if self._modes:
                self._mirror_modes()
            passed, lines = self._filter.feed(data)
            if lines:
                self.log.add(lines, arrival_ns)
            if self._keeps:
                self._write(data)
            else:
                self._deliver(passed)

    def _take_rest(self) -> None:
        """What waits for more, when no more will come."""
        held, cut = self._filter.finish()
        self._deliver(held)
        if cut:
            self.log.add(cut, time.monotonic_ns())

    def _deliver(self, passed: bytes) -> None:
        """Write what passes the filter; where the lines stay in the output, it has been written."""
        if not self._keeps:
            self._write(passed)

    def _write(self, data: bytes) -> None:
        """Write to the program's own output. When nobody takes it any more, nobody reads either."""
        view = memoryview(data)
        while view and not self.undelivered:
            try:
                view = view[os.write(self.output, view) :]
            except BlockingIOError:
                select.select([], [self.output], [])
            except OSError as error:
                is_full = error.errno in (errno.ENOSPC, errno.EDQUOT) and isinstance(
                    self.source, FileSource
                )
                # The program cannot be told that the disk is full; there may be room again before
                # its end.
                if not is_full or select.select([self.control], [], [], _RETRY_S)[0]:
                    self.undelivered = error.strerror or str(error)
                    self._is_open = False

    def _hear(self) -> bool:
        """Do what the session asks for. False: it is gone, or has all it wanted."""
        try:
            asked = self.control.recv(1)
        except ConnectionError:
            return False
        if asked == RESIZE:
            copy_size(self.output, self.source.fd)
            self.control.send(RESIZED)
        elif asked == FINISH:
            self._finish()
        return asked == RESIZE

    def _finish(self) -> None:
        """The program has ended: pass on all that it wrote, close the log, and say what is in
        it.
        """
        self.source.over()
        self.pass_on()
        while self._settles():
            self.pass_on()
        self._take_rest()
        self._has_told = True
        answer = {
            "lines": self.log.lines,
            "lost": self.log.lost,
            "error": self.log.error,
            "output": self.undelivered,
        }
        self.log.close()
        self.control.sendall(json.dumps(answer).encode() + b"\n")

    def _settles(self) -> bool:
        """Whether a terminal has something more after a moment."""
        return bool(
            self._modes
            and self._is_open
            and select.select([self.source.fd], [], [], _SETTLE_MS / 1000)[0]
        )

    def _mirror_modes(self) -> None:
        """A program that sets the modes of its output, as curses does, means the terminal that the
        user sees.
        """
        with contextlib.suppress(termios.error, OSError):
            modes = termios.tcgetattr(self.source.fd)
            if modes != self._modes:
                of_output = termios.tcgetattr(self.output)
                output_modes = of_output[1]
                mirrored = [modes[0], output_modes, *modes[2:]]
                termios.tcsetattr(self.output, termios.TCSANOW, mirrored)
                self._modes = modes


def copy_size(terminal: int, other: int) -> None:
    """Give one terminal the size of another, in characters."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(other, termios.TIOCSWINSZ, size)


def main(words: list[str]) -> int:
    """Serve as the command line says."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    kind, source_fd, output, control_fd, log, mode, *file = words
    source = (
        FileSource(int(source_fd), Path(file[0]), int(file[1]))
        if kind == FILE
        else OutputSource(int(source_fd))
    )
    with socket.socket(fileno=int(control_fd)) as control:
        Tap(source, int(output), control, Log(Path(log)), mode).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
