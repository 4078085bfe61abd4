"""Run by the program's own Python in a throw-away process. Prints one line of JSON.

usage: probe_pytorch.py AGENT LIBTORCH_CPU SITE_PACKAGES SEQUENCE_OFFSET USE_TSC
"""

import ctypes
import json
import re
import struct
import sys
import threading
import time

agent_path, library, package, sequence_offset, use_tsc = sys.argv[1:6]
sys.path[0] = package  # the folder of this script is not for torch to import from
import torch  # noqa: E402

agent = ctypes.CDLL(agent_path)
agent.ls_probe_thread.restype = ctypes.c_uint64
LIB = library.encode()


def forward_on_a_thread(keep):
    """One forward operator on a thread of its own, and torch's number of that thread."""
    x = torch.ones(4, requires_grad=True)
    keep.append(((x * 2).sum(), agent.ls_probe_thread(LIB)))


def candidates():
    """Offsets that hold the number of the forward thread in each of several backward passes."""
    found = None
    for _ in range(5):
        keep = []
        thread = threading.Thread(target=forward_on_a_thread, args=(keep,))
        thread.start()
        thread.join()
        loss, number = keep[0]
        loss.backward()
        data = ctypes.create_string_buffer(512)
        agent.ls_probe_kept(data)
        words = struct.unpack("<64Q", data.raw)
        here = {i * 8 for i, word in enumerate(words) if word == number}
        if found is None:
            found = here
        found &= here
    return sorted(found)


def record():
    """Start recording into a ring of our own, emptied."""
    if agent.ls_probe_record(LIB, int(sequence_offset), int(use_tsc)):
        raise SystemExit("the agent does not start")


def added(work):
    """CPU time that recording adds to one call of `work`, in ns: with and without in turns, the
    median.
    """
    record()
    work()
    differences = []
    for i in range(ROUNDS):
        times = {}
        for recording in (True, False) if i % 2 else (False, True):
            record()
            if not recording:
                agent.ls_operators_stop()
            begin = time.thread_time_ns()
            for _ in range(CALLS):
                work()
            times[recording] = time.thread_time_ns() - begin
        differences.append((times[True] - times[False]) / CALLS)
    agent.ls_operators_stop()
    return sorted(differences)[ROUNDS // 2]


def spans(work):
    """Spans that one call of `work` records: (of kind backward, others)."""
    record()
    agent.ls_probe_spans(0)
    record()
    work()
    found = agent.ls_probe_spans(1), agent.ls_probe_spans(0)
    agent.ls_operators_stop()
    return found


def costs():
    """What recording adds to a span that is not backward, and to one that is, in ns."""
    x, b = torch.rand(8), torch.full((8,), 1e-3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    loss = model(torch.ones(2, 8)).sum()

    def operators():
        y = x
        for _ in range(20):
            y = (y + b) * b - b
            y.to(torch.float64)

    def backward():
        loss.backward(retain_graph=True)

    _, others = spans(operators)
    operator_ns = max(added(operators) / others, 0.0)
    backwards, others = spans(backward)
    return operator_ns, max(
        (added(backward) - others * operator_ns) / max(backwards, 1), operator_ns
    )


CALLS, ROUNDS = 40, 31
torch.set_num_threads(1)
operator_ns, backward_ns = costs()
mkl = re.search(r"Math Kernel Library Version ([0-9.]+)", torch.__config__.show())
answer = {
    "operator_cost_ns": operator_ns,
    "backward_cost_ns": backward_ns,
    "forward_thread_offset": -1,
}
answer["mkl"] = mkl.group(1) if mkl else ""
if agent.ls_probe_keep(LIB) == 0:
    found = candidates()
    if len(found) == 1:
        answer["forward_thread_offset"] = found[0]
print(json.dumps(answer))
