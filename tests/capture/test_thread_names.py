"""Threads have the names that the program gave them, of which the kernel knows none before Python
3.14.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.recorded import ask, layerscope

PROGRAM = """
import threading, time
from concurrent.futures import ThreadPoolExecutor

def compute():
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        sum(range(500))

def rename():
    threading.current_thread().name = 'renamed by itself'
    compute()

class Own(threading.Thread):
    def run(self):
        compute()

threads = [
    threading.Thread(target=compute, name='a name that is longer than the kernel keeps'),
    threading.Thread(target=compute),
    threading.Thread(target=rename),
    Own(name='of a class \\u00e4'),
]
for thread in threads:
    thread.start()
with ThreadPoolExecutor(1, thread_name_prefix='preprocess') as pool:
    pool.submit(compute).result()
for thread in threads:
    thread.join()
"""
NAMES = {
    "a name that is longer than the kernel keeps",
    "Thread-1 (compute)",
    "renamed by itself",
    "of a class \u00e4",
    "preprocess_0",
}


def test_threads_are_called_as_the_program_calls_them(
    native_agent: Path, perf_events: None, program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    layerscope("run", "-q", "-o", "a", "--", program_python, "program.py", cwd=tmp_path)

    run = open_run(tmp_path / "a.layerscope")
    names = ask(run, "SELECT name FROM tracks WHERE kind = 'thread' ORDER BY track")
    assert {row["name"] for row in names[1:]} == NAMES
    assert names[0]["name"].startswith("python")


@pytest.mark.parametrize("hidden", ["Thread", "_bootstrap"])
def test_a_program_that_has_changed_threading_keeps_the_names_of_the_kernel(
    native_agent: Path, perf_events: None, program_python: str, tmp_path: Path, hidden: str
) -> None:
    """Such as gevent does."""
    change = {
        "Thread": "import threading\nimport _thread\nthreading.Thread = None\n",
        "_bootstrap": "import threading\nimport _thread\n"
        "before = threading.Thread._bootstrap\n"
        "threading.Thread._bootstrap = type('Other', (), {'__call__': before})()\n",
    }[hidden]
    start = (
        "import time\ndone = []\n_thread.start_new_thread(lambda: done.append(1), ())\n"
        "while not done: time.sleep(0.01)\nprint('done', flush=True)\n"
    )
    (tmp_path / "program.py").write_text(change + start, encoding="utf-8")
    done = layerscope("run", "-q", "-o", "a", "--", program_python, "program.py", cwd=tmp_path)
    assert done.stdout == "done\n"
