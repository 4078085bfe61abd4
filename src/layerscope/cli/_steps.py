"""Steps as the commands that write a file name them."""

from __future__ import annotations

import re

from layerscope.model.errors import UsageError


def steps_of(words: str | None) -> range | None:
    """The steps that `--steps 10:20` names; None: all. UsageError for what is no range."""
    if words is None:
        return None
    found = re.fullmatch(r"(\d+):(\d+)", words, re.ASCII)
    if not found or int(found[1]) >= int(found[2]):
        raise UsageError(f"--steps {words} is no range: 10:20 are the steps 10 to 19")
    return range(int(found[1]), int(found[2]))
