"""Programs of JAX, recorded while they run: operators are what XLA's own profiler says, and a
profiler of the program's own comes first.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from tests.recorded import ROOT, TIMEOUT_S, Recorded, ask, record
from tests.recordings import MS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]

EXAMPLE = ROOT / "examples" / "jax_mlp.py"
# Reads a segment by what JAX itself has for it.
INDEPENDENT = """
import collections, json, sys
from jax.profiler import ProfileData
counts, spent = collections.Counter(), collections.Counter()
for path in sys.argv[1:]:
    for plane in ProfileData.from_file(path).planes:
        for line in plane.lines:
            for event in line.events:
                if any(name == "hlo_op" for name, _ in event.stats):
                    counts[event.name] += 1
                    spent[event.name] += event.duration_ns
print(json.dumps([counts, spent]))
"""
WAITS = """
import jax, time, jax.numpy as jnp
@jax.jit
def step(x):
    return jnp.tanh(x @ x) / 300
x = jnp.ones((300, 300))
for number in range(40):
    before = time.monotonic_ns()
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        x = step(x)
        x.block_until_ready()
    print(before, time.monotonic_ns())
"""
# What each call takes to launch, what XLA executes, and the waits, by the numbers that tie both ends
# of one together: sums in ns.
DISPATCHED = """
import collections, json, sys
from jax.profiler import ProfileData
found = collections.Counter()
for path in sys.argv[1:]:
    begun, work = {}, []
    for plane in ProfileData.from_file(path).planes:
        for line in plane.lines:
            end = 0
            for event in sorted(line.events, key=lambda one: (one.start_ns, -one.duration_ns)):
                stats = dict(event.stats)
                stop = event.start_ns + event.duration_ns
                if event.name == "PjitFunction(step)" and stop > end:
                    end = stop
                    found["launches"] += 1
                    found["launch_ns"] += event.duration_ns
                if "hlo_op" in stats and stats.get("hlo_module") == "jit_step":
                    work.append((event.start_ns, stop))
                if event.name == "CommonPjRtBuffer::Await":
                    if "_p" in stats:
                        begun[stats["_p"]] = event.start_ns
                    elif stats["_c"] in begun:
                        found["blocked_ns"] += stop - begun[stats["_c"]]
    until = 0
    for start, stop in sorted(work):
        found["run_ns"] += max(0, stop - max(start, until))
        until = max(until, stop)
print(json.dumps(found))
"""
# Seven compilations in four calls: for three sizes the function and what makes its argument, once
# what makes the number in that. Then the three for whole numbers.
SHAPES = """
import jax, jax.numpy as jnp
@jax.jit
def double(x):
    return x * 2
for size in (3, 3, 4, 5):
    double(jnp.ones(size)).block_until_ready()
ones = jnp.ones(5, jnp.int32)
double(ones)
"""
# Works until no segment has begun for a second.
FULL = """
import jax, jax.numpy as jnp, pathlib, time
double = jax.jit(lambda x: x * 2)
raw = pathlib.Path("recording.layerscope/raw")
known, since = 0, time.monotonic()
while time.monotonic() < since + 1:
    double(jnp.ones(3)).block_until_ready()
    begun = len(list(raw.glob("*.profile")))
    if begun != known:
        known, since = begun, time.monotonic()
