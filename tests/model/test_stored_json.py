"""JSON from a file: only what has the expected types is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from layerscope.model.stored_json import Int32, Int64, PathText, Size, decoded


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Int32, [0, -(2**31), 2**31 - 1], [2**31, -(2**31) - 1, 1.5, "1", None, True, [1]]),
        (Int64, [0, -(2**63), 2**63 - 1], [2**63, 10**30, {}]),
        (Size, [0, 2**63 - 1], [-1, 2**63]),
        (PathText, ["", "/a\n", "/\udcff"], ["\0", "/a\0b", 1]),
        (dict[str, float], [{"a": 1}, {}], [[], {"a": "1"}]),
    ],
)
def test_values_of_other_types_and_sizes_are_refused(
    kind: Any, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        assert decoded(json.dumps(value).encode(), kind) == value
    for value in bad:
        with pytest.raises(ValueError, match=r"."):
            decoded(json.dumps(value).encode(), kind)


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"{", b"[" * 100_000, b'["\\ud800", NaN]', b'"\\ud800"' + b"[" * 9]
)
def test_what_is_no_json_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(content, list[Any])
