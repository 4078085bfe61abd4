"""Tests of what chance has a part in, on a machine that may be busy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_ATTEMPTS = 3


def once_in_three(test: Callable[..., None]) -> Callable[..., None]:
    """Run `test` up to three times; it passes if one of them does.

    A wait has a stack only if the sampler got a CPU while it lasted, which nobody can promise
    beside other work; a comparison with 95 % confidence is wrong in one of twenty. What must hold
    whatever the machine does belongs into another test.
    """

    @functools.wraps(test)
    def attempts(*arguments: Any, **named: Any) -> None:
        for left in reversed(range(_ATTEMPTS)):
            try:
                test(*arguments, **named)
            except AssertionError:
                if not left:
                    raise
            else:
                return

    return attempts
