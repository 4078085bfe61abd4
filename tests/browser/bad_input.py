"""Recordings that a report must take although something is missing, extreme or hostile in them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

from tests.ingest.test_ranks_joined import Ranks
from tests.recordings import MS, Recording, S

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = (
    "</script><script>alert(1)</script>", "<!-- <script> -->", "<img src=x onerror=alert(1)>", "\"'`${}\\",
    "a\0b", "\u202egnp.exe\u2066", "\U0001f600\U0001f468\u200d\U0001f469", "&lt;b&gt;", "\u2028\u2029",
    "__proto__", "constructor", "", " ",
)  # fmt: skip
LONG = "long " * 200_000


def _steps(recording: Recording, count: int) -> None:
    for step in range(count):
        start_ns = step * 10 * MS
        recording.add_step(step, start_ns, (MS, 4 * MS, 3 * MS, MS, MS), warmup=step == 0)
        outer = recording.add_span("outer", start_ns, 8 * MS, step=step)
        recording.add_span("inner", start_ns + MS, 2 * MS, outer)


def _samples(recording: Recording) -> None:
    stack = recording.add_stack(
        "python main train.py:1", "python load train.py:7", "native read libc.so.6"
    )
    for at in range(50):
        recording.add_sample(stack, at_ns=at * 10 * MS)
    recording.add_sample(stack, 30 * MS, 5 * MS, kind="offcpu", state="lock")


def empty(path: Path) -> None:
    recording = Recording()
    recording.rows.clear()
    recording.write(path)


def no_spans(path: Path) -> None:
    Recording().write(path)


def one_span(path: Path) -> None:
    recording = Recording()
    recording.add_span("only", 5 * MS, MS)
    recording.write(path)


def samples_only(path: Path) -> None:
    recording = Recording()
    _samples(recording)
    recording.write(path)


def no_steps(path: Path) -> None:
    recording = Recording()
    for number in range(100):
        recording.add_span(f"op {number % 7}", number * MS, MS // 2)
    recording.write(path)


def unfinished(path: Path) -> None:
    recording = Recording()
    _steps(recording, 5)
    recording.add_span("open", 60 * MS, 5 * MS, unfinished=True)
    recording.add_gap("session_killed", None)
    recording.add_problem(
        "operators", "layerscope itself was killed", "let it run", "everything after"
    )
    recording.write(path, state="killed", finished_utc="", exit=None or {})


def thinned(path: Path) -> None:
    recording = Recording()
    _steps(recording, 8)
    for row in (*recording.rows["spans"], *recording.rows["steps"]):
        row["weight"] = 4 if row["step"] % 2 else 1
    sums = {"process": 0, "layer": "operators", "kind": "function", "step_class": "measured"}
    sums |= {"count": 40, "total_ns": 40 * MS, "self_ns": 40 * MS, "min_ns": MS, "max_ns": MS}
    recording.rows["totals"] = [{"total": 0, "name": "outer", **sums}]
    recording.rows["histograms"] = [{"total": 0, "from_ns": MS, "count": 40}]
    recording.write(path, weight_policy="whole steps")


def many_tracks(path: Path) -> None:
    recording = Recording()
    for number in range(10_000):
        track = recording.add_thread(0, 1000 + number, f"worker-{number}")
        recording.add_span("work", number * 1000, MS, track=track)
    recording.write(path)


def many_levels(path: Path) -> None:
    recording = Recording()
    parent = None
    for level in range(512):
        parent = recording.add_span(f"level {level}", level * 1000, S - 2000 * level, parent)
    recording.write(path)


def no_durations(path: Path) -> None:
    recording = Recording()
    for number in range(200):
        recording.add_span("instant", number // 2 * MS, 0)
    recording.add_step(0, 0, (0, 0, 0, 0, 0))
    recording.write(path, program={"wall_ns": 0})


def before_the_start(path: Path) -> None:
    recording = Recording()
    recording.add_span("early", 5 * MS, MS)
    recording.add_span("late", 2**52, MS)
    recording.write(path, start_ns=10 * MS)


def several_ranks(path: Path) -> None:
    Ranks(path.parent).path.rename(path)


def hostile_names(path: Path) -> None:
    recording = Recording()
    _steps(recording, 4)
    _samples(recording)
    for place, name in enumerate((*HOSTILE, LONG)):
        track = recording.add_thread(0, 500 + place, name)
        recording.add_span(
            name, place * MS, MS, track=track, step=0, line=f"{name[:50]}:1", kind="range"
        )
        recording.add_counter(0, name[:100] or "none", [(0, 1), (MS, 2)], domain=name[:100])
        recording.add_problem("operators", name[:1000], name[:1000], name[:1000])
        frame = f"python {name.replace(' ', '_') or '_'} {name.replace(' ', '_')[:100] or '_'}.py:1"
        recording.add_sample(recording.add_stack(frame))
        module = {
            "module": place,
            "parent": None,
            "path": f"{name[:1000]}.{place}",
            "class": name[:1000],
        }
        recording.rows.setdefault("modules", []).append(module)
        recording.rows.setdefault("marks", []).append(
            {"track": track, "at_ns": place * MS, "kind": "instant", "name": name}
        )
    recording.write(
        path, command=["python", *HOSTILE, LONG], environment={"A": HOSTILE[0], HOSTILE[0]: LONG}, cwd=HOSTILE[0],
        host={"cpu": {"model": HOSTILE[0], "granted": 2}, HOSTILE[1]: {HOSTILE[0]: LONG}},
    )  # fmt: skip


VERBOSE = (
    "onednn_verbose,v1,1795153485335.777100,primitive,exec,cpu,reorder,jit:blk,undef,"
    "src_f32::blocked:abcd::f0 dst_f32::blocked:acdb::f0,,,2x16x14x14,0.25\n"
)


def verbose_log(path: Path) -> None:
    path.write_text(VERBOSE * 20)


def perf_data(path: Path) -> None:
    path.write_bytes((ROOT / "golden" / "perf" / "file.data").read_bytes())


def folded_stacks(path: Path) -> None:
    path.write_text("main;load;read 5\nmain;</script><b> 7\n")


def chrome_trace(path: Path) -> None:
    path.write_bytes(
        gzip.decompress((ROOT / "golden" / "gpu" / "kineto_steps.json.gz").read_bytes())
    )


MAKERS: dict[str, Callable[[Path], None]] = {
    maker.__name__: maker
    for maker in (
        empty, no_spans, one_span, samples_only, no_steps, unfinished, thinned, many_tracks, many_levels,
        no_durations, before_the_start, several_ranks, hostile_names,
    )
}  # fmt: skip
FOREIGN: dict[str, Callable[[Path], None]] = {
    "verbose.log": verbose_log,
    "perf.data": perf_data,
    "stacks.folded": folded_stacks,
    "trace.json": chrome_trace,
}
