"""Ways in which an interpreter ends while its threads work."""

import atexit
import os
import signal
import sys
import threading
import time

from given import MODE, Busy, chosen

busy = Busy(4)
time.sleep(0.05 + chosen.random() * 0.2)
print("ends", flush=True)


def at_exit():
    time.sleep(0.1)
    print("at exit", flush=True)


atexit.register(at_exit)


def in_thread(end):
    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    time.sleep(60)


MODES = {
    "falls_off": lambda: None,
    "exit": lambda: sys.exit(5),
    "raises": lambda: 1 / 0,
    "os_exit": lambda: os._exit(6),
    "os_exit_in_thread": lambda: in_thread(lambda: os._exit(7)),
    "abort": os.abort,
    "abort_in_thread": lambda: in_thread(os.abort),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "urgent_at_exit": lambda: atexit.register(lambda: [os.kill(os.getpid(), signal.SIGURG) for _ in range(100)]),
}
MODES[MODE]()
