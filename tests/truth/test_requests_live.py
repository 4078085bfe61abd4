"""Requests of servers and of programs that mark them, recorded while they are answered: how long
each takes, and which calls of the model are its own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.differential import Differential, Outcome
from tests.recorded import NO_STACKS, ROOT, Recorded, layerscope, record

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]

EXAMPLE = ROOT / "examples" / "asgi_server.py"
SETTING = f"""
import asyncio, contextvars, sys, threading
from pathlib import Path
sys.path.insert(0, {str(EXAMPLE.parent)!r})
import numpy as np
import onnxruntime as ort
from onnx_server import make_model
make_model(Path("net.onnx"))
session = ort.InferenceSession("net.onnx")
image = np.zeros((1, 3, 32, 32), np.float32)
def call(): session.run(None, {{"image": image}})
"""
HYPERCORN = (
    SETTING
    + """
import hypercorn.asyncio, hypercorn.config
from asgi_server import ask, make_application
async def main():
    done, config = asyncio.Event(), hypercorn.config.Config()
    config.bind, config.errorlog = ["127.0.0.1:0"], None
    sockets = config.create_sockets()
    config.create_sockets = lambda: sockets
    port = sockets.insecure_sockets[0].getsockname()[1]
    application = make_application(session)
    serve = hypercorn.asyncio.serve(application, config, shutdown_trigger=done.wait)
    serving = asyncio.create_task(serve)
    while True:
        await asyncio.sleep(0.01)
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            break
        except OSError:
            continue
    writer.close()
    await asyncio.gather(*(asyncio.to_thread(ask, port, 6, n) for n in range(2)))
    serving.cancel()
    await asyncio.wait([serving])
asyncio.run(main())
"""
)
# Requests that follow each other, overlap, run on a thread of a pool, and go on after the answer.
MARKED = (
    SETTING
    + """
from layerscope.profiler import Request
@Request("plain")
def plain():
    call()
    with Request("part of it"): call()
@Request("coroutine")
async def coroutine(calls):
    for _ in range(calls):
        await asyncio.sleep(0.005)
        call()
async def in_pool():
    with Request("pool"):
        await asyncio.to_thread(call)
        asyncio.get_running_loop().call_later(0.05, call)  # after the answer: of no request
    await asyncio.sleep(0.1)
async def scheduler():
    requests = [Request("queued") for _ in range(3)]
    for request in requests: request.start()
    for request in requests:
        with request.inside(): call()
    call()  # one call for all of them
    for request in requests: request.stop()
async def main():
    await asyncio.gather(*(coroutine(calls) for calls in (1, 2, 3)), in_pool())
    await scheduler()
@Request("generated")
def generated():
    call()
    yield
    call()
plain()
asyncio.run(main())
for _ in generated(): call()  # who asks for a value is in no request
"""
)
# Of an application that raises and one that answers by a plain function, the words of the server.
TRANSPARENT = """
import asyncio, http.client, inspect, logging, sys, threading, time
import uvicorn
from uvicorn.protocols.http.h11_impl import RequestResponseCycle
class Route:
    path = property(lambda self: sys.exit("nobody asks for it"))
def application(scope, receive, send):
    if scope.get("path") == "/plain":
        raise ValueError("a plain function's fault")
    return respond(scope, receive, send)
async def respond(scope, receive, send):
    if scope["type"] == "lifespan":
        raise RuntimeError("no lifespan here")
    scope["route"] = Route()
    print(type(send), inspect.iscoroutinefunction(send), type(send.__self__), inspect.signature(send))
    print(asyncio.current_task().get_coro().__qualname__, "end" in repr(asyncio.current_task()))
    if scope["path"] == "/raise":
        raise ValueError("the application's own fault")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first ", "more_body": True})
    if scope["path"] == "/late":
        raise KeyError("after the beginning")
    await send({"type": "http.response.body", "body": b"last"})
    if scope["path"] == "/twice":
        await send({"type": "http.response.body", "body": b"more"})
config = uvicorn.Config(
    application, port=0, log_level="error", http="h11", interface="asgi3", proxy_headers=False
)
server = uvicorn.Server(config)
serving = threading.Thread(target=server.run)
serving.start()
while not server.started: time.sleep(0.01)
port = server.servers[0].sockets[0].getsockname()[1]
for path in ("/", "/raise", "/late", "/twice", "/?a=1", "/plain"):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    try:
        answer = connection.getresponse()
        print(answer.status, answer.read())
    except http.client.HTTPException as error:
        print(type(error), getattr(error, "partial", None))
