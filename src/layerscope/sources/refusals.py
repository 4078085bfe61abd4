"""Files of profilers that are known and cannot be opened: what each is, and what to open instead.
Used by `ingest` when no format recognises a file.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Refusal(NamedTuple):
    """What a file is by how it begins, and the remedy."""

    begins: re.Pattern[bytes]
    what: str
    remedy: str


_EXECUTION = rb'\s*\{\s*"schema"\s*:\s*"[0-9.]+[^"]*"\s*,.*"nodes"\s*:\s*\['
REFUSALS = (
    Refusal(
        re.compile(_EXECUTION, re.DOTALL),
        "an execution trace, which has operators and no times",
        "open the Kineto trace of the same run",
    ),
    Refusal(
        re.compile(rb"NVR\0"),
        "a report of Nsight Compute",
        "ncu --import FILE --csv --page raw prints what is in it",
    ),
    Refusal(
        re.compile(rb"SQLite format 3\0"),
        "an SQLite database, and no export of Nsight Systems (nvprof writes such ones)",
        "it is not read yet; traces of Kineto open",
    ),
    Refusal(
        re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"'),
        "a JSON file of rocprofv3",
        "it is not read yet; traces of Kineto open",
    ),
    Refusal(
        re.compile(rb'\s*\{[^{}]*"\$schema"\s*:\s*"https://www\.speedscope\.app/'),
        "a profile of speedscope",
        "it is not read yet; open what it was made from",
    ),
    Refusal(
        re.compile(rb"\x80[\x02-\x05]"),
        "a pickle, which may run any code when it is loaded",
        "it is never loaded; of pickles snapshots of memory alone are read, without running them",
    ),
)


def why(head: bytes) -> str | None:
    """What is known of a file that begins so, as the end of a sentence; None: nothing."""
    for refusal in REFUSALS:
        if refusal.begins.match(head):
            return f"{refusal.what}: {refusal.remedy}"
    return None
