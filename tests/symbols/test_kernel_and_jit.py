"""Names of the kernel's functions, and of code that was made while the program ran."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.symbols import Symbols, kernel_table, perf_map
from layerscope.symbols.kept import Kept
from layerscope.symbols.kernel_table import KernelTable

KALLSYMS = """ffffffff81000000 T _stext
ffffffff81000000 T startup_64
ffffffff81000100 t do_idle
ffffffff81000180 D data
ffffffff81000200 W weak
garbage
ffffffffc0000000 t read_it\t[fuse]
zzzz T no_number
fffffffffffffffffff T too_large
ffffffff81000140 t between
"""


def test_functions_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_text(KALLSYMS)
    table = KernelTable(tmp_path / "kallsyms")
    asked = {
        0xFFFFFFFF81000000: "_stext", 0xFFFFFFFF810000FF: "_stext", 0xFFFFFFFF81000100: "do_idle",
        0xFFFFFFFF81000150: "between", 0xFFFFFFFF81000190: "", 0xFFFFFFFF81000200: "weak",
        0xFFFFFFFFC0000010: "read_it [fuse]", 0xFFFFFFFF80FFFFFF: "", 0: "",
    }  # fmt: skip

    assert table.names(np.array(list(asked), np.uint64)) == list(asked.values())
    assert not table.hidden


def test_a_list_that_was_kept_is_read_again_for_what_comes_and_goes(tmp_path: Path) -> None:
    list_ = tmp_path / "kallsyms"
    lines = "".join(f"{0xFFFFFFFF81000000 + 16 * n:x} t f{n}\n" for n in range(20_000))
    list_.write_text(lines)
    kept = Kept(tmp_path / "cache")
    asked = np.array([0xFFFFFFFF81000018, 0xFFFFFFFF81001008], np.uint64)
    assert KernelTable(list_, kept, "boot").names(asked) == ["f1", "f256"]
    list_.write_text("")
    assert KernelTable(list_, kept, "boot").names(asked) == ["f1", "f256"]
    assert KernelTable(list_, kept, "other").names(asked) == ["", ""]

    list_.write_text(lines + "ffffffffc0000000 t filter\t[bpf]\n")
    with_module = np.append(asked, np.uint64(0xFFFFFFFFC0000010))
    beyond = KernelTable(list_, Kept(tmp_path / "another"), "boot")
    assert beyond.names(with_module) == ["f1", "f256", "filter [bpf]"]
    list_.write_text(lines + "ffffffffc0000000 t later\t[bpf]\n")
    again = KernelTable(list_, Kept(tmp_path / "another"), "boot")
    assert again.names(with_module) == ["f1", "f256", "later [bpf]"]


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"x" * 5000])
def test_a_damaged_list_that_was_kept_is_read_again(tmp_path: Path, damage: bytes) -> None:
    list_ = tmp_path / "kallsyms"
    lines = "".join(f"{0xFFFFFFFF81000000 + 16 * n:x} t f{n}\n" for n in range(20_000))
    list_.write_text(lines)
    asked = np.array([0xFFFFFFFF81000018], np.uint64)
    assert KernelTable(list_, Kept(tmp_path / "cache"), "boot").names(asked) == ["f1"]
    files = sorted((tmp_path / "cache").iterdir())
    assert len(files) == 2
    for file in files:
        content = file.read_bytes()
        file.write_bytes(damage)
        assert KernelTable(list_, Kept(tmp_path / "cache"), "boot").names(asked) == ["f1"]
        file.write_bytes(content)


@pytest.mark.parametrize(
    "content", ["", "0000000000000000 T _stext\n0000000000000000 t do_idle\n", None]
)
def test_a_kernel_that_tells_nothing_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "kallsyms").write_text(content)
    monkeypatch.setattr(kernel_table, "KALLSYMS", tmp_path / "kallsyms")
    symbols = Symbols(None)
    for _ in range(2):
        assert symbols.kernel(np.array([0, 0xFFFFFFFF81000000], np.uint64)).name == ["", ""]
    assert [problem.code for problem in symbols.problems] == ["kernel_symbols_hidden"]


def test_every_function_of_this_kernel_is_found() -> None:
    lines = [line.split() for line in Path("/proc/kallsyms").read_text().splitlines()[:4000]]
    wanted = {int(words[0], 16): words[2] for words in reversed(lines) if words[1] in "tT"}
    if not any(wanted):
        pytest.skip("the kernel does not report its addresses")
    found = Symbols(None).kernel(np.array(list(wanted), np.uint64)).name
    assert np.mean([one == name for one, name in zip(found, wanted.values(), strict=True)]) > 0.95
    assert all(found)


def test_names_of_code_that_was_made(tmp_path: Path) -> None:
    file = tmp_path / "perf-1.map"
    file.write_bytes(
        b"1000 100 first kernel\n2000 10 other\n1080 10 later\nnonsense\n3000 zz broken\n4000 0 empty\n\n"
        b"2000 8 newest\n0x5000 10 with_prefix\n6000 10 _Z3fooi\n7000 10 \xff\xfe\n-1000 10 negative\n8000\n"
        b"ffffffffffffff00 1000 beyond"
    )
    asked = {
        0x1000: "first kernel", 0x107F: "first kernel", 0x1080: "later", 0x1090: "first kernel", 0x1100: "",
        0x2000: "newest", 0x2008: "other", 0x4000: "", 0x5001: "with_prefix", 0x6000: "foo(int)",
        0x7000: "\ufffd\ufffd", 0xFFF: "", (1 << 64) - 1: "",
    }  # fmt: skip
    with Symbols(None) as symbols:
        addresses = np.array(list(asked), np.uint64)
        assert symbols.jit(file, addresses).name == list(asked.values())
        assert symbols.jit(file, addresses[::-1]).name == list(asked.values())[::-1]
        assert symbols.jit(None, addresses).name == [""] * len(asked)
        assert symbols.problems == []


ENTRIES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=20)


@given(ENTRIES)
def test_what_was_written_last_holds(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, int]]
) -> None:
    file = tmp_path_factory.mktemp("maps") / "perf-1.map"
    file.write_text(
        "".join(f"{start:x} {size:x} f{number}\n" for number, (start, size) in enumerate(entries))
    )
    expected = [""] * 70
    for number, (start, size) in enumerate(entries):
        expected[start : start + size] = [f"f{number}"] * size

    assert perf_map.names(file, np.arange(70, dtype=np.uint64)) == expected


def test_a_map_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    symbols = Symbols(None)
    for path in (tmp_path / "gone", tmp_path / "pipe", tmp_path):
        for _ in range(2):
            assert symbols.jit(path, np.array([1], np.uint64)).name == [""]
    assert [problem.code for problem in symbols.problems] == ["jit_map_unreadable"] * 3
