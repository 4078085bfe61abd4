"""Thousands of threads, a million names, names of megabytes, and names of which no terminal has
heard.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential import PROGRAMS, Recorded, program
from tests.hostile.case import Case

pytestmark = pytest.mark.slow
ALIVE, SHORT = 2000, 5000
NAMES, MOST_NAMES = 1_100_000, 1 << 20
RANGE = "from torch.profiler import record_function"


def made(case: Case, code: str, *arguments: str) -> Recorded:
    """The recording of a program whose text is `code`; it prints what it has done."""
    script = case.work.parent / "many.py"
    script.write_text(f"import sys; sys.path.append({str(PROGRAMS)!r})\n{code}")
    outcome = case.record([case.python, str(script), *arguments], quiet=False)
    case.stderr = outcome.stderr.decode(errors="replace")
    assert (outcome.status, outcome.stdout) == (0, b"done\n"), case.stderr
    return case.recorded()


@pytest.mark.stress
def test_two_thousand_threads_at_the_same_time(case: Case) -> None:
    begin = ["/bin/sh", "-c", 'echo | "$0" "$@"']
    outcome = case.both(command=[*begin, *program(case.python, "threads_at_once.py", str(ALIVE))])

    assert (outcome.status, outcome.stdout) == (0, b"ready\ndone\n")
    recorded = case.recorded()
    assert recorded.gaps() == {}
    assert recorded.per_process() == [ALIVE]
    assert recorded.rows(
        "SELECT count(DISTINCT track) AS n FROM spans WHERE name = 'aten::hypot'"
    ) == [{"n": ALIVE}]


@pytest.mark.stress
def test_five_thousand_threads_one_after_the_other(case: Case) -> None:
    outcome = case.both(command=program(case.python, "threads.py", str(SHORT)))

    assert (outcome.status, outcome.stdout) == (0, b"bounded\n")
    assert case.recorded().per_process() == [SHORT + 1]
    assert case.recorded().gaps() == {}


@pytest.mark.stress  # tests/native/test_names_of_the_agent.py shows it without torch
def test_more_than_a_million_names(case: Case) -> None:
    """Those for which there is no room share one name; every span is there, and it is said."""
    code = f"""{RANGE}
for number in range({NAMES}):
    with record_function(f"range {{number}}"):
        pass
print("done")
"""
    recorded = made(case, code)

    (ranges,) = recorded.rows(
        "SELECT count(*) AS n, count(DISTINCT name) AS names FROM spans WHERE kind = 'range' AND layer = 'operators'"
    )
    lost = recorded.gaps().get(
        "ring_full", 0
    )  # beside busy processes the names that went with them are not seen
    assert ranges["n"] + lost == NAMES
    assert MOST_NAMES - 100 - lost < ranges["names"] <= MOST_NAMES
    case.told("names_lost", "no room for a new name", "give ranges fewer different names")


def test_names_of_megabytes(case: Case) -> None:
    code = f"""{RANGE}
for number in range(20):
    with record_function(f"{{number % 2}}" + "x" * 3_000_000):
        pass
print("done")
"""
    recorded = made(case, code)

    rows = recorded.rows(
        "SELECT name, count(*) AS n FROM spans WHERE kind = 'range' GROUP BY name ORDER BY name"
    )
    assert rows == [{"name": f"{number}" + "x" * 1023, "n": 10} for number in range(2)]
    assert recorded.problems() == {}


ODD = [
    "\x1b[31mred\x07",
    "two\nlines\r\ttab",
    "'); DROP TABLE spans; --",
    "\N{GRINNING FACE}\N{RIGHT-TO-LEFT OVERRIDE}\N{COMBINING ACUTE ACCENT}",
    "%s {0} $HOME",
]


def test_names_that_no_terminal_should_see(case: Case) -> None:
    code = f"""{RANGE}
for name in {ODD!a}:
    with record_function(name):
        pass
with record_function("ends\\0here"):
    pass
print("done")
"""
    recorded = made(case, code)

    rows = recorded.rows("SELECT name FROM spans WHERE kind = 'range'")
    assert sorted(row["name"] for row in rows) == sorted([*ODD, "ends"])
    shown = case.run([*case.layerscope, "table", str(case.recording), "operators", "--top", "0"])
    assert shown.status == 0, shown.stderr
    for text in (case.stderr, shown.stdout.decode()):
        assert not {character for character in text if not character.isprintable()} - {"\n"}
    assert Path(case.recording).exists()