"""
DEVICES = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import functools, jax, jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
@jax.jit
@functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("d"), P()), out_specs=P())
def work(x, w):
    times = jnp.where(jax.lax.axis_index("d") == 2, 200, 2)
    return jax.lax.psum(jax.lax.fori_loop(0, times, lambda _, a: jnp.tanh(a @ w), x).sum(), "d")
x, w = jnp.ones((256, 256)), jnp.eye(256) * 0.5
for number in range(20):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        work(x, w).block_until_ready()
"""
CALLS = """
import jax, jax.numpy as jnp, pathlib
@jax.jit
def double(x):
    return x * 2
double(jnp.ones(300)).block_until_ready()
raw = pathlib.Path("recording.layerscope/raw")
calls = 0
while len(list(raw.glob("*_segment.pb"))) < 4:
    double(jnp.ones(300)).block_until_ready()
    calls += 1
print(calls)
"""
# Two processes of one job, that find each other at a port of this machine.
JOB = """
import os, socket, subprocess, sys
if len(sys.argv) == 1:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [subprocess.Popen([sys.executable, __file__, str(rank), port]) for rank in range(2)]
    sys.exit(max(process.wait() for process in started))
import functools, jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
rank, port = sys.argv[1:]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(rank))
mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
@jax.jit
@functools.partial(jax.shard_map, mesh=mesh, in_specs=P("d"), out_specs=P())
def work(x):
    return jax.lax.psum(x.sum(), "d")
ones = jnp.ones(4)
x = jax.make_array_from_callback((4,), NamedSharding(mesh, P("d")), lambda part: ones[part])
for number in range(6):
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        work(x).block_until_ready()
"""
POOL = """
import multiprocessing
def work(size):
    import jax, jax.numpy as jnp
    double = jax.jit(lambda x: x * 2)
    for _ in range(10):
        double(jnp.ones(size)).block_until_ready()
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(work, [3, 4], 1)
        pool.close()
        pool.join()
"""
KILLED = """
import jax, jax.numpy as jnp, os, pathlib, signal, threading, time
double = jax.jit(lambda x: x * 2)
double(jnp.ones(300))
def beside():
    while True:
        double(jnp.ones(300)).block_until_ready()
        time.sleep(0.01)
threading.Thread(target=beside, daemon=True).start()
raw = pathlib.Path("recording.layerscope/raw")
def written():
    return len(list(raw.glob("*_segment.pb")))
def begun():
    return len(list(raw.glob("*.profile"))) - 1  # the other one tells of compilations
def is_open():
    found = written(), begun()
    time.sleep(0.02)
    return 10 <= found[0] < found[1] and found == (written(), begun())
while not is_open():
    double(jnp.ones(300)).block_until_ready()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def trained(jax_python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The example, which trains for 60 steps."""
    return record(jax_python, str(EXAMPLE), tmp_path_factory.mktemp("trained"), "60")


