"""Requests that a program answers, marked by the program itself where no server does it.

Several may be under way at once, on one thread too. What runs in the context of one belongs to it,
on whatever thread: contexts are those of `contextvars`, which asyncio and the pools of its servers
hand on.
"""

from __future__ import annotations

import sys

from layerscope.profiler.objects import text_of
from layerscope.profiler.steering import steering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])

DOMAIN = "request"


class Inside:
    """A block whose work belongs to a request."""

    def __init__(self, mark: int) -> None:
        self._mark = mark
        self._before = 0

    def __enter__(self) -> None:
        self._before = mark_here()
        enter(self._mark)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        enter(self._before)


class Request:
    """A request: `with`, a decorator, or `start` where it comes in and `stop` where it is answered,
    on whatever threads. Where another one is under way in this context it is a part of that.
    """

    def __init__(self, name: str = "request") -> None:
        self.name = name
        self._text = text_of(name, DOMAIN)
        self._handle: Any = None
        self._mark = 0
        self._inside: Any = None

    def __str__(self) -> str:
        return self.name

    def start(self) -> None:
        """It has come in."""
        self.stop()
        if not steering.running or not steering.connect():
            return
        self._mark = mark_here()
        if self._mark:
            return
        import ctypes

        handle = (ctypes.c_uint64 * 2)()
        begin = steering.agent.ls_request_begin
        begin.restype = ctypes.c_uint64
        begin.argtypes = [ctypes.c_void_p]
        if begin(handle):
            self._handle, self._mark = handle, handle[1]

    def stop(self) -> None:
        """It is answered."""
        handle, self._handle, self._mark = self._handle, None, 0
        if handle is None:
            return
        import ctypes

        end = steering.agent.ls_request_end
        end.restype = None
        end.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        end(handle, self._text)

    def inside(self) -> Inside:
        """A block whose work belongs to it: for who has taken it from a queue."""
        return Inside(self._mark)

    def __enter__(self) -> Request:
        self.start()
        self._inside = self.inside()
        self._inside.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        inside, self._inside = self._inside, None
        if inside is not None:
            inside.__exit__(kind, error, trace)
        self.stop()

    def __call__(self, function: Function) -> Function:
        """`function`, each call of which is a request: of a coroutine function, or one that
        generates, from its first line to its end.
        """
        import functools
        import inspect

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*arguments: Any, **more: Any) -> Any:
                with Request(self.name):
                    return await function(*arguments, **more)

            return awaited  # type: ignore[return-value]

        if inspect.isgeneratorfunction(function):
            return _generating(self.name, function)  # type: ignore[no-any-return]
        if inspect.isasyncgenfunction(function):
            return _generating_async(self.name, function)  # type: ignore[no-any-return]

        @functools.wraps(function)
        def answered(*arguments: Any, **more: Any) -> Any:
            with Request(self.name):
                return function(*arguments, **more)

        return answered  # type: ignore[return-value]


def _generating(name: str, function: Any) -> Any:
    """The same of a function that makes generators: they run in the request, and who asks them for
    values does not.
    """
    import functools

    @functools.wraps(function)
    def generated(*arguments: Any, **more: Any) -> Any:
        request, generator = Request(name), function(*arguments, **more)
        step, given = generator.send, None
        request.start()
        try:
            while True:
                try:
                    with request.inside():
                        value = step(given)
                except StopIteration as end:
                    return end.value
                try:
                    given = yield value
                    step = generator.send
                except BaseException as error:  # GeneratorExit too: it may have something to end
                    step, given = generator.throw, error
                del value
        finally:
            request.stop()
            del given  # an exception, whose traceback has this frame

    return generated


def _generating_async(name: str, function: Any) -> Any:
    """The same of asynchronous generators."""
    import functools

    @functools.wraps(function)
    async def generated(*arguments: Any, **more: Any) -> Any:
        request, generator = Request(name), function(*arguments, **more)
        first = _first_value(generator)
        step, given = generator.asend, None
        request.start()
        try:
            while True:
                try:
                    with request.inside():
                        value = await (first or step(given))
                except StopAsyncIteration:
                    return
                first = None
                try:
                    given = yield value
                    step = generator.asend
                except BaseException as error:  # as above
                    step, given = generator.athrow, error
                del value
        finally:
            request.stop()
            del given, first

    return generated


def _first_value(generator: Any) -> Any:
    """What is awaited for the first value. Nobody but us ends this generator: the loop of events
    ends what it learns of, and has learned of ours.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return generator.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _of_python(name: str) -> Any:
    """A function of the agent that is called with the interpreter's lock."""
    import ctypes

    return getattr(ctypes.PyDLL(steering.settings["library"]), name)


def mark_here() -> int:
    """Which request is under way in this context; 0: none."""
    if steering.agent is None:
        return 0
    import ctypes

    ask = _of_python("ls_request_mark")
    ask.restype = ctypes.c_uint64
    return int(ask())


def enter(mark: int) -> None:
    """What runs in this context from now on belongs to this request; 0: to none."""
    if steering.agent is None:
        return
    import ctypes

    tell = _of_python("ls_request_enter")
    tell.restype = None
    tell.argtypes = [ctypes.c_uint64]
    tell(mark)
