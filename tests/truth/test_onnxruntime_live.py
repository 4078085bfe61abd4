"""Sessions of ONNX Runtime, recorded while they run: what is recorded is what their own profiler
says, and the program notices nothing.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from layerscope.analyse import tables
from layerscope.recording.reader import Reader
from tests.differential import Differential
from tests.recorded import ROOT, Recorded, record
from tests.repeated import also, times

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]

SERVER = ROOT / "examples" / "onnx_server.py"
MODEL = f"""
import os, pickle, pydoc, runpy, signal, sys, threading, traceback
import multiprocessing as mp
from pathlib import Path
import numpy as np
import onnxruntime as ort
def make():
    runpy.run_path({str(SERVER)!r})["make_model"](Path("net.onnx"))
def use(count, options=None):
    session = ort.InferenceSession("net.onnx", options)
    image = np.zeros((1, 3, 32, 32), np.float32)
    for _ in range(count):
        session.run(None, {{"image": image}})
    return session
"""
EVERYWHERE = (
    MODEL
    + """
if __name__ == "__main__":
    make()
    worker = mp.get_context("spawn").Process(target=use, args=(4,))
    worker.start()
    worker.join()
    thread = threading.Thread(target=use, args=(5,))
    thread.start()
    thread.join()
    use(6)
    kept = use(7)
"""
)
# Ten runs call back where they end, the last of them raises; one is refused. Others are bound to their outputs beforehand.
CALLS_BACK = (
    MODEL
    + """
make()
options = ort.SessionOptions()
options.intra_op_num_threads = 3
providers = ["AzureExecutionProvider", "CPUExecutionProvider"]
session = ort.InferenceSession("net.onnx", options, providers=providers)
image = np.zeros((1, 3, 32, 32), np.float32)
told, lock, all_over = [], threading.Lock(), threading.Event()
def over(results, number, error):
    with lock:
        told.append((number, results[0].shape, error))
        is_last = len(told) == 10
    if is_last:
        raise KeyError("of a callback")
def hear(about):
    print(about.exc_type, *(line.name for line in traceback.extract_tb(about.exc_traceback)))
    all_over.set()
import traceback
sys.unraisablehook = hear
for number in range(5):
    session.run_async(None, {"image": image}, over, number)
    session.run_async(None, {"image": image}, user_data=number, callback=over)
all_over.wait(30)
try:
    session.run_async(None, {"wrong": image}, over, 1)
except ValueError:
    print(traceback.format_exc())
binding = session.io_binding()
binding.bind_cpu_input("image", image)
binding.bind_output("scores")
for _ in range(4):
    session.run_with_iobinding(binding)
print(sorted(told), pydoc.render_doc(ort.InferenceSession.run_async))
"""
)
# Requests under way at once on one thread, each of which asks for runs, and one run that no request asks for.
ASKED_IN_REQUESTS = (
    MODEL
    + """
import asyncio
from layerscope.profiler import Request
make()
options = ort.SessionOptions()
options.intra_op_num_threads = 3
session = ort.InferenceSession("net.onnx", options)
image = np.zeros((1, 3, 32, 32), np.float32)
async def run():
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    def over(results, data, error):
        loop.call_soon_threadsafe(answer.set_result, results)
    session.run_async(None, {"image": image}, over, None)
    await answer
async def request(runs):
    with Request(f"{runs} runs"):
        for _ in range(runs):
            await run()
async def main():
    await asyncio.gather(*map(request, (1, 2, 3)))
    await run()
    await asyncio.sleep(0.2)  # a thread that is still in a callback would abort the program
asyncio.run(main())
"""
)
# One short session after the other, as a server that loads a model for each request.
MANY = (
    MODEL
    + """
import onnx
from onnx import TensorProto, helper
count = int(sys.argv[1])
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "g", ends[:1], ends[1:])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), "one.onnx")
options = ort.SessionOptions()
options.intra_op_num_threads = 1
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
for number in range(count):
    session = ort.InferenceSession("one.onnx", options)
    for _ in range(20):
        session.run(None, {"x": np.zeros(4, np.float32)})
    if number == count // 3:
        before = resident()