def test_operators_are_those_of_an_independent_reading_of_the_profile(
    trained: Recorded, jax_python: str
) -> None:
    assert trained.status == 0, trained.stderr
    segments = [str(path) for path in sorted(trained.run.raw.glob("*_segment.pb"))]
    done = subprocess.run(
        [jax_python, "-c", INDEPENDENT, *segments],
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    counts, spent_ns = json.loads(done.stdout)
    rows = trained.rows(
        """SELECT name, count(*) AS n, sum(dur_ns) AS dur_ns FROM spans
           WHERE kind = 'function' AND name NOT LIKE 'PjitFunction%' GROUP BY name"""
    )
    assert {row["name"]: row["n"] for row in rows} == counts
    for row in rows:
        assert row["dur_ns"] == pytest.approx(spent_ns[row["name"]], rel=0.01, abs=2_000)


def test_each_call_of_the_jitted_function_is_a_step(trained: Recorded) -> None:
    assert trained.value("SELECT count(*) FROM steps") == 60
    assert trained.value("SELECT DISTINCT rule FROM steps") == "mark"
    assert "60 steps" in trained.stderr


def test_the_summary_is_about_this_framework_alone(trained: Recorded) -> None:
    assert "layerscope table dispatch" in trained.stderr
    assert "PyTorch" not in trained.stderr


def test_operators_have_the_line_of_python_that_asked_for_them(trained: Recorded) -> None:
    lines = EXAMPLE.read_text().splitlines()
    hidden = next(at for at, line in enumerate(lines, 1) if 'images @ parameters["hidden"]' in line)
    found = trained.rows("SELECT DISTINCT line FROM spans WHERE kind = 'function' AND line <> ''")
    assert f"{EXAMPLE}:{hidden}" in {row["line"] for row in found}
    with Reader(trained.run) as reader:
        by_line = tables.build(reader, "operators", "line").data.to_pylist()
    of_hidden = [row["count"] for row in by_line if row["line"] == f"{EXAMPLE}:{hidden}"]
    assert sum(of_hidden) >= 60
    scope = "transpose(jvp(classes))/dot_general"
    backward = f"SELECT count(*) FROM args WHERE json LIKE '%{scope}%'"
    assert trained.value(backward) == 1


def test_operators_lie_on_the_threads_of_the_system_that_ran_them(trained: Recorded) -> None:
    threads = trained.rows(
        """SELECT DISTINCT tid, pid, tracks.name AS name
           FROM spans JOIN tracks USING (track) JOIN processes USING (process)
           WHERE spans.kind = 'function'"""
    )
    noise = "SELECT count(*) FROM spans WHERE name LIKE 'end: %' OR name LIKE 'ThreadpoolL%'"
    assert trained.value(noise) == 0
    assert all(row["tid"] for row in threads), threads
    pools = [row["name"] for row in threads if row["tid"] != row["pid"]]
    assert {name.partition("XLA")[0] for name in pools} == {"tf_"}, pools
    assert len({row["tid"] for row in threads}) == len(threads) > 2


def test_scopes_are_modules_forward_and_backward(trained: Recorded) -> None:
    of_scope = """SELECT count(*) FROM spans JOIN modules USING (module)
        WHERE path = 'step.{}' AND spans.name LIKE 'dot%'"""
    # XLA fuses nothing into these products: one forward of `classes`, and two backward.
    assert trained.value(of_scope.format("classes")) >= 60
    assert trained.value(of_scope.format("hidden")) >= 60
    outside = "SELECT count(*) FROM spans WHERE module IS NOT NULL AND name LIKE 'Pjit%'"
    assert trained.value(outside) == 0


def test_operators_are_in_the_phase_that_their_scope_tells(trained: Recorded) -> None:
    found = trained.rows(
        """SELECT DISTINCT phase, contains(json, 'transpose(jvp(') AS is_backward
           FROM spans JOIN args USING (args)
           WHERE kind = 'function' AND step IS NOT NULL AND contains(json, '"op_name": "jit(')"""
    )
    phases = {(row["is_backward"], row["phase"]) for row in found}
    assert phases == {(False, "forward"), (True, "backward")}
    with Reader(trained.run) as reader:
        modules = tables.build(reader, "modules").data.to_pylist()
    (of_hidden,) = [row for row in modules if row["path"] == "step.hidden"]
    assert 0 < of_hidden["backward_ns"] < of_hidden["total_ns"]
    (spent,) = trained.rows("SELECT sum(forward_ns) AS fwd, sum(backward_ns) AS bwd FROM steps")
    assert spent["fwd"] > 0
    assert spent["bwd"] > 0


def test_launching_running_and_waiting_are_those_of_an_independent_reading(
    jax_python: str, tmp_path: Path
) -> None:
    recorded = record(jax_python, WAITS, tmp_path)
    assert recorded.status == 0, recorded.stderr
    segments = [str(path) for path in sorted(recorded.run.raw.glob("*_segment.pb"))]
    command = [jax_python, "-c", DISPATCHED, *segments]
    done = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT_S)
    expected = json.loads(done.stdout)
    with Reader(recorded.run) as reader:
        found = tables.build(reader, "dispatch").data.to_pylist()
    assert len(found) == expected["launches"] == 40
    assert expected["run_ns"] > 0
    assert expected["blocked_ns"] > 0
    for name, sum_ns in expected.items():
        assert sum(row[name] for row in found) == pytest.approx(sum_ns, rel=0.02), name
    # Both clocks agree as well as they can be read one after the other.
    around = [tuple(map(int, line.split())) for line in recorded.stdout.splitlines()]
    annotated = "SELECT start_ns, dur_ns FROM spans WHERE name = 'train' ORDER BY start_ns"
    for row, (before, after) in zip(recorded.rows(annotated), around, strict=True):
        assert before - MS < row["start_ns"]
        assert row["start_ns"] + row["dur_ns"] < after + MS


