"""The signal by which samples come belongs to the program: those that it is sent arrive, and no others."""

import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import threading

from given import MODE, Busy, burn, chosen, descriptors, rounds

URGENT = signal.SIGURG
TIMES = rounds(60)
seen = []


def on_urgent(number, frame):
    seen.append(number)


def send_and_see():
    """Send one; wait until it was seen."""
    before = len(seen)
    os.kill(os.getpid(), URGENT)
    while len(seen) == before:
        pass
    burn(chosen.random() * 0.01)


def handler():
    print(signal.getsignal(URGENT))
    print(signal.signal(URGENT, on_urgent))
    for _ in range(TIMES):
        send_and_see()
    print(len(seen), signal.signal(URGENT, signal.SIG_DFL) is on_urgent)


def wakeup():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(URGENT, on_urgent)
    for _ in range(TIMES):
        send_and_see()
        print(list(os.read(reading, 100)), end=" ")
    signal.set_wakeup_fd(-1)
    os.close(reading), os.close(writing)


def out_of_band():
    """The kernel sends it to the owner of a socket with urgent data."""
    listener = socket.create_server(("127.0.0.1", 0))
    sending = socket.create_connection(listener.getsockname())
    receiving, _ = listener.accept()
    fcntl.fcntl(receiving, fcntl.F_SETOWN, os.getpid())
    signal.signal(URGENT, on_urgent)
    for number in range(TIMES):
        before = len(seen)
        sending.send(bytes([number % 256]), socket.MSG_OOB)
        while len(seen) == before:
            select.select([], [], [], 0.001)
        print(receiving.recv(1, socket.MSG_OOB)[0], end=" ")
        burn(chosen.random() * 0.01)
    print(len(seen))


def waited_for():
    """Blocked in all threads, and taken by sigwait. Who sent it says whose it was."""
    for _ in range(TIMES):
        burn(0.003)
        os.kill(os.getpid(), URGENT)
        while signal.sigwaitinfo([URGENT]).si_pid != os.getpid():
            continue
    print(signal.sigtimedwait([signal.SIGUSR1], 0), sorted(signal.sigpending() - {URGENT}))


def by_descriptor():
    """signalfd(2); ssi_pid lies at byte 12 of what is read."""
    libc = ctypes.CDLL(None, use_errno=True)
    mask = struct.pack("<16Q", 1 << (URGENT - 1), *[0] * 15)
    number = libc.signalfd(-1, mask, 0)
    for _ in range(TIMES):
        burn(0.003)
        os.kill(os.getpid(), URGENT)
        while struct.unpack_from("<I", os.read(number, 128), 12)[0] != os.getpid():
            continue
    os.close(number)


def dispositions():
    """Ignored, default, handled, by turns; a signal that is dropped stays dropped."""
    expected = 0
    for _ in range(20 * TIMES):
        chosen_now = chosen.choice([signal.SIG_IGN, signal.SIG_DFL, on_urgent])
        signal.signal(URGENT, chosen_now)
        assert signal.getsignal(URGENT) is chosen_now
        os.kill(os.getpid(), URGENT)
        expected += chosen_now is on_urgent
        while len(seen) < expected:
            pass
        sum(range(chosen.randrange(3000)))
    print(len(seen), expected)


MODES = {function.__name__: function for function in
         (handler, wakeup, out_of_band, waited_for, by_descriptor, dispositions)}  # fmt: skip
if MODE in ("waited_for", "by_descriptor"):
    signal.pthread_sigmask(signal.SIG_BLOCK, [URGENT])
busy = Busy(1)
MODES[MODE]()
busy.end()
print(len(seen), threading.active_count(), descriptors())
