"""What is done for the layers that a recording asks for: oneDNN's verbose log, the calls of MKL,
samples of stacks, operators that are executed alone.
"""

from __future__ import annotations

import os
import time

from layerscope.capture import perf, verbose
from layerscope.capture.agent import ITT, NVTX
from layerscope.capture.granularity import OPERATOR, SplitOperators
from layerscope.capture.program import Program
from layerscope.capture.recorder import surviving
from layerscope.capture.sampler import HZ, Sampler
from layerscope.model.layers import (
    API,
    COUNTERS,
    MEMORY,
    MODULES,
    OPERATORS,
    PRIMITIVES,
    RANGES,
    STACKS,
)
from layerscope.rawfile import jit_maps, raw_file
from layerscope.session.session import Session

VERBOSE, MKL, PERF = "verbose", "mkl", "perf"
DEFAULT = (OPERATORS, MODULES, API, RANGES, PRIMITIVES, STACKS, COUNTERS)
ON_REQUEST = (MEMORY, VERBOSE, MKL, PERF)
# What only the end of the program tells: nothing is converted before.
LATE = (VERBOSE, MKL)
# What everything else hangs on, and what costs nothing.
ALWAYS = (OPERATORS, COUNTERS)
# 0: oneDNN tells ITT nothing.
_TASK_LEVEL = "ONEDNN_ITT_TASK_LEVEL"


def options_of(layers: frozenset[str]) -> dict[str, bool]:
    """What every conversion of the recording must know about them."""
    return {raw_file.LATE: True} if layers & set(LATE) else {}


class Requested:
    """What is done for layers that were asked for or left out, from before the program starts until
    it has ended.
    """

    def __init__(
        self,
        layers: frozenset[str],
        session: Session,
        rate_hz: int = HZ,
        granularity: str = "",
    ) -> None:
        """`granularity`: OPERATOR, or empty for operators as the program executes them."""
        self._layers = layers
        self._granularity = granularity
        self._split: SplitOperators | None = None
        self._session = session
        self._tap: verbose.VerboseTap | None = None
        self._perf = perf.Perf(session.raw) if PERF in layers else None
        if MODULES not in layers:
            session.layers["modules"] = False
        if API not in layers:
            session.layers["api"] = False
        if MEMORY in layers:
            session.layers["memory"] = True
        if STACKS in layers:
            session.sampler = Sampler(session.raw, session.problems, rate_hz)
        self._since_s = time.time()
        if MKL in layers:
            session.layers["mkl"] = str(session.raw.absolute())

    def attach(self, program: Program, environment: dict[str, str]) -> None:
        """Just before `program` starts in `environment`: change that, and put the tap into its
        output.
        """
        left_out = {PRIMITIVES, RANGES} - self._layers
        if PRIMITIVES in left_out:
            environment.setdefault(_TASK_LEVEL, "0")
        unused = []
        if RANGES in left_out:
            unused.append(NVTX)
        if len(left_out) == 2:
            unused.append(ITT)
        for variable in unused:
            if variable not in os.environ:
                environment.pop(variable, None)
        if self._granularity == OPERATOR:
            self._split = SplitOperators(environment)
            environment |= self._split.variables
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
        """The program has ended: what it printed is out."""
        problems = self._session.problems
        if self._split is not None:
            problems += self._split.problems(self._session.versions)
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
