"""Names of functions in ELF files, against nm and objdump."""

from __future__ import annotations

import bisect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.symbols import Symbols, symbol_table
from layerscope.symbols.elf_file import Content, Damaged, Elf, opened, vdso
from layerscope.symbols.symbol_table import ROW, SymbolTable
from tests.symbols.elf_programs import functions, output, program, tool


def table_of(file: Path, most: int = 20_000) -> tuple[np.ndarray, list[str]]:
    """Addresses in the functions of a file (the first and the last of each), and their names as the
    linker has them.
    """
    # Of the macros of SystemTap there is a mark that lies in no code.
    sized = [(at, size) for at, size, name in functions(file) if size and name != "_.stapsdt.base"]
    addresses = np.array([at + place for at, size in sized for place in (0, size - 1)], np.uint64)
    addresses = np.random.default_rng(3).permutation(addresses)[:most]
    with opened(file) as descriptor:
        table = symbol_table.table(Elf(Content(descriptor)))
        assert table is not None
        return addresses, [
            table.name(row) if row >= 0 else "" for row in table.find(addresses).tolist()
        ]


def covering(file: Path, addresses: np.ndarray) -> dict[int, set[str]]:
    """Of each address, the names of the innermost functions there, as nm has them."""
    spans = sorted(
        (at, at + size, name.partition("@")[0]) for at, size, name in functions(file) if size
    )
    starts = [start for start, _, _ in spans]
    result = {}
    for address in addresses.tolist():
        row = bisect.bisect_right(starts, address) - 1
        while spans[row][1] <= address:
            row -= 1
        begin = spans[row][0]
        names = set()
        while row >= 0 and spans[row][0] == begin:
            names.add(spans[row][2])
            row -= 1
        result[address] = names
    return result


def check(file: Path) -> None:
    addresses, names = table_of(file)
    expected = covering(file, addresses)
    wrong = [
        (hex(address), name) for address, name in zip(addresses.tolist(), names, strict=True)
        if name not in expected[address]
    ]  # fmt: skip
    assert len(addresses) > 10
    assert wrong == []


SLOW_BUILDS = [
    pytest.param(flags, marks=pytest.mark.slow) for flags in (("-O2", "-static"), ("-O1", "-flto"))
]


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-g"), *SLOW_BUILDS], ids=" ".join)
def test_functions_of_a_program_are_those_of_nm(tmp_path: Path, flags: tuple[str, ...]) -> None:
    check(program(tmp_path, *flags))


def test_functions_of_a_stripped_library_are_those_of_nm(tmp_path: Path) -> None:
    file = program(tmp_path, "-O2", "-shared", "-fPIC", "-s")
    check(file)


@pytest.mark.slow
def test_functions_of_torch_and_what_it_runs_on_are_those_of_nm(program_python: str) -> None:
    loaded = output(
        program_python, "-c", "import torch; print(open('/proc/self/maps').read())"
    )  # fmt: skip
    paths = sorted({Path(path) for path in re.findall(r"r-xp.* (/\S+)", loaded)})
    wanted = (
        "libtorch_cpu",
        "libtorch_python",
        "libc10",
        "libgomp",
        "libc.so",
        "libpython",
        "libstdc++",
    )
    files = [path for path in paths if path.name.startswith(wanted)]
    assert {"libtorch_cpu.so", "libc.so.6"} <= {file.name for file in files}
    for file in files:
        check(file)


def test_of_several_names_the_plainest_is_taken(tmp_path: Path) -> None:
    file = program(tmp_path, "-O0")
    at = next(at for at, _, name in functions(file) if name == "a_longer_name_of_plain")
    with Symbols(None) as symbols:
        assert symbols.native(str(file), b"", np.array([at, at + 1], np.uint64)).name == [
            "plain",
            "plain",
        ]


def test_names_are_demangled_and_rows_are_as_asked(tmp_path: Path) -> None:
    file = program(tmp_path, "-O0")
    places = {name: at for at, _, name in functions(file)}
    asked = [places["main"], 1, places["_ZNK5outer6Square5sidesEv"], places["main"]]
    with Symbols(None) as symbols:
        found = symbols.native(str(file), b"", np.array(asked, np.uint64))

    assert found.name == ["main", "", "outer::Square::sides() const", "main"]


ASSEMBLY = """
__asm__(".text\\n.globl no_size\\n.type no_size,@function\\nno_size:\\n nop\\n nop\\nlocal_label:\\n nop\\n"
        ".globl sized\\n.type sized,@function\\nsized:\\n nop\\n nop\\n.size sized,.-sized\\n nop\\n nop\\n"
        ".globl label\\nlabel:\\n nop\\n nop\\n"
        ".globl outside\\n.type outside,@function\\noutside:\\n nop\\n"
        ".globl inside\\n.type inside,@function\\ninside:\\n nop\\n.size inside,.-inside\\n nop\\n"
        ".size outside,.-outside\\n");
int main() { return 0; }
"""


