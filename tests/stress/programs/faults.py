"""faulthandler: what it prints, and the end that it lets happen."""

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time

from given import MODE, burn, chosen


def inner(how):
    burn(0.05)
    how()


def later():
    # It reads the frames of a thread that goes on: where functions of Python come and go meanwhile it may crash alone.
    faulthandler.dump_traceback_later(0.05, repeat=True)
    ends = time.monotonic() + 0.6
    while time.monotonic() < ends:
        sum(range(100_000))
    faulthandler.cancel_dump_traceback_later()


def later_exits():
    faulthandler.dump_traceback_later(0.3, exit=True)
    time.sleep(60)


def registered():
    faulthandler.register(signal.SIGURG, all_threads=False)
    for _ in range(3):
        burn(0.02)
        os.kill(os.getpid(), signal.SIGURG)
    faulthandler.unregister(signal.SIGURG)
    burn(0.05)


def crash(number):
    faulthandler.enable()
    number()


MODES = {
    "later": later, "later_exits": later_exits, "registered": registered,
    "segv": lambda: crash(lambda: ctypes.string_at(8)),
    "abort": lambda: crash(os.abort),
    "fpe": lambda: crash(lambda: os.kill(os.getpid(), signal.SIGFPE)),
    "in_thread": lambda: crash(lambda: threading.Thread(target=inner, args=(lambda: ctypes.string_at(8),)).start()),
}  # fmt: skip
print(chosen.random(), flush=True)
if MODE == "later":
    # How many times, and at which lines, is the machine's business.
    os.dup2(os.open("later", os.O_CREAT | os.O_RDWR), 2)
inner(MODES[MODE])
if MODE == "later":
    with open("later") as file:
        text = file.read()
    print("Timeout (" in text, "inner" in text, "Fatal" in text)
    os.unlink("later")
time.sleep(60) if MODE == "in_thread" else None
sys.exit(3)
