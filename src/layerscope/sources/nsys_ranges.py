"""Ranges and marks of NVTX in an export of Nsight Systems. Used by `nsys`.

Ranges that are pushed and popped nest on their thread. Those that are started and ended may cross,
and lie on tracks beside it. What `torch.autograd.profiler.emit_nvtx` writes is known by its text,
and is an operator.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.events import Problem
from layerscope.model.frameworks import kind_of
from layerscope.model.layers import KINDS, RANGES
from layerscope.model.stored_json import decoded
from layerscope.sources.imported import ImportedMoments
from layerscope.sources.kineto_meaning import BACKWARD, ENGINE, FUNCTION
from layerscope.sources.span_rows import MOST_NS, FoundTracks, SpanRows, lanes
from layerscope.sources.sqlite_rows import NONE, SqliteTables, or_none

_TABLE = "NVTX_EVENTS"
_TASK = KINDS.index("task")
# Types of events, of programs and of text files that were put in (ENUM_NSYS_EVENT_TYPE).
_CATEGORY, _MARKS, _NESTED, _CROSSING, _DOMAIN = 33, (34, 65), (59, 70), (60, 71), 75
# Names of threads, of what a text file has, of domains that end, and of devices.
_NO_EVENTS = (_CATEGORY, 39, 64, 72, 73, 74, _DOMAIN, 76, 97, 98, 99)
_OF_TORCH = re.compile(
    r"(.+?)(?:, seq = (-?\d{1,18}))?(?:, op_id = \d{1,18})?(?:, sizes = (\[.*?\]))?"
    r"(?:, input_op_ids = \[.*)?",
    re.DOTALL,
)
_TORCH_WORDS = (", op_id = ", ", seq = ")
_NUMBERS = (
    "start end eventType globalTid textId domainId category color rangeId uint64Value int64Value "
    "uint32Value int32Value"
)
_MOST_SEQUENCE = np.iinfo(np.int32).max
_PAYLOADS = ("uint64Value", "int64Value", "uint32Value", "int32Value")
_KEYS = ("domain", "category", "color", "payload")


class NvtxRanges(Struct):
    """Puts ranges into `spans`; `track_of` gives the tracks of threads, or those beside them."""

    spans: SpanRows
    tracks: FoundTracks
    texts: dict[int, str]
    track_of: Callable[..., np.ndarray]
    domains: dict[int, str] = field(default_factory=dict)
    categories: dict[tuple[int, int], str] = field(default_factory=dict)
    other: Counter[int] = field(default_factory=Counter)
    torch: list[tuple[Any, ...]] = field(default_factory=list)
    _crossing: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    _marks: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    _open: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, tables: SqliteTables) -> None:
        """Take in all of them."""
        self._name(tables)
        for *columns, text in tables.rows(_TABLE, _NUMBERS, "text"):
            rows = dict(zip(_NUMBERS.split(), columns, strict=True))
            names = self._names(rows["textId"], text)
            kind = rows["eventType"]
            self._add_ranges(rows, names, np.isin(kind, _NESTED), False)
            self._add_ranges(rows, names, np.isin(kind, _CROSSING), True)
            self._add_marks(rows, names, np.isin(kind, _MARKS))
            known = (*_NESTED, *_CROSSING, *_MARKS, *_NO_EVENTS)
            self.other.update(kind[~np.isin(kind, known)].tolist())
        self._add_crossing()
        self._add_operators()

    def moments(self) -> ImportedMoments:
        """The marks."""
        if not self._marks:
            return ImportedMoments()
        at_ns, track, name = (np.concatenate(parts) for parts in zip(*self._marks, strict=True))
        count = len(at_ns)
        return ImportedMoments(
            at_ns, track, name, np.zeros(count, np.int64), np.ones(count, np.bool_)
        )

    def problems(self) -> list[Problem]:
        """What is left out."""
        if not self.other:
            return []
        told = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(self.other.items()))
        what = f"events of NVTX have types that are not known: {told}"
        remedy = "open the report in nsys-ui"
        return [Problem(RANGES, "nvtx_unknown", what, remedy, "these events")]

    def _name(self, tables: SqliteTables) -> None:
        """What domains and categories are called."""
        wanted = "eventType textId domainId category"
        for kind, text_id, domain, category, text in tables.rows(_TABLE, wanted, "text"):
            rows = np.flatnonzero(np.isin(kind, (_CATEGORY, _DOMAIN)))
            for row in rows.tolist():
                name = text[row]
                if not name:
                    number = int(text_id[row])
                    name = self.texts.get(number, "")
                of = int(domain[row])
                if kind[row] == _DOMAIN:
                    self.domains[of] = name
                else:
                    key = of, int(category[row])
                    self.categories[key] = name

    def _names(self, numbers: np.ndarray, texts: list[str | None]) -> list[str]:
        """The texts of events; where one has none, the one that its number stands for."""
        known = self.texts
        found = []
        for number, text in zip(numbers.tolist(), texts, strict=True):
            if text is None:
                name = known.get(number, "")
                found.append(name)
            else:
                found.append(text)
        return found

    def _add_ranges(
        self,
        rows: dict[str, np.ndarray],
        names: list[str],
        wanted: np.ndarray,
        is_crossing: bool,
    ) -> None:
        chosen = np.flatnonzero(wanted)
        if not len(chosen):
            return
        rows = {name: values[chosen] for name, values in rows.items()}
        names = [names[row] for row in chosen.tolist()]
        start, end = rows["start"], rows["end"]
        unfinished = end == NONE
        end = np.where(unfinished, start, end)
        args = self._arguments(rows)
        if is_crossing:
            name = self.spans.named(names)
            self._crossing.append((start, end, rows["globalTid"], name, args, unfinished))
            return
        track = self.track_of(rows["globalTid"])
        is_of_torch = np.array([_is_of_torch(name) for name in names], np.bool_)
        if is_of_torch.any():
            own = np.flatnonzero(is_of_torch)
            words = [_torch_words(names[row]) for row in own.tolist()]
            self.torch.append((start[own], end[own], track[own], unfinished[own], words))
        rest = np.flatnonzero(~is_of_torch)
        self.spans.add(
            start[rest],
            end[rest],
            kind=_TASK,
            track=track[rest],
            name=self.spans.named(names[row] for row in rest.tolist()),
            args=args[rest],
            unfinished=unfinished[rest],
        )

    def _arguments(self, rows: dict[str, np.ndarray]) -> np.ndarray:
        """What ranges tell besides."""
        numbers = rows["domainId"].tolist()
        domains = list(map(self._domain, numbers))
        of_domains = rows["category"].tolist()
        categories = list(map(self._category, numbers, of_domains))
        packed = rows["color"].tolist()
        colors = list(map(_color, packed))
        payload = np.full(len(domains), NONE)
        for name in _PAYLOADS:
            is_missing = payload == NONE
            payload = np.where(is_missing, rows[name], payload)
        payloads = or_none(payload)
        told = (domains, categories, colors, payloads)
        return self.spans.arguments(_KEYS, told)

    def _domain(self, number: int) -> str | None:
        """What a domain is called; the one of all programs has no name."""
        known = self.domains.get(number)
        if known or number <= 0:
            return known or None
        return f"domain {number}"

    def _category(self, domain: int, number: int) -> str | int | None:
        """What a category is called, else its number."""
        if number in (NONE, 0):
            return None
        known = self.categories.get((domain, number))
        return known or number

    def _add_marks(self, rows: dict[str, np.ndarray], names: list[str], wanted: np.ndarray) -> None:
        """Moments, each with a text of one line."""
        at_ns = rows["start"]
        is_possible = np.abs(at_ns) < MOST_NS
        chosen = np.flatnonzero(wanted & is_possible)
        rejected = np.count_nonzero(wanted & ~is_possible)
        self.spans.rejected += int(rejected)
        if not len(chosen):
            return
        texts = []
        for row in chosen.tolist():
            words = names[row].split()
            texts.append(" ".join(words))
        thread = rows["globalTid"][chosen]
        track = self.track_of(thread)
        name = self.spans.named(texts)
        self._marks.append((at_ns[chosen], track, name))

    def _add_crossing(self) -> None:
        """Ranges of a thread that cross lie on tracks of their own."""
        if not self._crossing:
            return
        columns = [np.concatenate(parts) for parts in zip(*self._crossing, strict=True)]
        start, end, thread, name, args, unfinished = columns
        own_ns = int(end.max(initial=0))
        last_ns = max(self.spans.latest_ns(), own_ns)
        until_ns = np.where(unfinished, last_ns, end)
        lane = lanes(thread, start, until_ns)
        track = np.zeros(len(start), np.int32)
        for number in np.unique(lane).tolist():
            rows = np.flatnonzero(lane == number)
            what = "ranges"
            if number:
                what = f"ranges ({number + 1})"
            track[rows] = self.track_of(thread[rows], what)
        more = {"track": track, "name": name, "args": args, "unfinished": unfinished}
        self.spans.add(start, end, kind=_TASK, **more)

    def _add_operators(self) -> None:
        """What torch writes; a backward function lies in the engine's range of the same name."""
        inner = {
            name.removeprefix(ENGINE)
            for *_, words in self.torch
            for name, _, _ in words
            if name.startswith(ENGINE)
        }
        for start, end, track, unfinished, words in self.torch:
            names, sequence, sizes = zip(*words, strict=True)
            args = self.spans.arguments(("shapes",), (sizes,))
            kinds = [_kind(name, inner) for name in names]
            self.spans.add(
                start,
                end,
                kind=np.array(kinds, np.uint8),
                track=track,
                name=self.spans.named(names),
                args=args,
                seq=np.array(sequence, np.int64),
                unfinished=unfinished,
            )


