"""Requests that end in other ways than by one answer: streams, clients that go, several on one
connection, applications of the old kind. As many as the application was asked, and the program
notices nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.differential import Differential

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]

# It writes down itself what it was asked.
PROGRAM = """
import asyncio, base64, http.client, json, socket, sys, threading, time
import uvicorn
asked = []
async def http_app(scope, receive, send):
    path = scope["path"]
    asked.append(scope["method"] + " " + path)
    start = {"type": "http.response.start", "status": 200, "headers": []}
    part = {"type": "http.response.body", "body": b"part ", "more_body": True}
    if path == "/stream":
        await send(start)
        for _ in range(5):
            await send(part)
            await asyncio.sleep(0.004)
        await send({"type": "http.response.body"})
    elif path == "/forever":
        await send(start)
        for _ in range(100):
            await send(part)
            try:
                await asyncio.wait_for(receive(), 0.01)
            except asyncio.TimeoutError:
                continue
            break
    elif path == "/waits":
        while (await receive())["type"] != "http.disconnect":
            pass
    elif path == "/cancelled":
        raise asyncio.CancelledError
    elif path != "/nothing":
        await send(start)
        await send({"type": "http.response.body", "body": b"fine"})
async def websocket(scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": (await receive())["text"]})
    await send({"type": "websocket.close"})
async def lifespan(scope, receive, send):
    for state in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{state}.complete"})
kinds = {"http": http_app, "websocket": websocket, "lifespan": lifespan}
class Application:
    def __init__(self, scope): self.scope = scope
    async def __call__(self, receive, send): await kinds[self.scope["type"]](self.scope, receive, send)
def connected(port, text):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(text.replace("|", "\\r\\n").encode())
    return connection
def everything(connection):
    content = b""
    while part := connection.recv(4096): content += part
    connection.close()
    return content
def meet(port):
    for path in ("/", "/stream", "/nothing", "/cancelled"):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", path)
        answer = connection.getresponse()
        print(path, answer.status, answer.read())
        connection.close()
    several = "".join(f"GET /{name} HTTP/1.1|Host: x|{more}|" for name, more in (("a", ""), ("b", ""), ("c", "Connection: close|")))
    print(everything(connected(port, several)).count(b"fine"))
    keys = "Upgrade: websocket|Connection: Upgrade|Sec-WebSocket-Version: 13|Sec-WebSocket-Key: " + base64.b64encode(b"0" * 16).decode()
    stays = connected(port, f"GET /stays HTTP/1.1|Host: x|{keys}||")
    print(stays.recv(12))
    stays.sendall(bytes((0x81, 0x82, 0, 0, 0, 0)) + b"hi")
    print(b"hi" in stays.recv(4096))
    stays.close()
    for text in ("GET /half HT", "POST /body HTTP/1.1|Host: x|Content-Length: 100||abc", "GET /waits HTTP/1.1|Host: x||", "GET /forever HTTP/1.1|Host: x||", "nonsense||"):
        connection = connected(port, text)
        time.sleep(0.02)
        connection.close()
server = uvicorn.Server(uvicorn.Config(Application, port=0, log_level="critical", interface="asgi2"))
serving = threading.Thread(target=server.run)
serving.start()
while not server.started: time.sleep(0.01)
meet(server.servers[0].sockets[0].getsockname()[1])
time.sleep(0.1)
server.should_exit = True
serving.join()
print(json.dumps(sorted(asked)))
"""


def test_each_request_ends_however_it_does(tmp_path: Path, jax_python: str) -> None:
    differential = Differential(tmp_path, ("--without", "stacks"))
    program = tmp_path / "server.py"
    program.write_text(PROGRAM)

    outcome = differential.same([jax_python, str(program)])

    assert outcome.status == 0, outcome.stderr
    asked = json.loads(outcome.stdout.splitlines()[-1])
    assert len(asked) == 10
    recorded = differential.recorded()
    rows = recorded.rows("SELECT name, dur_ns FROM spans WHERE kind = 'task'")
    assert Counter(row["name"] for row in rows) == Counter(asked)
    (stream_ns,) = (row["dur_ns"] for row in rows if row["name"] == "GET /stream")
    assert stream_ns >= 5 * 4_000_000  # to its last part
