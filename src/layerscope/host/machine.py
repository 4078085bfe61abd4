"""Everything that is known of a machine without running anything on it, and of one process that
lives there.

All of it is read from files below a root path, so that a recorded machine is read as the real one
is. What a file does not say is None, an empty word or an empty tuple: "not visible", which is not
the same as "off".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from layerscope.host import (
    cgroup,
    cpu,
    cpuinfo,
    files,
    gpu,
    isa,
    kernel,
    memory,
    noise,
    numa,
    process,
)
from layerscope.host.cgroup import Cgroup
from layerscope.host.cpu import Cpu
from layerscope.host.gpu import Gpus
from layerscope.host.isa import Isa
from layerscope.host.kernel import Kernel
from layerscope.host.memory import MachineMemory
from layerscope.host.noise import Noise
from layerscope.host.numa import Node
from layerscope.host.process import ProcessFacts
from layerscope.model.errors import ReadError


class Machine(msgspec.Struct, frozen=True):
    """`cgroup`, `cpu.allowed` and `cpu.granted` are those of `process`, and of the asking process
    without one.
    """

    name: str
    cpu: Cpu
    isa: Isa
    numa: tuple[Node, ...]
    cgroup: Cgroup
    memory: MachineMemory
    noise: Noise
    kernel: Kernel
    gpus: Gpus
    process: ProcessFacts | None = None


def facts(root: Path = Path("/"), pid: int | None = None, ask: bool = True) -> Machine:
    """The machine below `root`; of process `pid`, else of this one, what differs between processes.

    Without `ask` nothing is asked but files, which takes milliseconds: the driver of a GPU may take
    seconds.

    Raises ReadError where there is no such process or it has ended.
    """
    info = cpuinfo.read(root)
    group = cgroup.facts(root, pid)
    return Machine(
        name=files.text(root / "proc/sys/kernel/hostname"),
        cpu=cpu.facts(root, pid, info, group),
        isa=isa.facts(root, info),
        numa=numa.facts(root),
        cgroup=group,
        memory=memory.facts(root),
        noise=noise.facts(root),
        kernel=kernel.facts(root),
        gpus=gpu.facts(root, ask=ask),
        process=None if pid is None else process.facts(root, pid),
    )


def as_json(machine: Machine) -> dict[str, Any]:
    """What a recording, and `platform --json`, keep of a machine; its name comes first."""
    found: dict[str, Any] = msgspec.to_builtins(machine)
    return found


def of_json(told: Mapping[str, Any]) -> Machine:
    """The machine that as_json made this of. Raises ReadError where it is not all there, as of an
    imported trace.
    """
    try:
        return msgspec.convert(told, Machine)
    except msgspec.ValidationError as error:
        raise ReadError(
            f"the facts about the machine are not all there ({error}): record them anew"
        ) from error
