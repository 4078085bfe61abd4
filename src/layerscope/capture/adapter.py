"""What layerscope needs to record a framework: one folder of `capture/frameworks` each.

`inside/hook.py` of that folder runs in the program, which imports the framework, in the standard
library alone. It defines `prepare(module)`, called before the framework is executed; `start()`,
called behind it, true if it is to be asked again; `pause()` and `resume()`, for a program that
stops the profiler; and, where it needs them, `LATER`: by name of a module its function that is
called when that was imported. It finds `settings` (`capture.agent.Settings`), its own `folder`,
and the `environment` that the process began with.

The package itself has an `ADAPTER`: what is done outside of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct, field

from layerscope.model.events import Problem


class Prober(Protocol):
    """Finds out whether the agent may record the build of the framework that a process has.

    `versions`: of what the program runs on, by name. `problems`: of processes that could not be
    recorded; complete after `finish`.
    """

    problems: list[Problem]
    versions: dict[str, str]

    def take(self, fd: int, pid: int) -> None:
        """Process `pid` handed its page over in `fd`, which is closed afterwards."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a process waits for what is being found out."""

    def publish(self) -> None:
        """Write what is known by now into the pages of the processes that wait for it."""

    def finish(self) -> None:
        """The program has ended: wait for what is still being found out, for the next time."""

    @property
    def span_costs_ns(self) -> tuple[float, float]:
        """CPU time inside the program of one recorded span: of a kind other than backward, and of
        kind backward; 0: not measured.
        """


class CannotRead(Exception):
    """Shapes cannot be recorded: the sentence says why; `remedy` is what to do."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


class Shapes(Struct, frozen=True):
    """What reads the shapes of inputs: the file at `path`, in programs that use the framework's
    `library`.

    `cost_ns`: CPU time that it adds to one recorded operator, as the check measured it; 0: not
    measured.
    """

    library: str
    path: str
    cost_ns: float = 0.0

    def settings(self) -> dict[str, str]:
        """What the program must know."""
        return {"library": self.library, "path": self.path}


# The command of the program, and what says that the preparation takes a while.
PrepareShapes = Callable[[list[str], Callable[[str], None] | None], Shapes]


class Adapter(Struct, frozen=True):
    """What is done outside of the program. `prober`: makes one for a recording whose clock is the
    TSC or not; None: any build can be recorded. `prepare_shapes`: raises CannotRead; None: the
    framework has nothing that reads shapes. `per_operator`: of a framework that executes several
    operators as one, the environment variables with which it executes each alone.
    """

    prober: Callable[[bool], Prober] | None = None
    prepare_shapes: PrepareShapes | None = None
    per_operator: Mapping[str, str] = field(default_factory=dict)
