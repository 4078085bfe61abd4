"""Unwind information that is broken, files that are not what was mapped, stacks of nonsense."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.building import build, sanitizer_flag
from tests.stacks.oracles import HERE, STRICT, UNWINDER, Compared, Oracle, held

OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
RARE = [HERE / "plugin.c", HERE / "cfi.S"]


def said(command: list[str]) -> tuple[int, str, str]:
    """Status, output and errors of a program."""
    environment = {**os.environ, **OPTIONS}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mutated_files_and_stacks_of_nonsense(fuzzer: Path, tmp_path: Path, seed: int) -> None:
    library = build(tmp_path / "rare.so", RARE, "-O2", "-shared", "-fPIC")
    assert said([str(fuzzer), str(library), str(tmp_path), "1500", str(seed)]) == (0, "done\n", "")


@pytest.mark.slow
def test_mutated_file_without_a_table(fuzzer: Path, tmp_path: Path) -> None:
    library = build(tmp_path / "rare.so", RARE, "-O2", "-shared", "-fPIC", "-Wl,--no-eh-frame-hdr")
    assert said([str(fuzzer), str(library), str(tmp_path), "1500", "4"]) == (0, "done\n", "")


def test_expressions(tmp_path: Path) -> None:
    """The operations of DWARF, each with numbers whose answer is known, and such as have none."""
    (source,) = [file for file in UNWINDER if file.name == "expression.c"]
    flag = sanitizer_flag(tmp_path, "address,undefined")
    program = build(tmp_path / "expressions", [HERE / "expressions.c", source], *STRICT, flag)
    assert said([str(program)]) == (0, "done\n", "")


@pytest.fixture
def victim(oracle: Oracle, tmp_path: Path) -> Path:
    """The program of victim.c."""
    return build(tmp_path / "victim", [HERE / "victim.c"], "-O2", *oracle.linked())


def own_plugin(folder: Path, *flags: str) -> Path:
    """A plugin that the test may change."""
    return build(
        folder / "own.so", [HERE / "plugin.c"], "-O2", "-shared", "-fPIC", "-Wl,--build-id", *flags
    )


def judged(oracle: Oracle, victim: Path, plugin: Path, change: str) -> Compared:
    """What is found after something has happened to the file of the plugin."""
    samples = victim.parent / "samples"
    with held([str(victim), str(samples), "800", str(plugin)]) as pid:
        if change == "deleted":
            plugin.unlink()
        elif change == "replaced":
            plugin.unlink()
            own_plugin(plugin.parent, "-O3", "-DREPLACED", "-falign-functions=4096")
        elif change == "a pipe":
            plugin.unlink()
            os.mkfifo(plugin)
        elif change == "truncated":
            os.truncate(plugin, 100)
        elif change == "nothing in it":
            os.truncate(plugin, 0)
        return oracle.judge(pid, samples)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["deleted", "replaced", "a pipe"])
def test_the_file_is_another_one(sanitized_oracle: Oracle, victim: Path, change: str) -> None:
    """What the process has in memory counts: nothing is lost."""
    found = judged(sanitized_oracle, victim, own_plugin(victim.parent), change)
    assert found.different == 0, found.said
    assert found.root + found.cut == found.samples


@pytest.mark.slow
@pytest.mark.parametrize("change", ["truncated", "nothing in it"])
def test_the_file_has_become_shorter(sanitized_oracle: Oracle, victim: Path, change: str) -> None:
    """Its memory is gone too; frames of it are passed by repair, or the walk ends there."""
    found = judged(sanitized_oracle, victim, own_plugin(victim.parent), change)
    assert found.samples >= 800
    assert found.equal >= found.samples / 2, found.said


@pytest.mark.slow
def test_a_file_without_a_table(oracle: Oracle, victim: Path) -> None:
    """Then .eh_frame is gone through; libgcc does not, so frames of it are where it stops."""
    library = own_plugin(victim.parent, "-Wl,--no-eh-frame-hdr")
    found = judged(oracle, victim, library, "")
    assert found.root + found.cut >= 0.98 * found.samples, found.said


@pytest.mark.slow
def test_no_such_process(oracle: Oracle, tmp_path: Path) -> None:
    """A process that is gone has no space."""
    process = subprocess.Popen(["true"])
    process.wait(timeout=60)
    assert said([str(oracle.compare), str(process.pid), str(tmp_path)])[0] == 2