def test_compilations_are_told_by_function(jax_python: str, tmp_path: Path) -> None:
    recorded = record(jax_python, SHAPES, tmp_path)
    assert recorded.status == 0, recorded.stderr
    compiled = "SELECT count(*) FROM spans WHERE name = 'compile jit(double)'"
    assert recorded.value(compiled) == 4
    with Reader(recorded.run) as reader:
        found = tables.build(reader, "compilations").data.to_pylist()
    counts = {row["function"]: row["count"] for row in found}
    in_four_calls = {"jit(double)": 3, "jit(broadcast_in_dim)": 3, "jit(convert_element_type)": 1}
    assert counts == {name: count + 1 for name, count in in_four_calls.items()}
    assert sum(in_four_calls.values()) == 7
    (double,) = [row for row in found if row["function"] == "jit(double)"]
    assert (double["count"], double["arguments"]) == (4, "int32[5]")
    assert double["reason"] == "x: float32[5] → int32[5]"


def test_steps_are_those_that_are_annotated_and_a_late_device_is_named(
    jax_python: str, tmp_path: Path
) -> None:
    recorded = record(jax_python, DEVICES, tmp_path)
    assert recorded.status == 0, recorded.stderr
    assert recorded.value("SELECT count(*) FROM steps") == 20
    annotated = "SELECT sum(dur_ns) FROM spans WHERE name = 'train'"
    assert recorded.value("SELECT sum(dur_ns) FROM steps") == recorded.value(annotated)
    late = re.search(r"By device: device (\d) comes last to (\d+) of 20", recorded.stderr)
    assert late is not None, recorded.stderr
    assert late[1] == "2"


def test_processes_of_a_job_are_ranks(jax_python: str, tmp_path: Path) -> None:
    recorded = record(jax_python, JOB, tmp_path)
    assert recorded.status == 0, recorded.stderr
    steps = recorded.rows(
        "SELECT rank, count(*) AS n FROM steps JOIN processes USING (process) GROUP BY rank"
    )
    assert sorted((row["rank"], row["n"]) for row in steps) == [(0, 6), (1, 6)]
    assert "2 ranks" in recorded.stderr


def test_workers_of_a_pool_are_recorded_to_their_end(jax_python: str, tmp_path: Path) -> None:
    recorded = record(jax_python, POOL, tmp_path)
    assert recorded.status == 0, recorded.stderr
    calls = """SELECT count(*) AS n FROM spans JOIN tracks USING (track)
        WHERE spans.name = 'PjitFunction(<lambda>)' AND spans.kind = 'function'"""
    assert recorded.value(calls) == 20
    assert recorded.value("SELECT count(*) FROM gaps") == 0


