"""The table of primitives, and operators by primitive: hand-computed answers on small
recordings.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from layerscope.analyse import tables
from layerscope.analyse.result import Result
from layerscope.analyse.tables import primitives as tables_primitives
from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from tests.recordings import Recording

CONVOLUTION = {
    "implementation": "jit:avx512_core",
    "dtype": "f32",
    "problem": "mb8_ic3oc32",
    "threads": 2,
}
REORDER = {
    "implementation": "jit:uni",
    "dtype": "f32",
    "formats": "abcd -> Acdb16a",
    "problem": "32x3x3x3",
}


def result_of(recording: Recording, table: str, by: str | None = None) -> Result:
    with (
        tempfile.TemporaryDirectory() as folder,
        Reader(recording.write(Path(folder) / "x.layerscope")) as reader,
    ):
        result = tables.build(reader, table, by)
        assert result.data is not None  # asked for while the reader is open
    return result


def rows(recording: Recording, table: str, by: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result_of(recording, table, by).data.to_pylist()
    return found


def two_convolutions() -> Recording:
    """conv (100 and 300) with a convolution (60, 100) and the first time a reorder (20) and its
    creation (10) below it.

    Another thread works 30 of the first convolution. A third operator, mm (50), asks for nothing.
    """
    recording = Recording()
    worker = recording.add_thread(recording.process, 101, "pool")
    first = recording.add_span("conv", 0, 100, module=0)
    recording.add_primitive("reorder", 5, 10, first, {**REORDER, "cache_hit": False}, kind="create")
    recording.add_primitive("reorder", 15, 20, first, {**REORDER, "bytes": 80})
    told = {**CONVOLUTION, "flop": 1200, "bytes": 240}
    primary = recording.add_primitive("convolution", 35, 60, first, told)
    share = recording.add_primitive(
        "convolution", 40, 30, None, CONVOLUTION, kind="share", track=worker
    )
    recording.rows["primitives"][-1] |= {"share_of": primary, "threads": None}
    assert recording.rows["spans"][share]["track"] == worker
    second = recording.add_span("conv", 200, 300, module=0)
    recording.add_primitive("convolution", 210, 100, second, told)
    recording.add_span("mm", 600, 50)
    recording.rows["modules"] = [{"module": 0, "path": "Net.conv1", "class": "Conv2d"}]
    return recording


def test_primitives_are_told_apart_by_kind_and_implementation() -> None:
    convolution, reorder, creation = rows(two_convolutions(), "primitives")

    assert convolution == {
        "name": "convolution", "kind": "execute", "implementation": "jit:avx512_core",
        "count": 2, "total_ns": 160, "share": 160 / 190, "operator_share": 160 / 400,
        "gflop_per_s": 2400 / 160, "gb_per_s": 480 / 160, "threads": 2, "others_busy": 30 / 160,
        "avg_ns": 80, "min_ns": 60, "p50_ns": 60, "p99_ns": 100, "max_ns": 100,
        "cache_hits": None, "cache_misses": None,
    }  # fmt: skip
    assert (reorder["name"], reorder["kind"], reorder["operator_share"]) == (
        "reorder",
        "execute",
        20 / 100,
    )
    assert (reorder["gflop_per_s"], reorder["gb_per_s"], reorder["others_busy"]) == (
        None,
        4.0,
        None,
    )
    assert (creation["name"], creation["kind"], creation["count"]) == ("reorder", "create", 1)
    assert (creation["cache_hits"], creation["cache_misses"], creation["gb_per_s"]) == (0, 1, None)


@pytest.mark.parametrize(
    ("by", "columns", "first"),
    [
        ("kind", ("name", "kind"), ("convolution", "execute")),
        ("implementation", ("kind", "implementation"), ("execute", "jit:avx512_core")),
        ("isa", ("isa", "kind"), ("avx512_core", "execute")),
        ("shape", ("shape", "name"), ("mb8_ic3oc32", "convolution")),
        ("dtype", ("dtype", "name"), ("f32", "convolution")),
        ("format", ("format", "name"), ("not known", "convolution")),
        ("operator", ("operator", "name"), ("conv", "convolution")),
        ("module", ("module", "name"), ("Net.conv1", "convolution")),
        ("thread", ("thread", "name"), ("python 100", "convolution")),
    ],
)
def test_every_way_to_group_them_adds_up_to_the_same(
    by: str, columns: tuple[str, ...], first: tuple[str, ...]
) -> None:
    found = rows(two_convolutions(), "primitives", by)

    assert tuple(found[0][column] for column in columns) == first
    assert next(iter(found[0])) == columns[0]
    assert sum(row["total_ns"] for row in found) == 190
    assert sum(row["share"] for row in found) == pytest.approx(1)
    assert sum(row["count"] for row in found) == 4


@pytest.mark.parametrize("by", [None, *tables_primitives.BY])
def test_operators_of_one_name_and_duration_each_count_in_the_share(by: str | None) -> None:
    recording = Recording()
    for start_ns in (0, 200, 400):
        recording.add_primitive(
            "convolution", start_ns, 50, recording.add_span("conv", start_ns, 100), CONVOLUTION
        )

    (row,) = rows(recording, "primitives", by)

    assert row["operator_share"] == 150 / 300


def test_a_reorder_says_what_it_converts() -> None:
    formats = {
        (row["name"], row["format"]) for row in rows(two_convolutions(), "primitives", "format")
    }

    assert ("reorder", "abcd -> Acdb16a") in formats


@pytest.mark.parametrize(
    ("implementation", "isa"),
    [
        ("jit:avx512_core", "avx512_core"),
        ("brgconv:avx512_core_amx", "avx512_core_amx"),
        ("brg_matmul:avx512_core_bf16", "avx512_core_bf16"),
        ("jit_dw:avx2", "avx2"),
        ("jit_int8:avx2_vnni_2", "avx2_vnni_2"),
        ("jit:sse41", "sse41"),
        ("brgemm:avx10_1_512_amx", "avx10_1_512_amx"),
        ("gemm:acl", "none in its name"),
        ("jit:uni", "none in its name"),
        (None, "none in its name"),
    ],
)
def test_the_instruction_set_is_in_the_name_of_the_implementation(
    implementation: str | None, isa: str
) -> None:
    recording = Recording()
    recording.add_primitive("convolution", 0, 10, None, {"implementation": implementation})

    (row,) = rows(recording, "primitives", "isa")

    assert row["isa"] == isa


def test_what_lies_inside_another_primitive_is_no_part_of_its_share() -> None:
    recording = Recording()
    outer = recording.add_primitive("rnn", 0, 100)
    recording.rows["spans"][outer]["self_ns"] = 40
    inner = recording.add_primitive("gemm", 10, 60)
    recording.rows["spans"][inner]["parent"] = outer

    found = rows(recording, "primitives")

    assert [(row["name"], row["total_ns"], row["share"]) for row in found] == [
        ("rnn", 100, 0.4),
        ("gemm", 60, 0.6),
    ]


def test_a_library_that_tells_nothing_leaves_words_and_no_figures() -> None:
    recording = Recording()
    recording.add_primitive("convolution", 0, 10, None, {"library": "oneDNN"})
    recording.add_primitive("gemm", 20, 5, None, {"library": "MKL"})

    first, second = rows(recording, "primitives")

    assert (first["implementation"], second["implementation"]) == ("not known", "MKL")
    assert (first["gflop_per_s"], first["operator_share"], first["threads"]) == (None, None, None)


def test_a_thinned_primitive_counts_as_often_as_its_weight_says() -> None:
    recording = Recording()
    for start_ns, dur_ns, weight in ((0, 10, 1), (100, 30, 4)):
        operator = recording.add_span("conv", start_ns, 2 * dur_ns, weight=weight)
        recording.add_primitive(
            "convolution", start_ns, dur_ns, operator, {"flop": 100}, weight=weight
        )

    result = result_of(recording, "primitives")

    (row,) = result.data.to_pylist()
    assert (row["count"], row["total_ns"], row["avg_ns"], row["p50_ns"], row["min_ns"]) == (
        5,
        130,
        26,
        30,
        10,
    )
    assert row["gflop_per_s"] == 500 / 130
    assert row["operator_share"] == 130 / 260
    assert result.sentences[0].startswith("The run was thinned")


def test_a_primitive_that_never_ended_is_counted_and_shapes_no_figure() -> None:
    recording = Recording()
    recording.add_primitive("convolution", 0, 10, None, {"flop": 100})
    recording.add_primitive("convolution", 20, 90, None, {"flop": 100}, unfinished=True)

    result = result_of(recording, "primitives")

    (row,) = result.data.to_pylist()
    assert (row["count"], row["total_ns"], row["max_ns"], row["gflop_per_s"]) == (2, 100, 10, 10.0)
    assert result.sentences[0].startswith("1 primitive had not ended")


def test_without_primitives_a_sentence_stands_in_for_the_table() -> None:
    recording = Recording()
    recording.add_span("conv", 0, 100)

    assert result_of(recording, "primitives").sentences == (
        "No primitives were recorded: the program asked nothing of oneDNN or MKL that layerscope could see.",
    )


def test_operators_by_primitive_say_what_they_asked_for_and_what_is_left_to_them() -> None:
    found = rows(two_convolutions(), "operators", "primitive")

    figures = [
        (row["name"], row["primitive"], row["count"], row["self_ns"], row["own_ns"])
        for row in found
    ]
    assert figures == [
        ("conv", "convolution jit:avx512_core", 1, 300, 200),
        ("conv", "convolution jit:avx512_core, reorder jit:uni", 1, 100, 10),
        ("mm", "none", 1, 50, 50),
    ]
    assert list(found[0])[:6] == ["primitive", "name", "count", "total_ns", "self_ns", "own_ns"]
    assert sum(row["self_share"] for row in found) == pytest.approx(1)


def test_what_is_beyond_the_bits_of_a_set_is_called_others() -> None:
    recording = Recording()
    for number in range(140):
        operator = recording.add_span(f"op{number}", number * 100, 90)
        recording.add_primitive(
            "reorder", number * 100, 10, operator, {"implementation": f"jit:{number:03}"}
        )

    found = {row["name"]: row["primitive"] for row in rows(recording, "operators", "primitive")}

    assert (found["op126"], found["op127"], found["op139"]) == (
        "reorder jit:126",
        "others",
        "others",
    )


def test_primitives_on_another_thread_take_nothing_from_the_operator_that_asked() -> None:
    recording = Recording()
    worker = recording.add_thread(recording.process, 101, "pool")
    operator = recording.add_span("sdpa", 0, 100)
    recording.add_primitive(
        "matmul", 10, 80, operator, {"implementation": "gemm:jit"}, track=worker
    )

    (row,) = rows(recording, "operators", "primitive")

    assert (row["primitive"], row["own_ns"]) == ("none", 100)


def test_operators_by_primitive_are_refused_in_words_where_none_was_recorded() -> None:
    recording = Recording()
    recording.add_span("conv", 0, 100)
    with pytest.raises(
        UsageError, match=r"cannot be shown by primitive: No primitives were recorded"
    ):
        result_of(recording, "operators", "primitive")
    recording.add_problem(
        "primitives", "another collector was there first", "unset INTEL_LIBITTNOTIFY64"
    )

    with pytest.raises(
        UsageError, match=r"another collector was there first. Unset INTEL_LIBITTNOTIFY64"
    ):
        result_of(recording, "operators", "primitive")
