"""`layerscope run` of a program in C++ that is linked with PyTorch: its operators are recorded
without any Python.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from layerscope.capture import agent
from tests.native.building import build
from tests.recorded import Recorded, layerscope, open_run

pytestmark = pytest.mark.slow

# Opens operators as PyTorch's own code does; says what it sees of LD_PRELOAD, and what a program
# that it starts sees.
PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { size_t length; const char *text; unsigned long which; } name_variant;
static _Alignas(64) char object[8192];

int main(int count, char **words, char **variables) {
    void (*construct)(void *, unsigned char) = dlsym(RTLD_DEFAULT, "_ZN2at14RecordFunctionC1ENS_11RecordScopeE");
    void (*destruct)(void *) = dlsym(RTLD_DEFAULT, "_ZN2at14RecordFunctionD1Ev");
    void (*any)(void *, name_variant, long) = dlsym(RTLD_DEFAULT,
        "_ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_traitsIcEESt17reference_wrapper"
        "IKN3c1014FunctionSchemaEEEEl");
    void (*text)(void *, const char *, long) = dlsym(RTLD_DEFAULT, "_ZN2at14RecordFunction6beforeEPKcl");
    for (int i = 0; i < 100; i++) {
        construct(object, 0);
        if (any)
            any(object, (name_variant){9, "aten::own", 0}, -1);
        else
            text(object, "aten::own", -1);
        destruct(object);
    }
    const char *preloaded = getenv("LD_PRELOAD");
    int others = 0;
    for (char **one = variables; *one; one++)
        others += !strncmp(*one, "LD_PRELOAD", 10);
    printf("%s %d\n", preloaded ? preloaded : "none", others);
    fflush(stdout);
    return system("echo ${LD_PRELOAD-none}") || count != 1 || !words;
}
"""


@pytest.fixture(scope="module")
def torch_libraries(program_python: str) -> Path:
    find = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').origin))"
    done = subprocess.run([program_python, "-c", find], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()) / "lib"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, torch_libraries: Path) -> Path:
    folder = tmp_path_factory.mktemp("libtorch")
    (folder / "program.c").write_text(PROGRAM)
    flags = ("-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", f"-Wl,-rpath,{torch_libraries}")
    return build(
        folder / "program",
        [folder / "program.c"],
        *flags,
        f"-L{torch_libraries}",
        "-ltorch_cpu",
        "-ldl",
    )


@pytest.mark.parametrize("own", ["", "libm.so.6"])
def test_operators_of_a_program_in_cpp_are_recorded_and_it_does_not_see_how(
    program: Path, tmp_path: Path, native_agent: Path, own: str
) -> None:
    environment = {"LD_PRELOAD": own} if own else {}
    done = layerscope(
        "run",
        "--without",
        "stacks",
        "-o",
        "recording",
        "--",
        str(program),
        cwd=tmp_path,
        env=environment,
    )
    recorded = Recorded(
        open_run(tmp_path / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )

    assert recorded.status == 0, recorded.stderr
    assert recorded.stdout == (f"{own} 1\n{own}\n" if own else "none 0\nnone\n")
    assert recorded.rows("SELECT name, kind, count(*) AS calls FROM spans GROUP BY ALL") == [
        {"name": "aten::own", "kind": "function", "calls": 100}
    ]
    assert recorded.rows("SELECT what FROM problems WHERE layer = 'operators'") == []


def test_a_program_in_cpp_that_a_script_starts_is_told_how_it_can_be_recorded(
    program: Path, tmp_path: Path, native_agent: Path
) -> None:
    done = layerscope(
        "run",
        "--without",
        "stacks",
        "-o",
        "recording",
        "--",
        "/bin/sh",
        "-c",
        f"{program}; exit 3",
        cwd=tmp_path,
    )
    recorded = Recorded(
        open_run(tmp_path / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )

    assert (recorded.status, recorded.stdout) == (3, "none 0\nnone\n")
    assert "layerscope run -- ./program" in recorded.value(
        "SELECT remedy FROM problems WHERE layer = 'operators'"
    )


def test_what_is_preloaded_shows_no_function(native_agent: Path) -> None:
    """A function of a program's library that is called like one of ours must stay the one that is
    called.
    """
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", str(agent.PRELOAD)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown == ""
