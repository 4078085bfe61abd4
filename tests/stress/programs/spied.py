"""py-spy looks at this program while it is sampled."""

import os
import subprocess

from given import Busy, burn

busy = Busy(2)


def looked_at(*words):
    spy = [os.environ["STRESS_PY_SPY"], *words, "--pid", str(os.getpid())]
    started = subprocess.Popen(spy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while started.poll() is None:
        burn(0.01)
    return started.stdout.read().decode()


for options in ([], ["--nonblocking"], ["--native"]):
    text = looked_at("dump", *options)
    print(options, "looked_at" in text, "burn" in text, text.count("Thread "))
print(bool(looked_at("record", "--duration", "1", "--format", "raw", "--output", os.devnull, "--rate", "200")))
busy.end()