print(resident() - before)
"""
)
ENDED = MODEL + "make()\nuse(8)\nsession = use(9)\n"
# A child frees what it got from its parent, and the parent has closed a file that is not its own.
AMONG_OTHERS = (
    MODEL
    + """
make()
import gc, resource
options = ort.SessionOptions()
options.intra_op_num_threads = 1
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
several = [use(0, options) for _ in range(110)]
del several
session = use(3, options)
child = os.fork()
if not child:
    session.run(None, {"image": np.zeros((1, 3, 32, 32), np.float32)})
    del session
    gc.collect()
    os._exit(0)
os.waitpid(child, 0)
other = use(2, options)
del session
for number in map(int, os.listdir("/proc/self/fd")):
    where = Path(f"/proc/self/fd/{number}")
    if where.exists() and "onnxruntime-" in os.readlink(where):
        os.close(number)
files = [open(f"mine{number}", "w") for number in range(50)]
"""
)
PARTICULAR = (
    MODEL
    + """
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
import inspect
make()
class Mine(ort.InferenceSession):
    def __init__(self, path):
        super().__init__(path)
        self.path = path
    def __reduce__(self):
        return Mine, (self.path,)
mine = pickle.loads(pickle.dumps(Mine("net.onnx")))
print(type(mine) is Mine, isinstance(mine, InferenceSession), InferenceSession is ort.InferenceSession)
print(type(mine).__mro__, inspect.signature(ort.InferenceSession.run))
options = ort.SessionOptions()
options.profile_file_prefix = "mine"
session = use(2, options)
print(options.enable_profiling, options.profile_file_prefix, session.get_session_options().enable_profiling)
options.enable_profiling = True
session = use(3, options)
profile = session.end_profiling()
print(profile.startswith("mine"), Path(profile).exists(), sorted(p.suffix for p in Path().glob("mine*")))
plain = ort.SessionOptions()
session = use(1, plain)
print(session.get_session_options() is plain, session.end_profiling() == "")
session.set_providers(["CPUExecutionProvider"])
Path("cut.onnx").write_bytes(Path("net.onnx").read_bytes()[:5000])
Path("odd.onnx").write_bytes(Path("net.onnx").read_bytes() + bytes([0x58, 0]))
for path in ("cut.onnx", "absent.onnx"):
    try:
        ort.InferenceSession(path, plain)
    except Exception as error:
        print(type(error), plain.enable_profiling, plain.profile_file_prefix)
print(ort.InferenceSession("odd.onnx").get_inputs()[0].name)
print(pydoc.render_doc(ort.InferenceSession.run), pydoc.render_doc(ort.InferenceSession))
try:
    session.run(None, {"nothing": 1})
except ValueError:
    print(traceback.format_exc())
try:
    ort.InferenceSession("absent.onnx")
except Exception as error:
    traceback.print_exception(error, file=sys.stdout)
Path(profile).unlink()
"""
)


@pytest.fixture(scope="module")
def served(jax_python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The example, which answers 60 requests."""
    folder = tmp_path_factory.mktemp("served")
    program = SERVER.read_text().replace("else 200", "else 60")
    return record(jax_python, program, folder)


def test_operators_are_those_of_the_session_s_own_profile(served: Recorded) -> None:
    assert (served.status, served.stdout) == (0, "60 requests, class 0 in 0 images\n"), (
        served.stderr
    )
    (file,) = served.run.raw.glob("onnxruntime-*.json")
    nodes = [event for event in json.loads(file.read_text()) if event["cat"] == "Node"]
    expected = Counter(event["args"]["op_name"] for event in nodes)
    of_names = served.rows(
        "SELECT name, count(*) AS n FROM spans WHERE kind = 'function' GROUP BY name"
    )
    assert {row["name"]: row["n"] for row in of_names} == expected
    lasted_ns = sum(event["dur"] for event in nodes) * 1000
    known_ns = served.value("SELECT sum(dur_ns) FROM spans WHERE kind = 'function'")
    assert known_ns == pytest.approx(lasted_ns, rel=0.02)


