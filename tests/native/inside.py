# Runs inside a driven process, before the test's own lines: loads the agent and the stand-in for
# torch. AGENT, FAKE_TORCH and SOCKET are set in front of this text.
import ctypes
import os
import queue
import threading
import time

agent = ctypes.CDLL(AGENT)  # noqa: F821
torch = ctypes.CDLL(FAKE_TORCH)  # noqa: F821
torch.fake_begin.restype = ctypes.c_void_p
torch.fake_begin.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_uint64]
torch.fake_end.argtypes = [ctypes.c_void_p]
torch.fake_run.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_int, ctypes.c_uint64]
torch.fake_late_thread.argtypes = [ctypes.c_void_p]
FUNCTION, BACKWARD, RANGE = 0, 1, 7
buffers = []


def prepare(tsc=0):
    return agent.ls_prepare(SOCKET.encode(), FAKE_TORCH.encode(), tsc)  # noqa: F821


def start(tsc=0):
    assert prepare(tsc) == 0
    for _ in range(3000):
        code = agent.ls_torch_start()
        if code != 1:
            break
        time.sleep(0.01)
    assert code == 0, code


def text(name):
    """The address of a C string that stays where it is."""
    if isinstance(name, int):
        return name
    buffers.append(ctypes.create_string_buffer(name if isinstance(name, bytes) else name.encode()))
    return ctypes.addressof(buffers[-1])


def begin(name, scope=FUNCTION, seq=-1, forward=0):
    return torch.fake_begin(text(name), scope, seq, forward)


def end(span):
    torch.fake_end(span)


def op(name, scope=FUNCTION, seq=-1, forward=0):
    end(begin(name, scope, seq, forward))


def run(names, count):
    """`count` operators, one after the other, at full speed."""
    array = (ctypes.c_char_p * len(names))(*[name.encode() for name in names])
    torch.fake_run(array, len(names), count)


class Worker:
    """A thread that does what it is told, so that two threads can take turns in a known order."""

    def __init__(self):
        self.orders, self.answers = queue.Queue(), queue.Queue()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        while True:
            order = self.orders.get()
            if order is None:
                return
            self.answers.put(order())

    def do(self, order, *arguments):
        self.orders.put(lambda: order(*arguments))
        return self.answers.get(timeout=60)

    def close(self):
        self.orders.put(None)
        self.thread.join()
        tid = self.thread.native_id
        # The kernel's thread, and with it the agent's destructor, ends a little after Python's.
        while os.path.exists(f"/proc/self/task/{tid}"):
            time.sleep(0.001)


def descriptors():
    return {
        name: os.readlink("/proc/self/fd/" + name)
        for name in os.listdir("/proc/self/fd")
        if alive(name)
    }


def alive(name):
    try:
        os.readlink("/proc/self/fd/" + name)
        return True
    except OSError:  # the descriptor of the listing itself
        return False
