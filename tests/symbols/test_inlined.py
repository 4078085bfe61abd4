"""Functions that a compiler has inlined, against addr2line."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from layerscope.symbols import Symbols, dwarf_inlined
from tests.symbols.elf_programs import SOURCE, addresses_in, functions, output, program, tool

# Functions of one file, of namespaces and classes without a name, of templates, of other files; a
# call within a block, and calls of calls in one line.
INLINED = (
    SOURCE.rpartition("int main")[0]
    + """
namespace outer { namespace {
    struct Folded { struct Inner { static inline double add(double x) { return x * 1.5 + 2; } }; };
    inline double turned(double x) { return Folded::Inner::add(x) * Folded::Inner::add(x + 1); }
}
template <class T> inline T folded(const std::vector<T> &values) {
    T sum = 0;
    for (T value : values)
        if (value > 1) {
            T more = turned(value);
            sum += more / (value + 1);
        }
    return sum;
}
}
static inline double last(double x) { auto twice = [](double y) { return y * 3.25 / (y + 2); }; return twice(x) + twice(x + 4); }
__attribute__((noinline)) double kept(const std::vector<double> &values) {
    return outer::folded(values)
        + last(values[0]);
}
int main(int count, char **) {
    outer::Square square;
    std::vector<double> values(count, 2.0);
    std::printf("%d %f\\n", outer::apply({count, 2, 3}) + plain(square.sides()), kept(values));
    return 0;
}
"""
)
BUILDS = [
    ("-O2", "-gdwarf-4"), ("-O2", "-gdwarf-5"),
    ("-O1", "-gdwarf-4"), ("-O3", "-gdwarf-5"), ("-O2", "-gdwarf-3"), ("-O2", "-g1"), ("-O2", "-g", "-gz=zlib"),
    ("-O2", "-g", "-flto"), ("-O2", "-g", "-ffunction-sections", "-Wl,--gc-sections"), ("-Os", "-g", "-fPIC"),
]  # fmt: skip
# Of each address the functions, the innermost first, by the last part of their names, and the lines.
Chains = list[list[tuple[str, int]]]


def asked(file: Path) -> np.ndarray:
    """Some addresses of all functions, and all of those that inline what is to be found."""
    whole = [
        np.arange(at, at + size, dtype=np.uint64)
        for at, size, name in functions(file)
        if "kept" in name or name == "main"
    ]
    return np.unique(np.concatenate([addresses_in(file), *whole]))


def plain(name: str) -> str:
    """The last part of a name without what stands in brackets."""
    while (shorter := re.sub(r"\([^()]*\)|<[^<>]*>", "", name)) != name:
        name = shorter
    return name.rpartition("::")[2].partition(" ")[0]


def ours(file: Path, addresses: np.ndarray) -> Chains:
    with Symbols(None) as symbols:
        found = symbols.native(str(file), b"", addresses)
        assert symbols.problems == []
    chains = []
    for row, line in enumerate(found.line.tolist()):
        inside = [(plain(one.short), one.line) for one in reversed(found.inlined.get(row, ()))]
        chains.append([*inside, ("", line)])
    return chains


def told(file: Path, addresses: np.ndarray) -> Chains:
    """What addr2line says; the name of the function around all is that of the symbol."""
    text = "\n".join(map(hex, addresses.tolist()))
    answers = output(tool("addr2line"), "-a", "-f", "-i", "-C", "-e", str(file), text=text)
    chains: Chains = []
    names = iter(answers.splitlines())
    for answer in names:
        if answer.startswith("0x"):
            chains.append([])
            continue
        line = next(names).partition(" (disc")[0].rpartition(":")[2]
        chains[-1].append((plain(answer), int(line) if line.isdigit() and line != "0" else -1))
    return [[*chain[:-1], ("", chain[-1][1])] for chain in chains]


def differing(mine: Chains, expected: Chains) -> list[object]:
    """addr2line calls the innermost function of a part that is moved away by its symbol."""
    return [
        (one, other)
        for one, other in zip(mine, expected, strict=True)
        if [line for _, line in one] != [line for _, line in other] or one[1:] != other[1:]
    ]


@pytest.mark.parametrize(
    "flags",
    [*BUILDS[:2], *(pytest.param(build, marks=pytest.mark.slow) for build in BUILDS[2:])],
    ids=" ".join,
)
def test_inlined_functions_are_those_of_addr2line(tmp_path: Path, flags: tuple[str, ...]) -> None:
    file = program(tmp_path, *flags, source=INLINED)
    addresses = asked(file)
    mine = ours(file, addresses)

    assert differing(mine, told(file, addresses)) == []
    names = {name for chain in mine for name, _ in chain}
    assert {"folded", "turned", "add", "last"} <= names


def test_inlined_functions_have_their_namespaces_and_classes(tmp_path: Path) -> None:
    file = program(tmp_path, "-O2", "-g", source=INLINED)
    with Symbols(None) as symbols:
        found = symbols.native(str(file), b"", asked(file))
    names = {frame.short for chain in found.inlined.values() for frame in chain}
    whole = {frame.name for chain in found.inlined.values() for frame in chain}

    assert {"outer::folded", "outer::turned", "outer::Folded::Inner::add", "last"} <= names
    assert "outer::(anonymous namespace)::turned" in whole
    assert any(name.startswith("last::{lambda}") for name in names)


def test_functions_that_nobody_inlined_are_alone(tmp_path: Path) -> None:
    file = program(tmp_path, "-O0", "-g", source=INLINED)
    with Symbols(None) as symbols:
        assert symbols.native(str(file), b"", asked(file)).inlined == {}


def test_inlined_functions_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = program(tmp_path, "-O2", "-g", source=INLINED)
    addresses = asked(file)
    expected = ours(file, addresses)
    folder = tmp_path / "layerscope" / "symbols"
    with Symbols(folder) as symbols:
        whole = symbols.native(str(file), b"", addresses[::2])
        whole = symbols.native(str(file), b"", addresses)

    monkeypatch.setattr(dwarf_inlined.InlinedCalls, "find", None)
    with Symbols(folder) as symbols:
        again = symbols.native(str(file), b"", addresses[::-1])
    last = len(addresses) - 1
    assert {last - row: chain for row, chain in again.inlined.items()} == whole.inlined
    assert len(whole.inlined) == sum(len(chain) > 1 for chain in expected)


def test_more_than_is_read_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = program(tmp_path, "-O2", "-g", source=INLINED)
    monkeypatch.setattr(dwarf_inlined, "INFO_BYTES", 1000)
    with Symbols(None) as symbols:
        found = symbols.native(str(file), b"", asked(file))

    assert found.inlined == {}
    assert (found.line >= 0).any()
    assert [problem.code for problem in symbols.problems] == ["lines_left_out"]


def test_clang_says_it_otherwise(tmp_path: Path) -> None:
    if shutil.which("clang++") is None:
        pytest.skip("clang++ is not here to compile with")
    (tmp_path / "part").mkdir()
    program(tmp_path, "-O0", source=INLINED)
    command = ["clang++", "-O2", "-gdwarf-5", "main.cpp", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    addresses = asked(tmp_path / "program")

    assert (
        differing(ours(tmp_path / "program", addresses), told(tmp_path / "program", addresses))
        == []
    )
