# Runs inside a sampled Python, in front of a test's own lines: a sample is taken at each `tick()`, and what the frames
# are at that moment is printed at the end. AGENT and SOCKET are set in front of this text.
import ctypes
import json
import os
import struct
import sys
import threading

agent = ctypes.CDLL(AGENT)  # noqa: F821
assert agent.ls_prepare(SOCKET.encode(), b"", 0) == 0  # noqa: F821
assert agent.ls_sampling_start(99, 0) == 0
libc = ctypes.CDLL(None)
syscall, getpid = libc.syscall, os.getpid
RT_TGSIGQUEUEINFO, SIGURG, POLL_IN = 297, 23, 1
information = ctypes.create_string_buffer(struct.pack("<iiiiqi", SIGURG, 0, POLL_IN, 0, 0, 77) + bytes(100))
ticks = []


def walk(frame):
    """(qualified name, file, line) of a frame and of those around it."""
    found = []
    while frame:
        found.append((frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def send(tid=0):
    """A sample of the calling thread, or another one."""
    syscall(RT_TGSIGQUEUEINFO, getpid(), tid or threading.get_native_id(), SIGURG, information)


def evaluations():
    """How many C frames of the interpreter are open on this thread, as the C library unwinds them."""
    addresses = (ctypes.c_void_p * 4000)()
    count = libc.backtrace(addresses, 4000)
    assert count < 4000
    info = (ctypes.c_void_p * 4)()  # Dl_info
    return sum(
        1 for address in addresses[:count]
        if libc.dladdr(ctypes.c_void_p(address - 1), info) and info[3] == EVALUATE
    )  # fmt: skip


EVALUATE = ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, ctypes.c_void_p).value


def tick():
    """Take a sample, in the line that says what must be in it."""
    tid, count = threading.get_native_id(), evaluations()
    ticks.append((tid, count, walk(sys._getframe()), syscall(RT_TGSIGQUEUEINFO, getpid(), tid, SIGURG, information)))


def done():
    """Print what was seen, and wait."""
    print(json.dumps(ticks), flush=True)
    sys.stdin.readline()
