"""What an executable file says about its program, against real ones and against what binutils
reads.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.host import elf
from tests.native.building import build, compiler

MAIN = "int main(void) { return 0; }\n"
# e_machine of elf(5), and what we call it.
FOREIGN = {(1, 1, 3): (32, "x86"), (2, 1, 183): (64, "aarch64"), (2, 2, 22): (64, "s390x"), (1, 1, 40): (32, "arm"),
           (2, 1, 9999): (64, "machine 9999")}  # fmt: skip
# struct vfs_cap_data of revision 2: effective, and the capability net_raw.
NET_RAW = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that does nothing."""
    folder = tmp_path_factory.mktemp("elf")
    (folder / "main.c").write_text(MAIN)
    return build(folder / "main", [folder / "main.c"])


def built(folder: Path, *flags: str, code: str = MAIN) -> Path:
    """A program; the test is skipped where the compiler cannot make it."""
    (folder / "main.c").write_text(code)
    command = [compiler(), str(folder / "main.c"), "-o", str(folder / "built"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"the compiler has no {' '.join(flags)}")
    return folder / "built"


def header(bits: int, order: int, machine: int) -> bytes:
    """The beginning of an ELF file of another machine."""
    numbers = struct.pack("<HHI" if order == 1 else ">HHI", 2, machine, 1)
    return b"\x7fELF" + bytes([bits, order, 1]) + bytes(9) + numbers + bytes(80)


def test_an_ordinary_program(main: Path) -> None:
    found = elf.facts(main)

    assert (found.kind, found.bits, found.machine) == ("elf", 64, os.uname().machine)
    assert found.dynamic
    assert "ld-" in found.interpreter
    assert any(name.startswith("libc.so") for name in found.needed)
    assert found.links("libc")
    assert not found.links("lib")
    assert (found.privilege, found.sanitizer, found.is_python) == ("", "", False)
    assert found.doors() == set()


@pytest.mark.parametrize("flag", ["-static", "-static-pie"])
def test_a_program_without_shared_libraries(tmp_path: Path, flag: str) -> None:
    found = elf.facts(built(tmp_path, flag))

    assert (found.kind, found.dynamic, found.needed) == ("elf", False, ())


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("address", "AddressSanitizer"),
        ("thread", "ThreadSanitizer"),
        ("leak", "LeakSanitizer"),
        ("undefined", ""),
    ],
)
def test_a_program_built_with_a_sanitizer(tmp_path: Path, flag: str, name: str) -> None:
    assert elf.facts(built(tmp_path, f"-fsanitize={flag}")).sanitizer == name


def test_a_sanitizer_that_lies_in_the_program_itself(tmp_path: Path) -> None:
    """As clang links it: the program exports the functions of the sanitizer."""
    code = MAIN + "void __asan_init(void) {}\n"

    assert elf.facts(built(tmp_path, "-rdynamic", code=code)).sanitizer == "AddressSanitizer"


@pytest.mark.parametrize(
    ("mode", "privilege"), [(0o4755, "setuid"), (0o2755, "setgid"), (0o755, ""), (0o2745, "")]
)
def test_rights_that_the_caller_has_not(
    main: Path, tmp_path: Path, mode: int, privilege: str
) -> None:
    file = tmp_path / "copy"
    shutil.copy(main, file)
    file.chmod(mode)
    if file.stat().st_mode & 0o7777 != mode:
        pytest.skip("this file system keeps no such bits")

    assert elf.facts(file).privilege == privilege


