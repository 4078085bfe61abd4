"""What $LAYERSCOPE_AUTOSTART asks for, in every Python where layerscope is installed: the line that
`site` executes (`layerscope_autostart.pth`) comes here if the variable is set.

`standby` prepares a door and records nothing: SIGURG, which a process ignores by default, has a
handler, and whoever may send it opens the door (profiler/standby.py). No thread, no descriptor, no
module of a framework, nothing that is called while the program runs. Never fails.

Whoever may open it must know from outside that SIGURG is ours still, because a program that
handles it itself must get none. So the handler is an object with our words in it: Python's table
of handlers leads to them as long as it is this one (session/signal_table.py).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would import `enum`
import _thread
import os

VARIABLE = "LAYERSCOPE_AUTOSTART"
STANDBY = "standby"
# As session/signal_table.py looks for it.
DOOR = b"layerscope: SIGURG opens the door of this process"


class _Door(bytes):
    """The handler of SIGURG. To the program it is an object like any other handler, never text:
    comparing bytes with a number is an error under `python -bb`.
    """

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__
    __repr__ = __str__ = object.__repr__

    def __call__(self, number: int, frame: object) -> None:
        # Between two instructions of the program, which may be importing what we need, or hold
        # locks: a thread of its own waits for those. It is none of `threading`, and soon over.
        try:  # contextlib would have to be imported
            _thread.start_new_thread(_open, ())
        except RuntimeError:
            return


def begin() -> None:
    """Do what the variable says."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted == STANDBY:
        _stand_by()
    elif wanted not in ("", "0"):
        from layerscope import profiler

        profiler.autostart()


def _stand_by() -> None:
    """Have SIGURG open the door, unless it means something to the program."""
    if "LAYERSCOPE_AGENT" in os.environ:
        return  # under `layerscope run`
    try:
        if _signal.getsignal(_signal.SIGURG) == _signal.SIG_DFL:
            _signal.signal(_signal.SIGURG, _Door(DOOR))
    except (ValueError, OSError):
        pass  # not the main thread


def _open() -> None:
    try:
        from layerscope.profiler import standby

        standby.open_recording()
    except Exception:
        pass
