"""Frames with names, of what was read as addresses. NumPy and symbols are imported only where
native functions have to be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from layerscope.model import cache
from layerscope.model.running import CUT, NATIVE, PYTHON, FrameNow
from layerscope.running.told import Readings, ToldThread

_MISSING = FrameNow(CUT, "(frames that could not be read)")
_JIT = -1
_NATIVE_LENGTH, _PYTHON_LENGTH = 3, 2


class Names:
    """Names of the frames in `raw`."""

    def __init__(self, raw: Readings) -> None:
        self._raw = raw
        self._native: dict[tuple[int, int, int], tuple[FrameNow, ...]] = {}

    def load(self, threads: Iterable[ToldThread], is_innermost_only: bool = False) -> None:
        """Look up the native functions of these threads in one go; `is_innermost_only`: the
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
        """Remember what was found out about these addresses `of` a
        file or, of code that was made at run time, a process.
        """
        from layerscope.symbols import Named

        assert isinstance(found, Named)
        where = f"[{Path(path).name}]" if path else "[made at run time]"
        for row, address in enumerate(addresses):
            own = FrameNow(
                NATIVE,
                found.name[row] or where,
                found.file[row] or "",
                max(int(found.line[row]), 0),
                path,
            )
            inlined = tuple(
                FrameNow(NATIVE, one.name, one.file or "", max(one.line, 0), path)
                for one in found.inlined.get(row, ())
            )
            self._native[(*of, address)] = (own, *inlined)

    def stack(self, thread: ToldThread) -> tuple[FrameNow, ...]:
        """The innermost frame first; native ones that were not looked up are left out."""
        frames: list[FrameNow] = []
        for frame in thread.frames:
            frames += self.named(thread.pid, frame)
        frames.reverse()
        return tuple(frames)

    def innermost(self, thread: ToldThread) -> tuple[str, ...]:
        """Names of the few native functions in which a thread waits, the innermost first."""
        found: list[str] = []
        frames = _native(thread.frames, True)
        for frame in frames:
            for one in self.named(thread.pid, frame):
                found.append(one.name)
        return tuple(reversed(found))

    def named(self, pid: int, frame: Sequence[int]) -> tuple[FrameNow, ...]:
        """One frame that was read, with those that are inlined in it, the outermost first."""
        if len(frame) == _PYTHON_LENGTH:
            code = self._raw.codes[frame[0]]
            return (FrameNow(PYTHON, code.name, code.file, frame[1]),)
        if len(frame) == _NATIVE_LENGTH:
            return self._native.get((pid if frame[0] == _JIT else 0, frame[0], frame[1]), ())
        return (_MISSING,)


def has_python(thread: ToldThread) -> bool:
    """Whether there are functions of Python on its stack."""
    lengths = map(len, thread.frames)
    return _PYTHON_LENGTH in lengths


_INNERMOST = 8


def _native(frames: Sequence[Sequence[int]], is_innermost_only: bool) -> list[Sequence[int]]:
    """The native ones; `is_innermost_only`: those inside of the innermost frame of Python, at most
    a few.
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
