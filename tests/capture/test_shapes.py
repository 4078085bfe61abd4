"""What reads shapes: compiled once for each build of torch, refused when it errs; without a
compiler that is said.
"""

from __future__ import annotations

import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from layerscope.capture import shapes as capture_shapes
from layerscope.capture.adapter import CannotRead
from layerscope.capture.frameworks.torch import shapes
from layerscope.model import cache as cache_module
from layerscope.model.events import Problem
from tests.recorded_shapes import needs_compiler
from tests.repeated import also


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native_agent: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / "layerscope" / "shapes"


def without_compilers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH that has none."""
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)


def doctored(folder: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """The source with an error in it."""
    text = shapes.SOURCE.read_text()
    assert text.count(old) == 1
    source = folder / "shapes.cpp"
    source.write_text(text.replace(old, new))
    monkeypatch.setattr(shapes, "SOURCE", source)


def test_the_python_of_a_command_is_found_without_running_it(tmp_path: Path) -> None:
    script, other = tmp_path / "torchrun", tmp_path / "tool"
    script.write_text(f"#!{sys.executable} -I\n")
    other.write_text("#!/bin/sh\n")
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    for file in (script, other, python):
        file.touch()
        file.chmod(0o755)
    environment = {"PATH": str(tmp_path), "VIRTUAL_ENV": str(tmp_path / "env")}

    assert capture_shapes.python_of([sys.executable, "train.py"], environment) == sys.executable
    assert capture_shapes.python_of(["torchrun", "train.py"], environment) == sys.executable
    assert capture_shapes.python_of(["tool"], environment) == str(python)
    assert capture_shapes.python_of(["not there"], environment) == str(python)


def test_a_python_without_torch_is_named(program_python: str) -> None:
    with pytest.raises(CannotRead, match="has no PyTorch whose inputs could be read") as refused:
        shapes.find_library(sys.executable)
    assert "layerscope run --shapes -- /path/to/python" in refused.value.remedy
    assert shapes.find_library(program_python).name == "libtorch_cpu.so"


def test_without_a_compiler_the_problem_names_the_remedy(
    program_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_compilers(tmp_path / "bin", monkeypatch)
    problems: list[Problem] = []

    assert capture_shapes.prepare([program_python, "train.py"], problems, None) is None

    (problem,) = problems
    assert (problem.layer, problem.code, problem.remedy) == (
        "operators",
        "shapes_not_built",
        "install g++",
    )
    assert "there is no C++ compiler (tried g++, c++, clang++)" in problem.what


def test_a_compiler_that_fails_is_quoted(
    program_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_compilers(tmp_path / "bin", monkeypatch)
    compiler = tmp_path / "bin" / "g++"
    compiler.write_text("#!/bin/sh\necho 'x.cpp:1:2: error: no such thing' >&2\nexit 1\n")
    compiler.chmod(0o755)

    with pytest.raises(
        CannotRead, match=r"g\+\+ does not compile against this PyTorch: no such thing"
    ):
        shapes.build(program_python, shapes.find_library(program_python))


@needs_compiler
@pytest.mark.slow
def test_what_is_compiled_is_kept(
    program_python: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    library = shapes.find_library(program_python)
    built = shapes.build(program_python, library, said.append)
    assert [line.startswith("layerscope: compiling") for line in said] == [True]
    assert sorted(file.name for file in next(cache.iterdir()).iterdir()) == [
        ".lock", ".origin", "shapes.json", "shapes.so",
    ]  # fmt: skip

    monkeypatch.setattr(shapes, "compile_for", None)
    assert shapes.build(program_python, library, said.append) == built
    assert len(said) == 1


def test_of_many_ranks_that_start_at_once_one_compiles(
    program_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = shapes.find_library(program_python)
    compiled = []

    def compile_for(_: Path, target: Path) -> None:
        compiled.append(target)
        time.sleep(0.2)
        target.write_bytes(b"made")

    monkeypatch.setattr(shapes, "compile_for", compile_for)
    monkeypatch.setattr(shapes, "check", lambda python, library, made: 1.5)
    with ThreadPoolExecutor(4) as ranks:
        built = set(ranks.map(lambda _: shapes.build(program_python, library), range(4)))

    assert len(compiled) == 1
    assert [Path(one.path).read_bytes() for one in built] == [b"made"]
    assert [one.cost_ns for one in built] == [1.5]


def test_without_a_place_to_keep_it_nothing_is_compiled(
    program_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "caches", lambda kind: [])

    with pytest.raises(CannotRead, match="there is no place to keep what is compiled"):
        shapes.build(program_python, shapes.find_library(program_python))


def test_a_torch_without_headers_is_named(tmp_path: Path) -> None:
    (tmp_path / "torch" / "lib").mkdir(parents=True)

    with pytest.raises(CannotRead, match="torch has no headers"):
        shapes.compile_for(tmp_path / "torch" / "lib" / "libtorch_cpu.so", tmp_path / "made.so")


def test_a_link_in_the_place_of_what_was_compiled_is_not_followed(
    program_python: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "compile_for", lambda _, target: target.write_bytes(b"made"))
    monkeypatch.setattr(shapes, "check", lambda python, library, made: 1.5)
    library = shapes.find_library(program_python)
    built = Path(shapes.build(program_python, library).path)
    shutil.move(built, tmp_path / "elsewhere.so")
    built.symlink_to(tmp_path / "elsewhere.so")

    built = Path(shapes.build(program_python, library).path)

    assert not built.is_symlink()
    assert built.read_bytes() == b"made"


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("t.dims = sizes.size();", "t.dims = sizes.size() - !sizes.empty();", 'not {"shapes": [[2, 3], [3]]'),
        *also(
            [
                ('"float16",  "float32"', '"float32",  "float16"', '"float16"'),
                ("hash) ? hash.value() : 0", "hash) ? 7 : 0", "not {"),
            ]
        ),
        ("return value.isNone() ? nullptr", "return value.isNone() ? *(const char **)0", "did not answer"),
    ],
)  # fmt: skip
def test_what_reads_wrongly_or_crashes_is_refused(
    program_python: str,
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    why: str,
) -> None:
    doctored(tmp_path, monkeypatch, old, new)

    with pytest.raises(CannotRead) as refused:
        shapes.build(program_python, shapes.find_library(program_python))

    assert why in str(refused.value)
    assert not list(cache.glob("*/shapes.so"))
