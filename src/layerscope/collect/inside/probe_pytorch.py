"""Run by the program's own Python in a throw-away process. Prints one line of JSON.

usage: probe_pytorch.py AGENT LIBTORCH_CPU SITE_PACKAGES SEQUENCE_OFFSET USE_TSC
"""

import ctypes
import json
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
        found = here if found is None else found & here
    return sorted(found)


def cost_ns():
    """CPU time that recording adds to a small operator: with and without, interleaved; the median."""
    x = torch.ones(8)

    def loop(number=20000):
        begin = time.thread_time_ns()
        for _ in range(number):
            torch.add(x, x)
        return (time.thread_time_ns() - begin) / number

    loop()
    differences = []
    for _ in range(11):
        without = loop()
        if agent.ls_probe_record(LIB, int(sequence_offset), int(use_tsc)):
            return 0.0
        differences.append(loop() - without)
        agent.ls_operators_stop()
    return max(sorted(differences)[len(differences) // 2], 0.0)


torch.set_num_threads(1)
answer = {"operator_cost_ns": cost_ns(), "forward_thread_offset": -1}
if agent.ls_probe_keep(LIB) == 0:
    found = candidates()
    if len(found) == 1:
        answer["forward_thread_offset"] = found[0]
print(json.dumps(answer))
