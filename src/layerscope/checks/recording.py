"""What can be recorded here, one line each: from facts about the machine and the program's Python.
Used by `doctor`.

Each check says what is found and what that means for a recording, and the remedy where it is not as
good as it could be. Of what this version does not record it says so, and promises nothing.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import structs

from layerscope.capture import agent, sampler
from layerscope.checks import rights
from layerscope.checks.frameworks import of_framework
from layerscope.checks.program_python import ProgramPython, find_program, program_checks
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
    kernel,
    memory,
    system_calls,
)
from layerscope.model.events import Problem
from layerscope.model.frameworks import frameworks, titles

OPERATORS = "operators"


def all_checks(words: list[str]) -> Iterator[RecordingCheck]:
    """Every check, in the order in which a person would ask."""
    program = find_program(words)
    yield from program_checks(program, words)
    refused = system_calls.refused()
    yield from framework_checks(program, refused)
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


def framework_checks(program: ProgramPython, refused: dict[str, str]) -> Iterator[RecordingCheck]:
    """What can be recorded of the frameworks that the program's Python has."""
    installed = [one for one in frameworks() if program.origin(one.name)]
    for framework in installed:
        yield from of_framework(framework.name)(program, refused)
    if not installed:
        remedy = "name the Python that has it: layerscope doctor -- /path/to/python"
        what = f"{program.python} has no {titles()}"
        yield RecordingCheck(OPERATORS, NO, what, remedy)


def primitives(problem: Problem | None) -> RecordingCheck:
    """What oneDNN tells a collector. `problem`: why there is no agent to be it."""
    if problem is not None:
        return RecordingCheck("primitives", NO, problem.what, problem.remedy)
    if os.environ.get(agent.ITT):
        what = f"your own {agent.ITT} receives what oneDNN and ITT report"
        return RecordingCheck(
            "primitives", LIMITED, what, f"unset {agent.ITT}; or run --layers +verbose"
        )
    what = "of oneDNN 2.3 and later, with shapes and implementations from 3.12 on"
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
    return structs.astuple(check)


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
