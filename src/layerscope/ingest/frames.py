"""The frames of stacks: what the sampler saw, with names, and spans as frames. Used by `stacks` and
`file_frames`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from layerscope.ingest import waiting
from layerscope.ingest.string_table import StringTable
from layerscope.model.events import Problem
from layerscope.model.framework import Anchor
from layerscope.model.frameworks import anchors
from layerscope.model.layers import FRAME_LAYERS, MODULES, SPAN_LAYERS, STACKS

if TYPE_CHECKING:
    from layerscope.symbols import Symbols

PYTHON, NATIVE, OF_KERNEL = map(FRAME_LAYERS.index, ("python", "native", "kernel"))
_OF_SPAN = np.array([FRAME_LAYERS.index(layer) for layer in SPAN_LAYERS])
_NONE = -1
JIT, KERNEL = "[jit]", "[kernel]"
# Where threads begin: operators of C++ programs lie inside of these.
_BEGINS = re.compile(
    r"^(_start|__libc_start_main.*|__libc_start_call_main|main|__?clone3?|start_thread|execute_native_thread_routine|"
    r"gomp_thread_start|__kmp_launch_(thread|worker).*|std::thread::.*|thread_start)$"
)

# Functions of CUDA that give a GPU something to do, or wait until it has done it.
_GPU = re.compile(
    r"^cu(da)?(Launch\w*|GraphLaunch\w*|(Ctx|Device|Event|Stream)Synchronize)(_v\d+)?(_ptsz)?$"
)
# What is above is no place in a program: what the unwinder took for a caller was none.
_LAST_ADDRESS = (1 << 63) - 1

_ONEDNN = Anchor("native", r"(dnnl_primitive_execute|dnnl::impl::primitive_execute)", "primitives")


def _anchor(anchor: Anchor) -> tuple[int, re.Pattern[str], int, re.Pattern[str]]:
    """Layer and name of a function, and layer and name of the spans that it begins."""
    return (
        FRAME_LAYERS.index(anchor.frame_layer),
        re.compile(f"^{anchor.function}$"),
        FRAME_LAYERS.index(anchor.span_layer),
        re.compile(f"^{anchor.span}"),
    )


NumberedPattern = tuple[int, re.Pattern[str]]


def _beginners() -> dict[int, list[NumberedPattern]]:
    """By layer what frames begin spans or are such, with the number that these have in common."""
    found: dict[int, list[NumberedPattern]] = {}
    numbers: dict[tuple[str, str], int] = {}
    for anchor in (*anchors(), _ONEDNN):
        of_function, function, of_span, span = _anchor(anchor)
        number = numbers.setdefault((anchor.span_layer, anchor.span), len(numbers))
        found.setdefault(of_function, []).append((number, function))
        found.setdefault(of_span, []).append((number, span))
    return found


_ANCHORS = _beginners()


_COLUMNS = ("layer", "name", "signature", "file", "line", "object", "build_id", "address")


class Meaning(NamedTuple):
    """What the name of a frame tells: of which anchor it is, if any; what it says of a wait, as
    bits of `waiting`; whether spans lie inside of it wherever it is.
    """

    anchor: int | None
    evidence: int
    is_outer: bool


class FrameNames(Struct):
    """The frames of one conversion: of what samplers saw, as `FileFrames` name it, and of spans.

    `names_only`: functions alone are asked for, often and soon: no lines (`Symbols`).
    """

    texts: StringTable
    anchors: dict[int, int] = field(default_factory=dict)  # as `stack_tree.Fusion` wants them
    _rows: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _COLUMNS})
    _jit: dict[Path, list[tuple[int, int]]] = field(
        default_factory=dict
    )  # by perf map: key, address
    # By layer (index into SPAN_LAYERS) and code of its name the number of a span, and by number its
    # layer, its code and its frame: NONE until a stack has it.
    _spans: dict[tuple[int, int], int] = field(default_factory=dict)
    _of_span: list[list[int]] = field(default_factory=list)
    _span_names: list[str] = field(default_factory=list)
    _module_paths: list[str] = field(default_factory=list)
    _known: dict[tuple[Any, ...], int] = field(
        default_factory=dict
    )  # lines of Python, functions of objects
    _meanings: dict[tuple[int, str, str | None], Meaning] = field(default_factory=dict)
    names_only: bool = False
    _symbols: Symbols | None = None

    @property
    def kernel(self) -> int:
        """The key of the frame of time in the kernel of which nothing more is known."""
        return self.once(OF_KERNEL, KERNEL, "")

    def is_kernel(self, key: int) -> bool:
        """Whether this is a frame of the kernel."""
        layer = self._rows["layer"][key]
        return bool(layer == OF_KERNEL)

    def new(
        self,
        layer: int,
        name: str,
        file: str | None = None,
        line: int | None = None,
        signature: str | None = None,
        object_: str | None = None,
        build_id: str | None = None,
        address: int | None = None,
    ) -> int:
        """The key of a frame of its own."""
        key = len(self._rows["name"])
        values = (layer, name, signature, file, line, object_, build_id, address)
        for column, value in zip(self._rows.values(), values, strict=True):
            column.append(value)
        anchor = self.meaning(layer, name, signature).anchor
        if anchor is not None:
            self.anchors[key] = anchor
        return key

    def meaning(self, layer: int, name: str, signature: str | None) -> Meaning:
        """What the name of a frame tells."""
        known = (layer, name, signature)
        found = self._meanings.get(known)
        if found is None:
            found = self._meanings[known] = _meaning(*known)
        return found

    def meaning_of(self, key: int) -> Meaning:
        """The same of a frame that there is."""
        rows = self._rows
        return self.meaning(rows["layer"][key], rows["name"][key], rows["signature"][key])

    def about(self, key: int) -> tuple[int, str, str | None, str | None]:
        """Layer (index into FRAME_LAYERS), name, source file and object of a frame that there
        is.
        """
        rows = self._rows
        return rows["layer"][key], rows["name"][key], rows["file"][key], rows["object"][key]

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
            anchor = self.meaning(layer, name, None).anchor
            if anchor is not None:
                self.anchors[key] = anchor
        return list(range(first, first + count))

    def once(
        self,
        layer: int,
        name: str,
        place: str,
        file: str | None = None,
        line: int | None = None,
        signature: str | None = None,
        object_: str | None = None,
        build_id: str | None = None,
        address: int | None = None,
    ) -> int:
        """The key of a line of a function: calls at several addresses are one frame, with the
        address seen first.
        """
        known = (layer, name, place, file, line, signature)
        found = self._known.get(known)
        if found is None:
            found = self._known[known] = self.new(
                layer, name, file, line, signature, object_, build_id, address
            )
        return found

    def problems(self) -> list[Problem]:
        """Why something has no name, and whether a GPU was used."""
        found = [] if self._symbols is None else list(self._symbols.problems)
        return [*found, *self._of_gpu()]

    def _of_gpu(self) -> Iterator[Problem]:
        names = {
            name
            for layer, name in zip(self._rows["layer"], self._rows["name"], strict=True)
            if layer == NATIVE
        }
        if any(map(_GPU.match, names)):
            yield Problem(
                STACKS,
                "gpu_unrecorded",
                "this version does not record GPUs",
                "a profiler for them, such as Nsight Systems, shows it",
                "the work of the GPU: operators have the time of their launch, and those that wait "
                "for it the time of what they wait for",
            )

    @property
    def symbols(self) -> Symbols:
        """Names of code, remembered in the user's cache."""
        if self._symbols is None:
            from layerscope.model import cache
            from layerscope.symbols import Symbols

            folder = next(iter(cache.caches(cache.SYMBOLS)), None)
            self._symbols = Symbols(folder, self.names_only)
        return self._symbols

    def span(self, layer: int, name_code: int) -> int:
        """The number of spans of this layer (index into SPAN_LAYERS) with this code of a name. They
        have no frame before a stack has them.
        """
        found = self._spans.get((layer, name_code))
        if found is None:
            found = self._spans[layer, name_code] = len(self._of_span)
            self._of_span.append([layer, name_code, _NONE])
        return found

    def module(self, key: int) -> int:
        """The number of calls of a module as spans; `key`: of the table `modules`."""
        if key >= len(self._module_paths):
            self._module_paths = [path for path, _ in self.texts.modules]
        return self.span(SPAN_LAYERS.index(MODULES), self.texts.name(self._module_paths[key]))

    def of_spans(self, numbers: Sequence[int]) -> list[int]:
        """The keys of the frames of spans, by their numbers."""
        return [
            self._of_span[number][2] if self._of_span[number][2] >= 0 else self._new_of_span(number)
            for number in numbers
        ]

    def _new_of_span(self, number: int) -> int:
        layer, name_code, _ = self._of_span[number]
        if name_code >= len(self._span_names):
            self._span_names = list(self.texts.names)
        key = self.new(int(_OF_SPAN[layer]), self._span_names[name_code])
        self._of_span[number][2] = key
        return key

    def columns(self) -> dict[str, Any]:
        """The table `frames`; now code that was made while the program ran gets its names."""
        self._name_jit()
        self.close()
        rows = self._rows
        for key, address in enumerate(rows["address"]):
            if address is not None and address > _LAST_ADDRESS:
                rows["address"][key] = None
        layers = np.array(FRAME_LAYERS, object)[np.array(rows["layer"], np.int64)]
        columns: dict[str, Any] = {name: values for name, values in rows.items() if name != "layer"}
        return {"frame": np.arange(len(layers), dtype=np.int32), "layer": layers, **columns}

    def close(self) -> None:
        """Keep no file open that names were looked up in."""
        if self._symbols is not None:
            self._symbols.close()

    def jit(self, perf_map: Path, addresses: list[int]) -> list[int]:
        """Keys for code of a process that was made while it ran; `perf_map` tells its names at the
        end.
        """
        keys = [self.new(NATIVE, JIT, object_=JIT, address=address) for address in addresses]
        self._jit.setdefault(perf_map, []).extend(zip(keys, addresses, strict=True))
        return keys

    def _name_jit(self) -> None:
        for perf_map, mine in self._jit.items():
            if not perf_map.is_file():
                continue
            found = self.symbols.jit(
                perf_map, np.array([address for _, address in mine], np.uint64)
            )
            for (key, _), name, whole in zip(mine, found.short, found.name, strict=True):
                self._rows["name"][key] = name or JIT
                self._rows["signature"][key] = whole if whole != name else None


def _meaning(layer: int, name: str, signature: str | None) -> Meaning:
    patterns = _ANCHORS.get(layer, ())
    matching = (number for number, pattern in patterns if pattern.match(name))
    anchor = next(matching, None)
    begins_thread = layer == NATIVE and _BEGINS.match(name) is not None
    is_outer = layer == PYTHON or begins_thread
    evidence = waiting.evidence(name, FRAME_LAYERS[layer], signature or "")
    return Meaning(anchor, evidence, is_outer)
