"""Asks NVIDIA's management library (NVML) about its devices: run as a script in a process of its
own, prints JSON.

usage: nvml.py LIBRARY

The library is part of the driver, and its functions and structures are stable (NVML API reference),
so that no package is needed; `nvidia-ml-py` would be the same calls by ctypes. A driver that hangs
takes this process with it, and nobody else. It only asks: nothing is set, reset or cleared.
Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

_SUCCESS = 0
_CLOCK_SM = 1  # nvmlClockType_t
# nvmlClocksEventReasons of nvml.h; "idle" only says that there is nothing to do.
_SLOWED_BY = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Pci(ctypes.Structure):
    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pci_device_id", ctypes.c_uint),
        ("pci_subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


class Nvml:
    """The library, opened and initialised. OSError says why it is not."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        status = self._call("nvmlInit_v2")
        if status != _SUCCESS:
            reason = self._word(status)
            raise OSError(reason)

    def close(self) -> None:
        """Let go of the driver."""
        self._call("nvmlShutdown")

    def _call(self, name: str, *arguments: Any) -> int:
        """The status; of a function that this driver does not have yet, or no more, that of "not
        supported".
        """
        function = getattr(self._library, name, None)
        return 3 if function is None else int(function(*arguments))

    def _word(self, status: int) -> str:
        function = getattr(self._library, "nvmlErrorString", None)
        if function is None:
            return f"status {status}"
        function.restype = ctypes.c_char_p
        word = function(status) or b""
        return str(word.decode("utf-8", "replace"))

    def number(self, name: str, *before: Any) -> int | None:
        """The number that a function gives as its last argument; None where it does not."""
        value = ctypes.c_ulonglong()
        # Of an unsigned int only the lower half is written; the machines that have this library are
        # little-endian.
        return value.value if self._call(name, *before, ctypes.byref(value)) == _SUCCESS else None

    def text(self, name: str, *before: Any) -> str:
        """The text that a function gives into memory of ours; empty where it does not."""
        room = ctypes.create_string_buffer(96)
        size = ctypes.c_uint(len(room))
        status = self._call(name, *before, room, size)
        if status != _SUCCESS:
            return ""
        return room.value.decode("utf-8", "replace")

    def flag(self, name: str, device: Any) -> bool | None:
        """Whether a mode is on now, of a function that may also tell what it will be after the next
        start.
        """
        now, later = ctypes.c_uint(), ctypes.c_uint()
        return (
            bool(now.value)
            if self._call(name, device, ctypes.byref(now), ctypes.byref(later)) == _SUCCESS
            else None
        )

    def about(self) -> dict[str, Any]:
        """Driver, CUDA and all devices."""
        cuda = self.number("nvmlSystemGetCudaDriverVersion_v2") or 0
        count = self.number("nvmlDeviceGetCount_v2") or 0
        devices = []
        for index in range(count):
            device = self.device(index)
            if device is not None:
                devices.append(device)
        return {
            "driver": self.text("nvmlSystemGetDriverVersion"),
            "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",  # 12040 is 12.4
            "devices": devices,
        }

    def device(self, index: int) -> dict[str, Any] | None:
        """One of them; None where it does not answer."""
        device = ctypes.c_void_p()
        number = ctypes.c_uint(index)
        code = self._call("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(device))
        if code != _SUCCESS:
            return None
        memory = _Memory()
        pci = _Pci()
        has_memory = self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory)) == _SUCCESS
        self._call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci))
        ask: Callable[..., int | None] = self.number
        persistence = ask("nvmlDeviceGetPersistenceMode", device)
        if persistence is not None:
            persistence = bool(persistence)
        slowed = ask("nvmlDeviceGetCurrentClocksEventReasons", device)
        if slowed is None:  # its name before driver 535
            slowed = ask("nvmlDeviceGetCurrentClocksThrottleReasons", device)
        slowed_by = []
        if slowed:
            slowed_by = [word for bit, word in _SLOWED_BY.items() if slowed & bit]
        clock = ctypes.c_uint(_CLOCK_SM)
        return {
            "index": index,
            "name": self.text("nvmlDeviceGetName", device),
            "uuid": self.text("nvmlDeviceGetUUID", device) or None,
            "bus": pci.bus_id.decode("ascii", "replace"),
            "memory_bytes": memory.total if has_memory else None,
            "persistence": persistence,
            "ecc": self.flag("nvmlDeviceGetEccMode", device),
            "mig": self.flag("nvmlDeviceGetMigMode", device),
            "clock_mhz": ask("nvmlDeviceGetClockInfo", device, clock),
            "clock_most_mhz": ask("nvmlDeviceGetMaxClockInfo", device, clock),
            "slowed_by": slowed_by,
            "link_width": ask("nvmlDeviceGetCurrPcieLinkWidth", device),
            "link_width_most": ask("nvmlDeviceGetMaxPcieLinkWidth", device),
            "link_generation": ask("nvmlDeviceGetCurrPcieLinkGeneration", device),
            "link_generation_most": ask("nvmlDeviceGetMaxPcieLinkGeneration", device),
        }


def main(library: str) -> None:
    """Print what the library tells, or why it does not."""
    try:
        nvml = Nvml(library)
    except OSError as error:
        print(json.dumps({"problem": str(error)}))
        return
    print(json.dumps(nvml.about()))
    sys.stdout.flush()
    nvml.close()


if __name__ == "__main__":
    main(sys.argv[1])
