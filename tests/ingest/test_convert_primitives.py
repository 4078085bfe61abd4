"""From raw files to tables: primitives, the operators that asked for them, and their shares on
other threads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layerscope.ingest.limits import IngestLimits
from tests.ingest.raw_file import BACKWARD, CREATE, EXECUTE, MODULE, OPTIMIZER, TASK, RawFile
from tests.ingest.test_convert import STEP, Converted

CONV = "Net.conv\nConv2d\n/a/train.py:5"
REORDER_TEXT = "cpu,reorder,jit:uni,undef,src:f32::blocked:abcd::f0 dst:f32::blocked:Acdb16a::f0,attr-scratchpad:user,,32x3x3x3"
CONV_TEXT = (
    "cpu,convolution,jit:avx512_core,forward_training,src:f32:a:blocked:abcd::f0 wei:f32:a:blocked:Acdb16a::f0 "
    "bia:f32:a:blocked:a::f0 dst:f32:a:blocked:aBcd16b::f0,attr-scratchpad:user,alg:convolution_direct,"
    "mb8_ic3oc32_ih32oh32kh3sh1dh0ph1_iw32ow32kw3sw1dw0pw1"
)
ROWS = (
    "SELECT s.kind, s.name, o.name AS operator, t.tid, p.threads, p.implementation, p.share_of IS NOT NULL AS is_share "
    "FROM primitives p JOIN spans s USING (span) JOIN tracks t USING (track) LEFT JOIN spans o ON o.span = p.operator "
    "ORDER BY s.start_ns, s.depth"
)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def convolution(file: RawFile, at: int, depth: int) -> list[tuple]:
    """An operator inside another one, that makes and runs two primitives."""
    conv, reorder = file.number(CONV_TEXT), file.number(REORDER_TEXT)
    module = file.number(CONV)
    return [
        *file.span(at + 20, at + 25, depth + 2, "convolution", CREATE, args=conv, module=module),
        *file.span(at + 30, at + 40, depth + 2, "reorder", EXECUTE, args=reorder, module=module),
        *file.span(at + 50, at + 90, depth + 2, "convolution", EXECUTE, args=conv, module=module),
        *file.span(at + 15, at + 95, depth + 1, "aten::mkldnn_convolution", module=module),
        *file.span(at + 10, at + 100, depth, "aten::conv2d", module=module),
    ]


def shares(file: RawFile, at: int) -> list[tuple]:
    """What a worker thread has of them."""
    return [
        *file.span(at + 32, at + 36, 0, "reorder", EXECUTE, args=file.number(REORDER_TEXT)),
        *file.span(at + 55, at + 70, 0, "convolution", EXECUTE, args=file.number(CONV_TEXT)),
        *file.span(at + 72, at + 80, 0, "convolution", EXECUTE, args=file.number(CONV_TEXT)),
    ]


def test_primitives_belong_to_the_innermost_operator_and_have_shares(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    module = file.number(CONV)
    file.records(0, [
        *file.thread_begin(50, 100, 1), *convolution(file, 100, 1),
        *file.span(105, 205, 0, CONV, MODULE, module=module, seq=0),
    ])  # fmt: skip
    file.records(1, [*file.thread_begin(50, 101, 2, -1), *shares(file, 100)])
    file.end(1000)
    made = Converted(raw)

    inner = "aten::mkldnn_convolution"
    assert [tuple(row.values()) for row in made.rows(ROWS)] == [
        ("create", "convolution", inner, 100, None, "jit:avx512_core", False),
        ("execute", "reorder", inner, 100, 2, "jit:uni", False),
        ("share", "reorder", None, 101, None, "jit:uni", True),
        ("execute", "convolution", inner, 100, 2, "jit:avx512_core", False),
        ("share", "convolution", None, 101, None, "jit:avx512_core", True),
        ("share", "convolution", None, 101, None, "jit:avx512_core", True),
    ]
    assert made.rows("SELECT DISTINCT path FROM spans JOIN modules USING (module)") == [
        {"path": "Net.conv"}
    ]
    assert made.rows("SELECT count(*) AS n FROM spans WHERE module IS NULL") == [{"n": 0}]
    # The layer of the operators does not see them: its self time is what its own profiler would
    # say.
    times = {
        row["name"]: row["self_ns"]
        for row in made.rows("SELECT name, self_ns FROM spans WHERE layer='operators'")
    }
    assert times == {"aten::conv2d": 10, inner: 80}
    assert made.rows(
        "SELECT kind, count(*) AS n FROM links GROUP BY kind ORDER BY kind"
    ) == [{"kind": "operator_primitive", "n": 3}, {"kind": "primitive_share", "n": 3}]  # fmt: skip
    totals = made.rows(
        "SELECT kind, name, count, total_ns FROM totals WHERE layer = 'primitives' ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in totals] == [
        ("create", "convolution", 1, 5), ("execute", "convolution", 1, 40), ("execute", "reorder", 1, 10),
        ("share", "convolution", 2, 23), ("share", "reorder", 1, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("epoch_spans", [3, 10, 11])
def test_a_share_may_end_before_what_it_is_a_share_of_is_known(
    epoch_spans: int, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without steps an epoch ends anywhere. The last thread asks for its own: nothing else is open
    then.
    """
    monkeypatch.setattr(
        "layerscope.ingest.conversion.limits_of", lambda *_: IngestLimits(epoch_spans=epoch_spans)
    )
    file = RawFile(raw, 100)
    file.poll(0)
    for track in range(3):
        file.records(track, file.thread_begin(50, 100 + track, track + 1))
    for at in range(1000, 51_000, 1000):
        file.records(1, file.span(at + 200, at + 500, 0, "convolution", EXECUTE))
        file.poll(at + 600)
        file.records(0, file.span(at + 100, at + 700, 0, "convolution", EXECUTE))
        file.poll(at + 800)
        file.records(2, file.span(at + 810, at + 820, 0, "convolution", EXECUTE))
        file.poll(at + 900)
    file.end(60_000)
    made = Converted(raw)

    rows = made.rows(
        "SELECT tid, spans.kind, count(*) AS n FROM spans JOIN tracks USING (track) GROUP BY ALL ORDER BY 1"
    )
    assert [tuple(row.values()) for row in rows] == [
        (100, "execute", 50),
        (101, "share", 50),
        (102, "execute", 50),
    ]


