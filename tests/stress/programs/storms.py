"""Threads that are sent signals all the time, by signal.pthread_kill; descriptors that are closed under everybody."""

import os
import signal
import threading
import time

from given import MODE, Busy, burn, chosen, descriptors, rounds

seen = []


def kills():
    """Each signal is waited for, whichever thread it was sent to."""
    for number in (signal.SIGURG, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: seen.append(number))
    targets = [threading.get_ident(), *[thread.ident for thread in busy.threads]]
    for _ in range(rounds(150)):
        before = len(seen)
        signal.pthread_kill(chosen.choice(targets), chosen.choice([signal.SIGURG, signal.SIGUSR2]))
        while len(seen) == before:
            time.sleep(0)
    print(len(seen), seen.count(signal.SIGURG))


def floods():
    """More than the kernel keeps: as many arrive as do, but never none after the last."""
    signal.signal(signal.SIGURG, lambda *_: seen.append(1))
    for _ in range(rounds(50)):
        for _ in range(200):
            signal.pthread_kill(busy.threads[0].ident, signal.SIGURG)
        del seen[:]
        time.sleep(0)
        signal.pthread_kill(busy.threads[1].ident, signal.SIGURG)
        while not seen:
            time.sleep(0)
    print("all arrived")


def closes():
    """Whoever closes all descriptors closes none of ours, and gets the numbers that are free."""
    for _ in range(rounds(50)):
        os.closerange(3, 256)
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
        assert opened == [3, 4, 5, 6, 7], opened
        burn(0.005)
    os.closerange(0, 256)
    burn(0.05)
    assert os.open("left", os.O_CREAT | os.O_WRONLY) == 0
    os.write(0, b"written")


def masks():
    """Everything blocked, most of the time."""
    every = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
    for _ in range(rounds(30)):
        signal.pthread_sigmask(signal.SIG_BLOCK, every)
        burn(chosen.random() * 0.02)
        print(len(signal.sigpending() - {signal.SIGURG}), end=" ")
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        burn(0.002)


def ids():
    """Another user from now on, who may not be looked at."""
    burn(0.05)
    if os.getuid() == 0:
        os.setresgid(65534, 65534, 65534), os.setresuid(65534, 65534, 65534)
    burn(0.2)
    print(os.getresuid() == os.getresuid(), descriptors())


MODES = {function.__name__: function for function in (kills, floods, closes, masks, ids)}
busy = Busy(3)
MODES[MODE]()
busy.end()
