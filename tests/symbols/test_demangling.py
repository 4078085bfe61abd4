"""Names as their language has them, and names that end whoever demangles them."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.symbols import demangling
from layerscope.symbols.demangling import Demangler
from tests.symbols.elf_programs import functions, output, tool


@pytest.fixture(scope="module")
def demangler() -> Demangler:
    return Demangler()


@pytest.mark.parametrize(
    ("mangled", "expected"),
    [
        ("_ZN2at6native3addEi", "at::native::add(int)"),
        ("_Z3fooi.cold", "foo(int) (.cold)"),
        ("_RNvC6_123foo3bar", "123foo::bar"),
        (
            "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
            "core::fmt::Write::write_fmt::h0123456789abcdef",
        ),
        *(
            (name, name)
            for name in (
                "main",
                "",
                "_Znonsense",
                "_R",
                "_Z",
                "a b",
                "_Z3foo\n",
                "_Zé",
                "PyList_New",
            )
        ),
    ],
)
def test_names_of_languages(demangler: Demangler, mangled: str, expected: str) -> None:
    assert demangler.names([mangled]) == [expected]


@pytest.mark.slow
def test_names_of_torch_say_what_binutils_says(demangler: Demangler, program_python: str) -> None:
    """The two write types in their own way; the words in names are the same."""
    where = output(
        program_python, "-c", "import importlib.util as u; print(u.find_spec('torch').origin)"
    ).strip()
    names = [
        name
        for _, _, name in functions(Path(where).parent / "lib" / "libc10.so")
        if name.startswith("_ZN")
    ]
    expected = output(tool("c++filt"), text="\n".join(names)).splitlines()

    def first_words(name: str) -> list[str]:
        return re.findall(r"\w+", re.split(r"[<(]", name.replace("(anonymous namespace)::", ""))[0])

    mine = demangler.names(names)
    assert len(names) > 500
    assert sum(one == name for one, name in zip(mine, names, strict=True)) < len(names) / 100
    wrong = [
        (one, other) for one, other in zip(mine, expected, strict=True)
        if "operator" not in other and not one.startswith("_Z") and first_words(one) != first_words(other)
    ]  # fmt: skip
    assert len(wrong) < len(names) / 20, wrong[:10]


def doubling(times: int) -> str:
    """A short name that stands for a text twice as long for each of `times`."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def number(of: int) -> str:
        return f"S{digits[of - 1]}_"

    return "_Z1f1aIiiE" + "".join(f"S_I{number(of)}{number(of)}E" for of in range(1, times + 1))


@pytest.mark.slow
def test_a_name_that_stands_for_gigabytes_stays_as_it_is(demangler: Demangler) -> None:
    others = [f"_Z{len(str(i)) + 1}f{i}v" for i in range(50)]
    assert demangler.names([*others, doubling(34), *others]) == [
        *(f"f{i}()" for i in range(50)), doubling(34), *(f"f{i}()" for i in range(50)),
    ]  # fmt: skip
    assert not demangler.failed


def test_a_name_deeper_than_any_stack_stays_as_it_is(demangler: Demangler) -> None:
    for name in ("_Z1f" + "P" * 1_000_000 + "i", "_Z1f" + "1aI" * 100_000 + "i" + "E" * 100_000):
        assert demangler.names([name, "_Z1fv"]) == [name, "f()"]


@settings(max_examples=60)
@given(
    st.lists(st.text("_ZNSRIEab1234iv.", max_size=30).map(lambda text: "_Z" + text), max_size=30)
)
def test_whatever_is_asked_there_is_an_answer_for_each(names: list[str]) -> None:
    assert len(Demangler().names([])) == 0
    shared = _shared()
    assert len(shared.names(names)) == len(names)
    assert not shared.failed


_kept: list[Demangler] = []


def _shared() -> Demangler:
    if not _kept:
        _kept.append(Demangler())
    return _kept[0]


def test_where_no_process_can_be_started_names_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    without = Demangler()
    assert without.names(["_Z1fv", "main"]) == ["_Z1fv", "main"]
    assert without.failed


def test_without_the_library_names_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    without = Demangler()
    assert without.names(["_Z1fv"]) == ["_Z1fv"]
    assert without.failed


def test_a_process_that_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(demangling, "_SCRIPT", tmp_path / "silent.py")
    monkeypatch.setattr(demangling, "_PATIENCE_S", 0.1)
    silent = Demangler()
    assert silent.names(["_Z1fv"]) == ["_Z1fv"]
    silent.close()


def test_the_process_ends_with_who_asks() -> None:
    one = Demangler()
    one.names(["_Z1fv"])
    process = one._process
    assert process is not None
    assert process.poll() is None
    del one
    assert process.poll() is not None
