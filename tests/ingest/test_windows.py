"""The windows of a process, as the marks of its agent tell them."""

from __future__ import annotations

import numpy as np
import pytest

from layerscope.ingest.phases import EARLIEST
from layerscope.ingest.windowed import WindowList
from layerscope.ingest.windows import problems, windows_of
from layerscope.rawfile import dtypes, layout
from layerscope.rawfile.windows import RequestedWindow

WAS_CLOSED = layout.WINDOW_WAS_CLOSED
Mark = tuple[int, int, int, int]


def told(*marks: Mark) -> np.ndarray:
    """Marks of opening (1) or closing (0): the number of the step that begins there, how often the
    leader was another one by then, and further bits; one each 10 ns.
    """
    records = np.zeros(len(marks), dtypes.RECORD)
    for at, (opens, number, leader, bits) in enumerate(marks):
        records[at]["start"] = 10 * at
        records[at]["module"] = layout.MARK_OPENED if opens else layout.MARK_CLOSED
        records[at]["seq"] = number
        records[at]["end"] = layout.RULE_REQUEST | bits | leader << layout.WINDOW_INSTANCE
    return records


@pytest.mark.parametrize(
    ("first", "marks", "expected"),
    [
        (0, [(0, 1, 1, 0), (0, 1, 2, 0)], [(EARLIEST, 10, 0, 1)]),
        (0, [(0, 2, 1, 0), (1, 1, 2, 0), (0, 2, 2, 0)], [(EARLIEST, 20, 0, 2)]),
        (
            1,
            [(1, 1, 1, WAS_CLOSED), (0, 2, 1, 0), (1, 1, 2, WAS_CLOSED), (0, 2, 2, 0)],
            [(20, 30, 1, 1)],
        ),
        (1, [(1, 1, 1, WAS_CLOSED), (1, 1, 2, 0), (0, 3, 2, 0)], [(10, 20, 1, 2)]),
        # The first module of all is called again when the program ends: its requests reach no
        # window.
        (5, [(1, 5, 1, WAS_CLOSED), (0, 7, 1, 0), (0, 1, 2, 0)], [(0, 10, 5, 2)]),
        (5, [(1, 5, 0, WAS_CLOSED), (0, 7, 0, 0)], [(0, 10, 5, 2)]),
    ],
)
def test_windows_are_those_of_the_module_that_truly_leads(
    first: int, marks: list[Mark], expected: list[tuple[int, int, int, int]]
) -> None:
    found = windows_of(RequestedWindow(first=first, last=first + 2), told(*marks))

    assert [
        (window.open_ns, window.close_ns, window.first, window.steps) for window in found
    ] == expected
    assert {(window.rule, window.optimizer) for window in found} == {("request", -1)}


@pytest.mark.parametrize(
    ("begun", "codes"), [(0, ["window_uncounted"]), (12, ["window_cut"]), (30, [])]
)
def test_a_window_of_steps_that_nobody_counted_is_no_window(begun: int, codes: list[str]) -> None:
    asked = RequestedWindow(first=10, last=20)
    process = (1, WindowList([]), np.zeros(0, np.int64))
    found = problems(asked, [process], has_spans=True, begun=begun)
    assert [row["code"] for row in found] == codes
