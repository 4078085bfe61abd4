"""Mutexes of the C library (pthread_mutex_t), which say who has them."""

from __future__ import annotations

import re

from layerscope.model.running import Wait
from layerscope.running.observed import Observed
from layerscope.running.told import ToldThread

_FUTEX = 202
# In words of 4 bytes: the lock itself (2: somebody waits), the owner's thread number, how many
# threads use it.
_LOCK, _OWNER, _USERS = 0, 2, 3
_CONTENDED = 2
_USERS_MOST = 1 << 20
_FUNCTION = re.compile(r"(^|_)(pthread_mutex_|lll_(timed|clock)?lock|mutex_lock)")


def find(thread: ToldThread, seen: Observed) -> Wait | None:
    """The word that it waits for begins a mutex whose owner is a thread of the process."""
    words = thread.futex
    if thread.call != _FUTEX or len(words) <= _USERS or words[_LOCK] != _CONTENDED:
        return None
    owner = seen.thread(thread.pid, words[_OWNER])
    names = [name for name in seen.names.innermost(thread) if not name.startswith("[")]
    in_mutex = any(map(_FUNCTION.search, names))
    if owner is None or not 0 < words[_USERS] <= _USERS_MOST:
        note = "its kind of lock does not say who holds it"
        return Wait("mutex", "a mutex", (), note) if in_mutex else None
    if names and not in_mutex:
        return None
    if owner is thread:
        return Wait("mutex", "a mutex", (seen.waited(owner, "holds it itself"),))
    at = seen.place(owner)
    return Wait(
        "mutex", "a mutex", (seen.waited(owner, f"holds it, at {at}" if at else "holds it"),)
    )
