"""layerscope: the across-the-stack profiler for deep-learning programs on Linux.

Importing it is cheap: no framework, no reader library is imported before it is needed.

    with layerscope.record() as recorded:     # record what runs in the block
        train()
    print(recorded.open().summary())

`layerscope.profiler` has the MXNet profiler's interface; `%load_ext layerscope` brings
`%%layerscope` to a notebook.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from layerscope.api.run import OpenedRun
    from layerscope.profiler.recorded import Recorded

__version__ = "0.1.0"
__all__ = ["open_run", "record", "step"]


def record(path: str | None = None) -> Recorded:
    """Record what runs in a `with` block; `path` names the recording if none is being made in this
    process yet.
    """
    from layerscope.profiler.recorded import Recorded

    return Recorded(path, open_run)


def step() -> None:
    """A step of the program's loop ends here, whatever the optimizer does."""
    from layerscope.profiler.objects import step as mark_step

    mark_step()


def open_run(path: str, since_ns: int = 0, until_ns: int | None = None) -> OpenedRun:
    """The recording at `path`, with or without its suffix, or of it what started in [since_ns,
    until_ns).

    ImportError in a sentence where the libraries that read recordings are missing.
    """
    try:
        from layerscope.api.run import OpenedRun, find_run
    except ImportError as error:
        raise ImportError(
            f"this Python cannot read recordings: {error}. Install layerscope with its libraries "
            "here, or read the recording with the `layerscope` command"
        ) from error
    return OpenedRun(str(find_run(str(path))), since_ns, until_ns)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext layerscope`: adds the cell magic `%%layerscope`."""
    from layerscope.api.notebook import register

    register(shell, record)