def in_short_segments(
    folder: Path, python: str, program: str, *more: str, budget: str = "none"
) -> subprocess.CompletedProcess[str]:
    """Record a program with a copy of layerscope whose segments take 0.2 s."""
    package = folder / "layerscope"
    shutil.copytree(
        ROOT / "src" / "layerscope", package, ignore=shutil.ignore_patterns("__pycache__")
    )
    segments = package / "capture" / "frameworks" / "jax" / "inside" / "segments.py"
    text = segments.read_text()
    for name, value in (
        ("SEGMENT_S", 0.2),
        ("POLL_S", 0.05),
        ("MOST_HELD_SHARE", 100),
        ("MOST_PAUSE_S", 1.0),
        ("MOST_WAITED_NS", 10**10),
    ):
        text = re.sub(rf"^{name} = \S+", f"{name} = {value}", text, flags=re.MULTILINE)
    segments.write_text(text)
    (folder / "program.py").write_text(program)
    layers = ("--without", "stacks") if budget == "none" else ()
    words = ("run", *layers, *more, "--budget", budget, "-o", "recording")
    words = (*words, "--", python, "program.py")
    return subprocess.run(
        [sys.executable, "-m", "layerscope", *words],
        cwd=folder, env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def test_segments_take_a_part_of_what_the_recording_may(
    jax_python: str, tmp_path: Path, native_agent: Path
) -> None:
    done = in_short_segments(tmp_path, jax_python, FULL, "--max-size", "4MB")
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "recording.layerscope")
    sizes = [path.stat().st_size for path in sorted(run.raw.glob("*_segment.pb"))]
    assert sum(sizes) > 1_000_000
    (full,) = ask(run, "SELECT count(*) AS n FROM problems WHERE code = 'segments_full'")
    assert full["n"] == 1


def test_a_segment_ends_between_two_calls_so_none_is_lost(
    jax_python: str, tmp_path: Path, native_agent: Path
) -> None:
    done = in_short_segments(tmp_path, jax_python, CALLS)
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "recording.layerscope")
    assert len(list(run.raw.glob("*_segment.pb"))) > 3
    calls = (
        "SELECT count(*) AS n FROM spans WHERE name = 'PjitFunction(double)' AND kind = 'function'"
    )
    (found,) = ask(run, calls)
    assert found["n"] in (int(done.stdout), int(done.stdout) + 1)  # the first one compiles it
    (gaps,) = ask(
        run,
        "SELECT count(*) AS n, min(end_ns - start_ns) AS ns FROM gaps WHERE reason = 'no_segment'",
    )
    assert gaps["n"] == len(list(run.raw.glob("*_segment.pb"))) - 1
    assert gaps["ns"] > 0


def test_segments_that_cost_more_than_the_budget_have_pauses_between_them(
    jax_python: str, tmp_path: Path, native_agent: Path
) -> None:
    done = in_short_segments(tmp_path, jax_python, CALLS, budget="5%")
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "recording.layerscope")
    (gaps,) = ask(
        run,
        "SELECT count(*) AS n, sum(end_ns - start_ns) AS ns FROM gaps WHERE reason = 'no_segment'",
    )
    assert gaps["n"] >= 3
    # A segment of 0.2 s that is full of events costs many times the budget: pauses are long.
    assert gaps["ns"] > 1_000_000_000
    (said,) = ask(run, "SELECT what, remedy FROM problems WHERE code = 'segments_apart'")
    assert "to keep within the budget" in said["what"]
    assert "--budget none" in said["remedy"]


def test_a_kill_costs_the_open_segment(jax_python: str, tmp_path: Path, native_agent: Path) -> None:
    done = in_short_segments(tmp_path, jax_python, KILLED)
    assert done.returncode == -9, done.stderr
    run = open_run(tmp_path / "recording.layerscope")
    kept = len(list(run.raw.glob("*_segment.pb")))
    assert kept >= 10
    (lost,) = ask(run, "SELECT count(*) AS n FROM problems WHERE code = 'profile_lost'")
    assert lost["n"] == 1
    (gaps,) = ask(
        run, "SELECT count(*) AS n, max(end_ns) - max(start_ns) AS ns FROM gaps WHERE lost IS NULL"
    )
    assert (gaps["n"], gaps["ns"] > 0) == (kept + 1, True)
    (found,) = ask(run, "SELECT count(*) AS n FROM spans WHERE kind = 'function'")
    assert found["n"] > 10
    # What a thread has told in one segment is known in the others.
    of_calls = "FROM spans JOIN tracks USING (track) WHERE spans.name LIKE 'PjitFunction%'"
    (threads,) = ask(run, f"SELECT count(DISTINCT track) AS n {of_calls}")
    assert threads["n"] == 2
