"""What is repeated by `python3 dev.py stress` alone: every behaviour is tested once in `dev.py
test`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

STRESS = bool(os.environ.get("LAYERSCOPE_TEST_STRESS"))


def also(values: Iterable[Any], *marks: pytest.MarkDecorator) -> list[Any]:
    """Parameters of a test that only `dev.py stress` runs: more of what the other parameters
    show.
    """
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*row, marks=[pytest.mark.stress, *marks]) for row in rows]


def first(number: int, values: Sequence[T]) -> Sequence[T]:
    """The first few of `values`; all of them in `dev.py stress`."""
    return values if STRESS else values[:number]


def times(often: T, seldom: T) -> T:
    """How often, or how long: `often` in `dev.py stress`, else `seldom`."""
    return often if STRESS else seldom
