"""A signal handler of the program raises while code of ours runs inside it: the program gets its
exception.
"""

from __future__ import annotations

from pathlib import Path

from tests.recorded import ROOT, record
from tests.repeated import times

# Most of the time of the first calls of many modules is ours: it is then that they are learned.
PROGRAM = """
import signal
import time

import torch
from torch import nn


class OutOfTime(Exception):
    pass


def stop(number, frame):
    raise OutOfTime


signal.signal(signal.SIGALRM, stop)
x = torch.ones(1)
swallowed = 0
for round in range(60):
    net = nn.Sequential(*[nn.Identity() for _ in range(300)])
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001 * 1.1**round)
        net(x)
        time.sleep(0.2)
        swallowed += 1
    except OutOfTime:
        pass
print(swallowed)
"""

# What the handler raises may be of a type that lines of ours raise and catch themselves. Each round is a request that is
# answered, a session that is created, a run or one that calls back, at some moment of which the signal comes.
STORM = """
import random, signal, sys, time, traceback
import numpy as np
import onnxruntime as ort
from hypercorn.app_wrappers import ASGIWrapper
sys.path.insert(0, "EXAMPLES")
from onnx_server import make_model
make_model("net.onnx")
image = np.zeros((1, 3, 32, 32), np.float32)
options = ort.SessionOptions()
options.intra_op_num_threads = 2
session = ort.InferenceSession("net.onnx", options)
class Sender:
    def send(self, message): pass
async def application(scope, receive, send): pass
wrapper, sender = ASGIWrapper(application), Sender()
scope = {"type": "http", "method": "GET", "path": "/"}
def answer(): wrapper(scope, None, sender.send, None, None).close()
def create(): ort.InferenceSession("net.onnx", options)
def run(): session.run(None, {"image": image})
over_so_far = []
def over(results, data, error): over_so_far.append(1)
def run_async():
    session.run_async(None, {"image": image}, over, None)
    time.sleep(0.0005)
kinds, files = (TimeoutError, ValueError, RuntimeError), set()
def handler(number, frame):
    raise random.choice(now)
signal.signal(signal.SIGALRM, handler)
def repeat(work, end):  # Python 3.13.0 loses exceptions at the jump of a loop in a `try`
    while time.monotonic() < end: work()
def swallowed(work, rounds, longest_s):
    caught = 0
    for _ in range(rounds):
        end = time.monotonic() + 0.1
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, longest_s))
            repeat(work, end)
            time.sleep(0.1)
        except kinds as error:
            caught += 1
            files.update(line.filename for line in traceback.extract_tb(error.__traceback__))
    return rounds - caught
rounds = int(sys.argv[1])
for work, count, longest_s in ((answer, rounds, 1e-4), (create, rounds // 8, 1e-2), (run, rounds // 8, 1e-3), (run_async, rounds // 8, 1e-3)):
    now = kinds[:1] if work is create else kinds  # ONNX Runtime catches the others
    print(work.__name__, swallowed(work, count, longest_s))
print([file for file in files if "/layerscope/capture/" in file])
before = -1
while before != len(over_so_far):  # a thread that is still in a callback would abort the program
    before = len(over_so_far)
    time.sleep(0.2)
""".replace("EXAMPLES", str(ROOT / "examples"))


def test_what_a_handler_raises_comes_through_whatever_type_it_has(
    jax_python: str, tmp_path: Path, native_agent: Path
) -> None:
    rounds = times(8_000, 800)
    done = record(jax_python, STORM, tmp_path, str(rounds))

    lines = ["answer 0", "create 0", "run 0", "run_async 0", "[]"]
    assert (done.status, done.stdout.splitlines()) == (0, lines), done.stderr
    assert done.value("SELECT count(*) FROM steps WHERE rule = 'served'") > rounds // 4


def test_no_exception_of_a_signal_handler_is_swallowed(
    program_python: str, tmp_path: Path, native_agent: Path
) -> None:
    done = record(program_python, PROGRAM, tmp_path)

    assert (done.status, done.stdout) == (0, "0\n"), done.stderr
    assert (
        done.value("SELECT count(*) FROM spans WHERE kind = 'module' AND name = 'Sequential'") > 0
    )
