"""PID 1 of a container, or whoever the kernel gives orphans to: reaps them, and hands signals on.

`layerscope run` goes on in a child, so that what it waits for are its own children only. As PID 1
we would also get none of the signals we have no handler for, and could not end by one: the status
is then 128 + the signal, which is what the container's engine would report.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import warnings

from layerscope.capture.program import WATCHED, Witness

_PR_GET_CHILD_SUBREAPER = 37
_BY_SIGNAL = 128


def stand_aside() -> None:
    """Where orphans come to us: go on in a child, and stay behind for them. Otherwise nothing
    happens.
    """
    if not gets_orphans():
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # newer Pythons warn of a fork beside threads; ours only run NumPy's
        child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    witness = Witness()
    witness.start()
    status = _reap_until(child, witness)
    witness.stop()
    _end_as(status)


def gets_orphans() -> bool:
    """Whether the kernel makes us the parent of processes that lost theirs."""
    if os.getpid() == 1:
        return True
    answer = ctypes.c_int(0)
    prctl = ctypes.CDLL(None).prctl
    error = prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return error == 0 and answer.value != 0


def _reap_until(child: int, witness: Witness) -> int:
    """Reap whatever ends, until `child` has; its wait status."""
    while True:
        came = signal.sigwaitinfo(WATCHED)
        if came.si_signo != signal.SIGCHLD:
            if not witness.saw(came):
                with contextlib.suppress(OSError):
                    os.kill(child, came.si_signo)
            continue
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    return ended[1]


def _end_as(status: int) -> None:
    """Leave with the status of the child, past everything that waits for the end of an
    interpreter.
    """
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(_BY_SIGNAL + number)
