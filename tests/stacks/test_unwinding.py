"""Our unwinder against libgcc's: at random moments of programs, both have to say the same, frame by
frame.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.native.building import ROOT, build
from tests.repeated import also, times
from tests.stacks.oracles import HERE, STRICT, UNWINDER, Compared, Oracle, build_cpp

# How a compiler makes frames: both ends here, what lies between in `dev.py stress`.
ENDS = ["-O0", "-O3 -fomit-frame-pointer"]
BETWEEN = ["-O2", "-O2 -fno-omit-frame-pointer", "-Os"]


def victim(oracle: Oracle, folder: Path, flags: str = "-O2") -> Path:
    """The program of victim.c."""
    return build(
        folder / "victim", [HERE / "victim.c"], "-Wall", "-Wextra", *flags.split(), *oracle.linked()
    )


def assert_equal(found: Compared, least: int) -> None:
    """All are as libgcc says; cut are those of a handler that has a stack of its own, whose copy
    ends there.
    """
    assert found.different == 0, found.said
    assert found.samples >= least
    assert found.equal + found.cut + found.further == found.samples
    assert found.cut <= found.samples / 4, found.said


@pytest.mark.slow
@pytest.mark.parametrize("flags", [*ENDS, *also(BETWEEN)])
def test_c(oracle: Oracle, plugin: Path, tmp_path: Path, flags: str) -> None:
    found = oracle.run([str(victim(oracle, tmp_path, flags))], tmp_path, 1500, str(plugin))
    assert_equal(found, 1500)
    assert found.root == found.equal + found.further


@pytest.mark.slow
@pytest.mark.parametrize("flags", [*ENDS, *also(["-O2"])])
def test_cpp(oracle: Oracle, tmp_path: Path, flags: str) -> None:
    program = build_cpp(
        tmp_path / "victim",
        [HERE / "victim.cpp"],
        "-Wall",
        "-Wextra",
        *flags.split(),
        *oracle.linked(),
    )
    if program is None:
        pytest.skip("there is no C++ compiler (tried c++, g++, clang++)")
    found = oracle.run([str(program)], tmp_path, 1500)
    assert_equal(found, 1500)
    assert found.root == found.samples or flags == "-O0"  # deeper than there is room for


@pytest.mark.slow
def test_rare_instructions(oracle: Oracle, tmp_path: Path) -> None:
    program = build(tmp_path / "rare", [HERE / "rare.c", HERE / "cfi.S"], "-O2", *oracle.linked())
    found = oracle.run([str(program)], tmp_path, 2000)
    assert (found.equal, found.different, found.root) == (found.samples, 0, found.samples), (
        found.said
    )


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["-O3 -fomit-frame-pointer", *also(["-O2"])])
def test_code_made_while_it_runs(oracle: Oracle, tmp_path: Path, flags: str) -> None:
    """Nobody but the program can say what is right; a prologue half done may be taken for a whole
    one.
    """
    program = build(tmp_path / "jit", [HERE / "jit.c"], *flags.split(), *oracle.linked())
    found = oracle.run([str(program)], tmp_path, 2000)
    assert found.equal >= 0.99 * found.samples, found.said
    assert found.root == found.samples


@pytest.mark.slow
def test_python_with_torch(oracle: Oracle, program_python: str, tmp_path: Path) -> None:
    program = [program_python, str(HERE / "workload.py"), str(oracle.recorder)]
    found = oracle.run(program, tmp_path, 1500)
    assert_equal(found, 1500)
    assert found.root >= 0.98 * found.samples, found.said
    # libgcc does not come through oneDNN and MKL, whose share of the time is the machine's.
    assert found.equal >= 0.5 * found.samples, found.said
    assert found.evals > found.samples


@pytest.mark.slow
@pytest.mark.parametrize("flags", [*ENDS, "-O0 -fno-asynchronous-unwind-tables", *also(BETWEEN)])
def test_every_instruction(tmp_path: Path, flags: str) -> None:
    """Beginnings and ends of functions, stubs, the dynamic linker: the CALLs and RETs so far say
    what is right.

    Without unwind information frames are found by rbp.
    """
    program = build(
        tmp_path / "stepping", [HERE / "stepping.c", *UNWINDER], *STRICT, *flags.split()
    )
    done = subprocess.run(
        [str(program), "20000"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout == "steps 20000 equal 20000\n"


@pytest.mark.slow
def test_under_sanitizers(sanitized_oracle: Oracle, plugin: Path, tmp_path: Path) -> None:
    found = sanitized_oracle.run(
        [str(victim(sanitized_oracle, tmp_path))], tmp_path, 600, str(plugin)
    )
    assert_equal(found, 600)


@pytest.mark.slow
def test_made_code_under_sanitizers(sanitized_oracle: Oracle, tmp_path: Path) -> None:
    program = build(tmp_path / "jit", [HERE / "jit.c"], "-O2", *sanitized_oracle.linked())
    found = sanitized_oracle.run([str(program)], tmp_path, 600)
    assert found.equal >= 0.98 * found.samples, found.said


@pytest.mark.slow
def test_every_stack_of_a_training_comes_to_the_root(program_python: str, tmp_path: Path) -> None:
    """Threads stopped at random times: those that compute, made code included, and those that
    wait.
    """
    live = build(tmp_path / "live", [HERE / "live.c", *UNWINDER], *STRICT)
    example = [program_python, str(ROOT / "examples" / "mnist_cnn.py")]
    long_one = ["--epochs", "100000", "--limit", "20"]
    program = subprocess.Popen(
        [*example, *long_one], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert program.stdout is not None
        while not program.stdout.readline().startswith("epoch 1"):
            assert program.poll() is None
        done = subprocess.run(
            [str(live), str(program.pid), *times(("2500", "4000"), ("600", "4000"))],
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        )
    finally:
        program.kill()
        program.communicate(timeout=60)
    if not done.stdout:
        pytest.skip("the threads of a child may not be stopped here (ptrace)")
    found = re.findall(r"(.+?) +samples (\d+) root (\d+)", done.stdout)
    assert sum(int(root) for *_, root in found) >= 0.95 * sum(
        int(samples) for _, samples, _ in found
    ), done.stdout
    assert {kind.split()[0] for kind, *_ in found} == {"cpu", "blocked"}
    ((samples, root),) = [
        (int(samples), int(root)) for kind, samples, root in found if kind == "cpu jit"
    ]
    assert root >= 0.92 * samples, done.stdout