def test_hand_written_code(tmp_path: Path) -> None:
    """One byte each: functions without a size go on to the next; labels count where there is no
    function.
    """
    file = program(tmp_path, "-O0", source=ASSEMBLY)
    listed = output(tool("nm"), str(file)).splitlines()
    at = next(int(line.split()[0], 16) for line in listed if line.endswith(" no_size"))
    with Symbols(None) as symbols:
        found = symbols.native(str(file), b"", np.arange(at, at + 12, dtype=np.uint64)).name

    # Behind the end of `sized` nothing is known but the last entry for unwinding before it.
    found = ["" if name.startswith("[program+") else name for name in found]
    assert found == [
        *("no_size", "no_size", "no_size", "sized", "sized", "", ""),
        *("label", "label", "outside", "inside", "outside"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "flags", [("-Wl,-z,lazy",), ("-Wl,-z,now",), ("-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"),
              ("-fcf-protection=full", "-Wl,-z,ibt"), ("-fno-plt",)], ids=" ".join,
)  # fmt: skip
def test_stubs_are_those_of_objdump(tmp_path: Path, flags: tuple[str, ...]) -> None:
    file = program(tmp_path, "-O0", *flags)
    listed = output(tool("objdump"), "-d", "-M", "intel", str(file))
    stubs = {
        int(at, 16): name for at, name in re.findall(r"^([0-9a-f]{16}) <(\w+)@plt>:$", listed, re.M)
    }
    assert stubs or "-fno-plt" in flags
    addresses = np.array([at + place for at in stubs for place in (0, 5)], np.uint64)
    with opened(file) as descriptor:
        elf = Elf(Content(descriptor))
        found = symbol_table.table(elf)
    assert found is not None
    with Symbols(None) as symbols:
        names = symbols.native(str(file), b"", addresses).name
        expected = [f"{name}@plt" for name in stubs.values() for _ in (0, 5)]
        demangled = symbols._demangled(expected)
    assert names == demangled


def test_what_the_kernel_maps_into_each_process(tmp_path: Path) -> None:
    with vdso() as descriptor:
        (tmp_path / "vdso").write_bytes(Path(f"/proc/self/fd/{descriptor}").read_bytes())
    listed = functions(tmp_path / "vdso")
    if not listed:
        pytest.skip("the vdso of this machine has no functions")
    addresses = np.array([at for at, _, _ in listed], np.uint64)
    with Symbols(None) as symbols:
        found = symbols.native("[vdso]", b"", addresses).name
        assert symbols.native("[vdso]", bytes(20), addresses).name == [""] * len(addresses)
        assert [problem.code for problem in symbols.problems] == ["object_changed"]
    names = {at: {name for other, _, name in listed if other == at} for at, _, _ in listed}
    assert all(name in names[at] for name, at in zip(found, addresses.tolist(), strict=True))
    assert "clock_gettime" in found


def brute_force(rows: np.ndarray, address: int) -> int:
    """Of the functions that have the address, one that begins last; -1: none has it."""
    inside = [
        row
        for row in range(len(rows))
        if int(rows["start"][row]) <= address < int(rows["end"][row])
    ]
    return max(inside, key=lambda row: int(rows["start"][row]), default=-1)


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=25)


@given(SPANS)
def test_the_innermost_function_is_found(spans: list[tuple[int, int]]) -> None:
    rows = np.zeros(len(spans), ROW)
    rows["start"] = [start for start, _ in spans]
    rows["end"] = [start + size for start, size in spans]
    rows = symbol_table._sorted(rows)
    addresses = np.arange(90, dtype=np.uint64)
    table = SymbolTable(None, None, rows)  # type: ignore[arg-type]  # names are not asked for
    for address, row in enumerate(table.find(addresses).tolist()):
        expected = brute_force(rows, address)
        assert (row < 0) == (expected < 0)
        if row >= 0:
            assert rows["start"][row] == rows["start"][expected]
            assert rows["end"][row] > address
    assert symbol_table.is_sound(rows)


def test_a_debugger_would_say_the_same_of_this_python() -> None:
    """gdb looks addresses up in its own way."""
    if not shutil.which("gdb"):
        pytest.skip("gdb is not here to compare with")
    python = Path(sys.executable).resolve()
    places = [at for at, size, _ in functions(python) if size > 4][:200]
    if not places:
        pytest.skip(f"{python} has no functions")
    commands = [word for at in places for word in ("-ex", f"info symbol {at + 3:#x}")]
    done = subprocess.run(
        ["gdb", "-nx", "-batch", *commands, str(python)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    expected = [line.split(" ")[0] for line in done.stdout.splitlines() if " in section " in line]
    with Symbols(None) as symbols:
        found = symbols.native(str(python), b"", np.array(places, np.uint64) + np.uint64(3)).name
    same = [one == other for one, other in zip(found, expected, strict=True)]
    assert np.mean(same) > 0.9  # of several names of a function gdb may take another one


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\x01\x01\x01" + bytes(60), bytes(200), b"text\n"]
)
def test_what_is_no_elf_file_is_damaged(content: bytes) -> None:
    with pytest.raises(Damaged):
        Elf(Content(content))


def test_functions_of_a_stripped_file_are_called_by_where_they_begin(tmp_path: Path) -> None:
    source = "int f() { return 1; }\nint main() { return f(); }"
    file = program(tmp_path, "-O0", source=source)
    symbols = [line.split() for line in output(tool("nm"), str(file)).splitlines()]
    start = {words[2]: int(words[0], 16) for words in symbols if len(words) == 3}
    subprocess.run([tool("strip"), str(file)], check=True)

    asked = [start["_Z1fv"], start["_Z1fv"] + 4, start["main"] + 1, 0, 1 << 63]
    with Symbols(None) as opened_files:
        found = opened_files.native(str(file), b"", np.array(asked, np.uint64))
    f, main = (f"[program+{start[name]:#x}]" for name in ("_Z1fv", "main"))
    assert found.name == [f, f, main, "", ""]
    assert found.short == found.name
