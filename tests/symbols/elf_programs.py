"""Programs that the tests of symbols compile, and what binutils says about them."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

HEADER = """
template <class T> struct Sum {
    T total = 0;
    __attribute__((noinline)) void add(T value) { total += value; }
    T twice() const {
        return
            total * 2;
    }
};
"""
SOURCE = """
#include "part/sum.h"
#include <cstdio>
#include <vector>
#include <algorithm>

namespace outer { namespace {
    __attribute__((noinline)) int hidden(int n) {
        Sum<double> sum;
        for (int i = 0; i < n; ++i)
            sum.add(i);
        return sum.twice();
    }
} // namespace
struct Shape { virtual ~Shape() {} virtual int sides() const { return 0; } };
struct Square : Shape {
    int sides() const override {
        return 4;
    }
};
__attribute__((noinline)) int apply(const std::vector<int> &values) {
    std::vector<int> copy(values);
    std::sort(copy.begin(), copy.end(), [](int a, int b) {
        return a
            > b;
    });
    return copy.front() + hidden(copy.size());
}
}
extern "C" int plain(int n) { return n + 1; }
extern "C" __attribute__((alias("plain"))) int _another_plain(int n);
extern "C" __attribute__((alias("plain"))) int a_longer_name_of_plain(int n);
int main(int count, char **) {
    outer::Square square;
    std::printf("%d\\n", outer::apply({count, 2, 3}) + plain(square.sides()));
    return 0;
}
"""


def tool(name: str) -> str:
    """A program of binutils or a compiler; the test is skipped where there is none."""
    found = shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not here to compare with")
    return found


def output(*command: str, text: str | None = None) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, input=text, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def program(folder: Path, *flags: str, source: str = SOURCE) -> Path:
    """A program in C++ of two files; the test is skipped where the compiler does not know the
    flags.
    """
    compiler = tool("g++")
    (folder / "part").mkdir(exist_ok=True)
    (folder / "part" / "sum.h").write_text(HEADER)
    (folder / "main.cpp").write_text(source)
    target = folder / "program"
    command = [compiler, *flags, "main.cpp", "-o", "program"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {done.stderr.splitlines()[:1]}")
    return target


@functools.cache
def functions(file: Path) -> list[tuple[int, int, str]]:
    """(address, size, name) of the functions that nm finds; in `.dynsym` where there is no other
    table.
    """
    listed = output(tool("nm"), "-S", "--defined-only", str(file)).splitlines()
    listed = (
        listed
        or output(
            tool("nm"), "-D", "-S", "--defined-only", "--without-symbol-versions", str(file)
        ).splitlines()
    )
    rows = [line.split() for line in listed]
    return [
        (int(row[0], 16), int(row[1], 16), row[3])
        for row in rows
        if len(row) == 4 and row[2] in "tTwWiI"
    ]


def addresses_in(file: Path, most: int = 4000) -> np.ndarray:
    """Addresses inside of functions: the first of each, the last, and one between."""
    rng = np.random.default_rng(7)
    found = [
        at + place
        for at, size, _ in functions(file)
        if size
        for place in (0, int(rng.integers(size)), size - 1)
    ]
    chosen = rng.choice(len(found), min(most, len(found)), replace=False)
    return np.array(found, np.uint64)[np.sort(chosen)]


def lines(file: Path, addresses: np.ndarray) -> list[tuple[str | None, int]]:
    """The file and line of each address as addr2line has it."""
    asked = "\n".join(map(hex, addresses.tolist()))
    answers = output(tool("addr2line"), "-e", str(file), text=asked).splitlines()
    result: list[tuple[str | None, int]] = []
    for answer in answers:
        name, _, line = answer.partition(" (disc")[0].rpartition(":")
        known = line not in ("?", "0")
        result.append((os.path.normpath(name) if known else None, int(line) if known else -1))
    return result


def rows(file: Path, addresses: np.ndarray) -> list[tuple[str, int]]:
    """The name of the file, without its folder, and the line of each address, as readelf decodes
    the line programs.

    What addr2line of binutils 2.40 says about files is sometimes wrong with DWARF 5, so this is
    asked too.
    """
    table: dict[int, tuple[str, int]] = {}
    mine: set[int] = set()
    ends: dict[int, bool] = {}  # whether code of the same sequence was there
    for row in output(tool("readelf"), "-W", "--debug-dump=decodedline", str(file)).splitlines():
        words = row.split()
        if len(words) < 3 or not words[2].startswith("0x"):
            continue
        at = int(words[2], 16)
        if words[1] == "-":
            ends[at] = at in mine
            mine = set()
        else:
            table[at] = words[0], int(words[1])
            mine.add(at)
            ends.pop(at, None)
    table.update((at, ("", -1)) for at, had_code in ends.items() if had_code or at not in table)
    starts = np.array(sorted(table), np.uint64)
    found = starts[np.searchsorted(starts, addresses, "right").astype(np.int64) - 1]
    return [table[start] for start in found.tolist()]
