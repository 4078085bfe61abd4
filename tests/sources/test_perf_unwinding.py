"""Copies of stacks in `perf.data` (`perf record --call-graph dwarf`) are unwound: by perf on this
machine, of programs whose calls are known.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from layerscope.sources import perf_data, perf_script, perf_unwinding
from layerscope.sources.imported import Imported
from tests.native.building import build
from tests.sources.test_perf_data import stack_names

PERF = shutil.which("perf")
PATIENCE_S = 120
INLINED = "static inline __attribute__((always_inline))"
CALLS = ["main", "outer", "middle", "inner"]
SOURCE = """
volatile double sink;
#define HERE __attribute__((noinline, noclone))
HERE double inner(double x) {
    for (int i = 0; i < 100000; i++)
        x = x * 0.999 + 1e-3;
    return x;
}
HERE void middle(int times) {
    for (int i = 0; i < times; i++)
        sink = inner(i) + 1;
    sink += 1;
}
HERE void outer(void) {
    middle(100);
    sink += 2;
}
int main(void) {
    for (int i = 0; i < 30; i++)
        outer();
    return 0;
}
"""


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        words, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def recorded(tmp_path: Path, perf_events: None) -> Path:
    """A folder with the program and its perf.data."""
    if PERF is None:
        pytest.skip("there is no perf here")
    (tmp_path / "program.c").write_text(SOURCE)
    build(tmp_path / "program", [tmp_path / "program.c"], "-O2", "-fomit-frame-pointer")
    words = ["record", "-q", "-N", "-e", "cpu-clock:u", "-F", "499", "--call-graph", "dwarf,8192"]
    run(PERF, *words, "-o", "perf.data", "./program", cwd=tmp_path)
    return tmp_path


def weights(content: Imported) -> Counter[tuple[str, ...]]:
    """How many samples have each stack, from main on."""
    found: Counter[tuple[str, ...]] = Counter()
    for names in stack_names(content):
        found[tuple(names[names.index("main") :] if "main" in names else names)] += 1
    return found


def test_callers_of_a_program_without_frame_pointers(recorded: Path) -> None:
    content = perf_data.read(recorded / "perf.data")
    found = weights(content)
    assert found[tuple(CALLS)] >= 0.95 * found.total()
    assert stack_names(content)[-1][0] == "_start"
    assert not [one for one in content.problems if one.code == "perf_dwarf"]


def test_callers_are_those_that_perf_finds(recorded: Path) -> None:
    """perf stops at the C library where it has no debug information of it: from main on."""
    assert PERF is not None
    text = run(PERF, "script", "--no-inline", "-i", "perf.data", cwd=recorded)
    (recorded / "stacks.txt").write_text(text)
    ours = weights(perf_data.read(recorded / "perf.data"))
    perfs = weights(perf_script.read(recorded / "stacks.txt"))
    differing = sum((ours - perfs).values())
    assert differing <= 0.02 * ours.total(), (ours, perfs)


@pytest.mark.parametrize("call_graph", ["fp", "dwarf,8192"])
def test_inlined_functions_are_those_that_perf_finds(recorded: Path, call_graph: str) -> None:
    assert PERF is not None
    inlined = SOURCE.replace("__attribute__((noinline, noclone))", INLINED)
    (recorded / "program.c").write_text(inlined)
    flags = ["-O2", "-g", "-fno-omit-frame-pointer"]
    build(recorded / "program", [recorded / "program.c"], *flags)
    words = ["record", "-q", "-N", "-e", "cpu-clock:u", "-F", "499", "--call-graph", call_graph]
    run(PERF, *words, "-o", "perf.data", "./program", cwd=recorded)

    ours = weights(perf_data.read(recorded / "perf.data"))
    assert ours[tuple(CALLS)] >= 0.95 * ours.total()
    if call_graph == "fp":  # perf script leaves them out there
        return
    text = run(PERF, "script", "--inline", "-i", "perf.data", cwd=recorded)
    (recorded / "stacks.txt").write_text(text)
    perfs = weights(perf_script.read(recorded / "stacks.txt"))
    assert sum((ours - perfs).values()) <= 0.02 * ours.total(), (ours, perfs)


def test_of_a_program_that_is_not_here_any_more_it_is_said(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in the cache of perf."""
    monkeypatch.setenv("HOME", str(recorded / "home"))
    (recorded / "program").unlink()
    content = perf_data.read(recorded / "perf.data")
    (problem,) = [one for one in content.problems if one.code == "perf_dwarf"]
    assert "could not be unwound" in problem.what


def test_without_the_library_the_innermost_function_is_known(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where layerscope was installed without its native parts."""
    monkeypatch.setattr(perf_unwinding, "LIBRARY", recorded / "none.so")
    content = perf_data.read(recorded / "perf.data")
    assert weights(content)["inner",] >= 0.95 * weights(content).total()
    assert [one.code for one in content.problems if one.code == "perf_dwarf"]
