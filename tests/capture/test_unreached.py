"""Programs that nothing of ours may enter: what is kept out of their environment, and what is said
of them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from layerscope.capture import agent, unreached
from layerscope.capture.preloading import preload
from tests.differential import environment
from tests.native.building import build

READS_THEM = """#include <stdlib.h>
int main(void) { return getenv("INTEL_LIBITTNOTIFY64") || getenv("NVTX_INJECTION64_PATH"); }
"""
READS_NONE = "int main(void) { return 0; }\n"


def built(target: Path, code: str, *flags: str) -> Path:
    """A program of this code."""
    target.with_suffix(".c").write_text(code)
    return build(target, [target.with_suffix(".c")], *flags)


@pytest.mark.parametrize("own", ["", "/own/collector.so"])
def test_a_static_program_with_a_door_is_not_told_of_ours(
    tmp_path: Path, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a program that would load our library is kept from it; what `before` it had stays."""
    reads_them = built(tmp_path / "reads", READS_THEM, "-static")
    reads_none = built(tmp_path / "reads_none", READS_NONE, "-static")
    before = {"PATH": os.environ["PATH"], **({"INTEL_LIBITTNOTIFY64": own} if own else {})}
    ours = {**before, **dict.fromkeys(unreached.LOADING, "/ours.so"), "PYTHONPATH": "/door"}
    for_reader, for_other = dict(ours), dict(ours)

    (problem,) = unreached.spare([str(reads_them)], for_reader, before)
    others = unreached.spare([str(reads_none)], for_other, before)

    assert problem.code == "left_alone"
    assert for_reader == {**before, "PYTHONPATH": "/door"}
    assert others == []
    assert for_other == ours


def test_an_ordinary_program_keeps_its_doors(tmp_path: Path) -> None:
    program = built(tmp_path / "program", READS_THEM)
    ours = dict.fromkeys(unreached.LOADING, "/ours.so")

    assert unreached.spare([str(program)], ours, {}) == []
    assert ours == dict.fromkeys(unreached.LOADING, "/ours.so")
    assert unreached.nobody_came([str(program)], {}).what == (
        f"{program} has ITT and NVTX in it, but nothing was sent by them"
    )


def test_a_foreign_program_that_cannot_even_start_is_explained(tmp_path: Path) -> None:
    """The header of a program for another machine; where an emulator runs it, nothing of ours runs
    inside.
    """
    foreign = tmp_path / "foreign"
    foreign.write_bytes(
        b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00\x01\x00\x00\x00" + bytes(80)
    )
    foreign.chmod(0o755)

    problem = unreached.nobody_came([str(foreign)], {})

    assert (
        problem.what
        == f"{foreign} is built for aarch64 (64 bits) and was left alone: only its counters are recorded"
    )
    assert problem.remedy == "build it for x86_64"


def test_a_python_that_is_a_script_counts_as_a_python(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexec true\n")
    (tmp_path / "python3").chmod(0o755)

    assert (
        "reads PYTHONPATH"
        in unreached.nobody_came(["python3"], environment(PATH=str(tmp_path))).what
    )
    assert (
        shutil.which("sh") is None
        or "no Python" in unreached.nobody_came(["sh"], environment()).what
    )


def test_what_is_linked_with_pytorch_and_is_no_python_has_the_agent_loaded(
    tmp_path: Path, native_agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(
        tmp_path / "libtorch_cpu.so",
        [written(tmp_path / "torch.c", "int torch;")],
        "-shared",
        "-fPIC",
    )
    flags = ("-Wl,--no-as-needed", f"-L{tmp_path}", "-ltorch_cpu")
    uses_torch = built(tmp_path / "uses_torch", READS_NONE, *flags)
    python = built(tmp_path / "python", "int Py_BytesMain; " + READS_NONE, *flags, "-rdynamic")
    sanitized = built(tmp_path / "sanitized", "int __asan_init; " + READS_NONE, *flags, "-rdynamic")
    plain = built(tmp_path / "plain", READS_NONE)
    ours = str(agent.PRELOAD)
    told = {agent.SETTINGS: "socket=x"}

    def preloaded(program: Path, **environment: str) -> str | None:
        found = {**told, **environment}
        preload([str(program)], found)
        return found.get("LD_PRELOAD")

    assert [preloaded(program) for program in (uses_torch, python, sanitized, plain)] == [
        ours,
        None,
        None,
        None,
    ]
    assert preloaded(uses_torch, LD_PRELOAD="/own.so") == f"/own.so:{ours}"
    spaced = written(tmp_path / "with a space.so", "")
    monkeypatch.setattr(agent, "PRELOAD", spaced)
    assert preloaded(uses_torch) is None
    without: dict[str, str] = {}
    preload([str(uses_torch)], without)
    assert without == {}
    assert "linked with PyTorch, but the agent" in unreached.nobody_came([str(uses_torch)], {}).what


def written(path: Path, code: str) -> Path:
    path.write_text(code)
    return path
