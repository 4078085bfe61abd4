"""Chrome JSON as ONNX Runtime's profiler writes it (`SessionOptions.enable_profiling`): a list of
whole events. Nodes are operators with their provider and shapes; what the session does is ranges.

After its optimisations nodes are called by their outputs: an operator has the name of its type, and
its arguments the name of the node.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from layerscope.model.errors import ReadError
from layerscope.model.layers import KINDS
from layerscope.model.stored_json import decoded
from layerscope.sources.chrome_content import content_of
from layerscope.sources.imported import Imported, ImportedMoments
from layerscope.sources.trace_rows import ALL_GROUPS, gather

MEANING = "a profile of ONNX Runtime (JSON)"
_CATEGORY = re.compile(rb'"cat"\s*:\s*"(Session|Node)"')
_NAME = re.compile(
    rb'"name"\s*:\s*"(model_loading\w*|session_initialization|model_run|'
    rb'SequentialExecutor::Execute|[^"]*_kernel_time)"'
)
_FUNCTION, _RANGE = KINDS.index("function"), KINDS.index("range")
_NODE = re.compile(r"(.*)_(kernel_time|fence_before|fence_after)")
_FENCES = ("fence_before", "fence_after")
# What is the same at each call of a node with the same inputs. Shapes come first, as in layer
# `operators`.
_LASTING = (
    "shapes",
    "dtypes",
    "node",
    "node_index",
    "provider",
    "output_type_shape",
    "output_size",
    "parameter_size",
    "activation_size",
)
# What a node says, of the arena (bytes) and of its pool of threads (us).
_COUNTERS = (
    "arena_used_bytes\nONNX Runtime",
    "arena_held_bytes\nONNX Runtime",
    "pool_run_ns\nONNX Runtime",
    "pool_wait_ns\nONNX Runtime",
)
_BYTES = 2
_STATS = "thread_scheduling_stats"
# What ONNX calls its types of elements.
DTYPES = {"float": "float32", "double": "float64"}


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a profile of ONNX Runtime."""
    if not head.lstrip().startswith(b"["):
        return False
    return bool(_CATEGORY.search(head) and _NAME.search(head))


def read(path: Path) -> Imported:
    """What is in the profile at `path`, which may be cut where the program was killed."""
    trace, rows = gather(path, groups=ALL_GROUPS)
    if not trace.has_header:
        raise ReadError(f"{path} is damaged (it has no list of events): copy it again")
    content = content_of(trace, rows)
    return _with_meaning(content)


def recorded(path: Path) -> Imported:
    """What is in a profile that was recorded for us: the arguments without what differs in every
    event.
    """
    content = read(path)
    content = _with_counters(content)
    texts: dict[str, int] = {}
    numbers = [texts.setdefault(_lasting(text), len(texts)) for text in content.args_texts]
    number = np.array([*numbers, -1], np.int32)
    args = number[content.args]
    told = _with_pool(list(texts), _pool_of(content, args, len(texts)), _asked(path))
    return replace(content, args=args, args_texts=told)


def _asked(path: Path) -> str:
    """The provider that the program asked for first, as our hook noted it; empty: not known."""
    stem, _, _ = path.name.partition("_")
    try:
        about = decoded((path.parent / f"{stem}.profile").read_bytes(), dict[str, Any])
    except (OSError, ValueError):
        return ""
    asked = about.get("providers")
    return str(asked[0]) if isinstance(asked, list) and asked else ""


def _pool_of(content: Imported, args: np.ndarray, groups: int) -> list[dict[str, Any]]:
    """By number of lasting arguments, what the pool of threads did in all calls of such a node:
    how long the thread that asks it worked and waited, and how many tasks each other thread took.
    """
    pools: list[dict[str, Any]] = [{} for _ in range(groups)]
    order = np.argsort(content.start_ns + content.dur_ns, kind="stable")
    before: dict[str, int] = {}
    is_first = True  # what was done before it is not known
    for row in order[content.args[order] >= 0].tolist():
        stats = decoded(content.args_texts[content.args[row]].encode(), dict[str, Any]).get(_STATS)
        if not isinstance(stats, dict):
            continue
        done = _tasks_done(stats)
        pool = pools[args[row]]
        of_main = stats.get("main_thread")
        main = of_main if isinstance(of_main, dict) else {}
        pool["run_us"] = pool.get("run_us", 0) + _number(main.get("Run"))
        pool["wait_us"] = pool.get("wait_us", 0) + _number(main.get("Wait"))
        tasks = pool.setdefault("tasks", {})
        for thread, count in done.items():
            more = 0 if is_first else max(count - before.get(thread, 0), 0)
            tasks[thread] = tasks.get(thread, 0) + more
        before, is_first = done, False
    return pools


def _tasks_done(stats: dict[str, Any]) -> dict[str, int]:
    """How many tasks each thread of the pool has done so far."""
    others = stats.get("sub_threads")
    threads = others if isinstance(others, dict) else {}
    return {
        thread: _number(told.get("num_run"))
        for thread, told in threads.items()
        if isinstance(told, dict)
    }


