"""`python3 dev.py stress`: hard programs again and again, NumPy's tests and torch's C++ tests, bare
and recorded.

Then damaged files of other programs (`--only foreign`), and the tests that `dev.py test` leaves out: repetitions, and those of chance. Prints a line for
each, and where it ended in another way than bare, or failed; the status is 1 if anything did.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.stress import foreign_files  # noqa: E402
from tests.stress.stressing import CASES, Compared, NotHere, Stress  # noqa: E402
from tests.stress.suites import Ended, NumPyTests, TorchTests, differences, torch_programs  # noqa: E402


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="dev.py stress", description=__doc__)
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.0,
        help="how long a program works in each run (default: 2)",
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="how often each runs, with a seed each (default: 3)"
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        help="those with NAME in their name; also: numpy, torch, foreign, repetitions",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=10_000,
        metavar="N",
        help="foreign: how many damaged files of others are opened (default: 10,000)",
    )
    parser.add_argument(
        "--seed", type=int, default=random.randrange(10**6), help="the first seed (default: random)"
    )
    return parser.parse_args()


def run_case(stress: Stress, case: str, options: argparse.Namespace) -> bool:
    """All runs of one program; whether they were the same."""
    begin, compared = time.monotonic(), Compared()
    try:
        for number in range(options.runs):
            stress.compare(case, options.seed + number, options.seconds, compared)
    except NotHere as missing:
        print(f"{case:26} not run: {missing}", flush=True)
        return True
    print(
        f"{case:26} {compared.runs} runs bare and recorded, {compared.samples} samples, {len(compared.differences)} "
        f"differences, {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    for one in compared.differences:
        print(f"    seed {one.seed}: {one.what}", flush=True)
    return not compared.differences


def say_suite(name: str, bare: Ended, recorded: Ended, begin: float) -> bool:
    """One suite of tests; whether each of them ended in the same way."""
    if bare.why:
        print(f"{name:26} does not run here: {bare.why}", flush=True)
        return True
    said = differences(bare, recorded)
    ends = ", ".join(
        f"{number} {how}" for how, number in sorted(Counter(bare.tests.values()).items())
    )
    print(
        f"{name:26} status {bare.status}, {ends or 'no tests'}: {len(said)} differences, "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )
    for line in said:
        print(f"    {line}", flush=True)
    return not said


def run_numpy(folder: Path) -> bool:
    """NumPy's own tests."""
    begin, suite = (
        time.monotonic(),
        NumPyTests(folder / "numpy", os.environ["LAYERSCOPE_TEST_NUMPY_PYTHON"]),
    )
    return say_suite("numpy", suite.run_tests([], False), suite.run_tests([], True), begin)


def run_torch(folder: Path) -> list[bool]:
    """PyTorch's programs of tests."""
    suite, same = TorchTests(folder / "torch"), []
    for program in torch_programs(os.environ["LAYERSCOPE_TEST_PYTHON"]):
        begin = time.monotonic()
        bare = suite.run_program(program, False)
        recorded = bare if bare.why else suite.run_program(program, True)
        same.append(say_suite(f"torch {program.name}", bare, recorded, begin))
    return same


def run_repetitions() -> list[bool]:
    """What `dev.py test` leaves out: more of what its tests show, and those of chance more often or
    longer.
    """
    tests = ROOT / "tests"
    varied = sorted(
        str(path)
        for path in tests.rglob("test_*.py")
        if re.search(r"repeated import .*\b(first|times)\b", path.read_text())
    )
    parts = {
        "repetitions": ["-m", "stress", str(tests)],
        "longer tests": ["-m", "not stress", *varied],
    }
    same = []
    for name, words in parts.items():
        begin = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", *words]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "LAYERSCOPE_TEST_STRESS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stdout.splitlines()
        print(
            f"{name:26} {lines[-1] if lines else done.stderr[-200:]}, {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        for line in lines:
            if line.startswith(("FAILED", "ERROR")):
                print(f"    {line}", flush=True)
        same.append(done.returncode == 0)
    return same


def run_foreign(first: int, rounds: int) -> bool:
    """Damaged files of others; whether each opened or was refused in a sentence."""
    begin = time.monotonic()
    found = foreign_files.run(first, rounds)
    print(
        f"{'foreign':26} {rounds} damaged files, {len(found)} faults, "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )
    for fault in found:
        print(f"    seed {fault.seed}: {fault.what}", flush=True)
    return not found


def main() -> int:
    """Run what is asked for."""
    options = arguments()
    wanted = [case for case in CASES if not options.only or options.only in case]
    print(f"seeds {options.seed} to {options.seed + options.runs - 1}, {options.seconds:g} s each")
    with tempfile.TemporaryDirectory() as folder:
        stress = Stress(Path(folder), os.environ["LAYERSCOPE_TEST_PYTHON"])
        same = [run_case(stress, case, options) for case in wanted]
        if not options.only or options.only in "numpy":
            same.append(run_numpy(Path(folder)))
        if not options.only or options.only in "torch":
            same += run_torch(Path(folder))
    if not options.only or options.only in "foreign":
        same.append(run_foreign(options.seed, options.rounds))
    if not options.only or options.only in "repetitions":
        same += run_repetitions()
    print(f"{same.count(True)} of {len(same)} end as they do without us")
    return int(not all(same))


if __name__ == "__main__":
    sys.exit(main())
