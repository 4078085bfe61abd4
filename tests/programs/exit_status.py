"""Ends in the way its argument names, after 100 operators."""

import os
import signal
import sys

from facts import work

work()
print("out", flush=True)
print("err", file=sys.stderr, flush=True)
how = sys.argv[1]
if how == "os._exit":
    os._exit(7)
if how == "abort":
    os.abort()
if how.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, how))
sys.exit(int(how))
