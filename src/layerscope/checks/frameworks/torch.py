"""What can be recorded of PyTorch: operators, modules, shapes of inputs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from layerscope.capture import agent
from layerscope.capture.frameworks.torch import probe
from layerscope.capture.frameworks.torch.prober import SWEPT_CACHES
from layerscope.checks import rights
from layerscope.checks.program_python import ProgramPython
from layerscope.checks.recording_check import LIMITED, NO, OK, RecordingCheck
from layerscope.host import clock
from layerscope.host.frameworks import package_version

OPERATORS = "operators"
_WINDOWS = (
    "only windows of PyTorch's own profiler are recorded: operators without modules, and "
    "not all of them"
)
_SAME_REMEDY = "as for operators"
_COMPILERS = ("g++", "c++", "clang++")


def check(program: ProgramPython, refused: dict[str, str]) -> Iterator[RecordingCheck]:
    """The lines of `doctor` about it."""
    found = operators(program, refused)
    only_windows = found.what.endswith(_WINDOWS)
    yield found
    yield modules(program, only_windows)
    yield shapes(program, only_windows)


def library_of(program: ProgramPython) -> Path | None:
    """The libtorch_cpu.so of this Python; None when it has no torch."""
    origin = program.origin("torch")
    if not origin:
        return None
    installed = Path(origin).parent / "lib" / "libtorch_cpu.so"
    library = Path(os.path.realpath(installed))
    return library if library.exists() else None


def operators(program: ProgramPython, refused: dict[str, str]) -> RecordingCheck:
    """Whether the agent records this build of torch, asked for real, and what that costs."""
    library = library_of(program)
    if library is None:
        remedy = "name the Python that has it: layerscope doctor -- /path/to/python"
        return RecordingCheck(OPERATORS, NO, f"{program.python} has no PyTorch", remedy)
    version = package_version(library.parent.parent.parent, "torch") or "of an unknown version"
    problem = agent.check()
    if problem is not None:
        return RecordingCheck(OPERATORS, LIMITED, f"{problem.what}: {_WINDOWS}", problem.remedy)
    for name, reason in refused.items():
        if name in ("memory", "socket"):
            return RecordingCheck(
                OPERATORS, LIMITED, f"the system refuses it ({reason}): {_WINDOWS}", rights.FILTER
            )
    answer = probe.known(library)
    if answer is None or not answer.complete:
        answer = answer or probe.ask(library)
        if answer.state == "good":
            answer = probe.ask_with_python(program.python, library, answer, clock.tsc_is_usable())
        probe.keep(library, answer)
    if answer.state != "good":
        return RecordingCheck(
            OPERATORS,
            LIMITED,
            f"torch {version} is not understood ({answer.why}): {_WINDOWS}",
            answer.remedy,
        )
    if not answer.complete:
        return RecordingCheck(
            OPERATORS,
            LIMITED,
            f"torch {version}, without links from backward functions to operators",
        )
    costs = answer.operator_cost_ns, answer.backward_cost_ns * SWEPT_CACHES
    cost = (
        f"{costs[0]:.0f} ns an operator, about {costs[1]:.0f} ns a backward function, measured here"
    )
    return RecordingCheck(
        OPERATORS, OK, f"torch {version}: every operator on every thread, at {cost}"
    )


def modules(program: ProgramPython, only_windows: bool = False) -> RecordingCheck:
    """Calls of modules come through a field of functions that only CPython with its lock has."""
    if library_of(program) is None:
        return RecordingCheck("modules", NO, "there is no PyTorch")
    if (
        program.about["kind"] != "CPython"
        or not program.about["gil"]
        or not (3, 8) <= program.version <= (3, 14)
    ):
        return RecordingCheck(
            "modules",
            NO,
            "they need CPython 3.8 to 3.14 with the GIL; operators are recorded all the same",
            "use such a Python",
        )
    if only_windows:
        return RecordingCheck(
            "modules", NO, "windows of PyTorch's own profiler have none", _SAME_REMEDY
        )
    return RecordingCheck("modules", OK, "every call of a torch.nn.Module")


def shapes(program: ProgramPython, only_windows: bool = False) -> RecordingCheck:
    """Shapes are read by code that is compiled for the program's torch."""
    found = next(
        (
            path
            for name in (os.environ.get("CXX", ""), *_COMPILERS)
            if name and (path := shutil.which(name))
        ),
        "",
    )
    library = library_of(program)
    if library is None:
        return RecordingCheck("shapes", NO, "there is no PyTorch")
    if only_windows:
        return RecordingCheck(
            "shapes",
            NO,
            "windows of PyTorch's own profiler are recorded without them",
            _SAME_REMEDY,
        )
    if not found:
        return RecordingCheck(
            "shapes",
            LIMITED,
            "run --shapes needs a C++ compiler; all else is recorded",
            "install g++",
        )
    if not (library.parent.parent / "include").is_dir():
        return RecordingCheck(
            "shapes",
            LIMITED,
            "run --shapes needs the headers of PyTorch",
            "install PyTorch from its wheel",
        )
    return RecordingCheck(
        "shapes", OK, f"run --shapes compiles once for this PyTorch, with {found}"
    )
