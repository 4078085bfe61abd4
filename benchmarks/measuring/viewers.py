"""What viewers take to show the same spans, each in a browser of its own: our page, Perfetto's
interface and speedscope.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from measuring import speedscope

# Which keys zoom in, move right, zoom out, move left: what is pressed, and where it is.
Keys = Sequence[tuple[str, str]]
FRAMES, OPEN_S = 60, 120
# The browser has started when it takes less than this, in so long.
_QUIET_S, _LOOK_S, _MOST_LOOKS = 0.02, 0.5, 20
_LETTERS: Keys = (("w", "KeyW"), ("d", "KeyD"), ("s", "KeyS"), ("a", "KeyA"))
_SIGNS: Keys = (("+", "Equal"), ("d", "KeyD"), ("-", "Minus"), ("a", "KeyA"))
_TIMELINE = "document.querySelector('.timeline')?.dataset.ready !== undefined"
_SPEEDSCOPE = "document.title !== 'speedscope' && document.querySelector('canvas')"
# Presses keys one after the other, one a frame; gives the interval of each frame in ms.
_MOVE = """
    const [keys, frames, selector] = args, intervals = [];
    await new Promise(done => setTimeout(done, 600));
    const target = document.querySelector(selector);
    const press = (kind, [key, code]) =>
        target.dispatchEvent(new KeyboardEvent(kind, {key, code, bubbles: true}));
    let last = performance.now();
    for (let at = 0; at < frames; at++) {
        press('keydown', keys[at % keys.length]);
        await new Promise(requestAnimationFrame);
        press('keyup', keys[at % keys.length]);
        const now = performance.now();
        intervals.push(now - last);
        last = now;
    }
    return intervals;"""
_MIDDLE = (900, 500)


@dataclass(frozen=True)
class Shown:
    """What a viewer took; `problem` says why there is nothing to say."""

    problem: str = ""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    heap: int = 0  # of JavaScript, as the page itself is told
    memory: int = 0  # of the process that shows the page, alone
    intervals_ms: Sequence[float] = ()
    frame_cpu_ms: float = 0.0

    @property
    def frame_ms(self) -> float:
        """The interval between two frames, the one in the middle."""
        return sorted(self.intervals_ms)[len(self.intervals_ms) // 2]


@dataclass(frozen=True)
class Viewer:
    """One of them: what makes its address, when its picture is there, and what moves it."""

    name: str
    address: Callable[[], AbstractContextManager[str]]
    is_open: str
    keys: Keys
    listens: str = "body"


def our_page(file: Path) -> Viewer:
    """A report in one file."""

    @contextmanager
    def address() -> Iterator[str]:
        yield f"{file.as_uri()}#timeline"

    return Viewer("layerscope report", address, _TIMELINE, _LETTERS, ".tl-over")


def perfetto(trace: Path) -> Viewer:
    """Perfetto's interface with our export."""
    from tests.browser import perfetto as interface

    @contextmanager
    def address() -> Iterator[str]:
        with interface.served(trace.parent) as base:
            yield interface.address_of(base, trace.name)

    return Viewer("Perfetto", address, interface.IS_OPEN, _LETTERS)


def speedscope_with(trace: Path) -> Viewer:
    """speedscope with the same export."""
    from tests.browser import local_files

    @contextmanager
    def address() -> Iterator[str]:
        with local_files.served(speedscope.interface(), trace.parent) as base:
            yield f"{base}/#profileURL={base}{local_files.TRACES}{trace.name}"

    return Viewer("speedscope", address, _SPEEDSCOPE, _SIGNS)


def shown(viewer: Viewer) -> Shown:
    """Open it in a browser of its own, and move in its picture."""
    from tests.browser import chromium

    try:
        with (
            viewer.address() as address,
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            chromium.page(Path(folder)) as page,
        ):
            return _shown(viewer, page, address)
    except speedscope.NotToBeHad as error:
        return Shown(str(error))


def _shown(viewer: Viewer, page: Any, address: str) -> Shown:
    page.open("about:blank")
    wait_for_the_browser()
    before, begin = browser_cpu_s(), time.monotonic()
    try:
        page.open(address)
        page.wait(viewer.is_open, OPEN_S)
    except AssertionError as error:
        return Shown(f"not open after {_problem(error, begin)}")
    cpu_s, wall_s = browser_cpu_s() - before, time.monotonic() - begin
    page.mouse(*_MIDDLE)
    before, begin = browser_cpu_s(), time.monotonic()
    try:
        intervals = page.run(_MOVE, viewer.keys, FRAMES, viewer.listens)
    except AssertionError as error:
        return Shown(f"open, but does not move after {_problem(error, begin)}")
    frame_cpu_ms = (browser_cpu_s() - before) / FRAMES * 1000
    heap = page.run("return performance.memory.usedJSHeapSize")
    return Shown("", cpu_s, wall_s, heap, _page_bytes(), intervals, frame_cpu_ms)


def _problem(error: AssertionError, begin: float) -> str:
    """How long it took, and what the browser says: that its time was over, or that it crashed."""
    said = str(error).splitlines()[0].rpartition(": ")[2]
    return f"{time.monotonic() - begin:.0f} s ({said})"


def wait_for_the_browser() -> None:
    """Until it has started: what that costs is no part of a picture."""
    for _ in range(_MOST_LOOKS):
        before = browser_cpu_s()
        time.sleep(_LOOK_S)
        if browser_cpu_s() - before < _QUIET_S:
            return


def browser_cpu_s() -> float:
    """CPU time of all processes below this one, as they are now."""
    found = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system
    return found


def _page_bytes() -> int:
    """The memory that the process of the page does not share: the largest of those that draw."""
    found = [0]
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "--type=renderer" in process.cmdline():
                found.append(process.memory_full_info().uss)
    return max(found)
