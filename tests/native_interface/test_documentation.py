"""The programs of docs/c_interface.md compile without a warning and record what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.native.building import ROOT, compiler
from tests.native_interface.driven import Driven, alone
from tests.native_interface.test_headers import compiled, cpp_compiler

PAGE = (ROOT / "docs" / "c_interface.md").read_text()
PROGRAMS = dict(re.findall(r"```(c|cpp)\n(.*?)```", PAGE, re.DOTALL))
HEADER = (ROOT / "native" / "include" / "layerscope.h").read_text()


def run(language: str, interface: Path, folder: Path) -> Driven:
    source = folder / f"program.{language}"
    source.write_text(PROGRAMS[language])
    link = ["-L", str(interface.parent), f"-Wl,-rpath,{interface.parent}", "-llayerscope"]
    command, standard = (
        (compiler(), "-std=c99") if language == "c" else (cpp_compiler(), "-std=c++11")
    )
    done = alone(compiled(folder / "program", source, command, standard, *link), folder)
    assert (done.status, done.stdout, done.stderr) == (0, "", "")
    return done


def test_the_program_in_c_records_all_batches_but_the_first(
    interface: Path, tmp_path: Path
) -> None:
    driven = run("c", interface, tmp_path)
    driven.name = "training"
    assert driven.tree() == [("forward", None), ("backward", None)] * 3
    assert driven.counted("loss_millionths") == [500000, 333333, 250000]
    assert driven.marks() == [("step", "step")] * 3 + [("paused", "profiler")]


def test_the_program_in_cpp_records_its_blocks(interface: Path, tmp_path: Path) -> None:
    driven = run("cpp", interface, tmp_path)
    driven.name = "classes"
    assert driven.tree() == [("batch", None), ("forward", "batch"), ("saving", "batch")] * 3
    assert driven.counted("images") == [64, 128, 192]


@pytest.mark.parametrize("name", re.findall(r"\b(layerscope_\w+)\(", HEADER))
def test_every_function_is_on_the_page(name: str) -> None:
    assert f"`{name}(" in PAGE
