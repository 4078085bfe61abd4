"""Domains, tasks, frames, events, counters, markers, scopes: what is recorded of them, and that
misuse is no harm.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.profiler import library

pytestmark = pytest.mark.slow
BEGIN = "import threading\nimport layerscope\nfrom layerscope import profiler\nprofiler.set_state('run')\n"


def spans(folder: Path, text: str, python: str) -> list[tuple[str, str, int, str | None]]:
    """(name, kind, depth, arguments) of what the program `text` recorded, by start."""
    library.run(python, BEGIN + text, folder)
    rows = library.recorded(folder / "program.layerscope").rows(
        "SELECT name, kind, depth, json FROM spans LEFT JOIN args USING (args) WHERE NOT unfinished ORDER BY start_ns"
    )
    return [(row["name"], row["kind"], row["depth"], row["json"]) for row in rows]


def test_ranges_have_their_domain_and_lie_in_each_other(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = """
domain = profiler.Domain("mine")
with domain.new_task("task"):
    with domain.new_frame("frame"), profiler.Event("event"):
        pass

@profiler.Event("recursive")
def recursive(n):
    return n and recursive(n - 1)

recursive(1)
with profiler.scope("outer"):
    with profiler.scope("inner"), profiler.scope("alone", append_mode=False):
        pass
print(domain, domain.new_task("t"), profiler.Event("e"), domain.new_marker("m"))
"""
    mine, scope = '{"domain": "mine"}', '{"domain": "scope"}'

    assert spans(tmp_path, text, program_python) == [
        ("task", "task", 0, mine), ("frame", "frame", 1, mine), ("event", "event", 2, None),
        ("recursive", "event", 0, None), ("recursive", "event", 1, None),
        ("outer", "event", 0, scope), ("outer:inner", "event", 1, scope), ("alone", "event", 2, scope),
    ]  # fmt: skip


def test_misuse_is_no_harm(tmp_path: Path, program_python: str, native_agent: Path) -> None:
    """A stop without a start, two starts, two stops, an end on another thread, odd names."""
    text = r"""
event = profiler.Event("event")
event.stop()
event.start(); event.start(); event.stop(); event.stop()
task = profiler.Task("a string as a domain", "crossing")
task.start()
thread = threading.Thread(target=task.stop)
thread.start(); thread.join()
for name in ("", "two\nlines", "\0", "\udc80", "\N{SNOWMAN}", "x" * 5000):
    with profiler.Event(name):
        pass
try:
    with profiler.Event("raises"):
        raise KeyError
except KeyError:
    pass
"""
    found = spans(tmp_path, text, program_python)

    assert [name for name, *_ in found[:3]] == ["event", "event", "crossing"]
    assert [name for name, *_ in found[3:8]] == ["", "two lines", " ", "\\udc80", "\N{SNOWMAN}"]
    assert found[8][0].startswith("xxxx")
    assert found[9] == ("raises", "event", 0, None)


def test_counters_and_marks(tmp_path: Path, program_python: str, native_agent: Path) -> None:
    text = (
        BEGIN
        + """
domain = profiler.Domain("mine")
counter = domain.new_counter("counter", 5)
counter += 3
counter -= 10
counter.increment(); counter.decrement(4)
other = profiler.Counter(domain, "no value yet")
profiler.pause(); counter.set_value(100); profiler.resume()
counter += 1
for scope in ("global", "process", "thread", "task", "marker"):
    domain.new_marker("here").mark(scope)
layerscope.step()
try:
    domain.new_marker("here").mark("galaxy")
except ValueError as error:
    print(error)
"""
    )
    done = library.run(program_python, text, tmp_path)

    assert (
        done.stdout
        == "a marker has no scope 'galaxy'. The scopes are global, process, thread, task, marker\n"
    )
    found = library.recorded(tmp_path / "program.layerscope")
    rows = found.rows(
        "SELECT c.name, t.name AS domain, value FROM counters c JOIN tracks t USING (track) WHERE t.name NOT IN "
        "('process', 'cgroup', 'machine', 'malloc') ORDER BY at_ns"
    )
    assert [row["value"] for row in rows] == [5, 8, -2, -1, -5, 101]
    assert {(row["name"], row["domain"]) for row in rows} == {("counter", "mine")}
    marks = [
        (row["kind"], row["name"])
        for row in found.rows("SELECT kind, name FROM marks ORDER BY at_ns")
    ]
    assert marks == [
        ("paused", "profiler"), ("resumed", "profiler"), *[("marker", "here")] * 5, ("step", "step")
    ]  # fmt: skip


def test_steps_that_the_program_marks_are_the_steps(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    text = (
        "import layerscope\n"
        + BEGIN
        + library.NETWORK
        + "for _ in range(4):\n    train(2); layerscope.step()\n"
    )
    library.run(program_python, text, tmp_path)

    rules = library.recorded(tmp_path / "program.layerscope").rows(
        "SELECT DISTINCT rule FROM steps"
    )
    assert rules == [{"rule": "mark"}]
