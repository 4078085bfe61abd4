"""What `layerscope attach` is asked for."""

from __future__ import annotations

import argparse

import pytest

from layerscope.cli import attach
from layerscope.model.errors import UsageError


@pytest.mark.parametrize("word", ["", "0", "-1", "nan", "inf", "soon"])
def test_a_time_that_is_none_is_refused(word: str) -> None:
    parser = argparse.ArgumentParser()
    attach.configure(parser)
    asked = parser.parse_args(["1", f"--for={word}"])
    with pytest.raises(UsageError, match=f"--for {word}: give seconds, such as 30"):
        attach.run(asked)
