"""The filters of a report: the timeline counts what they keep, and other pages say where they do not
apply.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.browser.report_page import (
    click,
    open_report,
    reader_of,
    table,
    text,
    values_of_hash,
    write_report,
)
from tests.browser.timeline_page import (
    FIRST_NS,
    STEP_NS,
    STEPS,
    choose,
    open_timeline,
    settle,
    training,
    view,
)
from tests.recordings import MS, Recording
from tests.repeated import also

pytestmark = pytest.mark.slow

STATISTICS = ".tl-selection [aria-label='statistics of the selection']"
WAITS = "[aria-label='waits in the selection']"
OUTSIDE = "outside any module"
OF_WHOLE_RUN = "These figures are of the whole run; the filters above do not apply to them."
# The second rank is late: its steps are three times as long as those of the first.
LATE_STEPS, LATE_STEP_NS = 4, 3 * STEP_NS
CHIPS = "return [...document.querySelectorAll('.chip')].map(chip => chip.firstChild.textContent)"
BOX = "const box = document.querySelector(args[0]).getBoundingClientRect(); return [box.x, box.y, box.width, box.height]"
FLAME = "return document.querySelector('.flame-says, .flame-nothing').textContent"


def of_two_ranks() -> Recording:
    """The training with steps of its second rank too."""
    recording = training()
    process = 1
    thread = next(one["track"] for one in recording.rows["tracks"] if one["process"] == process)
    stack = recording.add_stack("python train train.py:12")
    for step in range(LATE_STEPS):
        start_ns = FIRST_NS + step * LATE_STEP_NS
        phases = (0, 300 * MS, 0, 0, 0)
        recording.add_step(step, start_ns, phases, process=process)
        recording.add_span("aten::late", start_ns + 7 * MS, 200 * MS, track=thread, step=step)
        waits = {"kind": "offcpu", "state": "lock", "track": thread}
        recording.add_sample(stack, 30 * MS, start_ns + 220 * MS, **waits)
    return recording


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The address of a report of two ranks, and the folder with its recording."""
    folder = tmp_path_factory.mktemp("ranks")
    return write_report(of_two_ranks(), folder), folder


@pytest.fixture
def address(ranks: tuple[str, Path], page: chromium.Page) -> Iterator[str]:
    yield ranks[0]
    assert page.complaints() == []


def drawn(chance: random.Random) -> tuple[dict[str, str], list[str]]:
    """Filters as the address has them, and as conditions of the recording."""
    start_ns, end_ns = sorted(chance.sample(range(1300 * MS), 2))
    every: dict[str, list[tuple[str, str]]] = {
        "t": [(f"{start_ns / 1e9:.9f}-{end_ns / 1e9:.9f}s", f"start_ns BETWEEN {start_ns} AND {end_ns - 1}")],
        "name": [(name, f"name = '{name}'") for name in ("aten::relu", "aten::conv2d", "aten::late")],
        "module": [
            ("Net", "(path = 'Net' OR path LIKE 'Net.%')"),
            ("Net.conv1", "path = 'Net.conv1'"),
            (OUTSIDE, "path IS NULL"),
        ],
        "step": [
            ("2", "step = 2"),
            ("0.2", "step = 2 AND process = 0"),
            ("1.3", "step = 3 AND process = 1"),
            ("2:6", "step BETWEEN 2 AND 5"),
        ],
        "tracks": [("0", "track = 0"), ("0,1", "track IN (0, 1)")],
    }  # fmt: skip
    chosen = chance.sample(list(every), chance.randint(1, 4))
    picked = {key: chance.choice(every[key]) for key in chosen}
    return {key: words for key, (words, _) in picked.items()}, [one for _, one in picked.values()]


@pytest.mark.parametrize("by", ["name", *also(["kind", "track"])])
def test_statistics_count_what_passes_all_filters(
    page: chromium.Page, address: str, ranks: tuple[str, Path], by: str
) -> None:
    chance = random.Random(by)
    groups = "layer, name" if by == "name" else by
    open_timeline(page, address)
    counted = 0
    for _ in range(14):
        fields, conditions = drawn(chance)
        query = "&".join(f"{key}={words.replace(' ', '+')}" for key, words in fields.items())
        page.run("location.hash = args[0]", f"#timeline?{query}&by={by}")
        settle(page)
        with reader_of(ranks[1]) as reader:
            wanted = reader.query(
                f"""
                SELECT count(*) AS n, sum(dur_ns)::BIGINT AS total, sum(self_ns)::BIGINT AS self
                FROM (SELECT spans.*, process, path FROM spans JOIN tracks USING (track)
                      LEFT JOIN modules USING (module))
                WHERE {" AND ".join(conditions)} GROUP BY {groups}"""
            ).to_pylist()
        at = 2 if by == "name" else 1
        found = sorted(row[at : at + 3] for row in table(page, STATISTICS, exact=True))
        numbers = [[f"{row[key]:,}" for key in ("n", "total", "self")] for row in wanted]
        assert found == sorted(numbers), query
        counted += bool(wanted)
    assert counted >= 5


