"""Hard programs (`programs/`), each run bare and under `layerscope run` with the same seed: both
must end the same way.

What is compared: status or signal, stdout, stderr, the files that are left; descriptors are in what
the programs print. Addresses, and numbers of processes and threads, differ between any two runs and
are taken out.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from layerscope.model.errors import LayerscopeError
from tests.differential import PROGRAMS as OTHER_PROGRAMS
from tests.differential import Differential, Outcome, environment

PROGRAMS = Path(__file__).resolve().parent / "programs"
REFUSES = OTHER_PROGRAMS / "refuses.py"
# More samples in a second than anybody asks for: what goes wrong once in an hour shall go wrong
# here.
HZ = 1000

PYTHON = {
    "forks": ("main", "threads"),
    "pools": ("fork", "spawn", "forkserver"),
    "loads": ("-",),
    "short_threads": ("plain", "small_stacks"),
    "signals": ("busy", "waits"),
    "urgent": ("handler", "wakeup", "out_of_band", "waited_for", "by_descriptor", "dispositions"),
    "profilers": ("prof", "virtual", "real", "c_profile", "set_profile", "set_trace"),
    "faults": ("later", "later_exits", "registered", "segv", "abort", "fpe", "in_thread"),
    "ends": (
        "falls_off", "exit", "raises", "os_exit", "os_exit_in_thread", "abort", "abort_in_thread", "kill", "terminate",
        "urgent_at_exit",
    ),
    "executes": ("main", "threads"),
    "spawns": ("vfork", "fork", "system", "posix_spawn"),
    "stacks": ("deep", "deep_in_c", "endless", "greenlets", "subinterpreters", "generators"),
    "events": ("-",),
    "storms": ("kills", "floods", "closes", "masks", "ids"),
    "spied": ("-",),
}  # fmt: skip
NATIVE = (
    "small", "deep", "alternate", "overflow", "interrupts", "handled_before", "taken", "blocked", "executes",
    "children",
)  # fmt: skip
CASES = [f"{name}-{mode}".removesuffix("--") for name, modes in PYTHON.items() for mode in modes]
CASES += [f"native-{mode}" for mode in NATIVE]
# The same where a filter refuses perf_event_open(2), so that timers of the program make the
# samples.
BY_TIMERS = "-by_timers"
CASES += [
    f"{case}{BY_TIMERS}"
    for case in (
        "forks-threads", "pools-fork", "signals-busy", "urgent-handler", "urgent-dispositions", "profilers-prof",
        "faults-segv", "ends-kill", "executes-threads", "spawns-vfork", "storms-closes", "native-interrupts",
    )
]  # fmt: skip
PERF_EVENT_OPEN = 298
# One of those that show the same, for `dev.py test`.
REPEATED = (
    "pools-spawn", "pools-forkserver", "short_threads-plain", "urgent-wakeup", "urgent-waited_for", "profilers-virtual",
    "profilers-real", "profilers-set_profile", "faults-later_exits", "faults-abort", "faults-fpe", "ends-exit",
    "ends-raises", "ends-os_exit", "ends-abort", "ends-terminate", "executes-main", "spawns-fork", "spawns-system",
    "native-small", "native-deep", "forks-main",
    "ends-abort_in_thread", "ends-falls_off", "ends-os_exit_in_thread", "faults-later", "faults-in_thread",
    "native-children", "native-executes", "profilers-c_profile", "profilers-set_trace", "spawns-vfork",
    "stacks-deep_in_c", "stacks-generators", "storms-closes", "storms-floods", "storms-masks", "urgent-by_descriptor",
    "urgent-out_of_band", "events", "loads",
)  # fmt: skip
BY_TIMERS_TOO = ("signals-busy", "urgent-handler")
FEW = [case for case in CASES if case not in REPEATED and not case.endswith(BY_TIMERS)]
FEW += [f"{case}{BY_TIMERS}" for case in BY_TIMERS_TOO]


class NotHere(Exception):
    """This machine lacks what a program needs; the message says what."""


@dataclass
class Difference:
    """Where a program did not end recorded as it does bare."""

    seed: int
    what: str


@dataclass
class Compared:
    """How often a program was run both ways, and where that was not the same."""

    runs: int = 0
    samples: int = 0
    differences: list[Difference] = field(default_factory=list)


def py_spy() -> str:
    """Where py-spy is; LAYERSCOPE_TEST_PY_SPY names one that is not on PATH."""
    found = os.environ.get("LAYERSCOPE_TEST_PY_SPY") or shutil.which("py-spy")
    if not found:
        raise NotHere("there is no py-spy on PATH, and LAYERSCOPE_TEST_PY_SPY names none")
    return found


def compiled(source: Path, target: Path, *options: str) -> Path:
    """`source`, compiled once for each folder."""
    if not target.exists():
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if not compiler:
            raise NotHere("no C compiler")
        command = [
            compiler,
            "-O1",
            "-g",
            "-std=c11",
            *options,
            "-o",
            str(target),
            str(source),
            "-ldl",
            "-lpthread",
        ]
        subprocess.run(command, check=True, timeout=60)
    return target


def normalised(outcome: Outcome) -> Outcome:
    """Without what differs between any two runs."""

    def plain(text: bytes) -> bytes:
        return re.sub(rb"0x[0-9a-f]{6,}|(?<=pid[ =])\d+", b"N", text)

    return Outcome(outcome.status, plain(outcome.stdout), plain(outcome.stderr), outcome.files)


class Often(Differential):
    """Sampled `rate_hz` times in a second."""

    def __init__(self, folder: Path, rate_hz: int = HZ) -> None:
        super().__init__(folder)
        self.rate_hz = rate_hz

    def recorder(self, quiet: bool = True) -> list[str]:
        """What goes in front of a command to record it."""
        *words, end = super().recorder(quiet)
        return [*words, "--rate", str(self.rate_hz), end]


class Stress:
    """Runs cases in a folder; `python` is that of the programs."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.python = python
        self.differential = Often(folder / "runs")

    def command(self, case: str, seed: int, seconds: float) -> list[str]:
        """What runs a case."""
        name, _, mode = case.partition("-")
        arguments = [mode or "-", str(seed), str(seconds)]
        if name == "native":
            return [str(compiled(PROGRAMS / "native.c", self.folder / "native")), *arguments]
        return [self.python, str(PROGRAMS / f"{name}.py"), *arguments]

    def variables(self, case: str) -> dict[str, str]:
        """The environment of a case."""
        own: dict[str, str | None] = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        if case == "loads":
            library = compiled(
                PROGRAMS / "library.c", self.folder / "library.so", "-shared", "-fPIC"
            )
            own["STRESS_LIBRARY"] = str(library)
        if case == "spied":
            own["STRESS_PY_SPY"] = py_spy()
        return environment(**own)

    def both(self, case: str, seed: int, seconds: float) -> tuple[Outcome, Outcome]:
        """How it ends bare, and how recorded."""
        plain = case.removesuffix(BY_TIMERS)
        command, variables = self.command(plain, seed, seconds), self.variables(plain)
        around = (
            []
            if plain == case
            else [self.python, str(REFUSES), str(PERF_EVENT_OPEN), str(errno.EPERM)]
        )
        bare = self.differential.run([*around, *command], env=variables)
        shutil.rmtree(self.differential.recording, ignore_errors=True)
        recorded = self.differential.run(
            [*around, *self.differential.recorder(), *command], env=variables
        )
        return normalised(bare), normalised(recorded)

    def compare(self, case: str, seed: int, seconds: float, into: Compared) -> None:
        """One more run of a case both ways."""
        try:
            bare, recorded = self.both(case, seed, seconds)
        except subprocess.TimeoutExpired as error:
            into.differences.append(Difference(seed, f"did not end: {error}"))
            return
        finally:
            into.runs += 1
        if bare != recorded:
            into.differences.append(Difference(seed, difference(bare, recorded)))
        try:
            into.samples += self.samples()
        except LayerscopeError as error:
            into.differences.append(Difference(seed, f"left no recording: {error}"))

    def samples(self) -> int:
        """How many samples of CPU time the last recording has."""
        rows = self.differential.recorded().rows(
            "SELECT count(*) AS n FROM samples WHERE state IN ('user', 'kernel')"
        )
        return int(rows[0]["n"])


def difference(bare: Outcome, recorded: Outcome) -> str:
    """The first lines in which they differ."""
    said = []
    for name in ("status", "stdout", "stderr", "files"):
        left, right = getattr(bare, name), getattr(recorded, name)
        if left == right:
            continue
        if isinstance(left, bytes):
            pairs = zip([*left.splitlines(), b""], [*right.splitlines(), b""], strict=False)
            left, right = next(
                (pair for pair in pairs if pair[0] != pair[1]), (left[-200:], right[-200:])
            )
        said.append(f"{name}: {str(left)[:300]} became {str(right)[:300]}")
    return "; ".join(said)
