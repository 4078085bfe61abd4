"""native_build.py: what it compiles, with what, and when again."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILE = Path(__file__).resolve().parent.parent / "native_build.py"
AGENT, PROBE, INTERFACE = "liblayerscope-agent.so", "layerscope-probe", "liblayerscope.so"

FakeProgram = Callable[[str, str], Path]


@pytest.fixture
def native_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layerscope_native_build", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fake_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeProgram:
    """Puts a shell script on PATH, where there is nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


def test_no_compiler_is_one_sentence_with_the_remedy_and_the_loss(
    native_build: ModuleType, fake_program: FakeProgram, tmp_path: Path
) -> None:
    with pytest.raises(native_build.NoCompiler) as caught:
        native_build.find_compiler(str(fake_program("no-ziglang", "exit 1")), tmp_path)

    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "only windows of the framework's own profiler are recorded" in sentence
    assert "install gcc with the system's package manager" in sentence
    assert ".envs/tool/bin/pip install ziglang" in sentence


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ({"cc": 0, "gcc": 0}, ["cc"]),
        ({"cc": 1, "gcc": 0}, ["gcc"]),  # a compiler without headers is passed over
        ({"clang": 0, "zig": 0}, ["clang"]),
        ({"zig": 0}, ["zig", "cc"]),
    ],
)
def test_the_first_compiler_that_works_is_taken(
    native_build: ModuleType,
    fake_program: FakeProgram,
    tmp_path: Path,
    present: dict[str, int],
    expected: list[str],
) -> None:
    for name, status in present.items():
        fake_program(name, f"exit {status}")

    assert (
        native_build.find_compiler(str(fake_program("no-ziglang", "exit 1")), tmp_path) == expected
    )


def test_ziglang_of_our_environment_is_the_last_resort(
    native_build: ModuleType, fake_program: FakeProgram, tmp_path: Path
) -> None:
    python = str(fake_program("has-ziglang", "exit 0"))

    assert native_build.find_compiler(python, tmp_path) == [python, "-m", "ziglang", "cc"]


@pytest.fixture
def build(native_build: ModuleType, tmp_path: Path) -> Any:
    """The smallest native part: an agent of two files and a header, a probe, a library with the
    agent inside.
    """
    result = native_build.Build(
        tmp_path / "native", tmp_path / "out", sys.executable, tmp_path / "cache", print
    )
    try:
        native_build.find_compiler(sys.executable, result.cache)
    except native_build.NoCompiler as failure:
        pytest.skip(str(failure))
    files = {
        "layout.h": "int two(void);\n",
        "agent/a.c": '#include "layout.h"\nint two(void) { return 2; }\n',
        "agent/b.c": '#include "layout.h"\nint four(void);\nint four(void) { return 2 * two(); }\n',
        "stacks/python_frames.c": "int five(void);\nint five(void) { return 5; }\n",
        "frameworks/torch/probe/main.c": "int main(void) { return 3; }\n",
        "interface/i.c": '#include "layout.h"\nint layerscope_six(void);\n'
        '__attribute__((visibility("default"))) int layerscope_six(void) { return 3 * two(); }\n',
        "interface/liblayerscope.map": "{ global: layerscope_*; local: *; };\n",
        "include/layerscope.h": "int layerscope_six(void);\n",
        "frameworks/torch/shapes.cpp": "// compiled elsewhere\n",
    }
    for name, text in files.items():
        (result.sources / name).parent.mkdir(parents=True, exist_ok=True)
        (result.sources / name).write_text(text)
    return result


def built(build: Any) -> dict[str, int]:
    return {
        path.name: path.stat().st_mtime_ns
        for path in build.out.iterdir()
        if path.name in (AGENT, PROBE, INTERFACE)
    }


def touch(build: Any, *names: str) -> None:
    later_s = max(built(build).values()) / 1e9 + 10
    for name in names:
        os.utime(build.sources / name, (later_s, later_s))


def test_parts_are_compiled_and_only_again_when_a_source_is_newer(
    native_build: ModuleType, build: Any
) -> None:
    native_build.compile_native(build)
    first = built(build)
    assert set(first) == {AGENT, PROBE, INTERFACE}
    assert subprocess.run([str(build.out / PROBE)], check=False).returncode == 3

    native_build.compile_native(build)
    assert built(build) == first

    touch(build, "agent/b.c")
    native_build.compile_native(build)
    second = built(build)
    assert second[AGENT] > first[AGENT]
    assert second[INTERFACE] > first[INTERFACE]  # it has the agent inside
    assert second[PROBE] == first[PROBE]

    touch(build, "layout.h")
    native_build.compile_native(build)
    assert built(build)[PROBE] > first[PROBE]


def test_headers_and_what_is_compiled_elsewhere_lie_beside(
    native_build: ModuleType, build: Any
) -> None:
    native_build.compile_native(build)

    assert (build.out / "include" / "layerscope.h").read_text() == "int layerscope_six(void);\n"
    assert (build.out / "shapes.cpp").exists()


def test_a_part_of_older_sources_does_not_survive_a_failed_compilation(
    native_build: ModuleType, build: Any
) -> None:
    native_build.compile_native(build)
    (build.sources / "agent" / "a.c").write_text("this is not C\n")
    touch(build, "agent/a.c")

    with pytest.raises(native_build.Failure, match="native/agent does not compile"):
        native_build.compile_native(build)

    assert AGENT not in built(build)
    assert not list(build.out.glob("*.so.*"))


def test_a_warning_stops_the_check_but_not_the_demo(native_build: ModuleType, build: Any) -> None:
    (build.sources / "agent" / "c.c").write_text(
        "int three(void);\nint three(void) { int unused; return 3; }\n"
    )

    with pytest.raises(native_build.Failure, match="does not compile"):
        native_build.compile_native(build)

    native_build.compile_native(build, strict=False)
    assert AGENT in built(build)
