"""A signal handler of the program raises while code of ours runs inside it: the program gets its
exception.
"""

from __future__ import annotations

from pathlib import Path

from tests.recorded import record

# Most of the time of the first calls of many modules is ours: it is then that they are learned.
PROGRAM = """
import signal
import time

import torch
from torch import nn


class OutOfTime(Exception):
    pass


def stop(number, frame):
    raise OutOfTime


signal.signal(signal.SIGALRM, stop)
x = torch.ones(1)
swallowed = 0
for round in range(60):
    net = nn.Sequential(*[nn.Identity() for _ in range(300)])
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001 * 1.1**round)
        net(x)
        time.sleep(0.2)
        swallowed += 1
    except OutOfTime:
        pass
print(swallowed)
"""


def test_no_exception_of_a_signal_handler_is_swallowed(
    program_python: str, tmp_path: Path, native_agent: Path
) -> None:
    done = record(program_python, PROGRAM, tmp_path)

    assert (done.status, done.stdout) == (0, "0\n"), done.stderr
    assert (
        done.value("SELECT count(*) FROM spans WHERE kind = 'module' AND name = 'Sequential'") > 0
    )
