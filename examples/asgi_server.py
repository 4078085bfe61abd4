"""Answers requests over HTTP by a small convolutional network of ONNX Runtime, several at a time.

Needs starlette, uvicorn, onnx, onnxruntime and numpy. The clients are threads of this program, and
nothing leaves the machine.
"""

from __future__ import annotations

import asyncio
import http.client
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import uvicorn
from onnx_server import SIZE, make_model
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

CLIENTS = 4
LOOKUP_S = 0.005


def make_application(session: ort.InferenceSession) -> Starlette:
    """An application that classifies images: on the thread of all requests, or on one of a pool."""
    rng = np.random.default_rng(0)
    image = rng.normal(size=(1, 3, SIZE, SIZE)).astype(np.float32)

    def classify() -> str:
        (scores,) = session.run(None, {"image": image})
        return str(int(scores.argmax()))

    async def predict(request: Request) -> PlainTextResponse:
        await asyncio.sleep(LOOKUP_S)  # as if it asked a database
        return PlainTextResponse(classify())

    def predict_in_thread(request: Request) -> PlainTextResponse:
        classify()
        return PlainTextResponse(classify())

    routes = [Route("/predict/{user}", predict), Route("/thread", predict_in_thread)]
    return Starlette(routes=routes)


def ask(port: int, requests: int, client: int) -> None:
    """One client: half of its requests are answered by each of the two."""
    for number in range(requests):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/thread" if number % 2 else f"/predict/{client}")
        connection.getresponse().read()
        connection.close()


def serve(application: Starlette, requests: int) -> None:
    """Serve until all clients have their answers."""
    config = uvicorn.Config(application, port=0, log_level="warning")
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run)
    serving.start()
    while not server.started:
        time.sleep(0.01)
    (socket,) = server.servers[0].sockets
    port = socket.getsockname()[1]
    each = requests // CLIENTS
    clients = [threading.Thread(target=ask, args=(port, each, n)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    server.should_exit = True
    serving.join()


def main() -> None:
    """Make the model, and serve with it."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.onnx"
        make_model(path)
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        serve(make_application(session), requests)
    print(f"{requests} requests")


if __name__ == "__main__":
    main()
