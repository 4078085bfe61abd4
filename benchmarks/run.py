"""Measures what layerscope costs and holds it against its promises.

usage: python3 dev.py bench [NAME ...] [--pairs N] [--seconds S] [--quick] [--write]
       python3 dev.py bench truth [--programs NAME,...] [--runs N] [--seconds S] [--busy N]

A benchmark is one file in this folder; one that says ONLY_WHEN_NAMED takes longer than minutes and
is left out when none is named. Everything a program costs is CPU time, because wall time on a
shared machine is mostly somebody else's; estimates come with 95 % intervals, and their upper ends
are held against the targets. Figures are worth something when nothing else runs: the report says
how busy the machine was.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import shutil
import sys
import tempfile
import time
from pathlib import Path

from measuring import machine
from measuring.runs import BenchmarkError, Setting, warm_up

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"


def names() -> list[str]:
    """The benchmarks: every module in this folder but this one."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules([str(HERE)])
        if not module.ispkg and module.name != "run"
    )


def everyday() -> list[str]:
    """Those that end in minutes."""
    return [
        name
        for name in names()
        if not getattr(importlib.import_module(name), "ONLY_WHEN_NAMED", False)
    ]


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    choice = f"any of {', '.join(names())} (default: those that end in minutes)"
    parser.add_argument("names", nargs="*", metavar="NAME", help=choice)
    parser.add_argument(
        "--pairs", type=int, metavar="N", help="pairs with and without (default: 20; quick: 2)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.0, metavar="S", help="of a long run (default: its own)"
    )
    parser.add_argument(
        "--runs", type=int, default=20, metavar="N", help="truth: runs of a program (default: 20)"
    )
    parser.add_argument(
        "--programs", default="", metavar="NAME,...", help="truth: only these, such as 'wait_*'"
    )
    parser.add_argument(
        "--busy",
        type=int,
        default=0,
        metavar="N",
        help="truth, findings: processes that compute beside them",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="everything in two minutes: to see that it works, not to cite",
    )
    parser.add_argument(
        "--write", action="store_true", help="keep the results in benchmarks/results/"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in names()]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}; there are {', '.join(names())}")
    return options


def main() -> int:
    """Run the benchmarks that are named; 1 when one of them could not run."""
    options = parse(sys.argv[1:])
    program = os.environ.get("LAYERSCOPE_TEST_PYTHON")
    if not program:
        print(
            "run.py: LAYERSCOPE_TEST_PYTHON must name a Python with torch: python3 dev.py bench",
            file=sys.stderr,
        )
        return 2
    command = " ".join(["python3 dev.py bench", *sys.argv[1:]])
    folder = Path(tempfile.mkdtemp(prefix="layerscope-bench-"))
    pairs = options.pairs or (2 if options.quick else 20)
    setting = Setting(
        program,
        folder,
        options.quick,
        pairs,
        seconds=options.seconds,
        runs=options.runs,
        programs=tuple(name for name in options.programs.split(",") if name),
        busy=options.busy,
    )
    failed = False
    try:
        about = machine.describe(program)
        print("\n".join(f"{name}: {value}" for name, value in about.items()), flush=True)
        warm_up(setting)
        for name in options.names or everyday():
            failed |= not run_one(name, setting, about, command, options.write)
    except BenchmarkError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


def run_one(name: str, setting: Setting, about: dict[str, str], command: str, write: bool) -> bool:
    """Run one benchmark and show what it found. False: it could not run."""
    begin, load = time.monotonic(), machine.load()
    try:
        report = importlib.import_module(name).run(setting)
    except BenchmarkError as error:
        print(f"\n{name}: {error}", file=sys.stderr, flush=True)
        return False
    about = {
        **about,
        "load": f"{load} before, {machine.load()} after",
        "took": f"{time.monotonic() - begin:.0f} s",
    }
    print(f"\n{report.text()}  ({name}: {about['took']}, load {about['load']})", flush=True)
    if write:
        report.write(RESULTS, f"{name}_busy" if setting.busy else name, about, command)
    return True


if __name__ == "__main__":
    sys.exit(main())
