"""A machine on which all is well, and the same with something else about it."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from layerscope.checks import judge
from layerscope.checks.check import Check, Seen
from layerscope.host.cgroup import Cgroup
from layerscope.host.cpu import Cpu
from layerscope.host.gpu import Gpus
from layerscope.host.isa import Isa, Support
from layerscope.host.kernel import Kernel
from layerscope.host.machine import Machine
from layerscope.host.memory import MachineMemory
from layerscope.host.noise import Noise
from layerscope.host.numa import Node
from layerscope.host.process import ProcessFacts
from layerscope.host.watch import Watched

GB = 1_000_000_000
FLAGS = (
    "amx_bf16", "amx_int8", "amx_tile",
    "avx", "avx2", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx512bw", "avx512cd", "avx512dq", "avx512f",
    "avx512vl", "f16c", "fma", "sse4_1", "sse4_2",
)  # fmt: skip
SUPPORT = (
    Support("float64", "native", "AVX-512", 512),
    Support("float32", "native", "AVX-512", 512),
    Support("float16", "native", "AVX-512 FP16", 512),
    Support("bfloat16", "native", "AVX-512 BF16", 512),
    Support("int8", "native", "AVX-512 VNNI", 512),
)
EIGHT = tuple(range(8))
WELL = Machine(
    name="well",
    cpu=Cpu(
        model="Test CPU", vendor="GenuineIntel", machine="x86_64", online=EIGHT, allowed=EIGHT, granted=8.0, sockets=1,
        cores=8, smt="off", governor="performance", boost=True, most_mhz=3500, caches={"L2": 1 << 20},
        clocksource="tsc",
    ),
    isa=Isa("x86_64", FLAGS, SUPPORT, "usable", "x86-64-v4"),
    numa=(Node(0, EIGHT, 64 * GB, 60 * GB, (10,)),),
    cgroup=Cgroup(version=2),
    memory=MachineMemory(64 * GB, 60 * GB, 8 * GB, 0, "always", "madvise", 0, 60, 0),
    noise=Noise((0.5, 0.5, 0.5), 0.0, 0.0, 0.0, 0.0, 1),
    kernel=Kernel(
        perf_event_paranoid=1, ptrace_scope=1, seccomp="off", release="6.8.0", kptr_restrict=0, perf_event_mlock_kb=516,
        perf_event_max_stack=127, pmus=("breakpoint", "cpu", "software"), tracefs_readable=False, numa_balancing=False,
    ),
    gpus=Gpus(),
)  # fmt: skip
LIBRARIES = (
    "/opt/venv/bin/python3.11",
    "/opt/venv/lib/python3.11/site-packages/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so",
    "/opt/venv/lib/python3.11/site-packages/torch/lib/libgomp.so.1",
    "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
)
PROCESS = ProcessFacts(
    pid=4711, name="python", argv=("python", "train.py"), state="R", uid=1000, threads=12, libraries=LIBRARIES,
    variables={}, memory_bytes=2 * GB,
)  # fmt: skip
WATCHED = Watched(
    seconds=5.0, steal_share=0.0, busy_share=0.9, process_cpus=7.0, process_threads=9, faults=500
)


def changed(value: Any, **fields: Any) -> Any:
    """`value` with other `fields`, whether it is a dataclass or a struct."""
    replace = msgspec.structs.replace if isinstance(value, msgspec.Struct) else dataclasses.replace
    return replace(value, **fields)


def machine(**changes: Any) -> Machine:
    """WELL with other facts: `cpu={"granted": 1.0}`; `process={}` gives it one, `numa` is replaced
    as a whole.
    """
    made: dict[str, Any] = {}
    for name, values in changes.items():
        if name in ("numa", "name"):
            made[name] = values
        else:
            made[name] = changed(PROCESS if name == "process" else getattr(WELL, name), **values)
    found: Machine = changed(WELL, **made)
    return found


def seen(
    watched: dict[str, Any] | None = None, variables: dict[str, str] | None = None, **changes: Any
) -> Seen:
    """Such a machine; `watched={}`: while it was watched, `variables` are set."""
    looked = None if watched is None else changed(WATCHED, **watched)
    return Seen(machine(**changes), looked, None, variables or {})


def case(code: str, state: str, evidence: str, remedy: str = "", **about: Any) -> Any:
    """`evidence`: part of what is said, `remedy` all of it, as on a machine that `about`
    describes.
    """
    return pytest.param(code, state, evidence, remedy, about, id=f"{code}-{state}-{evidence[:30]}")


def judged(code: str, about: Seen) -> Check:
    """What the check `code` says about it."""
    found = [check for check in judge.judged(about) if check.code == code]
    assert len(found) == 1, f"{code} is said {len(found)} times"
    return found[0]
