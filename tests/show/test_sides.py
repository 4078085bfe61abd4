"""Differences of two machines as text: columns share what room there is."""

from __future__ import annotations

from io import StringIO

import pytest

from layerscope.show import sides

ROWS = [
    ("CPUs granted", "8", "1", "how many threads run at once"),
    (
        "instructions",
        "avx512_bf16, avx512_vnni, avx512bw, avx512cd, avx512dq, avx512f",
        "none more",
        "only on that side",
    ),
]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [80, 100, 120])
def test_nothing_is_wider_than_the_terminal_and_nothing_is_lost(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    sides.write(ROWS, ("one", "two"), stream)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = stream.getvalue().replace(",", "").split()
    assert all(
        word in words for row in ROWS for cell in row for word in cell.replace(",", "").split()
    )


def test_the_machines_are_named() -> None:
    stream = StringIO()
    sides.write(ROWS[:1], ("a\x1b[2J", "b"), stream)
    assert stream.getvalue() == (
        "what          here: a\\x1b[2J  there: b  why it matters\n"
        "CPUs granted  8               1         how many threads run at once\n"
    )
    stream = StringIO()
    sides.write([], ("a", "b"), stream)
    assert stream.getvalue() == "Nothing that matters differs between a and b.\n"
