"""What a recording says that it cost itself."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

from layerscope.session.finish import _others_ns
from layerscope.session.session import Ended

BUSY_NS = 50_000_000
IS_BUSY = f"import time\nwhile time.process_time_ns() < {BUSY_NS}: pass"


def others_ns(drainer_ns: int = 0, program: Ended | None = None) -> int:
    session: Any = SimpleNamespace(link=SimpleNamespace(cpu_ns=drainer_ns), sampler=None)
    return _others_ns(session, program or cast(Ended, SimpleNamespace(status=None)))


def test_a_process_that_ran_for_a_moment_is_counted_and_none_twice() -> None:
    before_ns = others_ns()

    subprocess.run([sys.executable, "-c", IS_BUSY], check=True)

    after_ns = others_ns()
    assert after_ns - before_ns >= BUSY_NS
    assert others_ns(drainer_ns=1000) == after_ns - 1000
    program = Ended(
        0, 0, user_ns=2000, system_ns=500, max_rss_bytes=0, faults_minor=0, faults_major=0
    )
    assert others_ns(program=program) == after_ns - 2500
    assert others_ns(drainer_ns=after_ns + 1) == 0
