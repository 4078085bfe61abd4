"""What the names of a process mean in the recording: names, modules and arguments, each distinct
text once.

A process numbers its texts by itself. The text of a module has three lines: path, class, and the
file:line of its first call; that of a task, frame, event, counter or mark has its domain in a
second line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.distinct import distinct
from layerscope.model.frameworks import in_backward
from layerscope.model.layers import PHASES

_UNKNOWN = -2
_NONE = -1
_LOST = "(name lost)"
_PHASE = {None: -1, False: PHASES.index("forward"), True: PHASES.index("backward")}
# One for each span: what the process calls a text, and what the recording does.
Numbers = np.ndarray
Codes = np.ndarray


class StringTable(Struct):
    """The texts of a recording with their keys."""

    names: dict[str, int] = field(default_factory=dict)
    modules: dict[tuple[str, str], int] = field(default_factory=dict)
    module_lines: list[str] = field(default_factory=list)
    args: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    _phases: list[int] = field(default_factory=list)

    def line(self, text: str) -> int:
        """The code of a line of the program."""
        return self.lines.setdefault(text, len(self.lines))

    def name(self, text: str) -> int:
        """The code of a name."""
        return self.names.setdefault(text, len(self.names))

    def first_line(self, text: str) -> int:
        """The code of the name in the first line."""
        return self.name(text.partition("\n")[0])

    def module(self, text: str) -> int:
        """The key of a module; -1 where its text was lost."""
        path, _, rest = text.partition("\n")
        kind, _, line = rest.partition("\n")
        if not kind:
            return _NONE
        key = self.modules.setdefault((path, kind), len(self.modules))
        if key == len(self.module_lines):
            self.module_lines.append(line)
        return key

    def domain(self, text: str) -> int:
        """The key of the arguments of a task and its like: its domain; -1 where it has none."""
        domain = text.partition("\n")[2]
        if not domain:
            return _NONE
        return self.args.setdefault(
            json.dumps({"domain": domain}, ensure_ascii=False), len(self.args)
        )

    def arguments(self, text: str) -> int:
        """The key of arguments that come as JSON text."""
        return self.args.setdefault(text, len(self.args))

    def call(self, text: str) -> int:
        """The key of what a library says of a primitive; what came by a log is JSON already."""
        if text.startswith('{"library":'):
            return self.arguments(text)
        return self.arguments(json.dumps({"library": "oneDNN", "call": text}, ensure_ascii=False))

    def phases_told(self) -> np.ndarray:
        """By key of arguments, the phase of the operator that they tell; -1: none, as of the last
        one, which is that of no arguments.
        """
        for text in islice(self.args, len(self._phases), None):
            self._phases.append(_PHASE[in_backward(text)])
        return np.array([*self._phases, _PHASE[None]], np.int8)

    def module_rows(self) -> list[dict[str, Any]]:
        """The rows of the table `modules`. A module's parent is the nearest one on its path that
        was called too.
        """
        by_path: dict[str, int] = {}
        for (path, _), key in self.modules.items():
            by_path.setdefault(path, key)
        rows = []
        for (path, kind), key in self.modules.items():
            around = path.rpartition(".")[0]
            while around and around not in by_path:
                around = around.rpartition(".")[0]
            line = self.module_lines[key] or None
            rows.append(
                {
                    "module": key,
                    "parent": by_path.get(around),
                    "path": path,
                    "class": kind,
                    "line": line,
                }
            )
        return rows

    def args_rows(self) -> list[dict[str, Any]]:
        """The rows of the table `args`."""
        return [{"args": key, "json": text} for text, key in self.args.items()]


class ProcessStrings(Struct):
    """The numbers of one process as keys of the recording; `known` is its texts by number and still
    grows.
    """

    texts: StringTable
    known: list[str]
    _keys: dict[Callable[[str], int], np.ndarray] = field(default_factory=dict)

    def names(self, numbers: Numbers) -> Codes:
        """Codes of whole texts: operators and ranges."""
        return self._look_up(self.texts.name, numbers)

    def first_lines(self, numbers: Numbers) -> Codes:
        """Codes of first lines: paths of modules, names of tasks."""
        return self._look_up(self.texts.first_line, numbers)

    def modules(self, numbers: Numbers) -> Codes:
        """Keys of modules, -1 for number 0: no module."""
        return self._or_none(self.texts.module, numbers)

    def lines(self, numbers: Numbers) -> Codes:
        """Codes of lines, -1 for number 0: not known."""
        return self._or_none(self.texts.line, numbers)

    def args(self, numbers: Numbers) -> Codes:
        """Keys of arguments that come as JSON text, -1 for number 0: not known."""
        return self._or_none(self.texts.arguments, numbers)

    def calls(self, numbers: Numbers) -> Codes:
        """Keys of what a library says of primitives, -1 for number 0: nothing."""
        return self._or_none(self.texts.call, numbers)

    def domains(self, numbers: Numbers) -> Codes:
        """Keys of arguments."""
        return self._look_up(self.texts.domain, numbers)

    def _or_none(self, key_of: Callable[[str], int], numbers: Numbers) -> Codes:
        found = np.full(numbers.shape, _NONE, np.int32)
        if not numbers.ndim:  # one zero for all
            return found
        told = np.flatnonzero(numbers)  # none in most batches of most programs
        if len(told):
            found[told] = self._look_up(key_of, numbers[told])
        return found

    def _look_up(self, key_of: Callable[[str], int], numbers: Numbers) -> Codes:
        keys = self._keys.get(key_of, np.zeros(0, np.int32))
        most = int(numbers.max(initial=0)) + 1
        if most > len(keys):
            keys = np.pad(keys, (0, most), constant_values=_UNKNOWN)
            self._keys[key_of] = keys
        found = keys.take(numbers)
        missing = found == _UNKNOWN
        if missing.any():
            for number in distinct(numbers[missing]).tolist():
                keys[number] = key_of(self.known[number] if number < len(self.known) else _LOST)
            found = keys.take(numbers)
        chosen: np.ndarray = found
        return chosen
