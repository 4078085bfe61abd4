"""Traces of torch.profiler with GPUs, made by hand: what each dialect calls work, which call launched
it, which operator asked for it, and where it lies.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse.gpu import compat_hta
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from layerscope.sources import kineto

Event = dict[str, Any]
BASE_NS = 1_700_000_000_000_000_000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def event(category: str, name: str, start: float, dur: float, **args: Any) -> Event:
    """An event of the thread 7; `args`: with _ in the place of blanks."""
    named = {key.replace("_", " "): value for key, value in args.items()}
    about = {"ph": "X", "cat": category, "name": name, "pid": 5, "tid": 7}
    return {**about, "ts": start, "dur": dur, "args": named}


def work(category: str, name: str, start: float, dur: float, stream: int, **args: Any) -> Event:
    found = event(category, name, start, dur, device=0, stream=stream, **args)
    return {**found, "pid": 0, "tid": stream}


def write(path: Path, events: list[Event], **beside: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **beside, "traceEvents": events}, indent=2))
    return path


@pytest.mark.parametrize("base", [2**64, float("inf"), float("nan"), "x"])
def test_a_beginning_of_time_that_cannot_be_is_none(tmp_path: Path, base: object) -> None:
    events = [
        work("kernel", "k", 1, 2, 7, correlation=3),
        event("cuda_runtime", "call", 0, 1, correlation=3),
    ]
    path = write(tmp_path / "trace.json", events, baseTimeNanoseconds=base)
    with Reader(open_run(path)) as reader:
        (row,) = compat_hta.build(reader, "gpu").data.to_pylist()
    assert row["compute_time(us)"] == 2.0


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with Reader(open_run(path)) as reader:
        found = reader.query(query)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


SPANS = """SELECT s.name, s.layer, s.kind, t.kind, t.name FROM spans s JOIN tracks t USING (track)
    ORDER BY s.start_ns, s.depth"""
LINKS = """SELECT l.kind, a.name, b.name FROM links l JOIN spans a ON a.span = l.from_span
    JOIN spans b ON b.span = l.to_span ORDER BY l.kind, b.start_ns"""
# One launch in an operator, as each dialect writes it: category of the operator, of the call, its
# name, category of the work.
DIALECTS = {
    "cuda": ("cpu_op", "cuda_runtime", "cudaLaunchKernel", "kernel"),
    "driver": ("cpu_op", "cuda_driver", "cuLaunchKernel", "kernel"),
    "hip": ("cpu_op", "cuda_runtime", "hipExtModuleLaunchKernel", "kernel"),
    "2021": ("Operator", "Runtime", "cudaLaunchKernel", "Kernel"),
    "copy": ("cpu_op", "cuda_runtime", "cudaMemcpyAsync", "gpu_memcpy"),
    "fill": ("cpu_op", "cuda_runtime", "cudaMemsetAsync", "gpu_memset"),
    "copy of 2021": ("Operator", "Runtime", "cudaMemcpyAsync", "Memcpy"),
}
KINDS = {"kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "memcpy", "Memcpy": "memcpy"}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_work_is_known_by_its_category_in_every_dialect(
    tmp_path: Path, dialect: tuple[str, str, str, str]
) -> None:
    operator, runtime, call, category = dialect
    path = write(
        tmp_path / "trace.json",
        [
            event(operator, "aten::mm", 10, 20, External_id=3),
            event(runtime, call, 12, 4, correlation=9, External_id=3),
            work(category, "the work", 40, 5, 20, correlation=9, External_id=3),
        ],
    )
    assert rows(path, SPANS) == [
        ("aten::mm", "operators", "function", "thread", "thread 7"),
        (call, "runtime", "launch", "thread", "thread 7"),
        ("the work", "gpu", KINDS.get(category, "memset"), "stream", "stream 20"),
    ]
    assert rows(path, LINKS) == [
        ("launch_gpu", call, "the work"),
        ("operator_gpu", "aten::mm", "the work"),
    ]
    assert rows(path, "SELECT correlation FROM spans WHERE layer != 'operators'") == [(9,), (9,)]
    assert rows(path, "SELECT device FROM tracks WHERE kind = 'stream'") == [(0,)]


def test_an_operator_that_names_a_stream_is_no_work_of_a_gpu(tmp_path: Path) -> None:
    triton = event("cpu_op", "triton_poi_fused_0", 10, 20, External_id=3, stream=0, device=0)
    path = write(tmp_path / "trace.json", [triton])
    assert rows(path, SPANS) == [
        ("triton_poi_fused_0", "operators", "function", "thread", "thread 7")
    ]
    assert json.loads(rows(path, "SELECT json FROM args")[0][0]) == {"stream": 0, "device": 0}


def test_waits_on_a_stream_are_no_work_of_a_gpu(tmp_path: Path) -> None:
    wait = work("cuda_sync", "Stream Wait Event", 40, 5, 20, correlation=9, wait_on_stream=7)
    path = write(
        tmp_path / "trace.json",
        [wait, event("cuda_runtime", "cudaDeviceSynchronize", 10, 20, correlation=8)],
    )
    assert rows(path, SPANS) == [
        ("cudaDeviceSynchronize", "runtime", "sync", "thread", "thread 7"),
        ("Stream Wait Event", "runtime", "sync", "stream", "stream 20"),
    ]
    assert rows(path, LINKS) == []


def test_a_graph_launches_many_kernels_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path / "trace.json",
        [
            event("cpu_op", "replay", 10, 20),
            event("cuda_runtime", "cudaGraphLaunch", 12, 4, correlation=9),
            work("kernel", "one", 40, 5, 7, correlation=9, graph_node_id=1),
            work("kernel", "two", 46, 5, 7, correlation=9, graph_node_id=2),
        ],
    )
    assert rows(path, LINKS) == [
        ("launch_gpu", "cudaGraphLaunch", "one"),
        ("launch_gpu", "cudaGraphLaunch", "two"),
        ("operator_gpu", "replay", "one"),
        ("operator_gpu", "replay", "two"),
    ]


def test_the_operator_that_the_work_names_comes_before_the_one_around_the_launch(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "trace.json",
        [
            event("cpu_op", "around", 10, 20, External_id=3),
            event("cpu_op", "named", 40, 5, External_id=4),
            event("cuda_runtime", "cudaLaunchKernel", 12, 4, correlation=9),
            work("kernel", "k", 50, 5, 7, correlation=9, External_id=4),
            work("kernel", "of nobody", 60, 5, 7, correlation=77),
        ],
    )
    assert rows(path, LINKS) == [
        ("launch_gpu", "cudaLaunchKernel", "k"),
        ("operator_gpu", "named", "k"),
    ]


def test_a_correlation_in_the_place_of_the_name_of_the_operator_is_no_name(tmp_path: Path) -> None:
    """As in traces of 2023, where another operator may have that number."""
    path = write(
        tmp_path / "trace.json",
        [
            event("cpu_op", "around", 10, 20, External_id=3),
            event("cpu_op", "other", 40, 5, External_id=9),
            event("cuda_runtime", "cudaLaunchKernel", 12, 4, correlation=9, External_id=9),
            work("kernel", "k", 50, 5, 7, correlation=9, External_id=9),
        ],
    )
    assert rows(path, LINKS) == [
        ("launch_gpu", "cudaLaunchKernel", "k"),
        ("operator_gpu", "around", "k"),
    ]


def test_work_belongs_to_the_step_in_which_it_was_launched(tmp_path: Path) -> None:
    steps = [event("user_annotation", f"ProfilerStep#{n}", 100 * n, 90) for n in (3, 4)]
    launches = [
        event("cuda_runtime", "cudaLaunchKernel", 100 * n + 10, 4, correlation=n) for n in (3, 4)
    ]
    kernels = [work("kernel", "k", 100 * n + 95, 5, 7, correlation=n) for n in (3, 4)]
    path = write(tmp_path / "trace.json", [*steps, *launches, *kernels])
    found = "SELECT step, start_ns // 1000, dur_ns // 1000, rule FROM steps ORDER BY step"
    assert rows(path, found) == [(0, 0, 90, "mark"), (1, 100, 90, "mark")]
    assert rows(path, "SELECT step FROM spans WHERE layer = 'gpu' ORDER BY start_ns") == [
        (0,),
        (1,),
    ]


def test_work_that_began_before_its_call_with_work_inside_from_that_moment_is_read(
    tmp_path: Path,
) -> None:
    step = event("user_annotation", "ProfilerStep#3", 100, 90)
    call = event("cuda_runtime", "cudaLaunchKernel", 110, 4, correlation=3)
    outer = work("kernel", "outer", 105, 50, 7, correlation=3)
    inner = work("kernel", "inner", 110, 9, 7)
    path = write(tmp_path / "trace.json", [step, call, outer, inner])
    found = "SELECT name, step FROM spans WHERE layer = 'gpu' ORDER BY start_ns"
    assert rows(path, found) == [("outer", 0), ("inner", 0)]


def test_ids_that_differ_in_every_event_leave_the_arguments_which_then_repeat(
    tmp_path: Path,
) -> None:
    ids = {"Ev Idx": 5, "Profiler Event Index": 5, "Record function id": 5, "external ts": 5}
    events = []
    for number in (1, 2):
        about = {key: value + number for key, value in ids.items()}
        one = event("cpu_op", "aten::mm", 10 * number, 5, External_id=number, **about)
        one["args"] |= {
            "Input Dims": [[2, 3], []],
            "Input type": ["float", "Scalar"],
            "Fwd thread id": 0,
        }
        events.append(one)
    path = write(tmp_path / "trace.json", events)
    told = {"shapes": [[2, 3], None], "dtypes": ["float32", "Scalar"]}
    assert [json.loads(text) for (text,) in rows(path, "SELECT json FROM args")] == [told]


def test_times_are_decimals_to_the_nanosecond(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = (
        '{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 9007199254740.993, '
        '"dur": 0.001, "args": {"device": 0, "stream": 7}},'
        '{"ph": "X", "cat": "kernel", "name": "b", "pid": 0, "tid": 7, "ts": 9007199254741.123, '
        '"dur": 9007199254740.993, "args": {"device": 0, "stream": 7}}'
    )
    path.write_text(f'{{"baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{events}]}}')
    found = kineto.read(path)
    assert found.start_ns.tolist() == [0, 130]
    assert found.dur_ns.tolist() == [1, 9007199254740993]
    assert found.realtime_ns == BASE_NS + 9007199254740993


@pytest.mark.parametrize(
    ("name", "told", "rank"),
    [
        ("trace.json", None, 0),
        ("rank-34.json", None, 34),
        ("rank_34.json.gz", 5, 5),
        ("inference_rank_1.json", None, 1),
        ("worker.json", "nonsense", 0),
    ],
)
def test_the_rank_in_the_file_wins_over_the_one_in_its_name(
    tmp_path: Path, name: str, told: Any, rank: int
) -> None:
    beside = {} if told is None else {"distributedInfo": {"rank": told, "world_size": 64}}
    path = write(tmp_path / name, [event("cpu_op", "a", 1, 1)], **beside)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert [process.rank for process in kineto.read(path).processes] == [rank]


def test_what_a_trace_tells_of_gpus_and_the_job_is_kept_with_its_process(tmp_path: Path) -> None:
    gpus = [{"id": 0, "name": "A100", "numSms": 108}]
    job = {"backend": "nccl", "rank": 3, "world_size": 8}
    path = write(
        tmp_path / "trace.json",
        [event("cpu_op", "a", 1, 1)],
        deviceProperties=gpus,
        distributedInfo=job,
    )
    ((about, rank),) = rows(path, "SELECT about, rank FROM processes")
    assert rank == 3
    assert json.loads(about)["deviceProperties"] == gpus
    assert json.loads(about)["distributedInfo"] == job


def test_functions_of_python_have_a_track_of_their_own(tmp_path: Path) -> None:
    path = write(
        tmp_path / "trace.json",
        [
            event("python_function", "train.py(3): enter", 10, 10, Python_id=1),
            event("user_annotation", "range", 15, 30),
            event("python_function", "train.py(9): leave", 30, 40, Python_id=2),
            event("cpu_op", "aten::mm", 35, 5),
        ],
    )
    found = """SELECT s.name, s.layer, s.kind, around.name, t.name FROM spans s
        JOIN tracks t USING (track) LEFT JOIN spans around ON around.span = s.parent
        ORDER BY s.start_ns"""
    assert rows(path, found) == [
        ("train.py(3): enter", "python", "call", None, "thread 7: Python"),
        ("range", "operators", "range", None, "thread 7"),
        ("train.py(9): leave", "python", "call", None, "thread 7: Python"),
        ("aten::mm", "operators", "function", "range", "thread 7"),
    ]


def test_what_has_no_name_here_is_an_event_on_its_thread_or_stream(tmp_path: Path) -> None:
    annotation = {**event("gpu_user_annotation", "forward", 10, 5), "pid": 1, "tid": 20}
    path = write(
        tmp_path / "trace.json",
        [annotation, event("overhead", "Buffer Flush", 20, 5), event("novelty", "what", 30, 5)],
    )
    assert rows(path, SPANS) == [
        ("forward", "ranges", "event", "stream", "stream 20"),
        ("Buffer Flush", "ranges", "event", "thread", "thread 7"),
        ("what", "ranges", "event", "thread", "thread 7"),
    ]


def test_names_with_bare_quotes_and_numbers_that_are_none_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "void f("a", "b")", "pid": 0, '
        '"tid": 7, "ts": 1, "dur": 2, "args": {"device": 0, "stream": 7, "occupancy": nan, '
        '"grid": [1, 2, -inf]}}]}'
    )
    assert rows(path, "SELECT name FROM spans") == [('void f("a", "b")',)]
    ((text,),) = rows(path, "SELECT json FROM args")
    assert json.loads(text) == {"occupancy": "nan", "grid": [1, 2, "-inf"]}


def test_counters_and_instants_of_a_trace_are_counters_and_marks(tmp_path: Path) -> None:
    counter = {"ph": "C", "name": "SM utilisation", "pid": "GPU 0 Counters", "ts": 5}
    path = write(
        tmp_path / "trace.json",
        [
            event("cpu_op", "a", 1, 1),
            {**counter, "args": {"active": 40, "idle": 60}},
            {"ph": "i", "name": "Iteration Start", "pid": 5, "tid": 7, "ts": 3, "s": "g"},
        ],
    )
    found = """SELECT c.name, value, at_ns, t.name FROM counters c JOIN tracks t USING (track)
        ORDER BY c.name"""
    assert rows(path, found) == [
        ("SM utilisation.active", 40, 4000, "GPU 0 Counters"),
        ("SM utilisation.idle", 60, 4000, "GPU 0 Counters"),
    ]
    assert rows(path, "SELECT kind, name, at_ns FROM marks") == [
        ("marker", "Iteration Start", 2000)
    ]


def test_a_trace_opens_to_its_cut_wherever_it_is(tmp_path: Path) -> None:
    events = [event("cpu_op", f"op {n}", 10 * n, 5, External_id=n) for n in range(4)]
    whole = write(tmp_path / "whole.json", events, baseTimeNanoseconds=BASE_NS).read_bytes()
    path = tmp_path / "cut.json"
    begins = whole.index(b'"traceEvents"') + len('"traceEvents": [')
    for cut in range(begins, len(whole), 3):
        path.write_bytes(whole[:cut])
        found = kineto.read(path)
        ends = sum(whole[:cut].count(f'"op {n}"'.encode()) for n in range(4))
        assert ends - 1 <= len(found.start_ns) <= ends, cut
        is_whole = cut > whole.rindex(b"]")
        codes = {problem.code for problem in found.problems} - {"no_events"}
        assert codes == (set() if is_whole else {"trace_cut"}), cut
