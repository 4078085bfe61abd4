"""Keys of a terminal."""

from __future__ import annotations

import os
import time

import pytest

from layerscope.show.live.keyboard import Keyboard


@pytest.mark.parametrize(
    ("typed", "keys"),
    [("q", "q"), ("\x1b[Aq", "q"), ("w\x1b[1;5B\x1bOPq", "wq"), ("\x1bq", "q"), ("\x1b[A", "")],
)
def test_a_key_that_comes_together_with_arrows_counts(typed: str, keys: str) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, typed.encode())
        assert Keyboard(reading).wait(time.monotonic() + 60) == keys
    finally:
        os.close(reading)
        os.close(writing)
