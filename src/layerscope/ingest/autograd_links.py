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

from layerscope.model.distinct import distinct

_SEQ_BITS = 32


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
