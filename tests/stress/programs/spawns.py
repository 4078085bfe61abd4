"""Starts programs by fork and exec, vfork, posix_spawn and a shell, while threads work."""

import os
import signal
import subprocess
import sys
import threading

from given import MODE, Busy, chosen, descriptors, rounds

CODES = [chosen.randrange(200) for _ in range(rounds(40))]


def spawned(code):
    words = ["sh", "-c", f"exit {code}"]
    if MODE == "vfork":
        return subprocess.call(words)
    if MODE == "fork":
        return subprocess.Popen(words, preexec_fn=lambda: None).wait()
    if MODE == "system":
        return os.waitstatus_to_exitcode(os.system(f"exit {code}"))
    mask = {"setsigdef": [signal.SIGURG, signal.SIGUSR1], "setsigmask": []}
    pid = os.posix_spawn("/bin/sh", words, os.environ, **mask)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def spawn(codes, into):
    into += [spawned(code) for code in codes]


busy = Busy(2)
found = [[] for _ in range(3)]
threads = [threading.Thread(target=spawn, args=(CODES[number::3], into)) for number, into in enumerate(found)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
busy.end()
print([into == CODES[number::3] for number, into in enumerate(found)], len(CODES), descriptors())
piped = subprocess.run(["/bin/sh", "-c", "grep Sig[BI] /proc/self/status; ls /proc/self/fd; kill -s URG $$; cat"],
                       input=b"given", capture_output=True, check=True)  # fmt: skip
print(piped)
sys.exit(CODES[0])
