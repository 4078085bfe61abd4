"""A library is loaded and unloaded all the time, while threads compute inside of it and outside."""

import _ctypes
import ctypes
import os
import threading

from given import Busy, chosen, descriptors, rounds

LIBRARY = os.environ["STRESS_LIBRARY"]


def use(times, steps, into):
    for count in steps[:times]:
        handle = _ctypes.dlopen(LIBRARY, os.RTLD_NOW)
        function = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_ulong)(_ctypes.dlsym(handle, "stress_work"))
        into.append(function(count))
        del function
        _ctypes.dlclose(handle)


steps = [[chosen.randrange(1, 2_000_000) for _ in range(rounds(60))] for _ in range(3)]
sums = [[] for _ in steps]
busy = Busy(1)
pairs = zip(steps, sums, strict=True)
threads = [threading.Thread(target=use, args=(len(one), one, into)) for one, into in pairs]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
busy.end()
for into in sums:
    print(into)
print(descriptors())
