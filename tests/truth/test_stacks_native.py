"""A C++ program of known imbalance, as the samples of its threads tell it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.attempts import once_in_three
from tests.native.building import ROOT
from tests.recorded import Recorded, layerscope
from tests.truth.test_stacks import ABOVE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]


def compile_program(library: Path, target: Path) -> Path:
    """imbalance.cpp with the library of programs in C."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler (tried g++)")
    flags = ["-std=c++17", "-O2", "-g", "-fopenmp", "-I", str(ROOT / "native" / "include")]
    link = ["-L", str(library), f"-Wl,-rpath,{library}", "-llayerscope"]
    source = str(ROOT / "tests" / "programs" / "imbalance.cpp")
    subprocess.run([compiler, *flags, "-o", str(target), source, *link], check=True, timeout=120)
    return target


@once_in_three
def test_an_imbalance_of_openmp_is_a_wait_at_a_barrier(native_agent: Path, tmp_path: Path) -> None:
    program = compile_program(native_agent.parent, tmp_path / "imbalance")

    folder = Path(tempfile.mkdtemp(dir=tmp_path))  # of each attempt one of its own
    # A thread that waits sleeps: otherwise it works at waiting, which is CPU time.
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    done = layerscope(
        "run",
        "-o",
        "recording",
        "--layers",
        "+stacks",
        "--",
        str(program),
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_run(folder / "recording.layerscope"), 0, done.stdout, done.stderr)
    waited_ns = int(done.stdout)

    waits = recorded.rows(
        "SELECT tid = pid AS is_main, state, sum(weight_ns) AS ns FROM samples JOIN tracks USING (track) "
        "JOIN processes USING (process) WHERE samples.kind = 'offcpu' GROUP BY ALL"
    )
    ns = {(row["is_main"], row["state"]): int(row["ns"]) for row in waits}
    # A wait has a stack, which tells what it is for, if the sampler got a CPU while it lasted.
    assert 0.4 * waited_ns < ns[False, "barrier"] <= 1.01 * waited_ns
    # Both did what they were to do, inside of the range that was open, and in the function that has
    # the work.
    worked = recorded.rows(
        f"{ABOVE} SELECT tid = pid AS is_main, sum(weight_ns) AS ns FROM samples JOIN tracks USING (track) "
        "JOIN processes USING (process) WHERE samples.kind = 'cpu' AND stack IN (SELECT stack FROM framed "
        "WHERE layer = 'native' AND name = 'work') GROUP BY ALL"
    )
    cpu_ns = {row["is_main"]: int(row["ns"]) for row in worked}
    assert 0.85 < cpu_ns[True] / 1.8e9 < 1.1
    assert 0.85 < cpu_ns[False] / 0.6e9 < 1.1
    lines = recorded.rows(f"{ABOVE} SELECT DISTINCT file FROM framed WHERE name = 'work'")
    assert [Path(row["file"] or "").name for row in lines] == ["imbalance.cpp"]
    ranges = recorded.rows(f"{ABOVE} SELECT DISTINCT name FROM framed WHERE layer = 'ranges'")
    assert ranges == [{"name": "imbalanced"}]


@once_in_three
def test_a_worker_of_a_stripped_runtime_waits_at_the_barrier_while_its_team_works(
    tmp_path: Path,
) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler (tried gcc)")
    program = tmp_path / "team"
    source = str(ROOT / "tests" / "programs" / "team.c")
    command = [compiler, "-O1", "-g", "-fopenmp", "-o", str(program), source]
    subprocess.run(command, check=True, timeout=120)

    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    done = layerscope("run", "-o", "recording", "--", str(program), cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_run(folder / "recording.layerscope"), 0, done.stdout, done.stderr)
    waits = recorded.rows(
        "SELECT state, sum(weight_ns) AS ns FROM samples JOIN tracks USING (track) "
        "JOIN processes USING (process) WHERE samples.kind = 'offcpu' AND tid <> pid GROUP BY ALL"
    )
    seconds = {row["state"]: int(row["ns"]) / 1e9 for row in waits}
    barrier_s, pool_s = map(float, done.stdout.split())
    assert abs(seconds["barrier"] - barrier_s) < 0.1 + 0.1 * barrier_s
    assert abs(seconds["pool"] - pool_s) < 0.1 + 0.1 * pool_s


@once_in_three
def test_inlined_functions_have_their_shares(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler (tried gcc)")
    program = tmp_path / "inlined"
    source = ROOT / "tests" / "programs" / "inlined.c"
    command = [compiler, "-O2", "-g", "-o", str(program), str(source)]
    subprocess.run(command, check=True, timeout=120)

    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    done = layerscope("run", "-o", "recording", "--rate", "499", "--", str(program), cwd=folder)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_run(folder / "recording.layerscope"), 0, done.stdout, done.stderr)
    rows = recorded.rows(
        f"{ABOVE} SELECT name, line, sum(weight_ns) AS ns FROM samples JOIN framed USING (stack) "
        "WHERE kind = 'cpu' AND layer = 'native' GROUP BY ALL"
    )
    ns: dict[str, int] = {}
    lines: dict[str, set[int]] = {}
    for row in rows:
        ns[row["name"]] = ns.get(row["name"], 0) + int(row["ns"])
        lines.setdefault(row["name"], set()).add(row["line"])
    assert 0.70 < ns["often"] / ns["both"] < 0.80
    assert 0.20 < ns["seldom"] / ns["both"] < 0.30
    assert ns["both"] > 0.9 * ns["main"]
    text = source.read_text().splitlines()
    assert {"often(x)", "seldom(x)"} == {
        text[line - 1].rpartition(" ")[2].rstrip(";") for line in lines["both"]
    }


def slept_ns(tmp_path: Path, naps: int, nap_ns: int) -> int:
    """Of a program that sleeps so often for so long and does nothing else, as it is recorded."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler (tried gcc)")
    source = tmp_path / "sleeps.c"
    source.write_text(
        "#include <time.h>\n"
        f"int main(void) {{ struct timespec nap = {{{nap_ns // 10**9}, {nap_ns % 10**9}}};\n"
        f"for (int i = 0; i < {naps}; i++) nanosleep(&nap, 0); return 0; }}\n"
    )
    program = tmp_path / "sleeps"
    subprocess.run([compiler, "-O1", "-o", str(program), str(source)], check=True, timeout=120)

    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    done = layerscope("run", "-o", "recording", "--", str(program), cwd=folder)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(open_run(folder / "recording.layerscope"), 0, done.stdout, done.stderr)
    query = "SELECT coalesce(sum(weight_ns), 0) FROM samples WHERE state = 'sleep'"
    return int(recorded.value(query))


@once_in_three
def test_a_program_that_hardly_uses_a_cpu_has_its_waits(tmp_path: Path) -> None:
    assert 1.3e9 < slept_ns(tmp_path, 30, 50_000_000) < 2.5e9


@once_in_three
def test_a_wait_that_began_before_it_was_followed_is_there(tmp_path: Path) -> None:
    assert 1.3e9 < slept_ns(tmp_path, 1, 1_500_000_000) < 1.8e9


@once_in_three
def test_the_first_waits_of_a_program_in_c_are_there(tmp_path: Path) -> None:
    assert 0.98 * 0.9e9 < slept_ns(tmp_path, 10, 90_000_000) < 1.2e9
