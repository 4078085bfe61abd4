"""Programs with the recorder inside, what our unwinder makes of their stacks, and what libgcc's
does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.native.building import ROOT, build

HERE = Path(__file__).parent
UNWINDER = sorted(
    source
    for source in (ROOT / "native" / "stacks").glob("*.c")
    if source.name != "python_frames.c"
)
STRICT = ("-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I", str(HERE))
TIMEOUT_S = 120


def build_cpp(target: Path, sources: list[Path], *flags: str) -> Path | None:
    """Compiles C++; None if there is no compiler for it."""
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if found is None:
        return None
    command = [
        found,
        "-std=c++17",
        *flags,
        "-o",
        str(target),
        *map(str, sources),
        "-ldl",
        "-lpthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return target


@contextmanager
def held(command: list[str]) -> Iterator[int]:
    """Runs a program until it says "done" and keeps it there; its pid."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "done\n", process.wait(timeout=TIMEOUT_S)
        yield process.pid
    finally:
        process.kill()
        process.wait(timeout=TIMEOUT_S)
        process.stdin.close()
        process.stdout.close()


@dataclass(frozen=True)
class Compared:
    """How many samples there are, and of them: how many are equal, and so on (compare.c); all that
    was printed.
    """

    samples: int
    equal: int
    further: int
    cut: int
    different: int
    root: int
    evals: int
    said: str


@dataclass(frozen=True)
class Oracle:
    """The compiled recorder (a library) and the program that compares."""

    recorder: Path
    compare: Path

    def linked(self) -> tuple[str, ...]:
        """What a program is linked with to have the recorder inside."""
        return ("-Wl,--no-as-needed", str(self.recorder), f"-Wl,-rpath,{self.recorder.parent}")

    def judge(self, pid: int, samples: Path) -> Compared:
        """Unwinds what was recorded of a program that is still there."""
        environment = {
            **os.environ,
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "halt_on_error=1",
        }
        done = subprocess.run(
            [str(self.compare), str(pid), str(samples)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            env=environment,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        found = {
            name: int(count)
            for name, count in re.findall(r"(\w+) (\d+)", done.stdout.splitlines()[-1])
        }
        return Compared(
            *(found[name] for name in list(Compared.__dataclass_fields__)[:-1]), said=done.stdout
        )

    def run(self, program: list[str], folder: Path, count: int, *more: str) -> Compared:
        """Runs a program, given the file of samples, their number and `more`, and judges what was
        recorded.
        """
        samples = folder / "samples"
        with held([*program, str(samples), str(count), *more]) as pid:
            return self.judge(pid, samples)


def build_oracle(folder: Path, *flags: str) -> Oracle:
    """The recorder as it is, the comparing program and the unwinder in it with `flags`."""
    folder.mkdir(exist_ok=True)
    recorder = build(folder / "librecorder.so", [HERE / "recorder.c"], *STRICT, "-shared", "-fPIC")
    return Oracle(
        recorder, build(folder / "compare", [HERE / "compare.c", *UNWINDER], *STRICT, *flags)
    )