def _is_of_torch(name: str) -> bool:
    return any(word in name for word in _TORCH_WORDS)


def _torch_words(text: str) -> tuple[str, int, tuple[Any, ...] | None]:
    """Name, sequence number (-1: none) and sizes of inputs."""
    found = _OF_TORCH.fullmatch(text)
    if found is None:
        return text, -1, None
    name, sequence, sizes = found.groups()
    number = int(sequence or -1)
    shapes = _shapes(sizes) if sizes else None
    return name, number if 0 <= number <= _MOST_SEQUENCE else -1, shapes


@lru_cache(maxsize=4096)
def _shapes(sizes: str) -> tuple[Any, ...] | None:
    """What the text lists; None: it is no list."""
    try:
        return tuple(map(_fixed, decoded(sizes.encode(), list[Any])))
    except ValueError:
        return None


def _fixed(value: Any) -> Any:
    """A list in lists as tuples, which can be told from others fast."""
    return tuple(map(_fixed, value)) if isinstance(value, list) else value


def _kind(name: str, inner: set[str]) -> int:
    if name in inner:
        return BACKWARD
    told = kind_of(name)
    return KINDS.index(told) if told else FUNCTION


def _color(number: int) -> str | None:
    """As #aarrggbb."""
    if number in (NONE, 0):
        return None
    return f"#{number & 0xFFFF_FFFF:08x}"
