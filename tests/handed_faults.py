"""What the door hands to each file that runs inside a program: which exceptions are faults of ours, and
whether one is of a signal handler of the program.
"""

from __future__ import annotations

HANDED = (
    (
        ArithmeticError,
        AttributeError,
        ImportError,
        LookupError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ),
    lambda error: False,
)