def test_the_heading_says_what_the_statistics_are_of(page: chromium.Page, address: str) -> None:
    for state, words in (
        ("module=Net.conv1", "the whole run, module Net.conv1"),
        (f"module={OUTSIDE.replace(' ', '+')}", f"the whole run, {OUTSIDE}"),
        ("name=aten::relu&tracks=0", "the whole run, name aten::relu on 1 thread"),
        ("t=0.2-0.4s&step=2", "the selected 200 ms (0.2-0.4s), step 2"),
        ("step=1.3", "step 3 of rank 1 200"),
        ("step=0.3&name=Net", "step 3 of rank 0 100, name Net"),
    ):
        open_timeline(page, address, f"#timeline?{state}")
        assert text(page, "#tl-selection") == f"Statistics of {words}"


def test_waits_follow_the_step_and_its_process(page: chromium.Page, address: str) -> None:
    for step, wanted in (
        ("0.3", {("lock", "1", f"{18 * MS:,}"), ("preempted", "1", f"{20 * MS:,}")}),
        ("1.3", {("lock", "1", f"{30 * MS:,}")}),
        ("3", {("lock", "2", f"{48 * MS:,}"), ("preempted", "1", f"{20 * MS:,}")}),
    ):
        open_timeline(page, address, f"#timeline?step={step}")
        assert {tuple(row[:3]) for row in table(page, WAITS, exact=True)} == wanted


def test_a_step_of_another_process_is_that_of_the_process(
    page: chromium.Page, address: str
) -> None:
    late_ns = FIRST_NS + 3 * LATE_STEP_NS
    open_report(page, address, "#tables?table=steps&where=process+%3D+1&sort=-step")
    settle(page)
    click(page, "[aria-label='rows'] td button, [aria-label='rows'] th[scope=row] button")
    page.wait("document.querySelector('.timeline')?.dataset.ready !== undefined")
    settle(page)

    assert values_of_hash(page)["step"] == "1.3"
    assert page.run(CHIPS) == ["step 3 of rank 1 200"]
    start_ns, end_ns = view(page)
    assert start_ns < late_ns < late_ns + LATE_STEP_NS < end_ns
    assert {row[0] for row in table(page, STATISTICS)[1:]} == {"aten::late"}
    # The step of a span, too, is that of its process.
    choose(page, "aten::late", 3)
    click(page, ".chip")
    settle(page)
    assert "step" not in values_of_hash(page)
    click(page, ".tl-span .facts button", "3")
    settle(page)
    assert values_of_hash(page)["step"] == "1.3"


def test_a_bar_of_the_overview_opens_the_step_of_its_process(
    page: chromium.Page, address: str
) -> None:
    open_report(page, address)
    page.run("document.querySelector('.chart canvas').scrollIntoView()")
    x, y, width, height = page.run(BOX, ".chart canvas")
    # By number and process: the eighth is step 3 of the second rank.
    page.mouse(x + 7.5 * width / (STEPS + LATE_STEPS), y + height / 2, click=True)
    page.wait("document.querySelector('.timeline')?.dataset.ready !== undefined")
    settle(page)

    assert values_of_hash(page)["step"] == "1.3"
    assert {row[0] for row in table(page, STATISTICS)[1:]} == {"aten::late"}


def test_the_flame_graph_has_the_step_of_its_process(page: chromium.Page, address: str) -> None:
    for query, says in (
        ("step=1.3", "200 ms"),
        ("step=0.3", "67.0 ms"),
        (f"module={OUTSIDE.replace(' ', '+')}&step=0.3", "14.0 ms"),
    ):
        open_report(page, address, f"#flame?kind=operators&{query}")
        page.wait("document.querySelector('.flame-says, .flame-nothing')")
        assert page.run(FLAME).startswith(says), query


def test_pages_of_the_whole_run_say_that_filters_do_not_apply(
    page: chromium.Page, address: str
) -> None:
    for name in ("overview", "tables", "modules", "timeline", "flame"):
        has = name in ("overview", "tables", "modules")
        open_report(page, address, f"#{name}?name=aten::relu")
        assert (OF_WHOLE_RUN in text(page, "#page")) == has, name
        page.keys("Escape")
        page.wait("!location.hash.includes('aten')")
        assert OF_WHOLE_RUN not in text(page, "#page")


def test_a_step_that_is_not_in_the_page(page: chromium.Page, tmp_path: Path) -> None:
    part = write_report(training(), tmp_path, "part", "--steps", "2:4")
    missing = "Step 6 is not in this page: the report holds a part of the run."
    open_timeline(page, part, "#timeline?step=6")
    assert missing in text(page, ".tl-selection")
    assert "No spans start in it." not in text(page, ".tl-selection")
    for state in ("step=3&name=nothing", "step=600"):
        open_timeline(page, part, f"#timeline?{state}")
        assert "No spans start in it." in text(page, ".tl-selection")
