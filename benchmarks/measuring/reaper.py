"""Runs a command and waits for all that it leaves behind, whoever should have: then the CPU time of
everything.

usage: reaper.py COMMAND...
Prints what the command prints, then one line of JSON: all_cpu_ns.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys

_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Run it to its end; its status."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise SystemExit("PR_SET_CHILD_SUBREAPER is refused here")
    done = subprocess.run(sys.argv[1:], check=False)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"all_cpu_ns": round((used.ru_utime + used.ru_stime) * 1e9)}))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
