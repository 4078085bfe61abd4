"""How fast a model generates: the passes of a method `generate`, which are the parts of a request.

`generate` of transformers calls its model once for each token of every sequence (of a draft that is
checked, once for several). A request that it makes is all of that call. Its first token is there
when the first pass has ended.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.columns import has_name
from layerscope.analyse.step_times import Array, Arrays, MeasuredSteps
from layerscope.model.layers import ANSWERING, MODULES
from layerscope.recording.reader import Reader

GENERATE = ".generate"
_COLUMNS = ("span", "parent", "layer", "name", "start_ns", "dur_ns")


class Generation(Struct, frozen=True):
    """The passes in the measured requests of one method. `first_ns`: from the begin of a request to
    the end of its first pass, in the median; `further_ns`: from the end of one pass to that of the
    next, 0 where there is but one.
    """

    method: str
    requests: int
    passes: float
    first_ns: float
    further_ns: float
    per_second: float


def generation(reader: Reader, steps: MeasuredSteps) -> Generation | None:
    """Of the method that begins most of the measured requests; None: there is none, or what it
    calls is not known.
    """
    if steps.rule not in ANSWERING:
        return None
    modules = reader.arrays("modules", ["path"])
    paths = {str(path) for path in modules["path"].tolist()}
    methods = sorted(path for path in paths if path.endswith(GENERATE))
    if not methods:
        return None
    calls = _calls(reader, methods)
    starts = steps.columns["start_ns"][steps.measured]
    best: Generation | None = None
    for method in methods:
        found = _of_method(method, calls, starts)
        if found and (best is None or found.requests > best.requests):
            best = found
    return best


def _calls(reader: Reader, methods: list[str]) -> Arrays:
    """The calls of these methods and of their modules."""
    modules = [method.removesuffix(GENERATE) for method in methods]
    wanted = [*methods, *modules]
    parts: list[Arrays] = []
    for spans in reader.pieces("spans", list(_COLUMNS)):
        names = spans["name.names"]
        is_wanted = np.isin(names, wanted)[spans["name"]]
        rows = np.flatnonzero(has_name(spans, "layer", MODULES) & is_wanted)
        part = {name: spans[name][rows] for name in ("span", "parent", "start_ns", "dur_ns")}
        part["name"] = names[spans["name"][rows]].astype(object)
        parts.append(part)
    if not parts:
        return {}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _of_method(method: str, calls: Arrays, starts: Array) -> Generation | None:
    if not calls:
        return None
    is_request = (calls["name"] == method) & np.isin(calls["start_ns"], starts)
    requests = np.flatnonzero(is_request)
    requests = requests[np.argsort(calls["span"][requests])]
    request_spans = calls["span"][requests]
    passes = np.flatnonzero(calls["name"] == method.removesuffix(GENERATE))
    passes = passes[np.isin(calls["parent"][passes], request_spans)]
    if not len(passes):
        return None
    request = np.searchsorted(request_spans, calls["parent"][passes])
    ends = calls["start_ns"][passes] + calls["dur_ns"][passes]
    order = np.lexsort((ends, request))
    request, ends = request[order], ends[order]
    with_passes, first = np.unique(request, return_index=True)
    last = np.append(first[1:], len(request)) - 1
    first_end_ns, last_end_ns = ends[first], ends[last]
    begun_ns = calls["start_ns"][requests][with_passes]
    whole_ns = int(calls["dur_ns"][requests][with_passes].sum())
    further = len(request) - len(with_passes)
    further_ns = float((last_end_ns - first_end_ns).sum())
    return Generation(
        method,
        len(with_passes),
        len(request) / len(with_passes),
        float(np.median(first_end_ns - begun_ns)),
        further_ns / further if further else 0.0,
        1e9 * len(request) / max(whole_ns, 1),
    )
