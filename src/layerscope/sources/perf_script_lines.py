"""The lines that perf script prints, taken apart: heads of samples, numbers and kinds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layerscope.sources import perf_waits
from layerscope.sources.perf_script_fields import CPU, FAULT, FIELDS, OFFCPU, OTHER_RECORD

_WHO = r"^\s*(?P<comm>{comm})(?:(?P<pid>-?\d+)/)?(?P<tid>-?\d+)\s+"
# Numbers of processes and threads have seven digits at most; the tables hold so many.
_LONGEST_NUMBER = 9
_CPU_FIELD, _FLAGS = r"\[(?P<cpu>\d+)\]\s+", r"(?:[A-Za-z.?][A-Za-z0-9.?]{0,7}\s+)?"
_TIME = r"(?P<second>\d+)\.(?P<fraction>\d{6,9}):"
_EVENT = r"(?:(?P<period>\d+)\s+)?(?P<event>[^\s:][^\s]*?):(?:\s(?P<tail>.*))?$"
# From the surest on: a line is taken by the first that fits.
_HEADS = tuple(
    _WHO.format(comm=comm) + rest
    for comm in (r"(?:\S.*?\s+)??", r"\S.*?\s+")
    for rest in (
        rf"(?:{_CPU_FIELD})?{_FLAGS}{_TIME}\s*{_EVENT}",
        rf"(?:{_CPU_FIELD})?{_FLAGS}{_TIME}\s*(?P<event>)(?P<tail>[0-9a-f]+(?:\s.*)?|)$",
        rf"(?:{_CPU_FIELD})?(?P<second>)(?P<fraction>){_EVENT}",
    )
)
_BARE = r"^\s*(?P<comm>(?:\S.*?\s+)??)(?:(?P<pid>-?\d+)/)?(?P<tid>-?\d+)\s*$"
_FAULTS = ("page-faults", "faults", "minor-faults", "major-faults")


def head_fields(lines: pa.Array, followed: np.ndarray) -> tuple[pa.StructArray, np.ndarray]:
    """The fields of those lines that are heads of samples, and which are. `followed`: a stack
    follows.
    """
    fits, is_taken = np.zeros(len(lines), np.bool_), np.zeros(len(lines), np.bool_)
    rows, parts = [], []
    is_other = pc.match_substring(lines, OTHER_RECORD).to_numpy(zero_copy_only=False)
    for pattern in (*_HEADS, _BARE):
        left = np.flatnonzero(~is_taken & ~is_other & (followed | (pattern != _BARE)))
        if not len(left):
            continue
        found = pc.extract_regex(lines.take(pa.array(left)), pattern)
        is_head = found.is_valid()
        is_taken[left[is_head.to_numpy(zero_copy_only=False)]] = True
        good = pc.fill_null(pc.and_(is_head, _has_short_numbers(found)), False).to_numpy(
            zero_copy_only=False
        )
        fits[left[good]] = True
        rows.append(left[good])
        found = found.filter(pa.array(good))
        nothing = pa.array([b""] * len(found), pa.binary())
        told = {one.name for one in found.type}
        parts.append(
            pa.StructArray.from_arrays(
                [pc.struct_field(found, name) if name in told else nothing for name in FIELDS],
                list(FIELDS),
            )
        )
    if not parts:
        return pa.StructArray.from_arrays(
            [pa.array([], pa.binary())] * len(FIELDS), list(FIELDS)
        ), fits
    order = np.argsort(np.concatenate(rows), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(order)), fits


def _has_short_numbers(fields: pa.StructArray) -> pa.Array:
    """Whether the tables can hold the numbers of the process and the thread."""
    pid = pc.binary_length(pc.struct_field(fields, "pid"))
    tid = pc.binary_length(pc.struct_field(fields, "tid"))
    longer = pc.max_element_wise(pid, tid)
    return pc.less_equal(longer, _LONGEST_NUMBER)


def coded(texts: pa.Array) -> tuple[np.ndarray, list[bytes]]:
    """The number of each text, and the distinct texts."""
    found = texts.dictionary_encode()
    numbers_ = found.indices.to_numpy(zero_copy_only=False)
    return numbers_, found.dictionary.to_pylist()


def numbers(texts: pa.Array) -> np.ndarray:
    """Texts of digits as numbers; 0 for what is empty or too long."""
    length = pc.binary_length(texts)
    is_some = pc.greater(length, 0)
    is_short = pc.less(length, 19)
    good = pc.and_(is_some, is_short)
    digits = pc.if_else(good, texts, b"0").cast(pa.string())
    numbers: np.ndarray = digits.cast(pa.int64()).to_numpy()
    return numbers


def kind(name: str) -> int:
    """What the samples of an event are, by its name: an index into SAMPLE_KINDS."""
    bare = name.partition(":")[0]
    if bare in _FAULTS:
        return FAULT
    is_wait = (
        bare in ("context-switches", "cs")
        or name.endswith(":sched_switch")
        or perf_waits.is_off_cpu(name)
    )
    return OFFCPU if is_wait else CPU


def cpu_event(names: list[str], kinds: list[int], counts: np.ndarray) -> int:
    """The event that is the CPU time: cpu-clock, task-clock, cycles, else the most frequent that is
    no tracepoint.
    """
    ranks = []
    for name, kind, count in zip(names, kinds, counts.tolist(), strict=True):
        bare, _, behind = name.partition(":")
        is_tracepoint = len(behind) > 6 or "_" in behind
        order = next(
            (
                rank
                for rank, known in enumerate(("task-clock", "cpu-clock", "cycles"), 1)
                if known in bare
            ),
            0,
        )
        ranks.append((-1, 0) if kind != CPU or is_tracepoint else (order, count))
    best = max(range(len(ranks)), key=lambda number: ranks[number], default=-1)
    return best if best >= 0 and ranks[best] >= (0, 0) else -1