server.should_exit = True
serving.join()
print(inspect.signature(RequestResponseCycle.run_asgi), RequestResponseCycle.run_asgi.__qualname__)
"""
# An application in another one, files below a path, and what is found nowhere, some of it by many.
MOUNTED = """
import http.client, threading, time
from pathlib import Path
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
async def answer(request):
    return PlainTextResponse("fine")
async def bare(scope, receive, send):
    await PlainTextResponse("bare")(scope, receive, send)
inner = Starlette(routes=[Route("/items/{n}", answer)])
Path("files").mkdir(exist_ok=True)
Path("files/a").write_text("a")
files = StaticFiles(directory="files")
routes = [Mount("/api", inner), Mount("/of/{who}", inner), Mount("/files", files), Mount("/bare", bare), Route("/", answer)]
server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), port=0, log_level="error"))
serving = threading.Thread(target=server.run)
serving.start()
while not server.started: time.sleep(0.01)
port = server.servers[0].sockets[0].getsockname()[1]
paths = ["/", "/api/items/1", "/api/items/2", "/of/a/items/3", "/of/b/items/3", "/files/a", "/files/no", "/bare/1", "/api/none"]
for path in [*paths, *(f"/none{n}" for n in range(20)), "/api"]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    answer = connection.getresponse()
    print(path, answer.status, answer.read())
server.should_exit = True
serving.join()
"""
# A child ends with requests of its own under way, and knows nothing of those of its parent.
UNDER_WAY = """
import os, signal
from layerscope.profiler import Request
requests = [Request("asked") for _ in range(3)]
for request in requests: request.start()
child = os.fork()
if not child:
    for _ in range(5): Request("in a child").start()
    with Request("answered"): requests[1].stop()
    os._exit(0)
os.waitpid(child, 0)
requests[0].stop()
os.kill(os.getpid(), signal.SIGKILL)
"""
CALLS_OF_REQUESTS = """
SELECT r.name AS name, r.step AS step, count(m.span) AS calls,
    count(m.span) FILTER (m.start_ns >= r.start_ns AND m.start_ns < r.start_ns + r.dur_ns) AS inside
FROM spans r LEFT JOIN spans m ON m.step = r.step AND m.layer = 'modules'
WHERE r.kind = 'task' GROUP BY ALL ORDER BY step"""


def calls_of(recorded: Recorded) -> dict[str, list[int]]:
    """By name of a request how many calls each has, all of which lie in it."""
    found: dict[str, list[int]] = {}
    for row in recorded.rows(CALLS_OF_REQUESTS):
        assert row["calls"] == row["inside"], row
        found.setdefault(row["name"], []).append(row["calls"])
    return {name: sorted(calls) for name, calls in found.items()}


@pytest.fixture(scope="module")
def served(jax_python: str, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The example, which answers 40 requests of four clients."""
    return record(jax_python, str(EXAMPLE), tmp_path_factory.mktemp("served"), "40")


def test_requests_that_a_server_answers_at_once_have_their_own_calls(served: Recorded) -> None:
    assert (served.status, served.stdout) == (0, "40 requests\n"), served.stderr
    assert calls_of(served) == {"GET /predict/{user}": [1] * 20, "GET /thread": [2] * 20}
    assert served.value("SELECT DISTINCT rule FROM steps") == "served"
    assert served.value("SELECT count(*) FROM steps") == 40
    tracks = served.value(
        "SELECT count(*) FROM tracks WHERE kind = 'requests' AND name = 'requests'"
    )
    assert 2 <= tracks <= 4


def test_operators_belong_to_the_request_that_asks_for_them(served: Recorded) -> None:
    of_conv = "SELECT count(*), count(step) FROM spans WHERE name = 'Conv'"
    assert list(served.rows(of_conv)[0].values()) == [4 * 60, 4 * 60]
    phases = "SELECT DISTINCT phase FROM spans WHERE name = 'Conv'"
    assert served.value(phases) == "forward"


def test_the_summary_says_what_a_request_waits_for(served: Recorded) -> None:
    assert "40 requests" in served.stderr
    assert "A request takes" in served.stderr
    assert "a request is what the server or the program marks" in served.stderr
    assert re.search(r"of it .+ in its calls, .+ while only others' ran", served.stderr)


