"""Which operator of the forward pass a backward function belongs to.

Definition. The framework gives every autograd node the next sequence number of the thread that
makes it, and an operator carries the number that was next when it started. The forward span of a
backward function is therefore, among the operators of its forward thread that carry its number and
started before it, the latest that lies in no other of them: those before it made no node. That is
the one that ended last. Its depth does not tell: modules and ranges count in it.

Where nobody knows the forward thread yet, as in the first recording with a build of it, the
backward function is taken to run on it, as it does on a CPU unless the program starts the backward
pass on another thread.
"""

from __future__ import annotations

import numpy as np

from layerscope.ingest.spans import FUNCTION, Columns
from layerscope.model.compiled import Compiled, compiled
from layerscope.model.distinct import distinct

THREAD_BITS = 16  # of the number that a framework gives a thread
_SEQ_BITS = 32


def operators_of(columns: Columns, process_of: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """The rows of the operators of `backward`, rows of backward functions; -1: not known."""
    library = compiled()
    if library is not None:
        return _with_library(library, columns, process_of, backward)
    start_ns = columns["start_ns"]
    numbered = (columns["sequence"] >= 0) & (columns["thread"] >= 0)
    forward = np.flatnonzero((columns["kind_code"] == FUNCTION) & numbered)
    known = np.flatnonzero(numbered[backward])
    rows = backward[known]
    place = link(
        _autograd_key(columns, process_of, forward),
        start_ns[forward],
        start_ns[forward] + columns["dur_ns"][forward],
        _autograd_key(columns, process_of, rows),
        start_ns[rows],
    )
    found = np.full(len(backward), -1, np.intp)
    if len(forward):
        found[known] = np.where(place >= 0, forward[place], -1)
    return found


def _with_library(
    library: Compiled, columns: Columns, process_of: np.ndarray, backward: np.ndarray
) -> np.ndarray:
    names = ("kind_code", "sequence", "thread", "track", "start_ns", "dur_ns")
    spans = [np.ascontiguousarray(columns[name]) for name in names]
    count, wanted = len(columns["span"]), len(backward)
    bits = max(4, (2 * wanted).bit_length())
    places = np.zeros(1 << bits, np.int32)
    keys, makers, found = np.empty((3, wanted), np.int64)
    asked = (backward.astype(np.int64, copy=False), wanted)
    owners = np.ascontiguousarray(process_of, np.int32)
    library.call("link", *spans, count, owners, FUNCTION, *asked, places, bits, keys, makers, found)
    return found


def _autograd_key(columns: Columns, process_of: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What the framework calls these rows in the autograd graph."""
    # It numbers the threads of each process anew.
    process = process_of[columns["track"][rows]].astype(np.int64)
    thread = (process << THREAD_BITS) + columns["thread"][rows]
    return key_of(thread, columns["sequence"][rows])


def key_of(thread: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """One number for the framework's number of a thread and a sequence number."""
    key: np.ndarray = (thread.astype(np.int64) << _SEQ_BITS) | seq.astype(np.int64)
    return key


def link(
    forward_key: np.ndarray,
    forward_start_ns: np.ndarray,
    forward_end_ns: np.ndarray,
    backward_key: np.ndarray,
    backward_start_ns: np.ndarray,
) -> np.ndarray:
    """The place of the forward operator of each backward function, -1 where none is known."""
    found = np.full(len(backward_key), -1, np.intp)
    wanted = distinct(backward_key)
    if not len(wanted) or not len(forward_key):
        return found
    at = np.minimum(np.searchsorted(wanted, forward_key), len(wanted) - 1)
    mine = np.flatnonzero(wanted[at] == forward_key)
    # Without any, the forward operators ran where the framework's number of the thread is not
    # known.
    if not len(mine):
        return found
    key = forward_key[mine]
    # Of the operators with one key, the one that ended last; of those that end together, the first
    # to start.
    order = np.lexsort((forward_start_ns[mine], -forward_end_ns[mine], key))
    keys, firsts = np.unique(key[order], return_index=True)
    maker = mine[order[firsts]]
    at = np.minimum(np.searchsorted(keys, backward_key), len(keys) - 1)
    known = (keys[at] == backward_key) & (forward_start_ns[maker[at]] <= backward_start_ns)
    found[known] = maker[at[known]]
    return found
