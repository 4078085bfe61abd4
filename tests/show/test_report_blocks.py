"""Blocks of the report: what is written comes back, number for number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.show.report.blocks import DELTA, PLAIN, IntColumn, as_json, column_block, json_block
from tests.show.report_page import unpacked

TEXTS = st.text(st.characters(codec=None, categories=("L", "N", "P", "S", "Z", "C")))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, list[int]]:
    """Columns of one length."""
    rows = draw(st.integers(0, 20))
    size = draw(st.sampled_from([1, 8, 16, 24, 31, 32, 48, 52, 62, 63]))
    numbers = st.integers(draw(st.sampled_from([0, -(2**size)])), 2**size - 1)
    column = st.lists(numbers, min_size=rows, max_size=rows)
    return draw(st.dictionaries(st.sampled_from("abcd"), column, min_size=1))


@given(columns(), st.sampled_from([PLAIN, DELTA]))
def test_columns_come_back(values: dict[str, list[int]], mode: str) -> None:
    written = [IntColumn(name, np.array(column, np.int64), mode) for name, column in values.items()]

    block = column_block("numbers", written)

    assert unpacked(block) == values
    assert block.about["rows"] == len(next(iter(values.values())))


@pytest.mark.parametrize(
    "kind", [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64]
)
@pytest.mark.parametrize("mode", [PLAIN, DELTA])
def test_columns_of_any_kind_come_back(kind: Any, mode: str) -> None:
    values = np.array([0, 1, 1, 0, 1], kind)

    assert unpacked(column_block("one", [IntColumn("x", values, mode)])) == {"x": [0, 1, 1, 0, 1]}


def test_zeros_take_no_bytes() -> None:
    block = column_block("one", [IntColumn("x", np.zeros(1000, np.int64))])

    assert block.about["columns"][0]["bytes"] == 0
    assert unpacked(block) == {"x": [0] * 1000}


@given(VALUES)
def test_json_comes_back(value: Any) -> None:
    assert unpacked(json_block("any", value)) == value


def test_half_a_pair_of_surrogates_is_written_as_an_escape() -> None:
    assert as_json({"\udc80": ["a\ud800"]}) == b'{"\\udc80": ["a\\ud800"]}'
    assert json.loads(as_json("\udc80 \U0001f600")) == "\udc80 \U0001f600"
