"""How memory is given back and reused: the allocator, or its thresholds.

Memory that is given back to the kernel comes again page by page, zeroed, each with a fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.tune import libraries
from layerscope.tune.setting import Setting, TuneContext

ORDER, STAGE = 60, 3
# Large blocks are taken from the heap, and the heap is kept. Before it knew huge pages (2.35) the C
# library refused a threshold above 32 MiB (HEAP_MAX_SIZE / 2 in its malloc.c).
_MMAP, _OLD_MMAP, _TRIM = str(1 << 30), str(32 << 20), str(1 << 31)
_KEEPS = (2, 35)
_OTHERS = {
    "tcmalloc": (
        "libtcmalloc_minimal.so.4",
        "libtcmalloc.so.4",
        "libtcmalloc_minimal.so",
        "libtcmalloc.so",
    ),
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so"),
    "mimalloc": ("libmimalloc.so", "libmimalloc.so.*"),
}


def choices(place: TuneContext) -> Iterator[Setting]:
    """Thresholds where the C library's allocator is used; others that are installed and may be
    preloaded.
    """
    now = libraries.allocator(place)
    version = libraries.glibc_version()
    if not now and version and libraries.uses_glibc(place):
        wanted = {
            "MALLOC_MMAP_THRESHOLD_": _MMAP if version >= _KEEPS else _OLD_MMAP,
            "MALLOC_TRIM_THRESHOLD_": _TRIM,
        }
        if any(place.environment.get(name) != value for name, value in wanted.items()):
            yield Setting(
                "malloc=keep",
                wanted,
                because="memory is kept for the next step, with no page faults",
            )
    if libraries.no_preload(place):
        return
    for name, files in _OTHERS.items():
        found = None if now == f"lib{name}" else libraries.find(place, files)
        if found is not None:
            yield Setting(
                f"malloc={name}",
                preload=(found,),
                because="it keeps freed memory for the next step",
            )


def notes(place: TuneContext) -> Iterator[str]:
    """Why no other allocator was tried."""
    reason = libraries.no_preload(place)
    if reason:
        yield f"no library was put in front of those of the program: {reason}"
    elif not any(libraries.find(place, files) for files in _OTHERS.values()):
        yield "no other allocator is installed (tcmalloc, jemalloc, mimalloc), so none was tried"
