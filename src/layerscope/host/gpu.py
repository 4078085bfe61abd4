"""The GPUs of a machine: by what the kernel's files tell, and NVIDIA's management library (NVML)
where it answers.

A machine without one costs a look at a folder or two. Only NVIDIA's are looked for.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from layerscope.host import files

LIBRARY = "libnvidia-ml.so.1"
# Asked, the driver sets up devices that nobody uses: seconds with many. One that hangs takes for
# ever.
_ANSWER_S = 5.0
_VENDOR, _CLASS = "0x10de", "0x03"  # NVIDIA; display controllers (PCI ID repository)
# Without files of the bus and of the driver: some containers and gVisor; and Windows, whose GPU may
# be of any vendor.
_DEVICE_FILE, _DEVICE_FILE_OF_WINDOWS = "dev/nvidiactl", "dev/dxg"
# Giga transfers a second of a PCI Express lane, by generation.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_VERSION = re.compile(r"(?:Kernel Module|for \w+)\s+(\d[\d.]*)")
# What NVreg_RestrictProfilingToAdminUsers is called in /proc/driver/nvidia/params.
_ADMIN_ONLY = "RmProfilingAdminOnly"


class Gpu(msgspec.Struct, frozen=True):
    """One device. None, or empty: not told. Of the PCI Express link the width and generation now,
    and at most.

    `bus`: its address, such as 0000:07:00.0. `node`: of memory that is nearest. `slowed_by`: why
    its clocks are below the highest: idle, power cap, heat, heat (hardware), power brake, hardware
    slowdown, application clocks, sync boost, display clocks. While it is idle its link may be
    slower too. `uuid`: begins with GPU-.
    """

    index: int
    name: str
    bus: str
    memory_bytes: int | None = None
    node: int | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    mig: bool | None = None
    clock_mhz: int | None = None
    clock_most_mhz: int | None = None
    slowed_by: tuple[str, ...] = ()
    link_width: int | None = None
    link_width_most: int | None = None
    link_generation: int | None = None
    link_generation_most: int | None = None
    uuid: str = ""


class Gpus(msgspec.Struct, frozen=True):
    """`driver`, `cuda`: versions of the driver and of the newest CUDA that it runs. `problem`: why
    a GPU that is there tells nothing (no driver, a driver that does not answer), with the remedy;
    empty where all is well or none is there. `counters_need_root`: the driver lets only
    administrators read hardware counters. `peer_memory`: its kernel module is loaded.
    """

    devices: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: str = ""
    problem: str = ""
    counters_need_root: bool | None = None
    peer_memory: bool | None = None


def facts(root: Path = Path("/"), library: str = "", ask: bool = True) -> Gpus:
    """The GPUs of the machine below `root`.

    NVML is asked where `root` is the real one, or `library` names it: in a process of its own, with
    a limit of time; without `ask` it is not, nor is a GPU without a driver looked for.
    """
    driver = root / "proc/driver/nvidia"
    has_driver = (driver / "version").exists() or (root / _DEVICE_FILE).exists()
    may_have_driver = has_driver or (root / _DEVICE_FILE_OF_WINDOWS).exists()
    # A server has hundreds of devices to go through.
    on_bus = _on_bus(root) if ask or has_driver else []
    if not (on_bus or may_have_driver):
        return Gpus()
    devices = tuple(_device(index, bus, driver) for index, bus in enumerate(on_bus))
    version = _VERSION.search(files.text(driver / "version"))
    admin_only = files.fields(driver / "params").get(_ADMIN_ONLY)
    modules = files.text(root / "proc/modules")
    found = Gpus(
        devices,
        version[1] if version else "",
        counters_need_root=None if admin_only is None else admin_only != "0",
        peer_memory=bool(re.search("^nvidia_peermem ", modules, re.MULTILINE)) if modules else None,
    )
    if not may_have_driver:
        return msgspec.structs.replace(found, problem=_without_driver(on_bus[0], len(on_bus)))
    if not ask or (not library and root != Path("/")):
        return found
    answered = _with_nvml(found, library or LIBRARY)
    return answered if has_driver or answered.devices else Gpus()


def _on_bus(root: Path) -> list[Path]:
    try:
        devices = sorted((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return []
    return [
        device
        for device in devices
        if files.text(device / "vendor") == _VENDOR
        and files.text(device / "class").startswith(_CLASS)
    ]


def _device(index: int, folder: Path, driver: Path) -> Gpu:
    """By the files of the bus and of the driver."""
    about = files.fields(driver / "gpus" / folder.name / "information")
    name, uuid = about.get("Model", ""), about.get("GPU UUID", "")
    node = files.number(folder / "numa_node")
    return Gpu(
        index,
        name or f"NVIDIA device {files.text(folder / 'device')}",
        folder.name,
        node=None
        if node is None or node < 0
        else node,  # -1: the machine has none, or does not say
        link_width=files.number(folder / "current_link_width") or None,
        link_width_most=files.number(folder / "max_link_width") or None,
        link_generation=_generation(files.text(folder / "current_link_speed")),
        link_generation_most=_generation(files.text(folder / "max_link_speed")),
        uuid="" if "?" in uuid else uuid,  # question marks for those who may not know
    )


def _generation(speed: str) -> int | None:
    """Of a link of this speed, such as "16.0 GT/s PCIe"."""
    try:
        return _GENERATIONS.get(float(speed.split()[0]))
    except (ValueError, IndexError):
        return None


def _without_driver(folder: Path, count: int) -> str:
    what = "an NVIDIA GPU is" if count == 1 else f"{count} NVIDIA GPUs are"
    other = (folder / "driver").resolve().name if (folder / "driver").exists() else ""
    if other == "vfio-pci":
        return (
            f"{what} reserved for virtual machines (driver vfio-pci); bind it to the driver "
            "nvidia to use it here"
        )
    why = f"the driver is {other}, which runs no CUDA" if other else "no driver for it is loaded"
    return (
        f"{what} there, but {why}; install NVIDIA's driver (packages called nvidia-driver), "
        "then: modprobe nvidia"
    )


def _with_nvml(found: Gpus, library: str) -> Gpus:
    """What the library tells goes before what files tell."""
    told = _ask(library)
    if "problem" in told:
        why = str(told["problem"])
        hint = (
            "in a container, docker run --gpus all brings its library"
            if "cannot open" in why
            else "try nvidia-smi"
        )
        return msgspec.structs.replace(found, problem=f"the driver does not answer: {why}; {hint}")
    by_bus = {device.bus: device for device in found.devices}
    devices = []
    for about in told["devices"]:
        # The library writes eight digits of the domain, the kernel four.
        bus = re.sub(r"^0000(?=[0-9a-f]{4}:)", "", str(about["bus"]).lower())
        before = by_bus.get(bus, Gpu(0, "", bus))
        news = {name: value for name, value in about.items() if value is not None and name != "bus"}
        devices.append(
            msgspec.structs.replace(before, **{**news, "slowed_by": tuple(about["slowed_by"])})
        )
    return msgspec.structs.replace(
        found,
        devices=tuple(devices) or found.devices,
        driver=told["driver"] or found.driver,
        cuda=told["cuda"],
    )


def _ask(library: str) -> dict[str, Any]:
    """The answer of nvml.py, or {"problem": why}."""
    command = [sys.executable, "-I", "-S", str(Path(__file__).parent / "nvml.py"), library]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        out, _ = process.communicate(timeout=_ANSWER_S)
    except subprocess.TimeoutExpired:
        # It may not even die while it is inside of the driver: nobody waits for it long.
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=0.5)
        return {"problem": f"nothing came within {_ANSWER_S:.0f} s"}
    try:
        return dict(json.loads(out))
    except ValueError:
        return {"problem": f"asking ended with status {process.returncode}"}
