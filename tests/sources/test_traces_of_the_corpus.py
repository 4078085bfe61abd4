"""Every trace of the corpus and of tests/golden/gpu opens with as many events as an independent count
of its JSON finds, with the same sums of durations, or is refused with the right sentence.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope import sources
from layerscope.model.layers import KINDS
from layerscope.sources.imported import Imported

GOLDEN = Path(__file__).parents[1] / "golden" / "gpu"
FOLDERS = ("kineto", "kineto_ranks", "tb_plugin_resnet50")
WORK = {
    "kernel": ("kernel", "Kernel"),
    "memcpy": ("gpu_memcpy", "Memcpy"),
    "memset": ("gpu_memset", "Memset"),
}


def corpus() -> Iterator[Path]:
    folder = os.environ.get("LAYERSCOPE_CORPUS")
    for name in FOLDERS if folder else ():
        yield from sorted(path for path in (Path(str(folder)) / name).rglob("*.json*"))


def content(path: Path) -> Any:
    whole = path.read_bytes()
    if whole.startswith(b"\x1f\x8b"):
        whole = gzip.decompress(whole)
    return json.loads(whole, parse_float=Decimal, strict=False)


def read(path: Path) -> Imported | None:
    head = path.read_bytes()
    if head.startswith(b"\x1f\x8b"):
        head = gzip.decompress(head)
    known = [one for one in sources.known() if one.recognises(head[: 1 << 20])]
    return known[0].read(path) if known else None


def total_ns(events: list[dict[str, Any]]) -> int:
    return sum(round(Decimal(event.get("dur", 0)) * 1000) for event in events)


def check(path: Path) -> None:
    found, told = read(path), content(path)
    is_trace = isinstance(told, dict) and "traceEvents" in told
    assert (found is not None) == is_trace, path
    if found is None:
        return
    events = told["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X"]
    assert len(found.start_ns) == len(spans), path
    counts = Counter(found.names[name] for name in found.name.tolist())
    assert counts == Counter(str(event.get("name")) for event in spans), path
    for kind, categories in WORK.items():
        of_kind = found.kind == KINDS.index(kind)
        wanted = [event for event in spans if event.get("cat") in categories]
        assert np.count_nonzero(of_kind) == len(wanted), (path, kind)
        assert int(found.dur_ns[of_kind].sum()) == total_ns(wanted), (path, kind)
    starts = [round(Decimal(event["ts"]) * 1000) for event in spans]
    if starts:
        first_ns = found.realtime_ns - int(told.get("baseTimeNanoseconds", 0))
        assert sorted((found.start_ns + first_ns).tolist()) == sorted(starts), path


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("kineto_*.json.gz")), ids=lambda path: path.name
)
def test_a_trace_of_a_gpu_has_all_its_events(path: Path) -> None:
    check(path)


@pytest.mark.slow
def test_every_trace_of_the_corpus_has_all_its_events() -> None:
    paths = list(corpus())
    if not paths:
        pytest.skip("LAYERSCOPE_CORPUS names no folder with traces")
    for path in paths:
        check(path)
    assert len(paths) > 50
