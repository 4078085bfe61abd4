"""Folded stacks."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.show.flame import Picture, formats
from layerscope.sources import folded, known
from layerscope.sources.imported import Imported
from tests.analyse.stacks.made import compared, sampled
from tests.sources.test_perf_data import codes, column, stack_names

NAME = st.text(
    st.characters(blacklist_characters=";\n\r", blacklist_categories=["Cs", "Cc", "Z"]), min_size=1
)


def read(tmp_path: Path, content: str | bytes) -> Imported:
    path = tmp_path / "stacks.folded"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folded.read(path)


def sums(content: Imported) -> Counter[tuple[str, ...]]:
    names = map(tuple, stack_names(content))
    return Counter(dict(zip(names, column(content, "weight_ns"), strict=True)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_stacks_and_sums(tmp_path: Path, encoding: str, newline: str, pack: type[bytes]) -> None:
    text = "# a comment\nmain;a b;c 1\nmain;a b;c 2\nmain 4\n\nmain;ü 8.5\n".replace("\n", newline)
    content = read(tmp_path, pack(text.encode(encoding)))
    assert folded.recognises(text.encode(encoding))
    assert sums(content) == {("main", "a b", "c"): 30, ("main",): 40, ("main", "ü"): 85}
    assert codes(content) == {"no_unit", "fractions"}


def test_endings_tell_where_a_function_is(tmp_path: Path) -> None:
    content = read(tmp_path, "step (train.py:12);run_[j];read_[i];vfs_read_[k];[kernel] 1\n")
    assert content.stacks is not None
    frames = content.stacks.frames
    assert list(zip(frames["layer"], frames["name"], frames["file"], frames["line"], strict=True)) == [
        ("python", "step", "train.py", 12), ("native", "run", None, None), ("native", "read", None, None),
        ("kernel", "vfs_read", None, None), ("kernel", "[kernel]", None, None),
    ]  # fmt: skip


def test_many_different_stacks(tmp_path: Path) -> None:
    """More in one piece of the file than there was room for before it."""
    path = tmp_path / "stacks.folded"
    path.write_text("".join(f"a;{number:x} {number}\n" for number in range(1, 300_000)))
    content = folded.read(path)
    assert content.stacks is not None
    assert int(content.stacks.samples["weight_ns"].sum()) == sum(range(1, 300_000))


def test_what_is_no_stack_is_counted(tmp_path: Path) -> None:
    content = read(tmp_path, "a;b 1\nno number\n// said by a tool\na;c 2\n")
    assert sums(content) == {("a", "b"): 1, ("a", "c"): 2}
    assert "no number" in content.problems[1].what


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64])
def test_a_file_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    text = "".join(
        f"main;f{number % 7};g{number % 5};h{number} {number}\n" for number in range(100)
    )
    whole = sums(read(tmp_path, text))
    monkeypatch.setattr("layerscope.sources.text_chunks.CHUNK_BYTES", chunk_bytes)
    assert sums(read(tmp_path, text)) == whole == {
        ("main", f"f{number % 7}", f"g{number % 5}", f"h{number}"): number for number in range(1, 100)
    }  # fmt: skip


LONG = ["a", "a" * 63, "a" * 64, "a" * 65, "b" * 200, "b" * 199 + "c", "", "ü"]
DEEP = st.lists(st.sampled_from(LONG), min_size=1, max_size=40).filter(lambda names: bool(names[0]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(DEEP, min_size=1, max_size=30),
    st.booleans(),
    st.sampled_from([300, 1000, 1 << 22]),
    st.data(),
)
def test_stacks_that_begin_alike(
    tmp_path: Path, stacks: list[list[str]], is_sorted: bool, chunk_bytes: int, data: st.DataObject
) -> None:
    # Each is followed by some that share its beginning.
    rows = [
        stack[: data.draw(st.integers(1, len(stack)))] for stack in stacks for _ in range(3)
    ] + stacks
    rows = sorted(rows) if is_sorted else rows
    expected = Counter(map(tuple, rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layerscope.sources.text_chunks.CHUNK_BYTES", chunk_bytes)
        content = read(tmp_path, "".join(f"{';'.join(names)} 1\n" for names in rows))
    assert sums(content) == expected
    assert content.stacks is not None
    parent, depth = content.stacks.stacks["parent"], content.stacks.stacks["depth"]
    assert len(
        {*zip(parent.tolist(), content.stacks.stacks["frame"].tolist(), strict=True)}
    ) == len(parent)
    assert all(
        (above < 0) == (deep == 0)
        for above, deep in zip(parent.tolist(), depth.tolist(), strict=True)
    )


def test_numbers_are_taken_as_they_are_written(tmp_path: Path) -> None:
    rows = {
        "a": "123456789012345678",
        "b": "7.25",
        "c": "1.",
        "d": "5" + "." + "0" * 60,
        "e f": "3  ",
    }
    content = read(tmp_path, "".join(f"main;{name} {number}\n" for name, number in rows.items()))
    # As many digits as there is room for beside the large one.
    assert sums(content) == {("main", "a"): 1234567890123456780, ("main", "b"): 72, ("main", "c"): 10,
                             ("main", "d"): 50, ("main", "e f"): 30}  # fmt: skip
    assert codes(content) == {"no_unit", "fractions", "fractions_cut"}


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 22])
@pytest.mark.parametrize(
    ("numbers", "expected", "said"),
    [
        (
            ["0.25", "0.75", "1.99", "3"],
            [25, 75, 199, 300],
            "have fractions: all are taken times 100",
        ),
        (
            ["3", "0.5\t", "1.125 ", "2."],
            [3000, 500, 1125, 2000],
            "have fractions: all are taken times 1,000",
        ),
        (["4.0", "2.000"], [4, 2], None),
        (["0.1234567891", "5"], [123456789, 5 * 10**9], "have 10 digits behind the point"),
        (
            ["900000000000000000"] * 11,
            [90000000000000000] * 11,
            "too large to add up: all are divided by 10",
        ),
        (
            ["0.5"] * 2 + ["999999999999999999"] * 60,
            [0] * 2 + [9999999999999999] * 60,
            "all are divided by 100",
        ),
    ],
)
def test_fractions_and_large_numbers_keep_their_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, numbers: list[str], expected: list[int],
    said: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr("layerscope.sources.text_chunks.CHUNK_BYTES", chunk_bytes)
    text = "".join(f"main;f{place} {number}\n" for place, number in enumerate(numbers))
    content = read(tmp_path, text)
    assert sums(content) == {
        ("main", f"f{place}"): weight for place, weight in enumerate(expected) if weight
    }
    said_of = [problem.what for problem in content.problems[1:]]
    assert any(said in what for what in said_of) if said else not said_of


@pytest.mark.parametrize("numbers", [1, 11])
def test_the_sum_of_one_stack_stays_a_number(tmp_path: Path, numbers: int) -> None:
    content = read(tmp_path, "a;b 900000000000000000\n" * numbers)
    assert sums(content) == {("a", "b"): 9 * 10**17 if numbers == 1 else 99 * 10**16}


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 22])
def test_of_two_numbers_the_last_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr("layerscope.sources.text_chunks.CHUNK_BYTES", chunk_bytes)
    content = read(tmp_path, "main;f 10 20\nmain;g h 5 7.5\nmain;f 10 3\t\nmain 9 0\n")
    assert sums(content) == {("main", "f"): 230, ("main", "g h"): 75}
    assert codes(content) == {"no_unit", "two_numbers", "fractions"}
    # A name that ends with a number is one as long as others do not.
    content = read(tmp_path, "main;f 20\nmain;step 1 7\n")
    assert sums(content) == {("main", "f"): 20, ("main", "step 1"): 7}
    assert codes(content) == {"no_unit"}


def test_our_own_comparison_is_read(tmp_path: Path) -> None:
    stream = io.BytesIO()
    graph = compared(
        sampled((("python f a.py:1",), 5)), sampled((("python f a.py:1",), 3), (("native g",), 9))
    )
    formats()[".folded"].write(Picture(graph, "", "", "", ()), stream)
    assert sums(read(tmp_path, stream.getvalue())) == {("f (a.py)",): 5}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.lists(NAME, min_size=1, max_size=6).map(tuple), st.integers(1, 1000)),
        min_size=1,
    )
)
def test_sums_are_kept(tmp_path: Path, rows: list[tuple[tuple[str, ...], int]]) -> None:
    expected: Counter[tuple[str, ...]] = Counter()
    for names, count in rows:
        expected[names] += count
    content = read(tmp_path, "".join(f"{';'.join(names)} {count}\n" for names, count in rows))
    rejected = "lines_rejected" in codes(content)
    changed = re.compile(r"_\[|[(<]|::$")  # suffixes, files and arguments are taken off
    plain = [names for names in expected if not any(map(changed.search, names))]
    for names in plain:
        assert rejected or sums(content)[names] == expected[names]
    assert rejected or sum(sums(content).values()) == sum(expected.values())


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"a b\n",
        b"hello 1\nworld 2\n",
        b"\0;\0 1\n",
        b"onednn_verbose,exec;x 1\n",
        b"int x; // 1\nint y;\nz;\n",
    ],
)
def test_other_texts_are_not_taken(other: bytes) -> None:
    assert not folded.recognises(other)


@pytest.mark.parametrize("name", ["alternating", "recursion", "simple-crlf", "simple-utf16-be", "simple-utf16-le",
                                  "simple-with-invalids", "simple", "tall"])  # fmt: skip
def test_files_of_others(name: str) -> None:
    path = Path(os.environ.get("LAYERSCOPE_CORPUS", "")) / "perf_script" / "folded" / f"{name}.txt"
    if "LAYERSCOPE_CORPUS" not in os.environ or not path.exists():
        pytest.skip("LAYERSCOPE_CORPUS names no folder with these stacks")
    content = path.read_bytes()
    assert [one.MEANING for one in known() if one.recognises(content)] == [folded.MEANING]
    encoding = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}.get(content[:2], "utf-8")
    expected: Counter[tuple[str, ...]] = Counter()
    for line in content.decode(encoding).splitlines():
        stack, _, number = line.rpartition(" ")
        if number.isdigit():
            expected[tuple(stack.split(";"))] += int(number)
    assert sums(folded.read(path)) == expected


def test_a_function_has_one_name_with_its_parameters_and_without(tmp_path: Path) -> None:
    content = read(tmp_path, "main;inner(double) 3\nmain;inner 4\nmain;inner(int) 5\n")
    names = Counter[tuple[str, ...]]()
    for stack, weight in zip(stack_names(content), column(content, "weight_ns"), strict=True):
        names[tuple(stack)] += weight
    assert names == {("main", "inner"): 12}
    assert content.stacks is not None
    assert set(content.stacks.frames["signature"]) == {None, "inner(double)", "inner(int)"}
