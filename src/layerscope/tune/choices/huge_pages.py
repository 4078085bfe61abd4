"""Huge pages for the memory of the C library's allocator."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.tune import libraries
from layerscope.tune.setting import Setting, TuneContext

ORDER, STAGE = 70, 3
# Since glibc 2.35 (its NEWS): malloc asks for transparent huge pages by madvise.
_SINCE, _TUNABLE = (2, 35), "glibc.malloc.hugetlb"


def choices(place: TuneContext) -> Iterator[Setting]:
    """Where the C library can ask for them and the kernel gives them."""
    now = place.environment.get("GLIBC_TUNABLES", "")
    if (
        _TUNABLE in now
        or libraries.allocator(place)
        or place.machine.memory.thp not in ("madvise", "always")
    ):
        return
    if libraries.glibc_version() >= _SINCE and libraries.uses_glibc(place):
        tunables = ":".join(filter(None, [now, f"{_TUNABLE}=1"]))
        yield Setting(
            "thp=malloc",
            {"GLIBC_TUNABLES": tunables},
            because="one page fault for 2 MB, not for 4 kB",
        )
