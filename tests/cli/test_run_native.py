"""`layerscope run` of programs that are no Python: those that nothing of ours may enter are left
alone, and say so.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from tests.differential import Differential
from tests.native.building import ROOT, compiler

pytestmark = pytest.mark.slow

# Says what of ours it could load, unless it gets arguments; works a little so that there is
# something to count, and ends in its own way.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(int count, char **words) {
    const char *itt = getenv("INTEL_LIBITTNOTIFY64"), *nvtx = getenv("NVTX_INJECTION64_PATH");
    if (count == 1)
        printf("%s %s ", itt ? itt : "none", nvtx ? nvtx : "none");
    printf("%d %lu\\n", geteuid(), getauxval(AT_SECURE));
    fflush(stdout);
    usleep(100000);
    fprintf(stderr, "%s ends\\n", words[0]);
    return 7;
}
"""
# A program without a C library: writes "32", and exits with status 3.
BITS_32 = """
void _start(void) {
    int ignored;
    __asm__ volatile("int $0x80" : "=a"(ignored) : "a"(4), "b"(1), "c"("32\\n"), "d"(3));
    __asm__ volatile("int $0x80" : : "a"(1), "b"(3));
}
"""
NOBODY = 65534
# How the examples in C++ are built knows where the headers of NVTX are.
SPEC = importlib.util.spec_from_file_location(
    "native_build", ROOT / "examples" / "native" / "build.py"
)
assert SPEC
assert SPEC.loader
EXAMPLES = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(EXAMPLES)


@pytest.fixture
def differential(tmp_path: Path) -> Differential:
    tmp_path.chmod(0o755)
    return Differential(tmp_path)


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the headers of NVTX."""
    return Path(EXAMPLES.nvtx_headers(tmp_path_factory.mktemp("headers")))


def built(target: Path, *flags: str, code: str = PROGRAM) -> Path:
    """A program; the test is skipped where the compiler cannot make it, or it does not run here."""
    source = target.with_suffix(".c")
    source.write_text(code)
    command = [compiler(), str(source), "-o", str(target), *flags]
    if subprocess.run(command, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip(f"the compiler has no {' '.join(flags)}")
    if subprocess.run([str(target)], capture_output=True, timeout=60, check=False).returncode < 0:
        pytest.skip(f"a program built with {' '.join(flags)} does not run here")
    return target


def left_alone(differential: Differential, why: str) -> None:
    """It was said of the last program why nothing of ours was in it, and its counters are there."""
    recorded = differential.recorded()
    assert set(recorded.problems()) == {"left_alone"}
    assert why in recorded.problems()["left_alone"]
    counters = recorded.rows("SELECT DISTINCT name FROM counters")
    assert {"cpu_ns", "faults_minor"} <= {row["name"] for row in counters}


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("-static",), "is linked statically"),
        (("-static-pie",), "is linked statically"),
        (("-fsanitize=address",), "is built with AddressSanitizer"),
        (("-fsanitize=thread",), "is built with ThreadSanitizer"),
    ],
)
def test_programs_that_are_left_alone(
    differential: Differential, tmp_path: Path, native_agent: Path, flags: tuple[str, ...], why: str
) -> None:
    program = built(tmp_path / "program", *flags)

    done = differential.same([str(program)])

    assert done.status == 7
    assert done.stdout.startswith(b"none none ")
    left_alone(differential, why)


@pytest.mark.parametrize("allocated_mib", [0, 200])
def test_what_a_program_used_is_not_what_the_copy_of_us_used_before_it(
    differential: Differential, tmp_path: Path, native_agent: Path, allocated_mib: int
) -> None:
    code = (
        "#include <stdlib.h>\n#include <string.h>\n"
        f"int main(void) {{ long n = {allocated_mib}L << 20; char *p = malloc(n + 1); memset(p, 1, n); "
        "return p[n / 2] == 7; }\n"
    )
    program = built(tmp_path / "program", "-O0", code=code)

    differential.same([str(program)])

    used = differential.recorded().run.info.program
    assert (
        used.faults_minor < 250 + allocated_mib * 256
    )  # a copy of us has some hundred before it is the program
    if allocated_mib:
        assert allocated_mib << 20 < used.max_rss_bytes < (allocated_mib + 30) << 20
    else:
        assert used.max_rss_bytes == 0


def test_a_sanitizer_finds_what_it_finds_alone(
    differential: Differential, tmp_path: Path, native_agent: Path
) -> None:
    code = "#include <stdlib.h>\nint main(void) { char *p = malloc(4); free(p); return p[1]; }\n"
    program = built(tmp_path / "program", "-fsanitize=address", "-g", code=code)

    without = differential.run([str(program)])
    with_us = differential.record([str(program)])

    assert without.status == with_us.status == 1
    assert b"heap-use-after-free" in without.stderr
    assert b"heap-use-after-free" in with_us.stderr
    assert b"layerscope" not in with_us.stderr


def test_a_program_of_32_bits(
    differential: Differential, tmp_path: Path, native_agent: Path
) -> None:
    program = built(tmp_path / "program", "-m32", "-nostdlib", "-static", "-fno-pic", code=BITS_32)

    done = differential.same([str(program)])

    assert (done.status, done.stdout) == (3, b"32\n")
    left_alone(differential, "is built for x86 (32 bits)")


def test_a_setuid_program(differential: Differential, tmp_path: Path, native_agent: Path) -> None:
    if os.geteuid():
        pytest.skip("only root makes a file of another user setuid")
    program = built(tmp_path / "program")
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o4755)
    if (
        subprocess.run([str(program)], capture_output=True, check=False).stdout.split()[2]
        != b"%d" % NOBODY
    ):
        pytest.skip("the file system of temporary files ignores setuid")

    done = differential.same([str(program)])

    assert done.stdout == b"none none %d 1\n" % NOBODY
    left_alone(differential, "is setuid")


def marked(folder: Path, headers: Path, before: str = "", *flags: str) -> Path:
    """A program that does `before`, then marks a range with NVTX, and exits with status 7."""
    code = f"""#include <nvtx3/nvToolsExt.h>
