"""Programs with several interpreters."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.dump.dumped import running, settled

pytestmark = pytest.mark.usefixtures("native_agent")
MADE = """
import sys, threading, time
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
else:
    import _xxsubinterpreters as interpreters
other = interpreters.create()
def in_main():
    time.sleep(600)
"""
IDLE = "print('ready', flush=True)\nin_main()\n"
RUN = """
text = "import time\\ndef in_other(): time.sleep(600)\\nprint('ready', flush=True)\\nin_other()"
threading.Thread(target=interpreters.run_string, args=(other, text), daemon=True).start()
in_main()
"""


@pytest.mark.parametrize("then", [IDLE, RUN])
def test_the_thread_that_made_an_interpreter_shows_its_own_functions(
    then: str, tmp_path: Path
) -> None:
    with running([sys.executable], MADE + then) as process:
        found = settled(process.pid, tmp_path, ["MainThread"])
    assert found.stack("MainThread") == ["in_main", "<module>"]
