"""The session's side of the sampler, as small as it can be, and what must be true of every file
that it writes.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.capture.sampler import BINARY
from layerscope.rawfile import layout, raw_file, sampler_file
from layerscope.sources.raw.stacks import SampledFile

MAIN = 0
PATIENCE_S = 120
# As a user without any right.
NOBODY = (
    "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
)  # fmt: skip


@dataclass
class Sampled:
    """A file of the sampler that was read to its end."""

    file: SampledFile
    told: dict[str, Any]  # the sampler's last line
    frames: np.ndarray = field(init=False)
    stacks: np.ndarray = field(init=False)
    samples: np.ndarray = field(init=False)
    accounts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.file.advance()
        kinds = (
            sampler_file.FRAMES,
            sampler_file.STACKS,
            sampler_file.SAMPLES,
            sampler_file.ACCOUNTS,
        )
        self.frames, self.stacks, self.samples, self.accounts = map(self.file.take, kinds)

    def chain(self, stack: int) -> list[np.void]:
        """The frames of a stack, the leaf first."""
        found = []
        while stack != sampler_file.NONE:
            row = self.stacks[stack]
            found.append(self.frames[row["frame"]])
            stack = int(row["parent"])
        return found

    def passes(self, stack: int, first: int, last: int) -> bool:
        """Whether a native frame of the stack lies in the function of the program from `first` to
        `last`.
        """
        for frame in self.chain(stack):
            if frame["kind"] == sampler_file.NATIVE and first <= frame["address"] < last:
                path = self.file.objects[frame["of"]].path
                if Path(path).name == "known":
                    return True
        return False

    def threads(self, tid: int) -> list[int]:
        """The numbers of the threads with this number of the system."""
        return [number for number, row in self.file.threads.items() if row["tid"] == tid]

    def of(self, tid: int, kind: int) -> np.ndarray:
        """The samples of a kind of the threads that had this number."""
        found: np.ndarray = self.samples[
            np.isin(self.samples["thread"], self.threads(tid)) & (self.samples["kind"] == kind)
        ]
        return found

    def weight_in(self, rows: np.ndarray, function: dict[str, Any]) -> tuple[int, int]:
        """Samples among `rows` within a function of the program, and their weight in ns."""
        inside = [
            self.passes(int(row["stack"]), function["first"], function["last"]) for row in rows
        ]
        return sum(inside), int(rows["weight_ns"][np.array(inside, bool)].sum())

    def codes(self) -> set[str]:
        """What the sampler could not record."""
        return {problem["code"] for problem in self.file.problems}


def check(found: Sampled) -> None:
    """What holds for every whole file."""
    file, samples = found.file, found.samples
    assert file.ended
    assert not file.is_damaged
    assert list(file.threads) == list(range(len(file.threads)))
    assert list(file.processes) == list(range(len(file.processes)))
    assert (found.stacks["stack"] == np.arange(len(found.stacks))).all()
    assert (found.frames["frame"] == np.arange(len(found.frames))).all()
    inner = found.stacks["parent"] != sampler_file.NONE
    assert (found.stacks["parent"][inner] < found.stacks["stack"][inner]).all()
    assert (
        found.stacks["depth"][inner] == found.stacks["depth"][found.stacks["parent"][inner]] + 1
    ).all()
    assert (found.stacks["frame"] < len(found.frames)).all()
    known = samples["stack"] != sampler_file.NONE
    assert (samples["stack"][known] < len(found.stacks)).all()
    assert (samples["thread"] < len(file.threads)).all()
    assert (samples["kernel_ns"] <= samples["weight_ns"]).all()
    for kind, count in (
        (sampler_file.NATIVE, len(file.objects)),
        (sampler_file.PYTHON, len(file.codes)),
    ):
        assert (found.frames["of"][found.frames["kind"] == kind] < count).all()
    for number in np.unique(samples["thread"]):
        waits = samples[(samples["thread"] == number) & (samples["flags"] & sampler_file.EXACT > 0)]
        waits = waits[np.argsort(waits["at_ns"], kind="stable")]
        assert (waits["at_ns"][1:] >= waits["at_ns"][:-1] + waits["weight_ns"][:-1]).all(), (
            "exact waits overlap"
        )


def check_sums(found: Sampled) -> None:
    """The CPU time of each thread that was followed from its beginning on is the sum of its
    samples.
    """
    last = {int(row["thread"]): int(row["run_ns"]) for row in found.accounts}
    cpu = found.samples[found.samples["kind"] == sampler_file.CPU]
    sums = np.bincount(cpu["thread"], cpu["weight_ns"], len(found.file.threads)).astype(np.int64)
    assert last
    assert {
        thread: (int(sums[thread]), run_ns)
        for thread, run_ns in last.items()
        if sums[thread] != run_ns
    } == {}


class Sampling:
    """A sampler, started as `user` (a command in front), and a door where programs with the agent
    inside knock.
    """

    def __init__(
        self, folder: Path, user: Sequence[str] = (), hz: int = 99, most_bytes: int = 0
    ) -> None:
        self.raw = (
            folder / f"raw-{secrets.token_hex(4)}"
        )  # a test may start several, one after the other
        self.raw.mkdir()
        self.raw.chmod(0o777)
        self.door = f"layerscope-test-{os.getpid()}-{secrets.token_hex(6)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("\0" + self.door)
        self._listener.listen(64)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            *user,
            str(BINARY),
            str(theirs.fileno()),
            str(self.raw),
            str(hz),
            str(most_bytes),
        ]
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        theirs.close()
        self._user = user
        self.passes_on = threading.Event()  # what programs hand over
        self.passes_on.set()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(PATIENCE_S)
                data, fds, _, _ = socket.recv_fds(connection, 4096, 4)
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                pid = int.from_bytes(peer[:4], "little")
                magic, kind, _, index, start = layout.MESSAGE.unpack(data)
                if kind == layout.SEND_SAMPLES and self.passes_on.wait(PATIENCE_S):
                    self.send(kind, pid, start, fds, index, magic)
                for fd in fds:
                    os.close(fd)

    def send(
        self, kind: int, pid: int, start_ns: int, fds: Sequence[int] = (), index: int = 0,
        magic: int = layout.MESSAGE_MAGIC,
    ) -> None:  # fmt: skip
        """A message as the session sends it; a sampler that is gone does not matter."""
        try:
            socket.send_fds(
                self.control, [layout.MESSAGE.pack(magic, kind, pid, index, start_ns)], list(fds)
            )
        except OSError:
            assert self.process.poll() is not None

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start a program and name it to the sampler."""
        process = subprocess.Popen(
            [*self._user, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        self.send(MAIN, process.pid, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        return process

    def start_known(
        self, known: Path, mode: str, number: int = 0, **environment: str
    ) -> subprocess.Popen[str]:
        """Start the program `known`, which begins with its work when it is sampled."""
        process = self.start(str(known), self.door, mode, str(number), **environment)
        file = SampledFile(self.raw / raw_file.SAMPLER_FILE)
        give_up = time.monotonic() + PATIENCE_S
        # The first row is the CPU time that it had used before.
        while not len(file.take(sampler_file.SAMPLES)) and time.monotonic() < give_up:
            time.sleep(0.02)
            file.advance()
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        return process

    def run(
        self, known: Path, mode: str, number: int = 0, **environment: str
    ) -> tuple[Sampled, list[dict[str, Any]]]:
        """Run the program `known` to its end; the file, and what the program said."""
        process = self.start_known(known, mode, number, **environment)
        said, _ = process.communicate(timeout=PATIENCE_S)
        return self.end(), [json.loads(line) for line in said.splitlines()]

    def whole(self, *words: str) -> tuple[Sampled, int, str]:
        """Run a program to its end: the file, which is as it must be, the program's number, and
        what it printed.
        """
        process = self.start(*words)
        out, _ = process.communicate(timeout=PATIENCE_S)
        found = self.end()
        check(found)
        check_sums(found)
        return found, process.pid, out

    def end(self) -> Sampled:
        """End it as the session does; the file when the sampler has ended."""
        self.send(layout.SEND_END, 0, 0)
        return self.ended()

    def ended(self) -> Sampled:
        """Close the socket, as a session that is killed does; the file when the sampler has
        ended.
        """
        self._listener.close()
        self.control.close()
        out, complaint = self.process.communicate(timeout=PATIENCE_S)
        assert (self.process.returncode, complaint) == (0, "")
        return Sampled(
            SampledFile(self.raw / raw_file.SAMPLER_FILE), json.loads(out.splitlines()[-1])
        )

    def kill(self) -> None:
        """End what is left of it."""
        self._listener.close()
        self.control.close()
        self.process.kill()
        self.process.communicate()


def function(said: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Where a function of the program lies."""
    return next(line for line in said if line.get("function") == name)


def line_with(said: list[dict[str, Any]], key: str, value: Any = None) -> dict[str, Any]:
    """The line of the program that has this."""
    return next(line for line in said if key in line and value in (None, line[key]))
