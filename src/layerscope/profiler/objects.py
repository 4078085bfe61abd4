"""What a program records by itself: tasks, frames, events, counters, markers and scopes, in
domains.

Each works before, while and after the profiler runs; what happens while it does not is not
recorded. None of them raises because of how they are used: a `stop` without a `start` does nothing,
a second `start` ends the first.
"""

from __future__ import annotations

import os
from _thread import RLock, get_ident

from layerscope.profiler.steering import MARKER, STEP, steering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

TASK, FRAME, EVENT = 6, 7, 8
MARKER_SCOPES = ("global", "process", "thread", "task", "marker")
SCOPE_DOMAIN = "scope"
# Both have room in the 1 KiB that the agent keeps of a text.
MOST_BYTES = (700, 300)


def text_of(name: str, domain: str = "") -> bytes:
    """A name and its domain as the agent takes them: the domain in a second line."""
    texts = (name, domain) if domain else (name,)
    lines = []
    for text, most in zip(texts, MOST_BYTES):  # noqa: B905 - Python 3.8 has no strict
        coded = " ".join(str(text).splitlines()).encode("utf-8", "backslashreplace")
        lines.append(coded[:most].decode("utf-8", "ignore").encode())
    return b"\n".join(lines).replace(b"\0", b" ")


class Domain:
    """A group of things that a program records: the category in traces and statistics."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """A task of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """A frame of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: int | None = None) -> Counter:
        """A counter of this domain."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """A marker of this domain."""
        return Marker(self, name)


class Range:
    """A stretch of time: `start` and `stop`, or `with`, or a decorator. It may stop on another
    thread.
    """

    kind = EVENT

    def __init__(self, name: str, domain: Domain | str | None = None) -> None:
        self.name = name
        self.domain = domain
        self._text = text_of(name, str(domain) if domain is not None else "")
        self._started: Any = None
        self._entered: dict[int, list[Any]] = {}

    def __str__(self) -> str:
        return self.name

    def start(self) -> None:
        """It begins now."""
        self.stop()
        self._started = begin(self._text, self.kind)

    def stop(self) -> None:
        """It is over."""
        started, self._started = self._started, None
        end(started)

    def __enter__(self) -> Range:
        # One object may be entered again inside itself and on other threads.
        self._entered.setdefault(get_ident(), []).append(begin(self._text, self.kind))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A generator may be left on another thread than the one that entered it.
        thread = get_ident() if get_ident() in self._entered else next(iter(list(self._entered)), 0)
        mine = self._entered.get(thread)
        if mine:
            end(mine.pop())
            if not mine:
                self._entered.pop(thread, None)

    def __call__(self, function: Function) -> Function:
        """`function`, recorded at each call; of a coroutine function from its first line to its
        end.
        """
        import functools
        import inspect

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*arguments: Any, **more: Any) -> Any:
                started = begin(self._text, self.kind)  # several may be under way on one thread
                try:
                    return await function(*arguments, **more)
                finally:
                    end(started)

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def recorded(*arguments: Any, **more: Any) -> Any:
            with self:
                return function(*arguments, **more)

        return recorded  # type: ignore[return-value]


class Task(Range):
    """A piece of work of a domain; tasks may overlap."""

    kind = TASK

    def __init__(self, domain: Domain | str, name: str) -> None:
        super().__init__(name, domain)


class Frame(Range):
    """One of many alike: an iteration, a picture."""

    kind = FRAME

    def __init__(self, domain: Domain | str, name: str) -> None:
        super().__init__(name, domain)


class Event(Range):
    """A stretch of time without a domain."""

    kind = EVENT

    def __init__(self, name: str) -> None:
        super().__init__(name)


# Of all counters, as long as it takes to change one.
_counting = RLock()


def _count_after_fork() -> None:
    global _counting
    _counting = RLock()  # another thread of the parent may have held the old one


os.register_at_fork(after_in_child=_count_after_fork)


class Counter:
    """A whole number over time. Its value is kept while the profiler is stopped, and recorded when
    it changes.
    """

    def __init__(self, domain: Domain | str, name: str, value: int | None = None) -> None:
        self.name = name
        self.domain = domain
        self.value = 0
        self._text = text_of(name, str(domain))
        if value is not None:
            self.set_value(value)

    def __str__(self) -> str:
        return self.name

    def set_value(self, value: int) -> None:
        """The value is `value` now."""
        with _counting:
            self.value = int(value)
            if steering.running and steering.connect():
                steering.agent.ls_counter(self._text, self.value)

    def increment(self, delta: int = 1) -> None:
        """The value grows by `delta`."""
        with _counting:
            self.set_value(self.value + delta)

    def decrement(self, delta: int = 1) -> None:
        """The value shrinks by `delta`; it may become negative."""
        self.increment(-delta)

    def __iadd__(self, delta: int) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: int) -> Counter:
        self.increment(-delta)
        return self


class Marker:
    """A moment of a domain."""

    def __init__(self, domain: Domain | str, name: str) -> None:
        self.name = name
        self.domain = domain
        self._text = text_of(name, str(domain))

    def __str__(self) -> str:
        return self.name

    def mark(self, scope: str = "process") -> None:
        """It is now. `scope` is global, process, thread, task or marker: how far the line in a
        trace reaches.
        """
        if scope not in MARKER_SCOPES:
            raise ValueError(
                f"a marker has no scope {scope!r}. The scopes are {', '.join(MARKER_SCOPES)}"
            )
        mark(self._text, MARKER, MARKER_SCOPES.index(scope))


class Scope(Range):
    """What runs in it belongs to `name`; scopes inside each other append their names unless told
    not to.
    """

    kind = EVENT

    def __init__(self, name: str, append_mode: bool) -> None:
        outer = _scopes.get(get_ident())
        if outer and append_mode:
            name = f"{outer[-1]}:{name}"
        super().__init__(name, SCOPE_DOMAIN)

    def __enter__(self) -> Scope:
        super().__enter__()
        _scopes.setdefault(get_ident(), []).append(self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        mine = _scopes.get(get_ident(), [])
        if mine:
            mine.pop()
        if not mine:
            _scopes.pop(get_ident(), None)
        super().__exit__(kind, error, trace)


_scopes: dict[int, list[str]] = {}


def scope(name: str = "<unk>", append_mode: bool = True) -> Scope:
    """A context: what runs in it is shown below a range `name`, or `outer:name` inside another
    scope.
    """
    return Scope(name, append_mode)


def step() -> None:
    """A step of the program's loop ends here, whatever the optimizer does."""
    mark(b"step", STEP, 0)


def mark(text: bytes, what: int, reach: int) -> None:
    """Mark this moment, if the profiler runs."""
    if not steering.running:
        return
    if steering.connect():
        steering.agent.ls_mark(text, what, reach)


def begin(text: bytes, kind: int) -> Any:
    """A range begins; what `end` takes, None when it is not recorded."""
    if not steering.running or not steering.connect():
        return None
    import ctypes

    handle = (ctypes.c_uint64 * 2)()
    return handle if steering.agent.ls_range_begin(text, kind, handle) == 0 else None


def end(handle: Any) -> None:
    """The range is over."""
    if handle is not None:
        steering.agent.ls_range_end(handle)
