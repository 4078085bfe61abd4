"""What the operators call, for the summary: the primitives of each one, and the kinds of work in a
step.

Definitions, for the threads that make the steps:

- Convolutions, matrix products, reorders, other oneDNN and other MKL are the self time of
  primitives, executed or created. What other threads do for them, their shares, happens at the same
  time and is not added.
- A matrix product without primitives below it (`model.frameworks.products`) is the work of the BLAS
  that the framework was built with: called MKL where the recording says that it is that one, else
  BLAS.
- Kernels of the framework ("ATen kernels"): self time of the other functions, less their
  primitives; operators of other libraries are among them.
- Data loader: self time of loader waits.
- Python and dispatch is the rest: no operator is open, or only a range, a backward function or an
  optimizer step, which do no work of their own. Of a program without operators or without Python
  the rest is called the program itself.

So the kinds add up to the steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from layerscope.analyse.columns import code_of, has_name
from layerscope.analyse.kind_names import BLAS, KERNEL, LOADER, MKL_PRODUCT, REST
from layerscope.analyse.operator_kinds import UNKNOWN, Primitive
from layerscope.analyse.primitive_calls import (
    CalledPrimitives,
    NameColumn,
    PieceSpans,
    PrimitiveCalls,
    distinct_codes,
    enclosing,
    found_in,
    joined_rows,
    primitive_of,
)
from layerscope.analyse.span_groups import SpanGroups
from layerscope.analyse.step_times import Array, Arrays, Bools
from layerscope.model.distinct import distinct
from layerscope.model.frameworks import backends_of, frameworks, products
from layerscope.model.layers import OPERATORS, PRIMITIVES, RANGES
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
# What is asked of the operators that called primitives.
_OF_CALLERS = ("track", "kind", "name", "layer", "self_ns", "weight")


class KindTime(Struct):
    """Time of one kind of work: of a step on average, or of the whole run; `share` of the same."""

    name: str
    ns: float
    share: float


class PrimitiveTime(Struct):
    """Time of primitives that an operator called: `oneDNN jit:avx512_core`, `reorders`."""

    what: str
    ns: float


class PrimitiveSum(Struct):
    """Time and number of the primitives of one name, implementation and kind."""

    name: str
    ns: float
    count: float


class _Sum(Struct):
    """Time and number of calls of a primitive."""

    ns: float = 0.0
    count: float = 0.0


class WorkSums:
    """Adds up the work of primitives and of operators without them, piece by piece. Without
    operators, ranges (`layer`) stand in for them.
    """

    def __init__(self, reader: Reader, tracks: int, layer: str) -> None:
        self.layer = layer
        self.spent = np.zeros((tracks, len(_NAMES)))
        self._reader = reader
        self._files: dict[Path, dict[str, Path]] = {}  # by folder and name
        for file in reader.files("primitives"):
            self._files.setdefault(_folder(file), {})[file.name] = file
        self._rows = CalledPrimitives()
        self._rows_file: Path | None = None
        self._numbers: dict[Primitive, int] = {UNKNOWN: 0}
        # By number of the primitive and of the operator's name.
        self._by_name: dict[tuple[int, int], float] = defaultdict(float)
        self._sums: dict[int, _Sum] = defaultdict(_Sum)
        self._is_product = np.zeros(0, np.bool_)
        self._framework = ""  # the one that kernels belong to
        self._previous: PieceSpans | None = None
        self._unmatched: list[PrimitiveCalls] = []
        self._files_read: list[Path] = []

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of spans that it needs."""
        return ("span",) if self.layer == OPERATORS else ("span", "parent")

    def files(self, files: Iterable[Path]) -> Iterator[Path]:
        """The same files of spans; that of the primitives in each is read with it."""
        for file in files:
            self._files_read.append(file)
            primitives = self._files.get(_folder(file), {})
            own = primitives.get(file.name) or next(iter(primitives.values()), None)
            if own is not None:
                self._read(own)
            yield file

    def _read(self, file: Path) -> None:
        if file == self._rows_file:
            return
        self._rows_file = file
        names = ["library", "primitive_kind", "implementation"]
        columns = ["span", "operator", *names]
        found = []
        for piece in self._reader.pieces("primitives", columns, files=[file]):
            numbers = self._numbers_of([NameColumn.of(piece, name) for name in names])
            found.append(CalledPrimitives(piece["span"], piece["operator"], numbers))
        self._rows = joined_rows(found)

    def _numbers_of(self, columns: list[NameColumn]) -> Array:
        """The number of the primitive in each row of these columns."""
        code: Array = np.zeros(len(columns[0].codes), np.int64)
        for column in columns:
            code = code * len(column.texts) + column.codes
        distinct, row = distinct_codes(code)
        primitives = [primitive_of(one, columns) for one in distinct.tolist()]
        numbers = [self._number(primitive) for primitive in primitives]
        return np.array(numbers, np.int64)[row]

    def _number(self, primitive: Primitive) -> int:
        return self._numbers.setdefault(primitive, len(self._numbers))

    # -- adding up ---------------------------------------------------------------------------------

    def add(self, spans: Arrays, measured: Bools, groups: SpanGroups) -> None:
        """Add the measured spans of a piece, which are in these groups."""
        self._learn(spans)
        chosen = groups.measured & has_name(groups.columns, "layer", self.layer)
        work = self._work(groups.columns, np.flatnonzero(chosen))
        self._spend(groups.columns["track"][chosen], work, groups.self_ns[chosen])
        is_primitive = measured & has_name(spans, "layer", PRIMITIVES)
        primitives = np.flatnonzero(is_primitive & ~has_name(spans, "kind", "share"))
        names = {name: values for name, values in spans.items() if name.endswith(".names")}
        here = PieceSpans({name: spans[name] for name in (*_OF_CALLERS, *self.columns)} | names)
        if len(primitives):
            calls = self._calls(spans, primitives, here)
            self._add_primitives(calls, spans["weight"][primitives])
            self._add_calls(here, calls)
        self._previous = here

    def _calls(self, spans: Arrays, rows: Array, here: PieceSpans) -> PrimitiveCalls:
        """The primitives in these rows of spans."""
        known = found_in(self._rows.span, None, spans["span"][rows])
        number = np.append(self._rows.primitive, 0)[known]
        is_creation = has_name(spans, "kind", "create")[rows]
        number = self._created(number, is_creation)
        if self.layer == OPERATORS:
            caller = np.append(self._rows.operator, -1)[known]
        else:
            layer = code_of(spans["layer.names"], self.layer)
            around = enclosing(here, rows, layer)
            caller = np.where(around >= 0, spans["span"][around], -1)
        return PrimitiveCalls(caller, spans["track"][rows], number, here.spent_ns(rows))

    def _learn(self, spans: Arrays) -> None:
        """Look at the names that were not there in earlier pieces."""
        new = spans["name.names"][len(self._is_product) :].tolist()
        is_product = np.array([name in products() for name in new], np.bool_)
        self._is_product = np.append(self._is_product, is_product)
        if not self._framework:
            backends = next(filter(None, map(backends_of, new)), None)
            self._framework = backends.title if backends else ""

    def _work(self, columns: Arrays, rows: Array) -> Array:
        """The kind of work of these rows, if they are operators."""
        if self.layer != OPERATORS:
            return np.full(len(rows), REST, np.int8)
        kinds = [_KIND_OF.get(str(kind), REST) for kind in columns["kind.names"]]
        work = np.array(kinds, np.int8)[columns["kind"][rows]]
        is_product_kernel = (work == KERNEL) & self._is_product[columns["name"][rows]]
        work[is_product_kernel] = BLAS
        return work

    def _work_of(self, spans: PieceSpans, rows: Array) -> Array:
        """The same of rows of a piece, where some products are known to be none of a BLAS."""
        work = self._work(spans.columns, rows)
        is_moved = np.isin(rows, spans.moved)
        work[is_moved] = KERNEL
        return work

    def _spend(self, track: Array, work: Array, spent_ns: Array) -> None:
        """Add the time of each to that kind of work on that thread."""
        place = track * len(_NAMES) + work
        spent = self.spent
        added = np.bincount(place, spent_ns, spent.size)
        spent += added.reshape(spent.shape)

    def _created(self, number: Array, is_creation: Bools) -> Array:
        """The same primitives, and creations of them where they are created."""
        if not is_creation.any():
            return number
        known = list(self._numbers)
        found = number.copy()
        created = distinct(number[is_creation])
        for one in created.tolist():
            creation = replace(known[one], is_creation=True)
            is_own = is_creation & (number == one)
            found[is_own] = self._number(creation)
        return found

    def _add_primitives(self, calls: PrimitiveCalls, weight: Array) -> None:
        """Add the time of primitives to the kinds of work, and to the sums of each primitive."""
        works = np.array([primitive.work for primitive in self._numbers], np.int64)
        self._spend(calls.track, works[calls.number], calls.ns)
        ns = np.bincount(calls.number, calls.ns)
        count = np.bincount(calls.number, weight)
        for number in np.flatnonzero(count).tolist():
            known = self._sums[number]
            known.ns += float(ns[number])
            known.count += float(count[number])

    def _add_calls(self, here: PieceSpans, calls: PrimitiveCalls) -> None:
        """Take primitives out of the time of the operators on their threads, and add them to what
        these called.
        """
        callers = here.places(calls.operator)
        callers = callers[here.hold(callers, calls)]
        is_blas = self._work_of(here, callers) == BLAS
        products = distinct(callers[is_blas])
        self._is_no_product(here, products)
        for spans in (here, self._previous):
            if spans is not None:
                calls = self._take_out(spans, calls)
        if len(calls.operator):
            self._unmatched.append(calls)

    def _take_out(self, spans: PieceSpans, calls: PrimitiveCalls) -> PrimitiveCalls:
        """The same for the operators of one piece; calls by others are left."""
        callers = spans.places(calls.operator)
        is_here = spans.hold(callers, calls)
        here = calls.chosen(is_here)
        rows = callers[is_here]
        track, name = spans.columns["track"], spans.columns["name"]
        self._spend(track[rows], self._work_of(spans, rows), -here.ns)
        # Names that come later change no number: the key has the two apart.
        stride = int(name.max(initial=0)) + 1
        codes, at = distinct_codes(here.number * stride + name[rows])
        sums_ns = np.bincount(at, here.ns, len(codes))
        for code, sum_ns in zip(codes.tolist(), sums_ns.tolist(), strict=True):
            self._by_name[divmod(code, stride)] += sum_ns
        is_elsewhere = (callers < 0) & (calls.operator >= 0)
        return calls.chosen(np.flatnonzero(is_elsewhere))

    def finish(self) -> None:
        """All pieces were added. Of the few operators that lie in another piece than what they
        called, it is found now: those that last longer than anything that belongs together, such as
        a range that holds everything.
        """
        if not self._unmatched:
            return
        calls, self._unmatched = PrimitiveCalls.joined(self._unmatched), []
        columns = ["span", "track", "name", "kind", "layer"]
        for spans in self._reader.pieces("spans", columns, files=self._files_read):
            if not len(calls.operator):
                break
            self._learn(spans)
            calls = self._take_out(PieceSpans(spans), calls)

    def _is_no_product(self, here: PieceSpans, moved: Array) -> None:
        """What these matrix products do themselves is no work of a BLAS: they called
        primitives.
        """
        track, spent_ns = here.columns["track"][moved], here.spent_ns(moved)
        self._spend(track, self._work(here.columns, moved), -spent_ns)
        here.moved = moved
        self._spend(track, self._work_of(here, moved), spent_ns)

    def scale(self, factor: float) -> None:
        """What was added stands for so many times as much."""
        self.spent *= factor
        for known in self._sums.values():
            known.ns *= factor
            known.count *= factor

    # -- what it comes to --------------------------------------------------------------------------

    @property
    def is_mkl(self) -> bool:
        """Whether MKL was called, as far as it was recorded."""
        libraries = {primitive.library for primitive in self._numbers}
        return "MKL" in libraries

    def kinds(
        self, tracks: Bools, divisor: float, whole_ns: float, is_mkl: bool, has_python: bool = True
    ) -> list[KindTime]:
        """The kinds of work on these tracks, most time first; without any primitive none.

        `whole_ns` is what they add up to; where more was spent, because threads worked at the same
        time, that is it.
        """
        if not self._sums:
            return []
        spent_ns = np.maximum(self.spent[tracks].sum(axis=0) / divisor, 0)
        if self.layer != OPERATORS and whole_ns:
            spent_ns[REST] = 0.0  # a range may lie in another piece than what was called in it
        left_ns = whole_ns - float(spent_ns.sum())
        spent_ns[REST] += max(0.0, left_ns)
        if is_mkl:
            spent_ns[MKL_PRODUCT] += spent_ns[BLAS]
            spent_ns[BLAS] = 0
        names = list(_NAMES)
        if self.layer != OPERATORS or not has_python:
            names[REST] = _PROGRAM
        framework = self._framework or _framework_of(self._reader.run.info.versions)
        if framework:
            names[KERNEL] = f"{framework} kernels"
        whole = max(float(spent_ns.sum()), 1.0)
        kinds = []
        order = np.argsort(-spent_ns, kind="stable")
        for at in order.tolist():
            ns = float(spent_ns[at])
            if ns:
                share = ns / whole
                kinds.append(KindTime(names[at], ns, share))
        return kinds

    def by_operator(self, divisor: float, scale: Array) -> dict[int, list[PrimitiveTime]]:
        """By number of the operator's name the primitives that it called, most time first; `scale`
        by name makes sums exact.
        """
        known = list(self._numbers)
        found: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for (number, name), ns in self._by_name.items():
            what = known[number].what
            found[name][what] += ns * float(scale[name]) / divisor
        return {name: _most_first(times) for name, times in found.items()}

    def primitives(self, divisor: float) -> list[PrimitiveSum]:
        """All primitives, most time first."""
        known = list(self._numbers)
        sums = [
            PrimitiveSum(known[number].text, found.ns / divisor, found.count / divisor)
            for number, found in self._sums.items()
        ]
        return sorted(sums, key=lambda one: -one.ns)


def _most_first(times: dict[str, float]) -> list[PrimitiveTime]:
    """The times, the longest first."""
    found = [PrimitiveTime(what, ns) for what, ns in times.items()]
    found.sort(key=lambda time: -time.ns)
    return found


def _framework_of(versions: Mapping[str, str]) -> str:
    """The framework whose operators a recording has, by what the program has loaded; empty: none,
    or operators say themselves whose they are.
    """
    for one in frameworks():
        if one.name in versions and not one.backends.prefix:
            return one.title
    return ""


def _folder(file: Path) -> Path:
    """The folder with the tables that a file of one belongs to: of several ranks each has one."""
    return file.parent.parent


def ranked_layer(reader: Reader) -> str:
    """What is ranked: operators, or, of a program without any, the ranges that it marks."""
    has_others = False
    totals = reader.arrays("totals", ["layer"])  # of every span that has ended
    if has_name(totals, "layer", OPERATORS).any():
        return OPERATORS
    for spans in reader.pieces("spans", ["layer"]):
        if has_name(spans, "layer", OPERATORS).any():
            return OPERATORS
        is_other = np.isin(spans["layer.names"], (RANGES, PRIMITIVES))
        has_others |= bool(is_other.any())
    return RANGES if has_others else OPERATORS
