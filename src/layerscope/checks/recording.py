"""What can be recorded here, one line each: from facts about the machine and the program's Python.
Used by `doctor`.

Each check says what is found and what that means for a recording, and the remedy where it is not as
good as it could be. Of what this version does not record it says so, and promises nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.capture import agent, probe, sampler, shapes
from layerscope.capture.prober import SWEPT_CACHES
from layerscope.checks import rights
from layerscope.checks.recording_check import LIMITED, NO, OK, RecordingCheck, text
from layerscope.checks.surroundings import (
    cached_probes,
    cpus,
    limits,
    memory_here,
    recordings,
    surroundings,
    temporary_files,
)
from layerscope.host import (
    cgroup,
    clock,
    cpu,
    frameworks,
    kernel,
    memory,
    system_calls,
)
from layerscope.model.events import Problem

OPERATORS = "operators"
_ABOUT = (
    "import importlib.util as u, json, platform as p, sys; s = u.find_spec('torch'); "
    "print(json.dumps({'python': p.python_version(), 'kind': p.python_implementation(), "
    "'gil': getattr(sys, '_is_gil_enabled', lambda: True)(), 'torch': s.origin if s else ''}))"
)
_ANSWER_S = 60
_WINDOWS = (
    "only windows of PyTorch's own profiler are recorded: operators without modules, and "
    "not all of them"
)
_SAME_REMEDY = "as for operators"
# Options of Python whose value is a word of its own.
_TAKE_A_WORD = ("-W", "-X")
_COMPILERS = ("g++", "c++", "clang++")


@dataclass(frozen=True, slots=True)
class ProgramPython:
    """The program's Python: `about` is what it says of itself; empty, and `problem` says why, where
    it does not.
    """

    python: str
    where: str
    about: dict[str, Any]
    problem: str = ""

    @property
    def library(self) -> Path | None:
        """Its libtorch_cpu.so; None when it has no torch."""
        origin = self.about.get("torch")
        if not origin:
            return None
        library = Path(os.path.realpath(Path(origin).parent / "lib" / "libtorch_cpu.so"))
        return library if library.exists() else None

    @property
    def version(self) -> tuple[int, ...]:
        """Of its Python, such as (3, 11)."""
        return tuple(int(word) for word in str(self.about.get("python", "0")).split(".")[:2])


def find_program(words: list[str]) -> ProgramPython:
    """The Python that `layerscope run` with these words would record."""
    if not words or words[0].endswith(".py"):
        python, where = frameworks.program_python(os.environ)
    else:
        python, where = shapes.python_of(words, os.environ), "as named"
    try:
        done = subprocess.run(
            [python, "-c", _ABOUT],
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return ProgramPython(
            python, where, dict(json.loads(done.stdout.strip().rpartition("\n")[2]))
        )
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        why = (
            error.strerror
            if isinstance(error, OSError) and error.strerror
            else "it did not answer as Python 3 does"
        )
        return ProgramPython(python, where, {}, why)


def all_checks(words: list[str]) -> Iterator[RecordingCheck]:
    """Every check, in the order in which a person would ask."""
    program = find_program(words)
    yield from program_checks(program, words)
    refused = system_calls.refused()
    found = operators(program, refused)
    only_windows = found.what.endswith(_WINDOWS)
    yield found
    yield modules(program, only_windows)
    yield primitives(agent.check())
    yield ranges(agent.check())
    yield c_interface(agent.LIBRARY.parent)
    yield stacks(kernel.facts(), refused, agent.LIBRARY.parent)
    yield inside_the_kernel(sampler.rights)
    yield RecordingCheck(
        "counters",
        OK,
        "CPU time, memory, page faults and threads of every process: read from /proc",
    )
    yield compiler(program, only_windows)
    yield time_source(clock.tsc_is_usable(), agent.check() is None)
    yield hand_over(refused)
    yield not_yet()
    yield memory_here(cgroup.facts(), memory.available_bytes())
    here = cpu.facts()
    yield cpus(here.granted, len(here.online))
    yield recordings(_cwd())
    yield temporary_files(Path(tempfile.gettempdir()))
    yield cached_probes()
    yield from limits()
    yield surroundings(kernel.facts(), _user())


def program_checks(program: ProgramPython, words: list[str]) -> Iterator[RecordingCheck]:
    """The Python, and what on the command line keeps layerscope out of it."""
    if not program.about:
        remedy = "name the Python of the program: layerscope doctor -- /path/to/python"
        yield RecordingCheck(
            "python", NO, f"{program.python} ({program.where}): {program.problem}", remedy
        )
        return
    kind = "" if program.about["kind"] == "CPython" else f"{program.about['kind']} "
    yield RecordingCheck(
        "python", OK, f"{kind}{program.about['python']}, {program.python} ({program.where})"
    )
    out = keeps_us_out(words)
    if out:
        yield RecordingCheck(
            "arguments",
            NO,
            f"python -{out} does not read PYTHONPATH, by which layerscope comes in",
            f"run the program without -{out}",
        )


def keeps_us_out(words: list[str]) -> str:
    """The option of Python among `words` that ignores PYTHONPATH: I, E or S; empty when there is
    none.
    """
    if not words or not Path(words[0]).name.startswith("python"):
        return ""
    options = iter(words[1:])
    for word in options:
        if not word.startswith("-") or word.startswith("--") or word[1:2] in ("c", "m"):
            return ""  # what follows belongs to the program
        if word in _TAKE_A_WORD:
            next(options, "")
        for letter in word[1:]:
            if letter in "IES":
                return letter
            if letter in "WXcm":
                break
    return ""


def operators(program: ProgramPython, refused: dict[str, str]) -> RecordingCheck:
    """Whether the agent records this build of torch, asked for real, and what that costs."""
    library = program.library
    if library is None:
        remedy = "name the Python that has it: layerscope doctor -- /path/to/python"
        return RecordingCheck(OPERATORS, NO, f"{program.python} has no PyTorch", remedy)
    version = (
        frameworks.package_version(library.parent.parent.parent, "torch") or "of an unknown version"
    )
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
        remedy = "update layerscope, or use a torch it knows"
        return RecordingCheck(
            OPERATORS,
            LIMITED,
            f"torch {version} is not understood ({answer.why}): {_WINDOWS}",
            remedy,
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
    if program.library is None:
        return RecordingCheck("modules", NO, "there is no PyTorch")
    if (
        program.about["kind"] != "CPython"
        or not program.about["gil"]
        or not (3, 8) <= program.version <= (3, 13)
    ):
        return RecordingCheck(
            "modules",
            NO,
            "they need CPython 3.8 to 3.13 with the GIL; operators are recorded all the same",
            "use such a Python",
        )
    if only_windows:
        return RecordingCheck(
            "modules", NO, "windows of PyTorch's own profiler have none", _SAME_REMEDY
        )
    return RecordingCheck("modules", OK, "every call of a torch.nn.Module")


def compiler(program: ProgramPython, only_windows: bool = False) -> RecordingCheck:
    """Shapes are read by code that is compiled for the program's torch."""
    found = next(
        (
            path
            for name in (os.environ.get("CXX", ""), *_COMPILERS)
            if name and (path := shutil.which(name))
        ),
        "",
    )
    if program.library is None:
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
    if not (program.library.parent.parent / "include").is_dir():
        return RecordingCheck(
            "shapes",
            LIMITED,
            "run --shapes needs the headers of PyTorch",
            "install PyTorch from its wheel",
        )
    return RecordingCheck(
        "shapes", OK, f"run --shapes compiles once for this PyTorch, with {found}"
    )


