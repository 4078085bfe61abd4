"""Frames with names, of what was read as addresses. NumPy and symbols are imported only where native
functions have to be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from layerscope.model import cache
from layerscope.model.running import CUT, NATIVE, PYTHON, Frame
from layerscope.running.raw_threads import Raw, RawThread

_MISSING = Frame(CUT, "(frames that could not be read)")
_JIT = -1
_NATIVE_LENGTH, _PYTHON_LENGTH = 3, 2


class Names:
    """Names of the frames in `raw`."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._native: dict[tuple[int, int, int], tuple[Frame, ...]] = {}

    def load(self, threads: Iterable[RawThread], is_innermost_only: bool = False) -> None:
        """Look up the native functions of these threads, all in one go; `is_innermost_only`: the
        few of each that tell what it waits in.
        """
        wanted: dict[int, set[int]] = {}
        made: dict[int, set[int]] = {}
        for thread in threads:
            for frame in _native(thread.frames, is_innermost_only):
                if frame[0] == _JIT:
                    made.setdefault(thread.pid, set()).add(frame[1])
                else:
                    wanted.setdefault(frame[0], set()).add(frame[1])
        if not wanted and not made:
            return
        import numpy as np

        from layerscope.symbols import Symbols

        with Symbols(next(iter(cache.caches(cache.SYMBOLS)), None)) as symbols:
            for number, addresses in wanted.items():
                ordered = np.array(sorted(addresses), np.uint64)
                known = self._raw.objects[number]
                found = symbols.native(
                    known.path, bytes.fromhex(known.build_id), ordered, known.mtime_ns
                )
                self._keep((0, number), ordered.tolist(), found, known.path)
            for pid, addresses in made.items():
                ordered = np.array(sorted(addresses), np.uint64)
                path = Path(f"/tmp/perf-{pid}.map")
                found = symbols.jit(path if path.exists() else None, ordered)
                self._keep((pid, _JIT), ordered.tolist(), found, "")

    def _keep(self, of: tuple[int, int], addresses: list[int], found: object, path: str) -> None:
        from layerscope.symbols import Named

        assert isinstance(found, Named)
        where = f"[{Path(path).name}]" if path else "[made at run time]"
        for row, address in enumerate(addresses):
            own = Frame(
                NATIVE,
                found.name[row] or where,
                found.file[row] or "",
                max(int(found.line[row]), 0),
                path,
            )
            inlined = tuple(
                Frame(NATIVE, one.name, one.file or "", max(one.line, 0), path)
                for one in found.inlined.get(row, ())
            )
            self._native[(*of, address)] = (own, *inlined)

    def stack(self, thread: RawThread) -> tuple[Frame, ...]:
        """The innermost frame first; native ones that were not looked up are left out."""
        frames: list[Frame] = []
        for frame in thread.frames:
            frames += self.named(thread.pid, frame)
        return tuple(reversed(frames))

    def innermost(self, thread: RawThread) -> tuple[str, ...]:
        """Names of the few native functions in which a thread waits, the innermost first."""
        named = [self.named(thread.pid, frame) for frame in _native(thread.frames, True)]
        return tuple(one.name for frames in reversed(named) for one in reversed(frames))

    def named(self, pid: int, frame: Sequence[int]) -> tuple[Frame, ...]:
        """One frame that was read, with those that are inlined in it, the outermost first."""
        if len(frame) == _PYTHON_LENGTH:
            code = self._raw.codes[frame[0]]
            return (Frame(PYTHON, code.name, code.file, frame[1]),)
        if len(frame) == _NATIVE_LENGTH:
            return self._native.get((pid if frame[0] == _JIT else 0, frame[0], frame[1]), ())
        return (_MISSING,)


_INNERMOST = 8


def _native(frames: Sequence[Sequence[int]], is_innermost_only: bool) -> list[Sequence[int]]:
    """The native ones; `is_innermost_only`: those inside of the innermost frame of Python, at most a
    few.
    """
    if not is_innermost_only:
        return [frame for frame in frames if len(frame) == _NATIVE_LENGTH]
    found: list[Sequence[int]] = []
    for frame in reversed(frames):
        if len(frame) != _NATIVE_LENGTH or len(found) == _INNERMOST:
            break
        found.append(frame)
    found.reverse()
    return found
