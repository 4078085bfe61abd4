"""Chrome JSON of any profiler: its spans on their threads, asynchronous ones on tracks of their
category, counters and instants. Nothing is known of what they mean.

B E X b e S F are spans, C counters, i I R n marks, M names of processes and threads. What has not
ended is open until the last event. Times are microseconds of a clock that the file does not name.
"""

from __future__ import annotations

import re
from pathlib import Path

from layerscope.model.errors import ReadError
from layerscope.sources import kineto, mxnet_trace, onnxruntime
from layerscope.sources.chrome_content import content_of
from layerscope.sources.imported import Imported
from layerscope.sources.trace_rows import ALL_GROUPS, gather

MEANING = "a trace in Chrome's format (JSON)"
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[|"ph"\s*:\s*"[A-Za-z()]"')
_DIALECTS = (kineto, mxnet_trace, onnxruntime)


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is such a trace, and none of those that are known better."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return False
    if not _EVENTS.search(head):
        return False
    return not any(dialect.recognises(head) for dialect in _DIALECTS)


def read(path: Path) -> Imported:
    """What is in the trace at `path`, which may be packed with gzip, and may be cut."""
    trace, rows = gather(path, groups=ALL_GROUPS)
    if not (trace.has_header or rows.has_rows):
        raise ReadError(f"{path} is damaged (it has no list of events): copy it again")
    return content_of(trace, rows)