def test_a_window_of_steps_holds_whole_requests(jax_python: str, tmp_path: Path) -> None:
    options = ("-o", "part", *NO_STACKS, "--steps", "10:20")
    done = layerscope("run", *options, "--", jax_python, str(EXAMPLE), "40", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "40 requests\n"), done.stderr
    part = Recorded(open_run(tmp_path / "part.layerscope"), 0, done.stdout, done.stderr)
    numbers = [row["step"] for row in part.rows("SELECT step FROM steps ORDER BY step")]
    assert numbers == list(range(10, 20))
    calls = """SELECT DISTINCT if(t.name = 'GET /thread', 2, 1) = count(c.span) AS is_whole FROM spans t
        JOIN spans c ON c.step = t.step AND c.layer = 'modules' WHERE t.kind = 'task' GROUP BY t.span, t.name"""
    assert part.rows(calls) == [{"is_whole": True}]
    # The profile of the session is written where the window closes, and has no other ones.
    (found,) = part.rows(
        """SELECT count(*) FILTER (name = 'Conv') AS nodes,
            count(*) FILTER (layer = 'modules') AS runs FROM spans WHERE step IS NOT NULL"""
    )
    assert found["nodes"] == 4 * found["runs"] > 0
    (noted,) = part.run.raw.glob("onnxruntime-*.profile")
    assert "closed" in json.loads(noted.read_text())


def test_requests_of_another_server_are_recorded(jax_python: str, tmp_path: Path) -> None:
    recorded = record(jax_python, HYPERCORN, tmp_path)
    assert recorded.status == 0, recorded.stderr
    assert calls_of(recorded) == {"GET /predict/{user}": [1] * 6, "GET /thread": [2] * 6}


def test_requests_that_the_program_marks_have_what_runs_in_their_context(
    jax_python: str, tmp_path: Path
) -> None:
    recorded = record(jax_python, MARKED, tmp_path)
    assert recorded.status == 0, recorded.stderr
    assert calls_of(recorded) == {
        "plain": [2],
        "coroutine": [1, 2, 3],
        "pool": [1],
        "queued": [1, 1, 1],
        "generated": [2],
    }
    # That after the answer, that for all three, and that between two values.
    unowned = "SELECT count(*) FROM spans WHERE layer = 'modules' AND step IS NULL"
    assert recorded.value(unowned) == 3


def test_requests_under_way_when_a_process_ends_are_counted(
    program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, UNDER_WAY, tmp_path)
    assert recorded.status == -9, recorded.stderr
    lost = "SELECT lost FROM gaps WHERE reason = 'open_requests' ORDER BY lost"
    assert [row["lost"] for row in recorded.rows(lost)] == [2, 5]
    said = " ".join(recorded.stderr.split())
    assert "7 records, because they were requests that were under way when their process" in said


def test_a_request_lasts_until_its_generator_ends_which_does_what_it_did(
    tmp_path: Path, jax_python: str
) -> None:
    differential = Differential(tmp_path, ("--without", "stacks"))

    outcome = differential.same([jax_python, str(ROOT / "tests" / "programs" / "generates.py")])

    assert outcome.status == 0, outcome.stderr
    counted = "SELECT name, count(*) AS n FROM spans WHERE kind = 'task' GROUP BY name"
    found = {row["name"]: row["n"] for row in differential.recorded().rows(counted)}
    assert found == {"counts": 7, "delegates": 1, "stubborn": 2, "asynchronous": 7}


def test_a_request_is_called_by_where_its_route_is_mounted(tmp_path: Path, jax_python: str) -> None:
    differential = Differential(tmp_path, ("--without", "stacks"))
    program = tmp_path / "server.py"
    program.write_text(MOUNTED)

    differential.same([jax_python, str(program)])

    counted = "SELECT name, count(*) AS n FROM spans WHERE kind = 'task' GROUP BY name"
    assert {row["name"]: row["n"] for row in differential.recorded().rows(counted)} == {
        "GET /": 1,
        "GET /api/items/{n}": 2,
        "GET /of/{who}/items/{n}": 2,
        "GET /files/{path}": 2,
        "GET /bare/{path}": 1,
        "GET /api/{path}": 1,  # found nowhere in it
        "GET (404)": 20,
        "GET (307)": 1,
    }


def test_the_server_answers_and_complains_as_without_us(tmp_path: Path, jax_python: str) -> None:
    differential = Differential(tmp_path, ("--without", "stacks"))
    program = tmp_path / "server.py"
    program.write_text(TRANSPARENT)

    def without_order(outcome: Outcome) -> Outcome:
        lines = sorted(outcome.stderr.splitlines(keepends=True))
        outcome.stderr = b"".join(lines)
        return outcome

    differential.normalise = without_order
    outcome = differential.same([jax_python, str(program)])

    assert b"the application's own fault" in outcome.stderr
    recorded = differential.recorded()
    (requests,) = recorded.rows("SELECT count(*) AS n FROM steps WHERE rule = 'served'")
    assert requests["n"] == 6
