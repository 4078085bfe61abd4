"""A recording with a secret in every place that may hold one, and everything that a packed
recording holds.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from layerscope.model.schema import TABLES
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from tests.recordings import MS, Recording

SECRETS = (
    "planted-host", "alice", "planted_folder", "planted_argument", "hunter2", "planted_value", "planted_range",
    "planted_task", "planted_mark", "planted_counter", "planted_domain", "planted_thread", "planted_source",
    "planted_argument_of_a_span", "planted_id", "planted_recording", "planted_function", "planted_library",
    "planted_build",
)  # fmt: skip
COMMAND = [
    "/srv/alice/planted_folder/bin/python3.11",
    "-u",
    "/srv/alice/planted_folder/train.py",
    "planted_argument",
]


def secretive() -> Recording:
    """A recording with a secret in every place that may hold one."""
    recording = Recording()
    recording.rows["processes"][0] |= {"host": "planted-host", "argv": " ".join(COMMAND)}
    recording.rows["tracks"][0]["name"] = "planted_thread"
    recording.add_thread(0, 101, "pt_autograd_0")
    recording.add_span("aten::mm", 0, 5 * MS, module=0)
    recording.add_span("planted_range", 0, MS, kind="range", args=0)
    recording.add_span("planted_range", 2 * MS, MS, kind="range")
    recording.add_span("epoch", 0, MS, kind="range")
    recording.add_span("ProfilerStep#7", 0, MS, kind="range")
    recording.add_span("planted_task", 0, MS, layer="ranges", kind="task")
    sums = {"process": 0, "layer": "operators", "step_class": "outside"}
    sums |= {"count": 1, "total_ns": 1, "self_ns": 1, "min_ns": 1, "max_ns": 1}
    named = (("function", "aten::mm"), ("range", "planted_range"), ("task", "planted_task"))
    recording.rows["totals"] = [
        {**sums, "total": place, "kind": kind, "name": name}
        for place, (kind, name) in enumerate(named)
    ]
    recording.rows["modules"] = [
        {
            "module": 0,
            "parent": None,
            "path": "Net",
            "class": "Net",
            "line": "/srv/alice/planted_source.py:3",
        }
    ]
    torch = "/srv/alice/planted_folder/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"
    recording.rows["frames"] = [
        {"frame": 0, "layer": "python", "name": "planted_function", "file": "/srv/alice/planted_source.py", "line": 5},
        {"frame": 1, "layer": "python", "name": "wait", "file": "/planted_folder/lib/python3.11/threading.py"},
        {"frame": 2, "layer": "native", "name": "planted_function::run", "object": "/opt/planted_library.so",
         "build_id": "planted_build"},
        {"frame": 3, "layer": "native", "name": "at::native::add", "object": torch, "build_id": "planted_build"},
        {"frame": 4, "layer": "ranges", "name": "planted_range"},
        {"frame": 5, "layer": "native", "name": "[jit]", "object": "[jit]"},
        {"frame": 6, "layer": "native", "name": "jit_avx512_core_brgemm_t.3", "object": "[jit]"},
        {"frame": 7, "layer": "native", "name": "py::planted_function:/srv/alice/planted_source.py", "object": "[jit]"},
    ]  # fmt: skip
    recording.rows["stacks"] = [
        {"stack": n, "parent": n - 1 if n else None, "frame": n, "depth": n} for n in range(8)
    ]
    recording.rows["samples"] = [
        {"at_ns": 5, "track": 0, "stack": 5, "weight_ns": 7, "count": 1, "kind": "cpu", "state": "user", "idle": False,
         "exact": False}
    ]  # fmt: skip
    recording.rows["args"] = [{"args": 0, "json": '{"text": "planted_argument_of_a_span"}'}]
    recording.rows["marks"] = [
        {"track": 0, "at_ns": 5, "kind": "marker", "name": "planted_mark", "args": 0}
    ]
    recording.add_counter(0, "cpu_ns", [(0, 1)], "ns")
    recording.add_counter(0, "planted_counter", [(0, 1)])
    recording.add_thread(0, 0, "planted_domain", kind="counter")
    what = "/srv/alice/planted_folder/lib.so on planted-host refused 'planted_argument' and planted_value"
    recording.add_problem("operators", what, "see ~/planted_folder/log", lost="some")
    return recording


def write_secretive(path: Path) -> Run:
    environment = {
        "OMP_NUM_THREADS": "2",
        "VIRTUAL_ENV": "/srv/alice/planted_value",
        "LD_PRELOAD": "planted_value",
    }
    host = {
        "name": "planted-host",
        "cpu": {"granted": 4, "model": "A CPU", "planted_id": 1},
        "kernel": {"release": "6.1.0-planted_value", "pmus": ["planted_value"]},
        "process": {"argv": ["planted_value"]},
        "memory": "planted_value",
        "planted_id": 1,
    }
    run = secretive().write(
        path,
        command=COMMAND,
        cwd="/srv/alice/planted_folder",
        environment=environment,
        host=host,
        run_id="planted_id",
    )
    (path / "summary.txt").write_text("planted_range took long\n")
    (path / "raw" / "session.json").write_text('{"why": "hunter2"}')
    return run


def content(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    with Reader(run) as reader:
        return {
            table: reader.query(f'SELECT * FROM "{table}" ORDER BY ALL').to_pylist()
            for table in TABLES
        }


def everything_in(archive: Path) -> Iterator[bytes]:
    """Every byte of a packed recording, however it is written: names, entries, and all values in
    its Parquet.
    """
    yield archive.read_bytes()
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            data = opened.read(name)
            yield name.encode()
            yield data
            if name.endswith(".parquet"):
                file = pq.ParquetFile(io.BytesIO(data))
                yield repr((file.metadata, file.schema_arrow, file.metadata.metadata)).encode()
                for column in file.read().columns:
                    for chunk in column.chunks:
                        yield repr(chunk.to_pylist()).encode()
                        # A dictionary may hold a value that no row has any more.
                        yield (
                            repr(chunk.dictionary.to_pylist()).encode()
                            if hasattr(chunk, "dictionary")
                            else b""
                        )