def test_a_run_is_a_request_and_holds_its_operators(served: Recorded) -> None:
    assert served.value("SELECT count(*) FROM steps") == 60
    assert served.value("SELECT DISTINCT path FROM modules") == "server"
    per_run = """
    SELECT DISTINCT count(*) FROM spans WHERE kind = 'function' AND name = 'Conv' AND step IS NOT NULL
    GROUP BY step
    """
    assert served.value(per_run) == 4
    assert served.value("SELECT count(*) FROM spans WHERE name = 'Conv' AND module IS NULL") == 0
    assert "60 requests" in served.stderr
    assert "a request is one run of server" in served.stderr


def test_requests_of_each_shape_have_percentiles_of_their_own(served: Recorded) -> None:
    # 45 of one shape; the first ones, while the machine is slow, are warm-up.
    assert re.search(r"\b4[0-5] requests", served.stderr), served.stderr
    of_conv = "SELECT json FROM args JOIN spans USING (args) WHERE name = 'Conv' LIMIT 1"
    about = json.loads(served.value(of_conv))
    assert about["provider"] == "CPUExecutionProvider"
    assert about["dtypes"][0] == "float32"
    # The node is called by its output where the session has fused it.
    assert about["node"].startswith("active"), about
    assert {"node_index", "output_size", "output_type_shape", "shapes"} <= about.keys()
    with Reader(served.run) as reader:
        nodes = tables.build(reader, "nodes").data.to_pylist()
    convolutions = [row for row in nodes if row["name"] == "Conv"]
    assert [row["count"] for row in convolutions] == [60] * 4
    assert all(row["run_ns"] > 0 for row in convolutions)
    assert {row["provider"] for row in nodes} == {"CPUExecutionProvider"}


def test_the_arena_and_the_pool_of_threads_are_counters(served: Recorded) -> None:
    (file,) = served.run.raw.glob("onnxruntime-*.json")
    nodes = [event["args"] for event in json.loads(file.read_text()) if event["cat"] == "Node"]
    most_bytes = max(int(node["mem_bytes_in_use"]) for node in nodes)
    worked_us = sum(node["thread_scheduling_stats"]["main_thread"]["Run"] for node in nodes)
    largest = "SELECT max(value) FROM counters WHERE name LIKE '{}%'"
    assert served.value(largest.format("arena_used_bytes")) == most_bytes
    assert served.value(largest.format("pool_run_ns")) == worked_us * 1000


def test_sessions_in_a_worker_in_a_thread_and_freed_early_are_recorded(
    jax_python: str, tmp_path: Path
) -> None:
    recorded = record(jax_python, EVERYWHERE, tmp_path)
    assert recorded.status == 0, recorded.stderr
    found = recorded.rows(
        """SELECT m.name AS name, count(*) AS n FROM spans m WHERE layer = 'modules' GROUP BY ALL"""
    )
    assert sum(row["n"] for row in found) == 4 + 5 + 6 + 7
    assert recorded.value("SELECT count(*) FROM spans WHERE name = 'Conv'") == 4 * (4 + 5 + 6 + 7)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        *also([("os.kill(os.getpid(), signal.SIGTERM)", -15), ("os._exit(5)", 5)]),
    ],
)
def test_runs_survive_a_kill_and_what_was_lost_is_said(
    jax_python: str, tmp_path: Path, end: str, status: int
) -> None:
    recorded = record(jax_python, f"{ENDED}{end}\n", tmp_path)
    assert recorded.status == status, recorded.stderr
    assert recorded.value("SELECT count(*) FROM spans WHERE layer = 'modules'") == 17
    # The session that was freed had written its profile.
    assert recorded.value("SELECT count(*) FROM spans WHERE name = 'Conv'") == 4 * 8
    assert recorded.value("SELECT count(*) FROM problems WHERE code = 'profile_lost'") == 1


