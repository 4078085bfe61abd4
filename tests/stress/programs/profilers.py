"""Profilers and timers of the program's own."""

import cProfile
import pstats
import signal
import sys
import threading

from given import MODE, burn, chosen, rounds

ticks = []


def work(depth):
    return depth and work(depth - 1) + sum(1 for _ in range(50))


def itimer(which, number):
    signal.signal(number, lambda *_: ticks.append(1))
    signal.setitimer(which, 0.002, 0.002)
    while len(ticks) < rounds(100):
        burn(0.001)
    signal.setitimer(which, 0)
    print(signal.getitimer(which))


def c_profile():
    profile = cProfile.Profile()
    profile.enable()
    total = sum(work(chosen.randrange(50)) for _ in range(rounds(1000)))
    profile.disable()
    calls = {name: row[:2] for (_, _, name), row in pstats.Stats(profile).stats.items()}
    print(total, sorted(calls.items()))


def set_profile():
    counts = {}

    def profile(frame, event, argument):
        counts[event, frame.f_code.co_name] = counts.get((event, frame.f_code.co_name), 0) + 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    for _ in range(rounds(500)):
        work(chosen.randrange(20))
    sys.setprofile(None)
    print(sorted((event, name, count) for (event, name), count in counts.items()))


def set_trace():
    lines = []

    def trace(frame, event, argument):
        lines.append(frame.f_lineno)
        return trace

    sys.settrace(trace)
    for _ in range(rounds(100)):
        work(chosen.randrange(20))
    sys.settrace(None)
    print(len(lines), hash(tuple(lines)))


MODES = {
    "prof": lambda: itimer(signal.ITIMER_PROF, signal.SIGPROF),
    "virtual": lambda: itimer(signal.ITIMER_VIRTUAL, signal.SIGVTALRM),
    "real": lambda: itimer(signal.ITIMER_REAL, signal.SIGALRM),
    "c_profile": c_profile, "set_profile": set_profile, "set_trace": set_trace,
}  # fmt: skip
MODES[MODE]()