#include <unistd.h>
int main(void) {{
    {before}
    nvtxRangePushA("marked");
    nvtxRangePop();
    return 7;
}}
"""
    return built(folder / "marked", "-isystem", str(headers), "-ldl", *flags, code=code)


def test_a_program_that_changes_its_user(
    differential: Differential, tmp_path: Path, headers: Path, native_agent: Path
) -> None:
    """It comes through a door as another user, whom its descent lets in."""
    if os.geteuid():
        pytest.skip("only root may become another user")
    program = marked(tmp_path, headers, f"if (setgid({NOBODY}) || setuid({NOBODY})) return 9;")

    assert differential.same([str(program)]).status == 7

    recorded = differential.recorded()
    assert recorded.problems() == {}
    assert [row["name"] for row in recorded.rows("SELECT name FROM spans")] == ["marked"]


def test_a_script_that_starts_a_setuid_program(
    differential: Differential, tmp_path: Path, headers: Path, native_agent: Path
) -> None:
    """Its environment is that of the script; a program with rights that its caller has not trusts
    nothing in it.
    """
    if os.geteuid():
        pytest.skip("only root makes a file of another user setuid")
    program = marked(tmp_path, headers, "if (geteuid() == getuid()) return 9;")
    os.chown(program, NOBODY, NOBODY)
    program.chmod(0o4755)
    if subprocess.run([str(program)], check=False).returncode == 9:
        pytest.skip("the file system of temporary files ignores setuid")

    assert differential.same(["/bin/sh", "-c", f"{program}; exit $?"]).status == 7

    assert differential.recorded().rows("SELECT name FROM spans") == []
    assert set(differential.recorded().problems()) == {"no_framework"}


@pytest.mark.parametrize("sanitizer", ["address", "thread", "leak", "undefined"])
def test_a_script_that_starts_a_program_with_a_sanitizer_and_a_door(
    differential: Differential, tmp_path: Path, headers: Path, native_agent: Path, sanitizer: str
) -> None:
    """It has the environment of the script, and may load us: that must change nothing, and leave
    nothing to find.
    """
    program = marked(tmp_path, headers, "", f"-fsanitize={sanitizer}")

    done = differential.same(["/bin/sh", "-c", f"{program}; exit $?"])

    assert (done.status, done.stdout, done.stderr) == (7, b"", b"")


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_program_with_a_sanitizer_and_a_door_does_not_load_us(
    differential: Differential, tmp_path: Path, headers: Path, native_agent: Path, sanitizer: str
) -> None:
    program = marked(tmp_path, headers, "", f"-fsanitize={sanitizer}")

    assert differential.same([str(program)]).status == 7

    assert differential.recorded().rows("SELECT name FROM spans") == []
    assert set(differential.recorded().problems()) == {"left_alone"}


def test_a_script_that_starts_all_of_them(
    differential: Differential, tmp_path: Path, native_agent: Path
) -> None:
    programs = [
        built(tmp_path / "static", "-static"),
        built(tmp_path / "address", "-fsanitize=address"),
        built(tmp_path / "thread", "-fsanitize=thread"),
    ]
    script = tmp_path / "job.sh"
    lines = [f"{program} with variables; echo $?" for program in programs]
    script.write_text("\n".join(["#!/bin/sh", *lines, "exit 5"]))
    script.chmod(0o755)

    done = differential.same([str(script)])

    assert done.status == 5
    assert done.stdout.count(b"7\n") == len(programs)
    (said,) = differential.recorded().problems().items()
    assert said[0] == "no_framework"
    assert f"{script} is no Python and has no oneDNN, NVTX or ITT of its own" in said[1]


def test_a_program_with_nothing_in_it_for_us(
    differential: Differential, native_agent: Path
) -> None:
    differential.same(["/bin/sleep", "0.3"])

    recorded = differential.recorded()
    assert set(recorded.problems()) == {"no_framework"}
    assert recorded.problems()["no_framework"].startswith(
        "/bin/sleep is no Python and has no oneDNN, NVTX or ITT"
    )
    assert "PyTorch" not in recorded.problems()["no_framework"]
    assert recorded.rows("SELECT DISTINCT remedy FROM problems")[0]["remedy"].startswith(
        "start a program in C++"
    )
    assert recorded.rows("SELECT count(*) AS n FROM counters")[0]["n"]