def test_what_the_library_tells_is_taken_apart(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    file.records(0, [*file.thread_begin(50, 100, 1), *convolution(file, 100, 0)])
    file.end(1000)
    made = Converted(raw)

    (row,) = made.rows(
        "SELECT p.* FROM primitives p JOIN spans USING (span) WHERE kind='execute' AND name='convolution'"
    )
    del row["span"], row["operator"]
    assert row == {
        "share_of": None, "library": "oneDNN", "primitive_kind": "convolution", "implementation": "jit:avx512_core",
        "prop_kind": "forward_training", "dtype": "f32", "formats": "src:abcd wei:Acdb16a dst:aBcd16b",
        "attributes": "attr-scratchpad:user", "algorithm": "alg:convolution_direct",
        "problem": "mb8_ic3oc32_ih32oh32kh3sh1dh0ph1_iw32ow32kw3sw1dw0pw1", "threads": 1,
        "flop": row["flop"], "bytes": 4 * (8 * 3 * 32 * 32 + 32 * 3 * 3 * 3 + 32 + 8 * 32 * 32 * 32),
        "cache_hit": None,
    }  # fmt: skip
    assert 0.9 < row["flop"] / (2 * 8 * 32 * 32 * 32 * 3 * 3 * 3) <= 1
    (args,) = made.rows(
        "SELECT DISTINCT json FROM args JOIN spans USING (args) WHERE name = 'reorder'"
    )
    assert json.loads(args["json"]) == {"library": "oneDNN", "call": REORDER_TEXT}


def test_of_a_text_that_was_cut_only_the_first_columns_are_known(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    fused = "+".join(["binary_add:f32:15:abcd"] * 60)
    text = CONV_TEXT.replace("attr-scratchpad:user", f"attr-post-ops:{fused}")
    cut = text.encode()[:1024].decode()
    in_its_sizes = CONV_TEXT.replace(
        "attr-scratchpad:user", f"attr-post-ops:{fused}"[: 1024 + 5 - len(CONV_TEXT) + 20]
    )
    assert len(in_its_sizes) > 1024
    file.records(0, [
        *file.thread_begin(50, 100, 1),
        *file.span(100, 110, 0, "convolution", EXECUTE, args=file.number(cut)),
        *file.span(200, 210, 0, "convolution", EXECUTE, args=file.number(in_its_sizes[:1024])),
    ])  # fmt: skip
    file.end(1000)
    made = Converted(raw)

    columns = ("implementation", "dtype", "attributes", "algorithm", "problem", "flop", "bytes")
    assert (
        made.table("primitives", *columns)
        == [("jit:avx512_core", "f32", None, None, None, None, None)] * 2
    )


@pytest.mark.parametrize(
    "text",
    ["{", "[1]", '{"call": 5}', '{"library": 1, "call": [2], "cache": {}}', "cpu,", ",,,,,,"],
)
def test_a_text_of_any_kind_becomes_arguments(text: str, raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    file.records(0, [
        *file.thread_begin(50, 100, 1), *file.span(100, 110, 0, "x", EXECUTE, args=file.number(text)),
    ])  # fmt: skip
    file.end(1000)
    made = Converted(raw)

    assert len(made.rows("SELECT * FROM primitives")) == 1
    assert "library" in json.loads(made.rows("SELECT json FROM args")[0]["json"])


def test_a_library_that_tells_only_kinds(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    file.records(0, [
        *file.thread_begin(50, 100, 1), *file.span(100, 190, 0, "convolution", EXECUTE),
        *file.span(200, 220, 0, "softmax", EXECUTE),
    ])  # fmt: skip
    file.records(
        1, [*file.thread_begin(50, 101, 2, -1), *file.span(110, 180, 0, "convolution", EXECUTE)]
    )
    file.end(1000)
    made = Converted(raw)

    rows = made.table(
        "primitives", "library", "primitive_kind", "implementation", "operator", "threads"
    )
    assert sorted(rows, key=str) == sorted([
        ("oneDNN", "convolution", None, None, 2), ("oneDNN", "convolution", None, None, None),
        ("oneDNN", "softmax", None, None, 1),
    ], key=str)  # fmt: skip


def test_primitives_of_the_backward_pass_and_in_ranges(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    text = file.number(CONV_TEXT)
    file.records(0, [
        *file.thread_begin(50, 100, 1),
        *file.span(120, 140, 2, "convolution", EXECUTE, args=text),
        *file.span(110, 150, 1, "inner", TASK),
        *file.span(100, 160, 0, "ConvolutionBackward0", BACKWARD),
        *file.span(210, 240, 1, "convolution", EXECUTE, args=text),
        *file.span(200, 250, 0, "mine", TASK),
        *file.span(300, 400, 0, STEP, OPTIMIZER, optimizer=1),
    ])  # fmt: skip
    file.end(1000)
    made = Converted(raw)

    rows = [(row["name"], row["operator"], row["is_share"]) for row in made.rows(ROWS)]
    assert rows == [("convolution", "ConvolutionBackward0", False), ("convolution", None, False)]
    assert made.rows("SELECT count(step) AS n FROM spans WHERE layer = 'primitives'") == [{"n": 2}]


def test_arguments_of_tasks_come_as_they_are(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    told: dict[str, Any] = {"domain": "mine", "category": "io", "payload": 7}
    args = file.number(json.dumps(told))
    file.records(0, [
        *file.thread_begin(50, 100, 1), *file.span(100, 110, 0, "read\nmine", TASK, args=args),
        *file.span(120, 130, 0, "read\nmine", TASK),
    ])  # fmt: skip
    file.end(1000)
    made = Converted(raw)

    rows = made.rows("SELECT name, json FROM spans JOIN args USING (args) ORDER BY start_ns")
    assert [(row["name"], json.loads(row["json"])) for row in rows] == [
        ("read", told),
        ("read", {"domain": "mine"}),
    ]
