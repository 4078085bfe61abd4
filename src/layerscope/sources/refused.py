"""Files of others that are not read, by name, each with the remedy. Used by `ingest.foreign` where
no format knows a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_GRAPH = re.compile(
    rb'"schema"\s*:\s*"\d[\w.\-+]*"(?=.*"nodes"\s*:)(?=.*("rf_id"|"ctrl_deps"|"start_ts"))',
    re.DOTALL,
)
_NVPROF = re.compile(
    rb'^==\d+== (NVPROF|Profil)|^"?(Start"?,"?Duration"?,"?Grid Size|Type"?,"?Time\(%\))',
    re.MULTILINE,
)
_NCU_TABLE = re.compile(rb'^"ID","Process ID","Process Name"', re.MULTILINE)
_PICKLE = re.compile(rb"\x80[\x02-\x05][\x95}\](cX.K]")
_ZIP, _TAR_AT, _TAR = b"PK\x03\x04", 257, b"ustar"
_OF_TEXT = (".log", ".txt", ".out")
_LOOKED_AT = 1 << 16


class _Refusal(NamedTuple):
    """`is_one`: whether a file with this beginning and this name is of the kind."""

    is_one: Callable[[bytes, str], bool]
    sentence: str


_REFUSALS = (
    _Refusal(
        lambda head, _: head.lstrip().startswith(b"{") and _GRAPH.search(head) is not None,
        "is an execution trace of PyTorch, which has no times: open the trace that torch.profiler "
        "wrote of the same run",
    ),
    _Refusal(
        lambda head, name: head.startswith(b"NVR\0") or name.endswith(".ncu-rep"),
        "is a report of Nsight Compute, which only its own tools read: export CSV, by "
        "ncu --import FILE --csv --page raw, and open a trace of Nsight Systems or torch.profiler "
        "here",
    ),
    _Refusal(
        lambda _, name: name.endswith((".nsys-rep", ".qdrep")),
        "is a report of Nsight Systems, which only its own tools read: run "
        "nsys export --type sqlite on it, and open what that writes",
    ),
    _Refusal(
        lambda head, _: _NVPROF.search(head[:_LOOKED_AT]) is not None,
        "is a table or a log of nvprof, which has no call of its own in it: record with "
        "nvprof -o run.nvvp, and open that",
    ),
    _Refusal(
        lambda head, _: _NCU_TABLE.search(head[:_LOOKED_AT]) is not None,
        "is a table of Nsight Compute, which has no times: open a trace of Nsight Systems or "
        "torch.profiler",
    ),
    _Refusal(
        lambda head, _: head.startswith(_ZIP) and b"data.pkl" in head[:_LOOKED_AT],
        "is what torch.save writes, a pickle: pickles may run any code and are never unpickled. "
        "Write a trace instead: prof.export_chrome_trace",
    ),
    _Refusal(
        lambda head, _: _PICKLE.match(head) is not None,
        "is a pickle: pickles may run any code and are never unpickled. Of those only snapshots of "
        "PyTorch's memory are read, as plain data; write a trace instead: prof.export_chrome_trace",
    ),
    _Refusal(
        lambda head, _: head.startswith(_ZIP) or head[_TAR_AT:].startswith(_TAR),
        "is an archive: unpack it, and open a file or the folder that was in it",
    ),
    _Refusal(
        lambda head, name: not head and not name.removesuffix(".gz").endswith(_OF_TEXT),
        "is empty: copy the file again, or let what writes it come to its end",
    ),
    _Refusal(
        lambda head, name: _is_text(head) and name.removesuffix(".gz").endswith(_OF_TEXT),
        "is a text without a line of a profiler. Of a log of oneDNN's or MKL's verbose mode there "
        "should be some: set ONEDNN_VERBOSE=1 or MKL_VERBOSE=1 before the program starts; if there "
        "still is none, it called nothing of that library",
    ),
)


def sentence(head: bytes, name: str) -> str | None:
    """Why a file that begins so, unpacked, and is called so is refused; None: it is not known."""
    lower = name.lower()
    return next((one.sentence for one in _REFUSALS if one.is_one(head, lower)), None)


def _is_text(head: bytes) -> bool:
    """Whether it is UTF-8, but for a letter that is cut."""
    text = head[:_LOOKED_AT]
    if b"\0" in text:
        return False
    decoded = text.decode("utf-8", "ignore")
    return len(text) - len(decoded.encode()) < 4
