"""What the kernel tells the sampler beyond what it tells every user: tests of that are skipped
where it does not.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from layerscope.capture.sampler import BINARY


def needs(*rights: str) -> None:
    """Skip the test unless the sampler is told of `wakers`, `kernel`."""
    told = json.loads(
        subprocess.run(
            [BINARY, "--check"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    )
    for right in rights:
        if told[right]:
            pytest.skip(
                f"the kernel tells nothing of {right} here: {os.strerror(told[right])}; run the tests as root"
            )
