"""The library in programs that are busy with other things: many files, forks, threads, coroutines,
ranks.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.profiler import library
from tests.recorded import layerscope

pytestmark = pytest.mark.slow
FIRST = "import os, threading, time\nfrom layerscope import profiler\nimport layerscope\n"
RUN = FIRST + "profiler.set_state('run')\n"


def test_a_program_with_thousands_of_open_files_is_recorded(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = """
import resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
assert most >= 2000, most
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, most))
files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1500)]
profiler.set_state("run")
with profiler.Event("with many files"):
    pass
"""
    done = library.run(program_python, FIRST + text, tmp_path)

    assert done.stderr == ""
    found = library.recorded(tmp_path / "program.layerscope")
    assert found.rows("SELECT name FROM spans") == [{"name": "with many files"}]


def test_a_child_counts_whatever_the_threads_of_its_parent_did(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    """A fork while another thread is counting: nothing that it held may be held in the child."""
    text = """
import signal
counter, over = profiler.Counter("d", "n"), False
def count():
    while not over:
        counter.increment()
thread = threading.Thread(target=count)
thread.start()
ends = []
for _ in range(30):
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # a child that hangs ends by it
        counter.increment()
        os._exit(0)
    ends.append(os.waitpid(child, 0)[1])
    if ends[-1]:
        break
over = True
thread.join()
print(set(ends))
"""
    assert library.run(program_python, RUN + text, tmp_path).stdout == "{0}\n"
    library.finished(tmp_path / "program.layerscope")


def test_blocks_on_several_threads_end_with_the_last(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = """
first_ended = threading.Event()
def other():
    with layerscope.record():
        begun.set()
        first_ended.wait()
        with profiler.Event("in the second block"):
            pass
begun = threading.Event()
thread = threading.Thread(target=other)
with layerscope.record():
    thread.start()
    begun.wait()
first_ended.set()
thread.join()
with profiler.Event("after both"):
    pass
"""
    library.run(program_python, FIRST + text, tmp_path)

    found = library.recorded(tmp_path / "program.layerscope")
    assert found.rows("SELECT name FROM spans") == [{"name": "in the second block"}]


def test_ranges_around_coroutines_and_across_threads(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = """
import asyncio

@profiler.Event("coroutine")
async def wait(first, then):
    '''Its text.'''
    first.set()
    await then.wait()
    return 7

async def both():
    one, two = asyncio.Event(), asyncio.Event()
    return await asyncio.gather(wait(one, two), wait(two, one))

assert asyncio.run(both()) == [7, 7] and wait.__doc__ == "Its text." and asyncio.iscoroutinefunction(wait)
crossing = profiler.Event("entered here, left there")
crossing.__enter__()
thread = threading.Thread(target=crossing.__exit__, args=(None, None, None))
thread.start(); thread.join()
with profiler.Event("after"):
    pass
profiler.Task("a domain", "n\\u00e9" * 5000).start()
"""
    library.run(program_python, RUN + text, tmp_path)

    found = library.recorded(tmp_path / "program.layerscope")
    rows = found.rows(
        "SELECT name, depth, unfinished FROM spans WHERE length(name) < 100 ORDER BY start_ns"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("coroutine", 0, False), ("coroutine", 1, False), ("entered here, left there", 0, False), ("after", 0, False),
    ]  # fmt: skip
    (long,) = found.rows("SELECT name, json FROM spans JOIN args USING (args)")
    assert set(long["name"]) == {"n", "\u00e9"}
    assert json.loads(long["json"]) == {"domain": "a domain"}


def test_operators_end_when_the_program_wants_none_any_more(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = """
import torch
torch.hypot(torch.ones(2), torch.ones(2))
profiler.set_config(profile_symbolic=False, profile_imperative=False)
profiler.set_state("run")
with profiler.Event("mine"):
    torch.nn.Tanh()(torch.ones(2))
profiler.set_config()
profiler.set_state("run")
torch.sinh(torch.ones(2))
"""
    library.run(program_python, RUN + text, tmp_path)

    names = library.recorded(tmp_path / "program.layerscope").rows(
        "SELECT DISTINCT name FROM spans WHERE name IN ('aten::hypot', 'aten::sinh', 'aten::tanh', 'mine', 'Tanh') "
        "ORDER BY name"
    )
    assert [row["name"] for row in names] == ["aten::hypot", "aten::sinh", "mine"]


@pytest.mark.stress
def test_a_rank_that_is_left_alone_records_nothing_by_itself_either(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = """
rank = os.environ["RANK"]
profiler.set_config(filename=f"trace-{rank}.json")
profiler.set_state("run")
with profiler.Event("before torch"):
    import torch
torch.ones(2)
profiler.dump()
print(rank, len(profiler.dumps().split()) > 20)
"""
    (tmp_path / library.NAME).write_text(FIRST + text)
    both = f"for rank in 0 1; do RANK=$rank WORLD_SIZE=2 {program_python} -W always {library.NAME}; done"
    done = layerscope("run", "--ranks", "1", "-o", "mine", "--", "sh", "-c", both, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "0 False\n1 True\n")
    assert "Warning" not in done.stderr
    found = library.recorded(tmp_path / "mine.layerscope")
    ranks = (
        "SELECT DISTINCT rank FROM spans JOIN tracks USING (track) JOIN processes USING (process)"
    )
    assert found.rows(ranks) == [{"rank": 1}]
    assert found.value("SELECT count(*) FROM spans WHERE name = 'before torch'") == 1
    assert sorted(file.name for file in tmp_path.glob("trace-*")) == ["trace-1.json"]
