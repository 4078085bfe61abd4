"""Snapshots of memory as PyTorch's allocator of CUDA writes them: dictionaries of the shape that
`torch.cuda.memory._snapshot` documents, made of a history that is known.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layerscope.sources.imported import Imported

START_US = 1_760_000_000_000_000
SITE = "/opt/venv/lib/python3.11/site-packages"


def frame(file: str, line: int, name: str = "f") -> dict[str, Any]:
    """A frame of a stack."""
    return {"filename": file, "line": line, "name": name}


TORCH = frame(f"{SITE}/torch/nn/functional.py", 2371, "linear")
NATIVE = frame("/pytorch/aten/src/ATen/native/TensorFactories.cpp", 0, "at::native::empty")


@dataclass
class Written:
    """The history of some devices, in the order in which it is told."""

    devices: int = 1
    at_us: int = START_US
    traces: list[list[dict[str, Any]]] = field(default_factory=list)
    segments: list[dict[str, Any]] = field(default_factory=list)
    stacks: dict[Any, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.traces = [[] for _ in range(self.devices)]

    def stack(self, file: str, line: int) -> list[dict[str, Any]]:
        """The stack of a line of the program: one and the same list each time."""
        return self.stacks.setdefault(
            (file, line), [NATIVE, TORCH, frame(file, line), frame("/srv/project/main.py", 1)]
        )

    def event(self, action: str, device: int = 0, **more: Any) -> None:
        """One more event, 10 us after the last one."""
        self.at_us += 10
        entry = {"action": action, "stream": 0, "time_us": self.at_us, "frames": [], **more}
        self.traces[device].append(entry)

    def alloc(self, address: int, size: int, line: int = 7, device: int = 0) -> None:
        """A block of a line of train.py."""
        frames = self.stack("/srv/project/train.py", line)
        self.event("alloc", device, addr=address, size=size, frames=frames)

    def free(self, address: int, size: int, device: int = 0) -> None:
        """The release of a block, as it is asked for and done."""
        self.event("free_requested", device, addr=address, size=size)
        self.event("free_completed", device, addr=address, size=size)

    def segment(
        self, address: int, total: int, blocks: list[tuple[int, int, str]], device: int = 0
    ) -> None:
        """A segment as it is at the end; blocks: size, requested size and state."""
        told, at = [], address
        for size, requested, state in blocks:
            told.append(
                {
                    "address": at,
                    "size": size,
                    "requested_size": requested,
                    "state": state,
                    "frames": self.stack("/srv/project/model.py", 3),
                }
            )
            at += size
        self.segments.append(
            {
                "device": device,
                "address": address,
                "total_size": total,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "allocated_size": sum(size for size, _, state in blocks if state != "inactive"),
                "active_size": sum(size for size, _, state in blocks if state != "inactive"),
                "blocks": told,
            }
        )

    def snapshot(self) -> dict[str, Any]:
        """What is pickled."""
        return {
            "segments": self.segments,
            "device_traces": self.traces,
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1},
            "external_annotations": [],
        }

    def write(self, path: Path, protocol: int = pickle.DEFAULT_PROTOCOL) -> Path:
        """The file."""
        path.write_bytes(pickle.dumps(self.snapshot(), protocol))
        return path


MB = 1 << 20


def history() -> Written:
    """Two devices. Of the first: 3 MB from before, 1 MB of them released; 4 MB reserved then, 8 MB
    more later; 5 MB of line 7 and 2 MB of line 8, of which the 5 MB are released: so at the peak
    3 + 5 + 2 - 1 = 9 MB are allocated of 12 MB that are reserved.
    """
    written = Written(devices=2)
    written.free(0x1000_0000, MB)
    written.event("segment_alloc", addr=0x2000_0000, size=8 * MB)
    written.alloc(0x2000_0000, 5 * MB, 7)
    written.alloc(0x2050_0000, 2 * MB, 8)
    written.free(0x2000_0000, 5 * MB)
    written.event("oom", size=80 * MB, device_free=3 * MB)
    written.event("snapshot", addr=0, size=0)
    written.alloc(0x2000_0000, 64, 9, device=1)
    written.segment(
        0x1000_0000, 4 * MB, [(MB, MB, "inactive"), (2 * MB, 2 * MB, "active_allocated")]
    )
    written.segment(
        0x2000_0000,
        8 * MB,
        [(5 * MB, 5 * MB, "inactive"), (2 * MB, 2 * MB, "active_allocated"), (MB, MB, "inactive")],
    )
    written.segment(0x2000_0000, 2 * MB, [(512, 64, "active_allocated")], device=1)
    return written


def long_history(count: int) -> Written:
    """Blocks of ten lines, each released three blocks later."""
    written = Written(devices=2)
    for number in range(count):
        device = number // 100 % 2
        written.alloc(number << 9, 512 + number, number % 10, device)
        if number >= 3:
            written.free(number - 3 << 9, 512 + number - 3, (number - 3) // 100 % 2)
    return written


def columns(found: Imported) -> list[list[int]]:
    """The events of memory that were read."""
    memory = found.memory
    names = ("block", "bytes", "is_release", "track", "line", "device")
    return [memory.at_ns.tolist(), *(memory.column(name).tolist() for name in names)]