def test_the_program_finds_what_it_would_find_without_us(tmp_path: Path, jax_python: str) -> None:
    differential = Differential(tmp_path, ("--without", "stacks"))
    program = tmp_path / "particular.py"
    program.write_text(PARTICULAR)

    differential.same([jax_python, str(program)])

    recorded = differential.recorded()
    assert "session_profiled" in recorded.problems()
    (runs,) = recorded.rows("SELECT count(*) AS n FROM spans WHERE layer = 'modules'")
    assert runs["n"] == 7
    assert "profile_lost" not in recorded.problems()


def test_runs_that_call_back_are_requests_until_they_do(tmp_path: Path, jax_python: str) -> None:
    differential = Differential(tmp_path, ("--without", "stacks"))
    program = tmp_path / "calls_back.py"
    program.write_text(CALLS_BACK)

    outcome = differential.same([jax_python, str(program)])

    assert outcome.status == 0, outcome.stderr
    recorded = differential.recorded()
    (steps,) = recorded.rows("SELECT count(*) AS n, count(DISTINCT start_ns) AS starts FROM steps")
    assert list(steps.values()) == [14, 14]
    (tracks,) = recorded.rows("SELECT count(*) AS n FROM tracks WHERE kind = 'requests'")
    assert tracks["n"] >= 2
    assert recorded.count("Conv") == 4 * 14
    owned = """SELECT DISTINCT count(*) AS n FROM spans WHERE name = 'Conv' AND phase = 'forward'
        AND module IS NOT NULL AND step IS NOT NULL GROUP BY step"""
    assert recorded.rows(owned) == [{"n": 4}]
    # Azure's runs no node of such a model.
    assert "provider_fallback" in recorded.problems()
    nodes = recorded.rows('SELECT DISTINCT json FROM args WHERE json LIKE \'%"asked": "Azure%\'')
    assert len(nodes) >= 8


def test_nodes_on_a_thread_of_the_pool_are_of_the_request_that_asked_for_the_run(
    jax_python: str, tmp_path: Path
) -> None:
    recorded = record(jax_python, ASKED_IN_REQUESTS, tmp_path)
    assert recorded.status == 0, recorded.stderr
    counted = """
    SELECT r.name AS name, count(*) AS nodes, count(DISTINCT m.span) AS runs FROM spans r
    JOIN spans m ON m.step = r.step AND m.layer = 'modules'
    JOIN spans n ON n.step = r.step AND n.name = 'Conv' AND n.start_ns >= m.start_ns
        AND n.start_ns + n.dur_ns <= m.start_ns + m.dur_ns
    WHERE r.kind = 'task' GROUP BY ALL ORDER BY name"""
    assert [list(row.values()) for row in recorded.rows(counted)] == [
        [f"{runs} runs", 4 * runs, runs] for runs in (1, 2, 3)
    ]
    unowned = "SELECT count(*) FROM spans WHERE name = 'Conv' AND step IS NULL"
    assert recorded.value(unowned) == 4
    assert recorded.value("SELECT count(*) FROM spans WHERE name = 'Conv' AND module IS NULL") == 0


def test_sessions_one_after_the_other_take_no_more_and_more(
    jax_python: str, tmp_path: Path
) -> None:
    count = times(2_000, 120)
    recorded = record(jax_python, MANY, tmp_path, str(count))
    assert recorded.status == 0, recorded.stderr
    assert int(recorded.stdout) < 4 << 20
    profiles = list(recorded.run.raw.glob("onnxruntime-*.json"))
    assert len(profiles) == min(count, 1_000)
    assert sum(file.stat().st_size for file in profiles) < 64 << 20
    assert recorded.value("SELECT count(*) FROM spans WHERE layer = 'modules'") == 20 * count


def test_files_of_children_and_of_the_program_are_left_alone(
    tmp_path: Path, jax_python: str
) -> None:
    differential = Differential(tmp_path, ("--without", "stacks"))
    program = tmp_path / "among_others.py"
    program.write_text(AMONG_OTHERS)

    outcome = differential.same([jax_python, str(program)])

    assert outcome.status == 0, outcome.stderr
    recorded = differential.recorded()
    assert recorded.count("Conv") == 4 * 3
    assert {"profile_lost", "sessions_unprofiled"} <= set(recorded.problems())
