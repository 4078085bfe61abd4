"""The frames of stacks: what the sampler saw, with names, and spans as frames. Used by `stacks`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.host import clock
from layerscope.ingest import waiting
from layerscope.ingest.string_table import StringTable
from layerscope.model import cache
from layerscope.model.events import Problem
from layerscope.model.framework import Anchor
from layerscope.model.frameworks import anchors
from layerscope.model.layers import FRAME_LAYERS, MODULES, SPAN_LAYERS
from layerscope.rawfile import jit_maps, sampler_file
from layerscope.sources.raw.stacks import SampledFile

if TYPE_CHECKING:
    from layerscope.symbols import Symbols

_PYTHON, _MODULES, _OPERATORS, _PRIMITIVES, _NATIVE, _KERNEL = (
    FRAME_LAYERS.index(layer)
    for layer in ("python", "modules", "operators", "primitives", "native", "kernel")
)
_OF_SPAN = np.array([FRAME_LAYERS.index(layer) for layer in SPAN_LAYERS])
JIT, CUT, KERNEL = "[jit]", "[outer frames not known]", "[kernel]"
# Where threads begin: operators of C++ programs lie inside of these.
_BEGINS = re.compile(
    r"^(_start|__libc_start_main.*|__libc_start_call_main|main|__?clone3?|start_thread|execute_native_thread_routine|"
    r"gomp_thread_start|__kmp_launch_(thread|worker).*|std::thread::.*|thread_start)$"
)

_ONEDNN = Anchor("native", r"(dnnl_primitive_execute|dnnl::impl::primitive_execute)", "primitives")


def _anchor(anchor: Anchor) -> tuple[int, re.Pattern[str], int, re.Pattern[str]]:
    """Layer and name of a function, and layer and name of the spans that it begins."""
    return (
        FRAME_LAYERS.index(anchor.frame_layer),
        re.compile(f"^{anchor.function}$"),
        FRAME_LAYERS.index(anchor.span_layer),
        re.compile(f"^{anchor.span}"),
    )


_ANCHORS = tuple(map(_anchor, (*anchors(), _ONEDNN)))


@dataclass(slots=True)
class FrameNames:
    """The frames of one conversion: of what samplers saw, as `FileFrames` name it, and of spans."""

    texts: StringTable
    anchors: dict[int, int] = field(default_factory=dict)  # as `stack_tree.Fusion` wants them
    _rows: dict[str, list[Any]] = field(
        default_factory=lambda: {
            name: []
            for name in (
                "layer",
                "name",
                "signature",
                "file",
                "line",
                "object",
                "build_id",
                "address",
            )
        }
    )
    _jit: dict[Path, list[tuple[int, int]]] = field(
        default_factory=dict
    )  # by perf map: key, address
    _spans: dict[tuple[int, int], int] = field(default_factory=dict)
    _span_names: list[str] = field(default_factory=list)
    _module_paths: list[str] = field(default_factory=list)
    _known: dict[tuple[Any, ...], int] = field(
        default_factory=dict
    )  # lines of Python, functions of objects
    _symbols: Symbols | None = None

    @property
    def kernel(self) -> int:
        """The key of the frame of time in the kernel of which nothing more is known."""
        return self.once(_KERNEL, KERNEL, "")

    def is_kernel(self, key: int) -> bool:
        """Whether this is a frame of the kernel."""
        return bool(self._rows["layer"][key] == _KERNEL)

    def new(self, layer: int, name: str, **more: Any) -> int:
        """The key of a frame of its own."""
        for column, values in self._rows.items():
            values.append(more.get(column))
        self._rows["layer"][-1], self._rows["name"][-1] = layer, name
        key = len(self._rows["name"]) - 1
        self._find_anchor(key, layer, name)
        return key

    def _find_anchor(self, key: int, layer: int, name: str) -> None:
        for number, (of_function, function, of_span, span) in enumerate(_ANCHORS):
            is_function = layer == of_function and function.match(name)
            if is_function or (layer == of_span and span.match(name)):
                self.anchors[key] = number
                return

    def add_named(self, columns: dict[str, Any]) -> list[int]:
        """The keys of the frames of another program's file: columns of the table `frames` but
        `frame`.
        """
        first, count = len(self._rows["name"]), len(columns["name"])
        layers = [FRAME_LAYERS.index(layer) for layer in columns["layer"]]
        for column, values in self._rows.items():
            values.extend(columns.get(column, [None] * count))
        self._rows["layer"][first:] = layers
        for key, layer, name in zip(
            range(first, first + count), layers, columns["name"], strict=True
        ):
            self._find_anchor(key, layer, name)
        return list(range(first, first + count))

    def once(self, layer: int, name: str, place: str, **more: Any) -> int:
        """The key of a line of a function: calls at several addresses are one frame, with the
        address seen first.
        """
        known = (layer, name, place, more.get("file"), more.get("line"), more.get("signature"))
        found = self._known.get(known)
        if found is None:
            found = self._known[known] = self.new(layer, name, **more)
        return found

    def problems(self) -> list[Problem]:
        """Why something has no name."""
        return self._symbols.problems if self._symbols is not None else []

    @property
    def symbols(self) -> Symbols:
        """Names of code, remembered in the user's cache."""
        if self._symbols is None:
            from layerscope.symbols import Symbols

            self._symbols = Symbols(next(iter(cache.caches(cache.SYMBOLS)), None))
        return self._symbols

    def of_span(self, layer: int, name_code: int) -> int:
        """The key of the frame of a span: its layer (index into SPAN_LAYERS) and the code of its
        name.
        """
        found = self._spans.get((layer, name_code))
        if found is None:
            if name_code >= len(self._span_names):
                self._span_names = list(self.texts.names)
            found = self._spans[layer, name_code] = self.new(
                int(_OF_SPAN[layer]), self._span_names[name_code]
            )
        return found

    def of_module(self, key: int) -> int:
        """The key of the frame of a module, as of the span of a call of it; `key`: of the table
        `modules`.
        """
        if key >= len(self._module_paths):
            self._module_paths = [path for path, _ in self.texts.modules]
        return self.of_span(SPAN_LAYERS.index(MODULES), self.texts.name(self._module_paths[key]))

    def columns(self) -> dict[str, Any]:
        """The table `frames`; now code that was made while the program ran gets its names."""
        self._name_jit()
        rows = self._rows
        layers = np.array(FRAME_LAYERS, object)[np.array(rows["layer"], np.int64)]
        columns: dict[str, Any] = {name: values for name, values in rows.items() if name != "layer"}
        return {"frame": np.arange(len(layers), dtype=np.int32), "layer": layers, **columns}

    def jit(self, perf_map: Path, addresses: list[int]) -> list[int]:
        """Keys for code of a process that was made while it ran; `perf_map` tells its names at the
        end.
        """
        keys = [self.new(_NATIVE, JIT, object=JIT, address=address) for address in addresses]
        self._jit.setdefault(perf_map, []).extend(zip(keys, addresses, strict=True))
        return keys

    def layer_and_name(self, key: int) -> tuple[int, str]:
        """The layer (index into FRAME_LAYERS) and the name of a frame."""
        return self._rows["layer"][key], self._rows["name"][key]

    def _name_jit(self) -> None:
        for perf_map, mine in self._jit.items():
            if not perf_map.is_file():
                continue
            found = self.symbols.jit(
                perf_map, np.array([address for _, address in mine], np.uint64)
            )
            for (key, _), name in zip(mine, found.name, strict=True):
                self._rows["name"][key] = name or JIT