def primitives(problem: Problem | None) -> RecordingCheck:
    """What oneDNN tells a collector. `problem`: why there is no agent to be it."""
    if problem is not None:
        return RecordingCheck("primitives", NO, problem.what, problem.remedy)
    if os.environ.get(agent.ITT):
        what = f"your own {agent.ITT} receives what oneDNN and ITT report"
        return RecordingCheck(
            "primitives", LIMITED, what, f"unset {agent.ITT}; or run --layers +verbose"
        )
    what = "of oneDNN 2.3 and later, with shapes and implementations from 3.12 on (PyTorch 2.13)"
    return RecordingCheck(
        "primitives", OK, f"{what}; run --layers +verbose and +mkl add what these libraries print"
    )


def ranges(problem: Problem | None) -> RecordingCheck:
    """What programs mark: by our library, which needs nothing, or for collectors, of which the
    agent is one.
    """
    if problem is not None:
        what = (
            f"layerscope.profiler needs nothing, but {problem.what}: nothing of NVTX, ITT and "
            "layerscope.h"
        )
        return RecordingCheck("ranges", LIMITED, what, problem.remedy)
    taken = [variable for variable in (agent.NVTX, agent.ITT) if os.environ.get(variable)]
    if taken:
        what = (
            f"your own {' and '.join(taken)} {'get' if len(taken) > 1 else 'gets'} what the "
            "program marks by it"
        )
        return RecordingCheck("ranges", LIMITED, what, f"unset {' and '.join(taken)}")
    return RecordingCheck(
        "ranges", OK, "NVTX, ITT, layerscope.h and layerscope.profiler; no GPU is needed"
    )


