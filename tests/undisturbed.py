"""What the host of a virtual machine takes away while a test runs. A test that is marked `alone`
compares CPU time with known answers; where others had the CPU meanwhile, it has shown nothing.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from layerscope.host import noise

# A known answer may be off by some percent: three standard deviations of a few hundred samples.
MOST_STOLEN = 0.02


def stolen_share(before: noise.CpuTime | None, after: noise.CpuTime | None) -> float | None:
    """Of the CPU time that this machine wanted meanwhile, what its host gave to others; None: the
    kernel does not say.
    """
    if before is None or after is None:
        return None
    wanted = (after.total - after.idle) - (before.total - before.idle)
    return (after.steal - before.steal) / wanted if wanted > 0 else 0.0


class Undisturbed:
    """A pytest plugin: a failed test says how much was taken away, and one that is marked `alone`
    is skipped if that was more than it can bear.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Around the test itself."""
        before = noise.cpu_time()
        try:
            return (yield)
        except AssertionError as error:
            share = stolen_share(before, noise.cpu_time())
            said = "an unknown share" if share is None else f"{share:.1%}"
            error.add_note(f"the host of this machine took {said} of its CPU time meanwhile")
            if share is not None and share > MOST_STOLEN and item.get_closest_marker("alone"):
                pytest.skip(f"the host of this machine took {said} of its CPU time meanwhile")
            raise
