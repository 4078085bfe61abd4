"""Pickles of plain data are what Python says they are; anything else is refused, and nothing of it
is run, whatever is in the file.
"""

from __future__ import annotations

import array
import collections
import contextlib
import datetime
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.model.errors import ReadError
from layerscope.sources import plain_pickle
from layerscope.sources.plain_pickle import PlainPickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 300), 1 << 300)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)))
)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
    max_leaves=40,
)


def loaded(content: bytes, piece_bytes: int = 1 << 20) -> Any:
    """What the reader makes of a pickle that comes in pieces of this size."""
    pieces = (content[at : at + piece_bytes] for at in range(0, len(content), piece_bytes))
    return PlainPickle(pieces, "the file", lambda into, items: items).read()


@given(PLAIN, st.sampled_from(PROTOCOLS), st.sampled_from((1, 7, 600, 1 << 20)))
def test_plain_data_is_what_python_wrote(value: Any, protocol: int, piece_bytes: int) -> None:
    assert loaded(pickle.dumps(value, protocol), piece_bytes) == value
    assert loaded(pickletools.optimize(pickle.dumps(value, protocol)), piece_bytes) == value


@given(st.binary())
def test_bytes_are_what_python_wrote(value: bytes) -> None:
    for protocol in (3, 4, 5):
        assert loaded(pickle.dumps([value], protocol)) == [value]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_long_and_shared_things_are_what_python_wrote(protocol: int) -> None:
    shared = {"name": "x" * 300, "numbers": list(range(3000))}
    value = [shared, [shared, shared] * 400, {str(n): n for n in range(2500)}, "y" * 70_000]
    found = loaded(pickle.dumps(value, protocol), 1000)
    assert found == value
    assert found[0] is found[1][5]


class Runs:
    """Says when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_would_run_something_is_refused_and_does_not_run(
    protocol: int, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    for value in (Runs(ran), [Runs(ran)], {"device_traces": [[{"action": Runs(ran)}]]}):
        content = pickle.dumps(value, protocol)
        with pytest.raises(ReadError, match=r"more than plain data.*(GLOBAL|STACK_GLOBAL)"):
            loaded(content)
    assert not ran.exists()
    pickle.loads(content)
    assert ran.exists()  # the test can tell


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset((1, 2)),
        bytearray(b"12"),
        datetime.date(2026, 1, 1),
        collections.OrderedDict(a=1),
        array.array("q", [1]),
        1j,
        Exception("no"),
        print,
        dict,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_objects_are_refused_with_the_instruction_that_makes_them(
    value: Any, protocol: int
) -> None:
    with pytest.raises(ReadError, match="more than plain data"):
        loaded(pickle.dumps([value], protocol))


@pytest.mark.parametrize(
    "code", [b"P1\n.", b"]Q.", b"\x82\x01.", b"(cos\nsystem\no.", b"N2.", b"\x97."]
)
def test_rare_instructions_are_refused(code: bytes) -> None:
    with pytest.raises(ReadError, match="more than plain data"):
        loaded(code)


def test_a_key_that_is_no_text_is_refused() -> None:
    """Also one in which hashing would go deeper than there is room for."""
    for content in (pickle.dumps({1: 2}), b"})" + b"\x85" * 200_000 + b"Ns."):
        with pytest.raises(ReadError, match="damaged"):
            loaded(content)


def test_things_within_each_other_without_end_are_read() -> None:
    depth = 200_000
    for content in (b"]" * depth + b"a" * (depth - 1) + b".", b")" + b"\x85" * depth + b"."):
        loaded(content)
    itself = loaded(b"]\x94h\x00a.")
    assert itself[0] is itself


@given(st.binary(max_size=200), st.sampled_from((1, 64, 1 << 20)))
def test_any_bytes_end_in_a_sentence_or_a_value(content: bytes, piece_bytes: int) -> None:
    with contextlib.suppress(ReadError):
        loaded(content, piece_bytes)


@given(PLAIN, st.sampled_from(PROTOCOLS), st.data())
def test_a_damaged_pickle_ends_in_a_sentence_or_a_value(
    value: Any, protocol: int, data: st.DataObject
) -> None:
    content = bytearray(pickle.dumps(value, protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ReadError):
        loaded(bytes(content))


def test_a_pickle_is_cut_wherever_it_ends() -> None:
    content = pickle.dumps({"a": [1, 2.5, None, "text" * 100, (3, 1 << 80)], "b": {"c": True}})
    for end in range(len(content)):
        with pytest.raises(ReadError, match="damaged or cut"):
            loaded(content[:end])


@pytest.mark.parametrize("unit", [b"N", b"(", b"K\x01", b"}\x94", b"]\x94h\x00", b"(Nt"])
def test_what_would_fill_the_memory_is_refused(
    unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_pickle, "_MOST_WAITING", 10_000)
    monkeypatch.setattr(plain_pickle, "_MOST_HELD", 10_000)
    with pytest.raises(ReadError, match="far more in it"):
        loaded(b"\x80\x04" + unit * 40_000 + b".", 4000)


@pytest.mark.parametrize("unit", [b"(NNNNe", b"}\x94a", b"X\x00\x10\x00\x00" + b"x" * 4096 + b"a"])
def test_a_list_that_would_fill_the_memory_is_refused(
    unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_pickle, "_MOST_HELD", 10_000)
    with pytest.raises(ReadError, match="far more in it"):
        loaded(b"\x80\x04]" + unit * 20_000 + b".", 4000)


def test_a_text_without_end_is_refused() -> None:
    with pytest.raises(ReadError, match="damaged or cut"):
        loaded(b"\x8d" + b"\xff" * 7 + b"\x7f" + b"x" * 1000)


class Looked(list[Any]):
    """A list that counts the items that are looked at several at a time."""

    items = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            self.items += len(found)
        return found


@pytest.mark.parametrize("first", [b"N", b"}", b"}N", b"N" * 1000])
def test_records_behind_something_else_are_not_looked_at_again_and_again(first: bytes) -> None:
    count = 20_000
    record = b"}\x94(h\x00Nu"
    content = b"\x80\x04\x8c\x06action\x94]\x94(" + first + record * count + b"e."
    reader = PlainPickle(
        iter([content]),
        "the file",
        lambda into, items: items,
        lambda into, data, at, memo: at,
        "action",
    )
    looked = reader._stack = Looked()
    reader._instructions = reader._table()
    reader.read()
    assert looked.items < 20 * count