def _with_pool(texts: list[str], pools: list[dict[str, Any]], asked: str) -> list[str]:
    """The same arguments with what the pool did, and the provider that was asked for where a node
    ran on another one.
    """
    threads = sorted({thread for pool in pools for thread in pool.get("tasks", {})})
    told = []
    for text, pool in zip(texts, pools, strict=True):
        about = json.loads(text)
        if pool:
            pool["tasks"] = [pool["tasks"].get(thread, 0) for thread in threads]
            about["pool"] = pool
        if asked and about.get("provider", asked) != asked:
            about["asked"] = asked
        told.append(json.dumps(about, ensure_ascii=False))
    return told


def _with_counters(content: Imported) -> Imported:
    """The same with what each node says of the arena and of its pool of threads as counters: bytes
    at its end, and how long the thread that asks the pool has worked and waited so far.
    """
    told = [_counted(text) for text in content.args_texts]
    table = np.array([*told, [-1, 0, 0, 0]], np.int64)
    values = table[content.args]
    rows = np.flatnonzero(values[:, 0] >= 0)
    ends_ns = (content.start_ns + content.dur_ns)[rows]
    order = np.argsort(ends_ns, kind="stable")
    rows, ends_ns = rows[order], ends_ns[order]
    values = values[rows]
    values[:, _BYTES:] = 1_000 * np.cumsum(values[:, _BYTES:], axis=0)
    count, counters = values.shape
    names = np.repeat(np.arange(counters), count) + len(content.names)
    found = ImportedMoments(
        at_ns=np.tile(ends_ns, counters),
        track=np.tile(content.track[rows], counters),
        name=names,
        value=values.T.ravel(),
        is_mark=np.zeros(len(names), np.bool_),
    )
    return replace(content, moments=found, names=[*content.names, *_COUNTERS])


def _counted(text: str) -> list[int]:
    """Of a node bytes in use and held, us worked and waited; -1: it is none."""
    told = decoded(text.encode(), dict[str, Any])
    if "mem_bytes_in_use" not in told:
        return [-1, 0, 0, 0]
    stats = told.get("thread_scheduling_stats")
    of_main = stats.get("main_thread") if isinstance(stats, dict) else None
    pool = of_main if isinstance(of_main, dict) else {}
    in_use, held = told["mem_bytes_in_use"], told.get("mem_arena_held")
    values = (in_use, held, pool.get("Run"), pool.get("Wait"))
    return [_number(value) for value in values]


def _number(value: Any) -> int:
    text = str(value)
    return int(text) if text.isdecimal() else 0


def _lasting(text: str) -> str:
    told = decoded(text.encode(), dict[str, Any])
    kept = {name: told[name] for name in _LASTING if name in told}
    return json.dumps(kept, ensure_ascii=False)


def _with_meaning(content: Imported) -> Imported:
    """The same spans as operators and ranges."""
    key = content.name.astype(np.int64) * (len(content.args_texts) + 1) + content.args + 1
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    names = {name: number for number, name in enumerate(content.names)}
    texts: dict[str, int] = {}
    kind, name, args = (np.zeros(len(first), np.int64) for _ in range(3))
    for at, row in enumerate(first.tolist()):
        text = content.args_texts[content.args[row]] if content.args[row] >= 0 else "{}"
        kind[at], called, told = _meaning(content.names[content.name[row]], text)
        name[at] = names.setdefault(called, len(names))
        args[at] = texts.setdefault(told, len(texts)) if told != "{}" else -1
    return replace(
        content,
        kind=kind[which].astype(np.uint8),
        name=name[which].astype(np.int32),
        args=args[which].astype(np.int32),
        names=list(names),
        args_texts=list(texts),
    )


def _meaning(name: str, text: str) -> tuple[int, str, str]:
    """Kind, name and arguments of an event."""
    try:
        told = decoded(text.encode(), dict[str, Any])
    except ValueError:
        told = {}
    category = told.pop("category", "")
    node = _NODE.fullmatch(name)
    if category != "Node" or node is None:
        return _RANGE, name, json.dumps(told, ensure_ascii=False)
    type_ = str(told.pop("op_name", "") or node[1])
    if node[2] in _FENCES:
        return _RANGE, f"{type_} {node[2]}", json.dumps({"node": node[1]}, ensure_ascii=False)
    about = {**_inputs(told), "node": node[1], **told}
    return _FUNCTION, type_, json.dumps(about, ensure_ascii=False)


def _inputs(told: dict[str, Any]) -> dict[str, Any]:
    """Shapes and dtypes of the inputs, as layer `operators` has them."""
    inputs = told.pop("input_type_shape", None)
    if not isinstance(inputs, list):
        return {}
    pairs = [next(iter(one.items())) for one in inputs if isinstance(one, dict) and one]
    dtypes = [DTYPES.get(kind, kind) for kind, _ in pairs]
    return {"shapes": [shape for _, shape in pairs], "dtypes": dtypes}
