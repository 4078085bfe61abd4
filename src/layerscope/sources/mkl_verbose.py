"""Lines of MKL_VERBOSE: `MKL_VERBOSE SGEMM(T,N,128,32,128,...) 41.53us CNR:OFF Dyn:1 FastMM:1 TID:0
NThr:2`.
"""

from __future__ import annotations

import re

import numpy as np

from layerscope.sources import verbose_spans
from layerscope.sources.verbose_spans import Calls

_LINE = re.compile(rb"^([^\n]*?)MKL_VERBOSE (?!$)([^\n]*)", re.MULTILINE)
_CALL = re.compile(
    rb"([A-Za-z][A-Za-z0-9_]*\([^\n]*?\)) ([0-9]{1,9}(?:\.[0-9]{1,9})?)(ns|us|ms|s)(?: .*)?",
    re.DOTALL,
)
_THREAD = re.compile(rb" TID:([0-9]{1,6})\b")
_HEADER = re.compile(rb"(?:Intel\(R\) |oneAPI |one)?MKL (.*?)(?: Product build.*)?\s*")
# Addresses tell nothing and make every text another one.
_ADDRESS = re.compile(rb",?(?:desc:)?(?:0x[0-9a-fA-F]+|\(nil\))")
_NS = {b"ns": 1.0, b"us": 1e3, b"ms": 1e6, b"s": 1e9}


def add(chunk: bytes, position: int, calls: Calls) -> list[str]:
    """Add the calls in these lines, which begin at `position` of their file; returns the lines not
    understood.
    """
    rejected: list[str] = []
    places, dur_ns, threads, processes, texts = [], [], [], [], []
    for line in _LINE.finditer(chunk):
        call = _CALL.fullmatch(line[2])
        lasted_ns = round(float(call[2]) * _NS[call[3]]) if call else 0
        if call is None or lasted_ns >= verbose_spans.LONGEST_NS:
            header = _HEADER.fullmatch(line[2]) if call is None else None
            if header is None:
                rejected.append("MKL_VERBOSE " + line[2].decode("utf-8", "replace").rstrip("\r"))
            else:
                calls.note("MKL " + header[1].decode("utf-8", "replace"))
            continue
        thread = _THREAD.search(line[2], call.end(3))
        places.append(position + line.start(2))
        dur_ns.append(lasted_ns)
        threads.append(int(thread[1]) if thread else 0)
        processes.append(calls.process(line[1]))
        texts.append(_ADDRESS.sub(b"", call[1]).replace(b"(,", b"("))
    known = list(dict.fromkeys(texts))
    code_of = dict(zip(known, calls.text_codes(known, "MKL").tolist(), strict=True))
    count = len(places)
    calls.add(
        position=np.array(places, np.int64),
        kind=np.full(count, verbose_spans.EXECUTED, np.uint8),
        cache=np.full(count, verbose_spans.NOT_TOLD, np.uint8),
        is_graph=np.zeros(count, np.bool_),
        start_ns=np.full(count, -1, np.int64),
        dur_ns=np.array(dur_ns, np.int64),
        thread=np.array(threads, np.int32),
        text=np.array([code_of[text] for text in texts], np.int32),
        process=np.array(processes, np.int32),
    )
    return rejected
