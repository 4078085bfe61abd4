"""Replaces itself by itself, twice."""

import os
import sys

from facts import show, work

turn = int(sys.argv[1])
work(10 + turn)
if turn:
    os.execv(sys.executable, [sys.executable, sys.argv[0], str(turn - 1)])
show()