def c_interface(native: Path) -> RecordingCheck:
    """Whether programs in C can be built with layerscope.h, and where it is."""
    if not (native / "liblayerscope.so").exists():
        remedy = f"install a C compiler (for example gcc), then: {agent.BUILD_AGAIN}"
        return RecordingCheck("C interface", LIMITED, "liblayerscope.so was not compiled", remedy)
    return RecordingCheck(
        "C interface",
        OK,
        f"headers in {text(native / 'include')}, liblayerscope.so in {text(native)}",
    )


def time_source(tsc: bool, has_agent: bool) -> RecordingCheck:
    """Which clock the agent reads."""
    if tsc:
        return RecordingCheck("clock", OK, "the time stamp counter, as the kernel itself")
    what = (
        "the kernel does not trust the time stamp counter: each operator takes two longer calls "
        "of the clock"
    )
    return RecordingCheck(
        "clock",
        LIMITED if has_agent else OK,
        what,
        "nothing to do; a virtual machine may offer tsc" * has_agent,
    )


def hand_over(refused: dict[str, str]) -> RecordingCheck:
    """How the program's memory reaches the recorder."""
    if "memory" in refused:
        return RecordingCheck(
            "hand-over", NO, f"memfd_create is refused ({refused['memory']})", rights.FILTER
        )
    if "socket" in refused:
        return RecordingCheck(
            "hand-over",
            NO,
            f"no descriptor comes over an abstract socket ({refused['socket']})",
            rights.FILTER,
        )
    return RecordingCheck(
        "hand-over", OK, "the program can hand its rings over; /dev/shm may be small"
    )


def stacks(here: kernel.Kernel, refused: dict[str, str], native: Path) -> RecordingCheck:
    """Stacks of threads."""
    subject = "stacks"
    if not (native / sampler.BINARY.name).exists():
        return RecordingCheck(
            subject, NO, "the sampler was not compiled", f"install gcc, then: {agent.BUILD_AGAIN}"
        )
    if "process_vm_readv" in refused:
        scope = "" if here.ptrace_scope is None else f", ptrace_scope is {here.ptrace_scope}"
        what = (
            f"process_vm_readv is refused ({refused['process_vm_readv']}{scope}): no stack can "
            "be read"
        )
        return RecordingCheck(subject, NO, what, rights.FILTER)
    paranoid = (
        ""
        if here.perf_event_paranoid is None
        else f" (perf_event_paranoid is {here.perf_event_paranoid})"
    )
    if "perf_event_open" in refused:
        what = (
            f"perf_event_open is refused{paranoid}: timers of the program take the place of events"
        )
        return RecordingCheck(subject, LIMITED, what, rights.events(here.is_container))
    yama = here.ptrace_scope or 0
    if yama > 1 and (yama > 2 or os.geteuid()):
        what = (
            f"ptrace_scope is {yama}: of threads that wait no stack is read, and the reason of "
            "few waits is known"
        )
        return RecordingCheck(subject, LIMITED, what, rights.ptrace(yama))
    return RecordingCheck(subject, OK, f"every thread can be sampled{paranoid}")


def inside_the_kernel(ask: Callable[[], dict[str, int]]) -> RecordingCheck:
    """What of stacks needs rights that most users do not have."""
    subject = "kernel"
    try:
        told = ask()
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return RecordingCheck(
            subject, NO, "without the sampler of stacks nothing is known of the kernel"
        )
    if not told["wakers"] and not told["kernel"]:
        return RecordingCheck(
            subject, OK, "functions of the kernel on the stacks, and who ends each wait"
        )
    lost = ["which thread ends a wait is not known"] * bool(told["wakers"])
    remedy = rights.see_everything()
    if told["kernel"]:
        lost.append("time in the kernel is one frame")
        remedy += f", or for frames: {rights.KERNEL_FRAMES}"
    return RecordingCheck(subject, LIMITED, "; ".join(lost), remedy)


def not_yet() -> RecordingCheck:
    """What this version cannot record at all."""
    return RecordingCheck(
        "other layers", NO, "GPU kernels and memory by operator: this version cannot record them"
    )


def as_row(check: RecordingCheck) -> tuple[str, ...]:
    """The values of a check, as a row."""
    return dataclasses.astuple(check)


def _cwd() -> Path | None:
    try:
        return Path.cwd()
    except OSError:
        return None


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""