@dataclass(slots=True)
class FileFrames:
    """The frames of one file of a sampler, which counts them by itself; `raw`: the folder that it
    is in.
    """

    frames: FrameNames
    file: SampledFile
    raw: Path
    _of: list[int] = field(default_factory=list)  # its number -> key
    _evidence: list[int] = field(default_factory=list)  # by its number
    _outer: list[bool] = field(default_factory=list)

    def key(self, number: int) -> int:
        """The key of one of its frames."""
        return self._of[number]

    def is_outer(self, number: int) -> bool:
        """Whether spans lie inside of this frame wherever it is."""
        return self._outer[number]

    def evidence(self, number: int) -> int:
        """What it tells of a wait."""
        return self._evidence[number]

    def add(self, rows: np.ndarray) -> None:
        """Take in new frames of the file, in the order of their numbers."""
        first = len(self._of)
        self._of += [0] * len(rows)
        self._evidence += [0] * len(rows)
        self._outer += [False] * len(rows)
        for kind in np.unique(rows["kind"]).tolist():
            mine = np.flatnonzero(rows["kind"] == kind)
            for of in np.unique(rows["of"][mine]).tolist():
                chosen = mine[rows["of"][mine] == of]
                keys = self._named(kind, of, rows["address"][chosen])
                for place, key in zip((first + chosen).tolist(), keys, strict=True):
                    self._settle(place, key)

    def _settle(self, number: int, key: int) -> None:
        self._of[number] = key
        layer, name = self.frames.layer_and_name(key)
        self._evidence[number] = waiting.evidence(name, FRAME_LAYERS[layer])
        self._outer[number] = layer == _PYTHON or (layer == _NATIVE and bool(_BEGINS.match(name)))

    def _named(self, kind: int, of: int, addresses: np.ndarray) -> list[int]:
        """Keys of new frames of one object, code or process."""
        if kind == sampler_file.NATIVE:
            return self._native(of, addresses)
        if kind == sampler_file.PYTHON:
            return self._python(of, addresses)
        if kind == sampler_file.JIT:
            pid = int(self.file.processes[of]["pid"]) if of in self.file.processes else 0
            return self.frames.jit(
                self.raw / jit_maps.FOLDER / f"perf-{pid}.map", addresses.tolist()
            )
        if kind == sampler_file.MADE:
            name = self.file.made[of]
            return [
                self.frames.once(_NATIVE, name, JIT, object=JIT, address=one)
                for one in addresses.tolist()
            ]
        if kind == sampler_file.KERNEL:
            return self._kernel(addresses)
        return [self.frames.once(_NATIVE, CUT, "")] * len(addresses)

    def _kernel(self, addresses: np.ndarray) -> list[int]:
        boot = self.file.settings.get("boot", "")
        if (
            not addresses.any() or not boot or boot != clock.boot()
        ):  # another kernel, or at other addresses
            return [self.frames.kernel] * len(addresses)
        found = self.frames.symbols.kernel(addresses)
        return [
            self.frames.once(_KERNEL, name, KERNEL, object=KERNEL) if name else self.frames.kernel
            for name in found.name
        ]

    def _native(self, of: int, addresses: np.ndarray) -> list[int]:
        from layerscope.symbols import short

        known = self.file.objects[of]
        unnamed = Path(known.path).name or known.path
        unnamed = unnamed if unnamed.startswith("[") else f"[{unnamed}]"
        found = self.frames.symbols.native(known.path, known.build_id, addresses, known.mtime_ns)
        build_id = known.build_id.hex() or None
        keys = []
        for text, file, line, address in zip(
            found.name, found.file, found.line.tolist(), addresses.tolist(), strict=True
        ):
            name = short(text) if text else unnamed
            more = {
                "file": file,
                "line": line if line >= 0 else None,
                "signature": text if text != name else None,
            }
            keys.append(
                self.frames.once(
                    _NATIVE,
                    name,
                    known.path,
                    object=known.path,
                    build_id=build_id,
                    address=address,
                    **more,
                )
            )
        return keys

    def _python(self, of: int, addresses: np.ndarray) -> list[int]:
        code = self.file.codes[of]
        from layerscope.symbols import code_lines

        lines = code_lines(code.python, code.first_line, code.lines, addresses.astype(np.int64))
        return [
            self.frames.once(
                _PYTHON,
                code.name,
                code.file,
                file=code.file,
                line=line if line >= 0 else code.first_line,
            )
            for line in lines.tolist()
        ]
