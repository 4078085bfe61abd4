"""The functions and keys of the original: all there, errors that name what is wrong, and nothing
heavy imported.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope import profiler
from layerscope.profiler import statistics
from tests.profiler import library
from tests.recorded import ROOT

# What `mxnet.profiler` has (1.9.1 and 2.0.0b1), and the keys of its set_config.
FUNCTIONS = """
    set_config profiler_set_config set_state profiler_set_state dump dump_profile dumps pause resume set_kvstore_handle
    Domain Task Frame Event Counter Marker scope
"""
KEYS = """
    filename gpu_memory_profile_filename_prefix profile_all profile_symbolic profile_imperative profile_memory
    profile_api continuous_dump dump_period aggregate_stats profile_process
"""
ROWS: statistics.Statistics = {
    "times": [
        ["operator", "aten::mm", 4, 8_000_000, 1_000_000, 4_000_000],
        ["operator", "aten::add", 1, 3_000_000, 3_000_000, 3_000_000],
        ["mine", "n" * 60, 2, 1_000, 400, 600],
    ],
    "counters": [["mine", "counted", 3, 15, 2, 9]],
    "memory": [["Device Storage", "Memory: cpu/0", 2, 3_000_000, 1_000_000, 2_000_000]],
}


def test_every_function_and_key_of_the_original_is_there() -> None:
    assert {*FUNCTIONS.split(), "Request"} == set(profiler.__all__)
    assert set(KEYS.split()) == set(profiler.DEFAULTS)


def test_every_function_and_key_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "profiler.md").read_text()
    assert [name for name in (*FUNCTIONS.split(), *KEYS.split()) if f"`{name}" not in page] == []


def test_wrong_words_are_named() -> None:
    with pytest.raises(ValueError, match=r"no key 'color', 'files'\. Its keys are filename"):
        profiler.set_config(files=1, color=2)
    with pytest.raises(ValueError, match="above 0"):
        profiler.set_config(dump_period=0)
    with pytest.raises(ValueError, match="'worker' or 'server'"):
        profiler.set_config(profile_process="nobody")
    with pytest.raises(ValueError, match="no state 'go'"):
        profiler.set_state("go")
    with pytest.raises(ValueError, match="no format 'xml'"):
        profiler.dumps(format="xml")
    with pytest.raises(ValueError, match="cannot sort by 'name'"):
        profiler.dumps(sort_by="name")


def test_what_the_original_deprecated_still_works(tmp_path: Path) -> None:
    code = (
        "import warnings\nfrom layerscope import profiler\n"
        "with warnings.catch_warnings(record=True) as said:\n    warnings.simplefilter('always')\n"
        "    profiler.profiler_set_config('all', 'x.json'); profiler.profiler_set_state('stop')\n"
        "    profiler.dump_profile()\n"
        "    profiler.set_kvstore_handle(None); profiler.pause('server'); profiler.pause('server')\n"
        "print([one.category.__name__ for one in said])\n"
    )
    done = library.run(sys.executable, code, tmp_path)

    expected = ["DeprecationWarning"] * 3 + [
        "RuntimeWarning"
    ] * 2  # dump before run; no kvstore server, said once
    assert done.stdout == f"{expected}\n"
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "displayTimeUnit": "ms",
        "traceEvents": [],
    }


def test_importing_it_imports_next_to_nothing() -> None:
    """What it needs later comes later: a program that never runs the profiler pays nothing."""
    code = "import sys; before = set(sys.modules); import layerscope.profiler; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    ours = {
        "",
        ".profiler",
        ".profiler.objects",
        ".profiler.requests",
        ".profiler.statistics",
        ".profiler.steering",
        ".profiler.starting",
    }
    assert set(done.stdout.split()) == {f"layerscope{name}" for name in ours} | {"__future__"}


@pytest.mark.parametrize(
    ("sort_by", "expected"),
    [
        ("total", "mm add"),
        ("count", "mm add"),
        ("avg", "add mm"),
        ("min", "add mm"),
        ("max", "mm add"),
    ],
)
def test_statistics_are_sorted(sort_by: str, expected: str) -> None:
    for ascending in (False, True):
        table = statistics.as_table(ROWS, sort_by, ascending)
        names = [
            line.split()[0].removeprefix("aten::")
            for line in table.splitlines()
            if line.startswith("aten")
        ]
        assert names == sorted(expected.split(), key=expected.split().index, reverse=ascending)
        assert list(
            json.loads(statistics.as_json(ROWS, sort_by, ascending))["Time"]["operator"]
        ) == [f"aten::{name}" for name in names]


def test_columns_stay_straight_whatever_a_name_is() -> None:
    lines = statistics.as_table(ROWS, "total", False).splitlines()
    section = lines[lines.index("mine") : lines.index("mine") + 5]

    assert section[1] == "================="
    assert len({len(line) for line in section[2:]}) == 1
    assert section[4].split() == ["n" * 60, "2", "0.0010", "0.0004", "0.0006", "0.0005"]


def test_the_json_has_means_and_units() -> None:
    found = json.loads(statistics.as_json(ROWS, "total", False))

    assert found["Time"]["operator"]["aten::mm"] == {
        "Count": 4,
        "Total": 8.0,
        "Min": 1.0,
        "Max": 4.0,
        "Avg": 2.0,
    }
    assert found["Memory"]["Device Storage"]["Memory: cpu/0"] == {
        "Count": 2,
        "Min": 1e3,
        "Max": 2e3,
        "Avg": 1.5e3,
    }
    assert found["Counter"]["mine"]["counted"] == {"Count": 3, "Min": 2.0, "Max": 9.0, "Avg": 5.0}


def test_it_parses_as_an_older_python() -> None:
    """The program's Python may be older than ours."""
    for path in sorted((ROOT / "src" / "layerscope" / "profiler").glob("*.py")):
        ast.parse(path.read_text(), feature_version=(3, 8))
