"""Everything else, by the functions of the stack, as recordings tell waits apart
(ingest/waiting.py).
"""

from __future__ import annotations

from layerscope.model.running import PYTHON, Wait
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

_WORDS = {
    "pool": "work (an idle thread of a pool)",
    "barrier": "the other threads of its OpenMP team",
    "backward": "the backward pass, which other threads run",
    "join": "other threads to be done",
    "gpu": "a GPU",
    "page_fault": "memory (a page fault)",
    "child": "a process",
    "lock": "a lock",
    "file": "a file",
}
_FUTEX = 202
_NONE = -1


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """The state that a recording would give this wait."""
    if thread.call == _NONE:
        return None
    import numpy as np

    from layerscope.ingest import waiting
    from layerscope.model.layers import WAITS

    evidence = 0
    for frame in thread.frames:
        for one in seen.names.named(thread.pid, frame):
            layer = PYTHON if one.layer == PYTHON else "native"
            evidence = waiting.deeper(evidence, waiting.evidence(one.name, layer))
    call, none = np.array([thread.call]), np.zeros(1, np.int64)
    states, _ = waiting.states(call, none, none.astype(bool), np.array([evidence]))
    state = WAITS[int(states[0])]
    note = "who ends it is not known" if state == "lock" else ""
    return Wait(state, _WORDS.get(state, f"system call {thread.call}"), (), note)
