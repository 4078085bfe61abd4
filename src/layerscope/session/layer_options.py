"""The options of `run` that say which layers are recorded, --layers and --without, and what has to be done for those
that are not always recorded: oneDNN's verbose log and the calls of MKL.
"""

from __future__ import annotations

import argparse
import os
import time

from layerscope.capture import perf, verbose
from layerscope.capture.agent import ITT, NVTX
from layerscope.capture.program import Program
from layerscope.capture.recorder import surviving
from layerscope.capture.sampler import HZ, MOST_HZ, Sampler
from layerscope.model.errors import UsageError, did_you_mean
from layerscope.model.layers import COUNTERS, MODULES, OPERATORS, PRIMITIVES, RANGES, STACKS
from layerscope.rawfile import jit_maps
from layerscope.rawfile.raw_file import LATE
from layerscope.session.session import Session

VERBOSE, MKL, PERF = "verbose", "mkl", "perf"
_DEFAULT = (OPERATORS, MODULES, RANGES, PRIMITIVES, STACKS, COUNTERS)
_ON_REQUEST = (VERBOSE, MKL, PERF)
# What only the end of the program tells: nothing is converted before.
_LATE = (VERBOSE, MKL)
# What everything else hangs on, and what costs nothing.
_ALWAYS = (OPERATORS, COUNTERS)
# 0: oneDNN tells ITT nothing.
_TASK_LEVEL = "ONEDNN_ITT_TASK_LEVEL"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--layers", metavar="LIST", default="",
        help="record these layers beside operators and counters, or with + and - these more or less: "
        f"{', '.join([*_DEFAULT, *_ON_REQUEST])}",
    )  # fmt: skip
    parser.add_argument(
        "--without", metavar="LIST", default="", help="do not record these layers, as --layers=-NAME does not"
    )
    parser.add_argument(
        "--rate", metavar="HZ",
        help=f"how many samples of its stack are taken in a second that a thread is on a CPU (default {HZ})",
    )  # fmt: skip


def layers_of(arguments: argparse.Namespace) -> frozenset[str]:
    """The layers that the arguments ask for. UsageError when they ask for none that there is."""
    words = _words(arguments.layers)
    signed = [word for word in words if word[0] in "+-"]
    if signed and len(signed) < len(words):
        raise UsageError(
            f"--layers {arguments.layers}: either all names have a sign or none, such as +{VERBOSE},-{MODULES}"
        )
    chosen = set(_DEFAULT if signed or not words else map(_layer, words))
    chosen |= {_layer(word[1:]) for word in signed if word[0] == "+"}
    left_out = [word[1:] for word in signed if word[0] == "-"] + _words(arguments.without)
    for name in left_out:
        if name in _ALWAYS:
            raise UsageError(f"{name} are always recorded and cannot be left out: all other layers belong to them")
    chosen -= set(map(_layer, left_out))
    chosen |= set(_ALWAYS)
    if PRIMITIVES not in chosen and VERBOSE in chosen:
        raise UsageError(f"{VERBOSE} are {PRIMITIVES} too. Leave out one of the two options")
    return frozenset(chosen)


def options_of(layers: frozenset[str]) -> dict[str, bool]:
    """What every conversion of the recording must know about them."""
    return {LATE: True} if layers & set(_LATE) else {}


def rate_of(arguments: argparse.Namespace, layers: frozenset[str]) -> int:
    """Samples of a thread in a second of its CPU time. UsageError when that cannot be meant."""
    if arguments.rate is None:
        return HZ
    if STACKS not in layers:
        raise UsageError(f"--rate {arguments.rate}: {STACKS} are left out, so there are no samples")
    try:
        rate = int(arguments.rate)
    except ValueError:
        rate = 0
    if not 1 <= rate <= MOST_HZ:
        raise UsageError(f"--rate {arguments.rate}: give a whole number from 1 to {MOST_HZ}")
    return rate


class Requested:
    """What is done for layers that were asked for or left out, from before the program starts until it has ended."""

    def __init__(self, layers: frozenset[str], session: Session, rate_hz: int = HZ) -> None:
        self._layers = layers
        self._session = session
        self._tap: verbose.VerboseTap | None = None
        self._perf = perf.Perf(session.raw) if PERF in layers else None
        if MODULES not in layers:
            session.layers["modules"] = False
        if STACKS in layers:
            session.sampler = Sampler(session.raw, session.problems, rate_hz)
        self._since_s = time.time()
        if MKL in layers:
            session.layers["mkl"] = str(session.raw.absolute())

    def attach(self, program: Program, environment: dict[str, str]) -> None:
        """Just before `program` starts in `environment`: change that, and put the tap into its output."""
        left_out = {PRIMITIVES, RANGES} - self._layers
        if PRIMITIVES in left_out:
            environment.setdefault(_TASK_LEVEL, "0")
        unheard = [NVTX] if RANGES in left_out else []
        unheard += [ITT] if len(left_out) == 2 else []
        for variable in unheard:
            if variable not in os.environ:
                environment.pop(variable, None)
        if self._perf is not None:
            with surviving(self._session.problems):
                self._perf.start()
        if VERBOSE not in self._layers:
            return
        tap = verbose.VerboseTap(self._session.raw, verbose.asked_by_user(environment))
        if not tap.start():
            self._session.problems += tap.problems
            return
        self._tap = tap
        environment |= verbose.variables(environment)
        program.streams, program.on_resize = tap.streams, tap.resize

    def finish(self) -> None:
        """The program has ended: what it printed is out, and what only logs tell is in the raw files."""
        problems = self._session.problems
        if self._perf is not None:
            with surviving(problems):
                self._perf.finish()
                problems += self._perf.problems
        if STACKS in self._layers:
            with surviving(problems):
                jit_maps.take(self._session.raw, self._since_s)
        if self._tap is not None:
            with surviving(problems):
                self._tap.finish()
                problems += self._tap.problems
        if self._layers & set(_LATE):
            from layerscope.session import late

            with surviving(problems):
                problems += late.take(self._session.raw, self._session.pid)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _layer(name: str) -> str:
    if name not in (*_DEFAULT, *_ON_REQUEST):
        known = [*_DEFAULT, *_ON_REQUEST]
        raise UsageError(f"there is no layer {name!r}.{did_you_mean(name, known)} The layers are {', '.join(known)}")
    return name
