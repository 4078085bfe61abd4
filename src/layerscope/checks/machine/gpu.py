"""The GPUs: driver, link, clocks, counters, and which CPUs are near."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from layerscope.checks.check import ERROR, NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.checks.phrases import cpu_list, listed
from layerscope.host.gpu import Gpu
from layerscope.model.measured import CUDA

ORDER = 140

_ANYBODY = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee "
    "/etc/modprobe.d/nvidia-profiling.conf && sudo update-initramfs -u"
)
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_IDLE = "idle"
# What keeps a clock down that the user can do nothing about in the program; others are somebody's
# setting.
_COOLING = ("heat", "heat (hardware)")
_POWER = ("power cap", "power brake", "hardware slowdown")
_SET = ("application clocks", "sync boost", "display clocks")


def check(seen: Seen) -> Iterator[Check]:
    """Nothing where there is no GPU."""
    gpus = seen.machine.gpus
    used = _used(gpus.devices, seen.variables)
    # None: all, or which of them is not known.
    judged = gpus.devices if used is None else used
    left = f"of which {_VISIBLE} leaves {listed(str(one.index) for one in judged) or 'none'}"
    left *= len(judged) < len(gpus.devices)
    if gpus.problem:
        what, _, remedy = gpus.problem.partition("; ")
        lost = "Frameworks do not see it, and compute on the CPU."
        yield Check("gpu", "GPU", ERROR if gpus.driver else WARNING, what, lost, remedy)
    elif not gpus.devices:
        return
    else:
        versions = [
            f"driver {gpus.driver}" * bool(gpus.driver),
            f"CUDA up to {gpus.cuda}" * bool(gpus.cuda),
        ]
        what = ", ".join(filter(None, [_counted(gpus.devices), *versions, left]))
        yield Check("gpu", "GPU", OK, what)
        yield from _cuda(seen)
    for device in judged:
        yield from _link(device)
        yield from _clocks(device)
        yield from _persistence(device)
    yield from _near(seen, judged, used is not None)
    if gpus.counters_need_root:
        yield Check(
            "gpu.counters",
            "GPU",
            NOTE,
            "the driver lets only administrators read hardware counters",
            "Profilers that read them (CUPTI, Nsight Compute) end with ERR_NVGPUCTRPERM; others "
            "time kernels still. What opens them (on Red Hat with dracut -f in place of "
            "update-initramfs -u) counts from the next boot.",
            _ANYBODY,
        )


def _used(devices: tuple[Gpu, ...], variables: Mapping[str, str]) -> tuple[Gpu, ...] | None:
    """Those that CUDA_VISIBLE_DEVICES leaves the program, by CUDA's rules; None: it may use all, or
    it cannot be told.

    Numbers are those of the bus only where CUDA_DEVICE_ORDER says so: else the fastest is 0, and
    others have any.
    """
    if _VISIBLE not in variables or not devices:
        return None
    by_bus = sorted(devices, key=lambda one: one.bus)
    has_order = variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    found: list[Gpu] = []
    for word in map(str.strip, variables[_VISIBLE].split(",")):
        if word.startswith("MIG-") or (
            word.startswith("GPU-") and not all(one.uuid for one in devices)
        ):
            return None
        if word.isdecimal():
            fitting = by_bus[int(word) : int(word) + 1]
        else:
            fitting = [
                one for one in devices if word.startswith("GPU-") and one.uuid.startswith(word)
            ]
        if len(fitting) != 1:  # CUDA takes what stands in front of a word that is wrong
            break
        if word.isdecimal() and not has_order and len(devices) > 1:
            return None
        found += fitting
    return tuple(found)


def _counted(devices: tuple[Gpu, ...]) -> str:
    """Names, with how many there are of each."""
    names = [_name(device) for device in devices]
    if len(names) == 1:
        return names[0]
    words = []
    for name in dict.fromkeys(names):
        count = names.count(name)
        words.append(f"{count} x {name}")
    return listed(words)


def _name(device: Gpu) -> str:
    """What a GPU is called, with its memory."""
    name = device.name
    if device.memory_bytes:
        name += f" with {device.memory_bytes / 2**30:.0f} GiB"
    if device.mig:
        name += " (MIG)"
    return name


def _which(device: Gpu) -> str:
    """Which GPU it is, in a sentence."""
    return f"GPU {device.index} at {device.bus}"


def _link(device: Gpu) -> Iterator[Check]:
    """Width does not change by itself; generation is lower while nothing is to do."""
    code = f"gpu.{device.index}.link"
    if device.link_width and device.link_width_most and device.link_width < device.link_width_most:
        yield Check(
            code,
            "GPU",
            WARNING,
            f"{_which(device)}: {device.link_width} of {device.link_width_most} lanes of PCI "
            "Express are in use",
            f"Copies to and from it reach {device.link_width / device.link_width_most:.0%} of what "
            "they could.",
            "put it firmly into a slot with all lanes, and look into the firmware's settings of "
            "that slot",
        )
    now, most = device.link_generation, device.link_generation_most
    if not now or not most or now >= most:
        return
    what = f"{_which(device)}: its link is of generation {now}, {most} is possible"
    if _IDLE in device.slowed_by:
        yield Check(code, "GPU", OK, f"{what}; it saves power while it is idle")
    elif device.clock_mhz is None:  # files of the bus alone do not say whether it is idle
        yield Check(code, "GPU", UNSEEN, f"{what}; whether it only saves power is not known")
    else:
        yield Check(
            code,
            "GPU",
            WARNING,
            what,
            f"Copies to and from it take {2 ** (most - now)} times as long as they could.",
            "look into the firmware's settings of the slot (link speed: auto), and at risers and "
            "cables",
        )


def _clocks(device: Gpu) -> Iterator[Check]:
    reasons = [reason for reason in device.slowed_by if reason != _IDLE]
    if not reasons:
        return
    what = f"{_which(device)} is slowed by {listed(reasons)}"
    if device.clock_mhz and device.clock_most_mhz:
        what += f" ({device.clock_mhz:,} of {device.clock_most_mhz:,} MHz)"
    code = f"gpu.{device.index}.clocks"
    if any(reason in _COOLING for reason in reasons):
        lost = "It would be damaged otherwise: kernels take longer, and times vary."
        yield Check(
            code,
            "GPU",
            WARNING,
            what,
            lost,
            "look at fans and air, then: nvidia-smi -q -d TEMPERATURE",
        )
    elif any(reason in _POWER for reason in reasons):
        state = NOTE if reasons == ["power cap"] else WARNING
        lost = (
            "Its limit of power keeps clocks low: under full load that is normal for many devices."
        )
        yield Check(
            code,
            "GPU",
            state,
            what,
            lost,
            "nvidia-smi -q -d POWER shows the limit and its largest value",
        )
    elif any(reason in _SET for reason in reasons):
        lost = "Somebody has set its clocks lower than it could."
        yield Check(code, "GPU", NOTE, what, lost, "sudo nvidia-smi -rac; sudo nvidia-smi -rgc")


def _persistence(device: Gpu) -> Iterator[Check]:
    if device.persistence is False:
        yield Check(
            f"gpu.{device.index}.persistence",
            "GPU",
            NOTE,
            f"{_which(device)}: persistence is off",
            "The driver sets the device up anew for a program that comes when no other uses it: "
            "seconds at its start. "
            "Without the service nvidia-smi -pm 1 keeps it up until the next boot.",
            "sudo systemctl enable --now nvidia-persistenced",
        )


def _near(seen: Seen, devices: tuple[Gpu, ...], are_used: bool) -> Iterator[Check]:
    """Whether CPUs that may be used are on the same memory node. Of GPUs that only may be used one
    that is near is enough: the program may well be meant for that.
    """
    allowed = set(seen.machine.cpu.allowed)
    cpus = {node.number: set(node.cpus) for node in seen.machine.numa}
    if len(cpus) < 2 or not allowed:
        return
    near = {}
    for one in devices:
        close: set[int] = set()
        if one.node is not None:
            close = cpus.get(one.node, set())
        near[one.index] = close
    is_note = not are_used and any(close & allowed for close in near.values())
    for device in devices:
        close = near[device.index]
        if not close or close & allowed:
            continue
        lost = "Every copy and every launch crosses the link between processors"
        if is_note:
            lost += " if the program uses this GPU"
        yield Check(
            f"gpu.{device.index}.node",
            "GPU",
            NOTE if is_note else WARNING,
            f"{_which(device)} is at memory node {device.node}; none of the allowed CPUs "
            f"({cpu_list(allowed)}) is",
            f"{lost}. CPUs {cpu_list(close)} are near it, where they may be used.",
            f"numactl --cpunodebind={device.node} --membind={device.node} python train.py",
        )


def _cuda(seen: Seen) -> Iterator[Check]:
    """The program's torch against the driver; a newer minor version runs too, with limits (CUDA
    compatibility).
    """
    libraries = seen.measured.libraries if seen.measured else ()
    built = next((library.version for library in libraries if library.name == CUDA), "")
    runs = seen.machine.gpus.cuda
    if not built or not runs:
        return
    what = f"PyTorch is built for CUDA {built}, the driver runs up to {runs}"
    if _major_minor(built) <= _major_minor(runs):
        yield Check("gpu.cuda", "GPU", OK, what)
    elif _major_minor(built)[0] == _major_minor(runs)[0]:
        yield Check(
            "gpu.cuda",
            "GPU",
            NOTE,
            what,
            "It runs, but code that is compiled at run time (PTX) may be refused.",
            "install a newer driver",
        )
    else:
        yield Check(
            "gpu.cuda",
            "GPU",
            ERROR,
            what,
            "PyTorch says that CUDA is not available, and computes on the CPU.",
            f"install a newer driver, or a PyTorch for CUDA {runs} or older",
        )


def _major_minor(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    numbers = []
    for word in version.split(".")[:2]:
        if word.isdigit():
            numbers.append(int(word))
    return tuple(numbers)
