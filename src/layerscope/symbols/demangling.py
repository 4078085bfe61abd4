"""Names as their language has them: LLVM's demanglers (pycxxfilt) for C++ and Rust, in a process of
its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import select
import subprocess
import sys
import time
import weakref
from pathlib import Path

_SCRIPT = Path(__file__).with_name("demangler.py")
# Itanium C++ and older Rust, newer Rust. What follows a dot is of the compiler: foo.cold,
# foo.constprop.0.
_MANGLED = re.compile(r"_(?:Z|R)[\w.$]+", re.ASCII)
_NAME_MOST = 1 << 12  # longer ones are deeper than a stack allows; the longest seen has 1,500 bytes
_NAMES_AT_ONCE = 4096
_PATIENCE_S = 20.0
_STARTS_MOST = 40  # a name that ends the process is found by halving
_FLAGS = ("-I", *(["-B"] if sys.dont_write_bytecode else []))


class Demangler:
    """Demangles, and remembers. `failed`: the process could not be started, or ended too often;
    names stay mangled.
    """

    def __init__(self) -> None:
        self.failed = False
        self._known: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._end: weakref.finalize[[subprocess.Popen[bytes]], Demangler] | None = None

    def names(self, mangled: list[str]) -> list[str]:
        """Each name as its language has it; as it is where it is of none."""
        known = self._known
        new = {name for name in mangled if name not in known and _MANGLED.fullmatch(name)}
        ordered = sorted(name for name in new if len(name) <= _NAME_MOST)
        for first in range(0, len(ordered), _NAMES_AT_ONCE):
            batch = ordered[first : first + _NAMES_AT_ONCE]
            self._learn(batch)
        return [known.get(name, name) for name in mangled]

    def _learn(self, names: list[str]) -> None:
        if self.failed:
            return
        answers = self._ask(names)
        if answers is not None:
            self._known.update(
                (name, found or name) for name, found in zip(names, answers, strict=True)
            )
        elif len(names) == 1:
            self._known[names[0]] = names[0]
        else:
            self._learn(names[: len(names) // 2])
            self._learn(names[len(names) // 2 :])

    def _ask(self, names: list[str]) -> list[str] | None:
        """The answers of the process; None when it ended or took too long, and is no more."""
        process = self._running()
        if process is None:
            return None
        question = "\n".join(names).encode()
        try:
            # It reads all of the question before it answers, so this cannot wait for ever.
            assert process.stdin is not None
            process.stdin.write(len(question).to_bytes(4, "little") + question)
            process.stdin.flush()
            until = time.monotonic() + _PATIENCE_S
            answer = self._read(int.from_bytes(self._read(4, until), "little"), until).decode()
            found = answer.split("\n")
        except (OSError, ValueError):
            found = []
        if len(found) == len(names):
            return found
        self.close()
        return None

    def _read(self, length: int, until: float) -> bytes:
        """Exactly so many bytes; OSError when they do not come in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        result = b""
        while len(result) < length:
            left_ms = int(1000 * (until - time.monotonic()))
            piece = (
                os.read(descriptor, length - len(result))
                if left_ms > 0 and poll.poll(left_ms)
                else b""
            )
            if not piece:
                raise TimeoutError(110, "the demangler did not answer")
            result += piece
        return result

    def _running(self) -> subprocess.Popen[bytes] | None:
        if self._process is None and not self.failed:
            self._starts += 1
            self.failed = self._starts > _STARTS_MOST
        if self._process is None and not self.failed:
            library = importlib.util.find_spec("pycxxfilt")
            if library is None or library.origin is None:
                self.failed = True
                return None
            try:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        *_FLAGS,
                        str(_SCRIPT),
                        str(Path(library.origin).parent.parent),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                )
            except OSError:
                self.failed = True
                return None
            self._end = weakref.finalize(self, _end, self._process)
        return self._process

    def close(self) -> None:
        """End the process; it is started again when there is more to do."""
        if self._end is not None:
            self._end()
        self._process = self._end = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()
