"""Which operator of the forward pass a backward function belongs to.

Definition. PyTorch gives every autograd node the next sequence number of the thread that makes it, and an operator
carries the number that was next when it started. The forward span of a backward function is therefore, among the
operators of its forward thread that carry its number and started before it, the latest that lies in no other of them:
those before it made no node. That is the one that ended last. Its depth does not tell: modules and ranges count in it.

Where nobody knows the forward thread yet, as in the first recording with a build of torch, the backward function is
taken to run on it, as it does on a CPU unless the program starts the backward pass on another thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_SEQ_BITS = 32


def _key(thread: np.ndarray, seq: np.ndarray) -> np.ndarray:
    key: np.ndarray = (thread.astype(np.int64) << _SEQ_BITS) | seq.astype(np.int64)
    return key


def _makers(
    key: np.ndarray, span: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray, module: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Of the operators with one key, the one that ended last; of those that end together, the first to start."""
    order = np.lexsort((start_ns, -end_ns, key))
    keys, firsts = np.unique(key[order], return_index=True)
    chosen = order[firsts]
    return keys, span[chosen], start_ns[chosen], end_ns[chosen], module[chosen]


@dataclass(slots=True)
class ForwardBackward:
    """Collects operators and backward functions of one process; `links` pairs them."""

    _forward: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    _backward: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._backward)

    def add_backward(self, span: np.ndarray, thread: np.ndarray, seq: np.ndarray, start_ns: np.ndarray) -> None:
        """Backward functions with the thread number and sequence number of their forward operator."""
        self._backward.append((_key(thread, seq), span, start_ns))

    def add_forward(
        self, span: np.ndarray, thread: np.ndarray, seq: np.ndarray, start_ns: np.ndarray, dur_ns: np.ndarray,
        module: np.ndarray,
    ) -> None:  # fmt: skip
        """Operators with the number of the thread they ran on, the sequence number they carry, and their module."""
        columns = (_key(thread, seq), span, start_ns, start_ns + dur_ns, module)
        self._forward.append(_makers(*columns))

    def links(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(forward spans, backward spans, modules of the forward spans): one pair for each that is known."""
        none = np.zeros(0, np.int64)
        if not self._backward or not self._forward:
            return none, none, none
        columns = (np.concatenate(column) for column in zip(*self._forward, strict=True))
        keys, span, start_ns, _, module = _makers(*columns)
        if not len(keys):  # the forward operators ran where torch's number of the thread is not known
            return none, none, none
        wanted, backward, backward_ns = (np.concatenate(column) for column in zip(*self._backward, strict=True))
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        known = (keys[at] == wanted) & (start_ns[at] <= backward_ns)
        return span[at[known]], backward[known], module[at[known]]
