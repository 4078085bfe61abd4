"""What lies below the operators, for the summary: the primitives of each one, and the kinds of work
in a step.

Definitions, for the threads that make the steps:

- Convolutions, matrix products, reorders, other oneDNN and other MKL are the self time of
  primitives, executed or
  created. What other threads do for them, their shares, happens at the same time and is not added.
- A matrix product without primitives below it (`model.frameworks.products`) is the work of the BLAS
  that the framework was built with: called MKL where the recording says that it is that one, else
  BLAS.
- Kernels of the framework ("ATen kernels"): self time of the other functions, less their
  primitives; operators of other libraries are among them.
- Data loader: self time of loader waits.
- Python and dispatch is the rest: no operator is open, or only a range, a backward function or an
  optimizer step, which
  do no work of their own. Of a program without operators the rest is called the program itself.

So the kinds add up to the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from layerscope.analyse.kind_names import BLAS, KERNEL, LOADER, MKL_PRODUCT, REST
from layerscope.analyse.operator_kinds import UNKNOWN, Primitive
from layerscope.analyse.step_times import Array, Arrays, Bools
from layerscope.model.frameworks import backends_of, products
from layerscope.model.layers import OPERATORS, PRIMITIVES
from layerscope.recording.reader import Reader

_NAMES = (
    "convolutions (oneDNN)",
    "matrix products (oneDNN)",
    "matrix products (MKL)",
    "oneDNN reorders",
    "other oneDNN",
    "other MKL",
    "matrix products (BLAS)",
    "other operators",
    "data loader",
    "Python and dispatch",
)
_PROGRAM = "the program itself"
_KIND_OF = {"function": KERNEL, "loader": LOADER}
# Different codes are told apart by a table up to this length, and by sorting beyond.
_MOST_CODES = 1 << 22
# A table of all keys from the least to the greatest may be so many times as long as the keys.
_SPARSE = 4


@dataclass(slots=True)
class KindTime:
    """Time of one kind of work: of a step on average, or of the whole run; `share` of the same."""

    name: str
    ns: float
    share: float


@dataclass(slots=True)
class Below:
    """Time of what an operator asked for: `oneDNN jit:avx512_core`, `reorders`."""

    what: str
    ns: float


@dataclass(slots=True)
class PrimitiveSum:
    """Time and number of the primitives of one name, implementation and kind."""

    name: str
    ns: float
    count: float


@dataclass(slots=True)
class _Spans:
    """Spans of a piece, with the place of each key."""

    columns: Arrays
    work: Array  # the kind of work of operators
    _low: int = 0
    _where: Array | None = None
    _order: Array | None = None

    def __post_init__(self) -> None:
        span = self.columns["span"]
        self._low = int(span.min(initial=np.iinfo(np.int64).max))
        size = int(span.max(initial=0)) - self._low + 1
        if size <= _SPARSE * len(span):
            self._where = np.full(size, -1, np.int64)
            self._where[span - self._low] = np.arange(len(span))
        else:
            self._order = np.argsort(span, kind="stable")

    def places(self, keys: Array) -> Array:
        """The row of each key, -1 where it is not here."""
        if self._where is not None:
            at = keys - self._low
            inside = (at >= 0) & (at < len(self._where))
            return np.where(inside, self._where[np.where(inside, at, 0)], -1)
        return _found(self.columns["span"], self._order, keys)


def _distinct(codes: Array) -> tuple[Array, Array]:
    """The different ones among codes from 0 on, and the place of each code among them."""
    size = int(codes.max(initial=-1)) + 1
    if size > _MOST_CODES:
        distinct, place = np.unique(codes, return_inverse=True)
        return distinct, place
    found = np.flatnonzero(np.bincount(codes, minlength=size))
    places = np.zeros(size, np.int64)
    places[found] = np.arange(len(found))
    return found, places[codes]


def _found(sorted_by: Array, order: Array | None, keys: Array) -> Array:
    """The place of each key in `sorted_by`, which is sorted by `order` (None: as it stands); -1: it
    is not there.
    """
    if not len(sorted_by):
        return np.full(len(keys), -1, np.int64)
    at = np.minimum(np.searchsorted(sorted_by, keys, sorter=order), len(sorted_by) - 1)
    at = at if order is None else order[at]
    return np.where(sorted_by[at] == keys, at, -1)


@dataclass(slots=True)
class _Told:
    """Rows of the table `primitives`, by span: which operator asked for it, and what it is."""

    span: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    operator: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    primitive: Array = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(slots=True)
class _Asked:
    """Primitives with the operator that asked for each (-1: none), their threads, their numbers and
    their time.
    """

    operator: Array
    track: Array
    number: Array
    ns: Array

    def taken(self, rows: Array) -> _Asked:
        """Some of them."""
        return _Asked(self.operator[rows], self.track[rows], self.number[rows], self.ns[rows])

    @staticmethod
    def joined(some: list[_Asked]) -> _Asked:
        """All of them."""
        columns = ("operator", "track", "number", "ns")
        return _Asked(*(np.concatenate([getattr(one, name) for one in some]) for name in columns))


class BelowSums:
    """Adds up what is below the operators, piece by piece. Without operators, ranges (`layer`)
    stand in for them.
    """

    def __init__(self, reader: Reader, tracks: int, layer: str) -> None:
        self.layer = layer
        self.spent = np.zeros((tracks, len(_NAMES)))
        self._reader = reader
        self._files: dict[Path, dict[str, Path]] = {}  # by folder and name
        for file in reader.files("primitives"):
            self._files.setdefault(_folder(file), {})[file.name] = file
        self._told = _Told()
        self._told_in: Path | None = None
        self._primitives: dict[Primitive, int] = {UNKNOWN: 0}
        self._by_name: dict[tuple[int, int], float] = {}  # by primitive and name
        self._sums: dict[int, tuple[float, float]] = {}
        self._is_product = np.zeros(0, np.bool_)
        self._kernels = ""  # whose they are
        self._before: _Spans | None = None
        self._left: list[_Asked] = []
        self._seen: list[Path] = []

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of spans that it needs."""
        return ("span",) if self.layer == OPERATORS else ("span", "parent")

    def files(self, files: Iterable[Path]) -> Iterator[Path]:
        """The same files of spans; that of the primitives in each is read with it."""
        for file in files:
            self._seen.append(file)
            primitives = self._files.get(_folder(file), {})
            told = primitives.get(file.name) or next(iter(primitives.values()), None)
            if told is not None:
                self._read(told)
            yield file

    def _read(self, file: Path) -> None:
        if file == self._told_in:
            return
        self._told_in = file
        columns = ["span", "operator", "library", "primitive_kind", "implementation"]
        found = []
        for piece in self._reader.pieces("primitives", columns, files=[file]):
            names = [
                [*piece[f"{name}.names"].tolist(), ""] for name in columns[2:]
            ]  # the last is for null
            code = np.zeros(len(piece["span"]), np.int64)
            for name, texts in zip(columns[2:], names, strict=True):
                code = code * len(texts) + np.where(piece[name] >= 0, piece[name], len(texts) - 1)
            distinct, row = _distinct(code)
            numbers = [self._number(_primitive(one, names)) for one in distinct.tolist()]
            found.append(_Told(piece["span"], piece["operator"], np.array(numbers, np.int64)[row]))
        self._told = _joined(found)

    def _number(self, primitive: Primitive) -> int:
        return self._primitives.setdefault(primitive, len(self._primitives))

    # -- adding up ---------------------------------------------------------------------------------

    def add(self, spans: Arrays, measured: Bools, ours: Bools) -> None:
        """Add the measured spans of a piece; `ours` are the operators among all of them."""
        work = self._work(spans)
        rows = np.flatnonzero(measured & ours)
        spent_ns = spans["self_ns"] * spans["weight"]
        self._spend(spans["track"][rows], work[rows], spent_ns[rows])
        here = _Spans(
            {name: spans[name] for name in ("track", "name", "layer", *self.columns)}, work
        )
        kinds, layers = spans["kind.names"], spans["layer.names"]
        mine = np.flatnonzero(measured & (spans["layer"] == _code(layers, PRIMITIVES)))
        mine = mine[spans["kind"][mine] != _code(kinds, "share")]
        if len(mine):
            told = _found(self._told.span, None, spans["span"][mine])
            number = np.where(told >= 0, np.append(self._told.primitive, 0)[told], 0)
            number = self._created(number, spans["kind"][mine] == _code(kinds, "create"))
            self._add_primitives(spans, mine, number, spent_ns)
            asking = np.append(self._told.operator, -1)[told]
            if self.layer != OPERATORS:
                around = _around(here, mine, _code(layers, self.layer))
                asking = np.where(around >= 0, spans["span"][around], -1)
            self._add_below(
                here, _Asked(asking, spans["track"][mine], number, spent_ns[mine]), spent_ns
            )
        self._before = here

    def _work(self, spans: Arrays) -> Array:
        """The kind of work of each span, if it is an operator."""
        if self.layer != OPERATORS:
            return np.full(len(spans["track"]), REST, np.int8)
        new = spans["name.names"][len(self._is_product) :].tolist()
        self._is_product = np.append(self._is_product, [name in products() for name in new]).astype(
            np.bool_
        )
        if not self._kernels:
            backends = next(filter(None, map(backends_of, new)), None)
            self._kernels = backends.title if backends else ""
        kinds = np.array([_KIND_OF.get(str(kind), REST) for kind in spans["kind.names"]], np.int8)
        work = kinds[spans["kind"]]
        work[(work == KERNEL) & self._is_product[spans["name"]]] = BLAS
        return work

    def _spend(self, track: Array, work: Array, spent_ns: Array) -> None:
        place = track * len(_NAMES) + work
        self.spent += np.bincount(place, spent_ns, self.spent.size).reshape(self.spent.shape)

    def _created(self, number: Array, is_creation: Bools) -> Array:
        """The same primitives, and creations of them where they are created."""
        if not is_creation.any():
            return number
        known = list(self._primitives)
        found = number.copy()
        for one in np.unique(number[is_creation]).tolist():
            of = known[one]
            made = self._number(Primitive(of.library, of.kind, of.implementation, True))
            found[is_creation & (number == one)] = made
        return found

    def _add_primitives(self, spans: Arrays, mine: Array, number: Array, spent_ns: Array) -> None:
        works = np.array([primitive.work for primitive in self._primitives], np.int64)
        self._spend(spans["track"][mine], works[number], spent_ns[mine])
        ns, count = (np.bincount(number, values[mine]) for values in (spent_ns, spans["weight"]))
        for one in np.flatnonzero(count).tolist():
            known = self._sums.get(one, (0.0, 0.0))
            self._sums[one] = known[0] + float(ns[one]), known[1] + float(count[one])

    def _add_below(self, here: _Spans, asked: _Asked, spent_ns: Array) -> None:
        """Take primitives out of the time of the operators on their threads, and note whose they
        are.
        """
        at = here.places(asked.operator)
        mine = at[(at >= 0) & (here.columns["track"][at] == asked.track)]
        self._is_no_product(here, np.unique(mine[here.work[mine] == BLAS]), spent_ns)
        for where in (here, self._before):
            if where is not None:
                asked = self._take_out(where, asked)
        if len(asked.operator):
            self._left.append(asked)

    def _take_out(self, where: _Spans, asked: _Asked) -> _Asked:
        """The same for the operators of one piece; what was asked by others is left."""
        at = where.places(asked.operator)
        same = (at >= 0) & (where.columns["track"][at] == asked.track)
        rows, ns, number = at[same], asked.ns[same], asked.number[same]
        self._spend(where.columns["track"][rows], where.work[rows], -ns)
        # The names met later change no number: what is kept has the two apart.
        stride = int(where.columns["name"].max(initial=0)) + 1
        keys, row = _distinct(number * stride + where.columns["name"][rows])
        for one, sum_ns in zip(
            keys.tolist(), np.bincount(row, ns, len(keys)).tolist(), strict=True
        ):
            key = divmod(one, stride)
            self._by_name[key] = self._by_name.get(key, 0.0) + sum_ns
        return asked.taken(np.flatnonzero((at < 0) & (asked.operator >= 0)))

    def finish(self) -> None:
        """All pieces were added. Of the few operators that lie in another piece than what they
        asked for, it is found now: those that last longer than anything that belongs together, such
        as a range around everything.
        """
        if not self._left:
            return
        asked, self._left = _Asked.joined(self._left), []
        columns = ["span", "track", "name", "kind", "layer"]
        for spans in self._reader.pieces("spans", columns, files=self._seen):
            if not len(asked.operator):
                break
            asked = self._take_out(_Spans(spans, self._work(spans)), asked)

    def _is_no_product(self, here: _Spans, moved: Array, spent_ns: Array) -> None:
        """What these matrix products do themselves is no work of a BLAS: they asked for
        primitives.
        """
        track = here.columns["track"][moved]
        self._spend(track, here.work[moved], -spent_ns[moved])
        here.work[moved] = KERNEL
        self._spend(track, here.work[moved], spent_ns[moved])

    def scale(self, factor: float) -> None:
        """What was added stands for so many times as much."""
        self.spent *= factor
        self._sums = {
            number: (ns * factor, count * factor) for number, (ns, count) in self._sums.items()
        }

    # -- what it comes to --------------------------------------------------------------------------

    @property
    def is_mkl(self) -> bool:
        """Whether MKL was called, as far as it was recorded."""
        return any(primitive.library == "MKL" for primitive in self._primitives)

    def kinds(self, tracks: Bools, divisor: float, whole_ns: float, is_mkl: bool) -> list[KindTime]:
        """The kinds of work on these tracks, most time first; without any primitive none.

        `whole_ns` is what they add up to; where more was spent, because threads worked at the same
        time, that is it.
        """
        if not self._sums:
            return []
        spent_ns = np.maximum(self.spent[tracks].sum(axis=0) / divisor, 0)
        if self.layer != OPERATORS and whole_ns:
            spent_ns[REST] = 0.0  # a range may lie in another piece than what was asked for in it
        spent_ns[REST] += max(0.0, whole_ns - float(spent_ns.sum()))
        if is_mkl:
            spent_ns[MKL_PRODUCT] += spent_ns[BLAS]
            spent_ns[BLAS] = 0
        names = list(_NAMES)
        if self.layer != OPERATORS:
            names[REST] = _PROGRAM
        if self._kernels:
            names[KERNEL] = f"{self._kernels} kernels"
        whole = max(float(spent_ns.sum()), 1.0)
        order = np.argsort(-spent_ns, kind="stable").tolist()
        return [
            KindTime(names[at], float(spent_ns[at]), float(spent_ns[at]) / whole)
            for at in order
            if spent_ns[at]
        ]

    def below(self, divisor: float, scale: Array) -> dict[int, list[Below]]:
        """By number of the operator's name what it asked for, most time first; `scale` by name
        makes sums exact.
        """
        known = list(self._primitives)
        found: dict[int, dict[str, float]] = {}
        for (number, name), ns in self._by_name.items():
            mine, what = found.setdefault(name, {}), known[number].what
            mine[what] = mine.get(what, 0.0) + ns * float(scale[name]) / divisor
        return {
            name: sorted((Below(what, ns) for what, ns in mine.items()), key=lambda one: -one.ns)
            for name, mine in found.items()
        }

    def primitives(self, divisor: float) -> list[PrimitiveSum]:
        """All primitives, most time first."""
        known = list(self._primitives)
        sums = [
            PrimitiveSum(known[number].text, ns / divisor, count / divisor)
            for number, (ns, count) in self._sums.items()
        ]
        return sorted(sums, key=lambda one: -one.ns)


def _folder(file: Path) -> Path:
    """The folder with the tables that a file of one belongs to: of several ranks each has one."""
    return file.parent.parent


def _primitive(code: int, names: list[list[str]]) -> Primitive:
    """What the number of a triple of names stands for."""
    library, kind, implementation = names
    code, last = divmod(code, len(implementation))
    first, second = divmod(code, len(kind))
    return Primitive(library[first], kind[second], implementation[last], False)


def _joined(found: list[_Told]) -> _Told:
    if not found:
        return _Told()
    span, operator, primitive = (
        np.concatenate([getattr(one, name) for one in found])
        for name in ("span", "operator", "primitive")
    )
    order = np.argsort(span, kind="stable")
    return _Told(span[order], operator[order], primitive[order])


def _around(here: _Spans, rows: Array, layer: int) -> Array:
    """The row of the innermost span of this layer around each of these rows; -1: there is none."""
    at = here.places(here.columns["parent"][rows])
    while len(wrong := np.flatnonzero((at >= 0) & (here.columns["layer"][at] != layer))):
        at[wrong] = here.places(here.columns["parent"][at[wrong]])
    return at


def _code(names: Array, name: str) -> int:
    found = np.flatnonzero(names == name)
    return int(found[0]) if len(found) else -2