def test_capabilities_of_a_file(main: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy"
    shutil.copy(main, file)
    try:
        os.setxattr(file, "security.capability", NET_RAW)
    except OSError as error:
        pytest.skip(f"files get no capabilities here: {error.strerror}")

    assert elf.facts(file).privilege == "capabilities"


@pytest.mark.parametrize(("about", "said"), FOREIGN.items())
def test_programs_of_other_machines(
    tmp_path: Path, about: tuple[int, int, int], said: tuple[int, str]
) -> None:
    (tmp_path / "foreign").write_bytes(header(*about))
    found = elf.facts(tmp_path / "foreign")

    assert (found.kind, found.bits, found.machine) == ("elf", *said)


def test_a_real_program_of_32_bits(tmp_path: Path) -> None:
    code = 'void _start(void) { __asm__("int $0x80" : : "a"(1), "b"(0)); }\n'
    found = elf.facts(built(tmp_path, "-m32", "-nostdlib", "-static", code=code))

    assert (found.kind, found.bits, found.machine) == ("elf", 32, "x86")


@pytest.mark.parametrize(
    ("line", "interpreter"),
    [
        *(
            ("#!/bin/sh", "/bin/sh"),
            ("#! /bin/sh -e", "/bin/sh"),
            ("#!/usr/bin/env python3", "python3"),
        ),
        *(
            ("#!/usr/bin/env -S A=1 python3 -u", "python3"),
            ("#!/usr/bin/env", "/usr/bin/env"),
            ("#!", ""),
        ),
    ],
)
def test_scripts_name_who_runs_them(tmp_path: Path, line: str, interpreter: str) -> None:
    (tmp_path / "script").write_text(f"{line}\nexit 0\n")
    found = elf.facts(tmp_path / "script")

    assert (found.kind, found.interpreter) == ("script", interpreter)


def test_behind_a_script_is_the_program_that_runs_it(main: Path, tmp_path: Path) -> None:
    for name, line in (
        ("inner", f"#!{main}"),
        ("outer", f"#!{tmp_path / 'inner'}"),
        ("endless", "#!endless"),
    ):
        (tmp_path / name).write_text(f"{line}\n")
        (tmp_path / name).chmod(0o755)
    shutil.copy(main, tmp_path / "found")

    def path(command: str) -> Path | None:
        executable = elf.find(command, str(tmp_path))
        return executable.path if executable else None

    assert path("outer") == main
    assert path(str(tmp_path / "outer")) == main
    assert path("found") == tmp_path / "found"
    assert path("endless") is None
    assert path("not there") is None


def test_the_pythons_here_are_pythons(program_python: str) -> None:
    found = elf.find(str(Path(program_python).resolve()))

    assert found is not None
    assert found.is_python
    assert "Python" in found.doors()


@pytest.mark.parametrize(
    ("library", "door"),
    [("libdnnl.so.2", "oneDNN"), ("libnvToolsExt.so.1", "NVTX"), ("libpython3.11.so.1.0", "Python"),
     ("liblayerscope.so", "layerscope.h"), ("libtorch_cpu.so", "PyTorch"), ("libm.so.6", "")],
)  # fmt: skip
def test_what_a_program_is_linked_with(tmp_path: Path, library: str, door: str) -> None:
    (tmp_path / "some.c").write_text("int some(void) { return 0; }\n")
    build(tmp_path / "some.so", [tmp_path / "some.c"], "-shared", "-fPIC", f"-Wl,-soname,{library}")
    found = elf.facts(built(tmp_path, "-Wl,--no-as-needed", str(tmp_path / "some.so")))

    assert library in found.needed
    assert found.doors() == ({door} if door else set())


@pytest.mark.parametrize(
    ("word", "door"),
    [
        ("NVTX_INJECTION64_PATH", "NVTX"),
        ("INTEL_LIBITTNOTIFY64", "ITT"),
        ("dnnl_primitive_execute", "oneDNN"),
    ],
)
@pytest.mark.parametrize("flag", ["-static", "-O1"])
def test_what_a_program_holds_itself(tmp_path: Path, word: str, door: str, flag: str) -> None:
    code = f'#include <stdlib.h>\nint main(void) {{ return getenv("{word}") != 0; }}\n'

    assert elf.facts(built(tmp_path, flag, code=code)).doors() == {door}


def test_names_of_libraries_that_a_program_may_load(main: Path, tmp_path: Path) -> None:
    names = re.compile(rb"libsome(_more)?\.so")
    code = '#include <stdio.h>\nint main(void) { return puts("%s/libsome.so.2"); }\n'

    assert elf.facts(built(tmp_path, code=code)).names(names)
    assert not elf.facts(main).names(names)
    (tmp_path / "script").write_text("#!/bin/sh\nexec program libsome.so\n")
    assert not elf.facts(tmp_path / "script").names(names)
    assert not elf.Executable(tmp_path / "gone", kind="elf").names(names)


def test_programs_of_the_system_as_readelf_has_them() -> None:
    if not shutil.which("readelf"):
        pytest.skip("readelf (binutils) is not here to compare with")
    files = [file for file in sorted(Path("/usr/bin").iterdir()) if elf.facts(file).kind == "elf"][
        ::12
    ]
    assert len(files) > 5
    for file in files:
        done = subprocess.run(
            ["readelf", "-dlW", str(file)], capture_output=True, text=True, timeout=60, check=True
        )
        found = elf.facts(file)
        assert found.needed == tuple(re.findall(r"NEEDED.*\[(.*)\]", done.stdout)), file
        loader = re.search(r"program interpreter: (.*)\]", done.stdout)
        assert found.interpreter == (loader[1] if loader else ""), file


# Its table of segments lies where no file reaches.
FAR_AWAY = (
    b"\x7fELF\x02\x01\x01"
    + bytes(25)
    + b"\xff" * 8
    + bytes(14)
    + struct.pack("<HH", 56, 1)
    + bytes(80)
)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(40), b"text\n", bytes(500), FAR_AWAY],
)
def test_what_is_no_program_says_little(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)

    for path in (tmp_path / "file", tmp_path / "not there", tmp_path):
        found = elf.facts(path)
        assert (found.dynamic, found.needed, found.interpreter, found.sanitizer) == (
            False,
            (),
            "",
            "",
        )
        assert found.doors() == set()


@given(
    st.integers(0, 20_000),
    st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), max_size=6),
)
def test_a_damaged_file_raises_nothing(
    tmp_path_factory: pytest.TempPathFactory, main: Path, cut: int, changes: list[tuple[int, int]]
) -> None:
    broken = bytearray(main.read_bytes()[:cut])
    for at, value in changes:
        if at < len(broken):
            broken[at] = value
    file = tmp_path_factory.mktemp("broken") / "file"
    file.write_bytes(broken)

    assert elf.facts(file).path == file
    assert elf.facts(file).doors() <= {"Python", "oneDNN", "NVTX", "ITT", "PyTorch", "layerscope.h"}
