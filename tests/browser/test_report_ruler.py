"""The ruler's steps, where several processes have steps: those of the process of what is selected,
else of the first one that can be seen.
"""

from __future__ import annotations

import pytest

from tests.browser import chromium
from tests.browser.report_page import text, values_of_hash, write_report
from tests.browser.timeline_page import (
    canvas,
    choose,
    label_place,
    open_timeline,
    settle,
    tip,
    x_of,
)
from tests.recordings import MS, Recording

FIRST, SECOND = "rank 0 100", "rank 1 200"
STEP_NS = 100 * MS
# The second rank's steps begin half a step later, and there are fewer of them.
SHIFT_NS, STEPS = STEP_NS // 2, {0: 8, 1: 5}
THREADS = 30


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two ranks with steps of their own; many threads make their rows taller than the picture."""
    recording = Recording()
    recording.rows["processes"][0]["rank"] = 0
    recording.add_process(200, rank=1)
    for process, steps in STEPS.items():
        for step in range(steps):
            start_ns = (1 + step) * STEP_NS + process * SHIFT_NS
            recording.add_step(step, start_ns, (0, STEP_NS, 0, 0, 0), process=process)
        for number in range(THREADS):
            thread = recording.add_thread(process, 1000 * process + 300 + number, f"t{process}")
            name = f"aten::p{process}t{number}"
            recording.add_span(name, 2 * STEP_NS, STEP_NS // 2, track=thread)
    return write_report(recording, tmp_path_factory.mktemp("ruler"))


def shown(page: chromium.Page) -> str:
    return text(page, ".tl-step-label")


def step_at(page: chromium.Page, at_ns: int) -> str:
    """The step of the ruler at a moment, as it names it to the mouse."""
    page.mouse(x_of(page, at_ns), canvas(page)[1] - 10)
    settle(page)
    return tip(page)[0]


def test_the_first_process_that_can_be_seen(page: chromium.Page, address: str) -> None:
    open_timeline(page, address)

    assert shown(page) == f"steps of {FIRST}"
    assert step_at(page, 3 * STEP_NS + SHIFT_NS // 2) == f"step 2 of {FIRST}"

    page.run("document.querySelector('.tl-scroller').scrollTop = 1e6")
    settle(page)
    assert shown(page) == f"steps of {SECOND}"
    assert step_at(page, 3 * STEP_NS + SHIFT_NS // 2) == f"step 1 of {SECOND}"

    page.run("document.querySelector('.tl-scroller').scrollTop = 0")
    settle(page)
    assert shown(page) == f"steps of {FIRST}"


def test_the_process_of_the_chosen_span(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?toggled=p0")
    assert shown(page) == f"steps of {FIRST}"

    choose(page, "aten::p1t0")
    assert shown(page) == f"steps of {SECOND}"
    page.mouse(x_of(page, 3 * STEP_NS + SHIFT_NS // 2), canvas(page)[1] - 10, click=True)
    settle(page)
    assert values_of_hash(page)["step"] == "1.1"


def test_the_process_of_selected_tracks_and_of_the_step(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?toggled=p0")

    y = label_place(page, "t1 1300")[1]
    page.drag((x_of(page, 2 * STEP_NS), y), (x_of(page, 3 * STEP_NS), y))
    settle(page)
    assert "tracks" in values_of_hash(page)
    assert shown(page) == f"steps of {SECOND}"

    open_timeline(page, address, "#timeline?step=1.2")
    assert shown(page) == f"steps of {SECOND}"
    page.keys("Escape")
    settle(page)
    assert shown(page) == f"steps of {FIRST}"


def test_the_process_of_the_row_that_has_the_focus(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?toggled=p0,p1")
    assert shown(page) == f"steps of {FIRST}"

    page.run("document.querySelector('.tl-over').focus()")
    page.keys("ArrowDown", "ArrowDown")
    settle(page)
    assert shown(page) == f"steps of {SECOND}"
    page.keys("ArrowUp")
    settle(page)
    assert shown(page) == f"steps of {FIRST}"
    assert page.complaints() == []
