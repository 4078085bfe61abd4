"""What is selected in the timeline of a report, and what is said of it."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.browser.report_page import (
    click,
    hash_of,
    reader_of,
    table,
    text,
    values_of_hash,
)
from tests.browser.timeline_page import (
    BOTH,
    canvas,
    choose,
    facts,
    labels,
    open_timeline,
    place,
    row_of,
    settle,
    view,
    x_of,
)
from tests.recordings import MS

pytestmark = [pytest.mark.slow, BOTH]

STATISTICS = ".tl-selection [aria-label='statistics of the selection']"
WAITS = "[aria-label='waits in the selection']"


def test_a_drag_selects_time_and_tracks(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.1-0.6s")
    y = row_of(page, "autograd 101")

    page.drag((x_of(page, 150 * MS), y), (x_of(page, 350 * MS), y + 4))
    settle(page)

    fields = values_of_hash(page)
    start_s, end_s = (float(part) for part in fields["t"].rstrip("s").split("-"))
    assert (start_s, end_s) == (pytest.approx(0.15, abs=0.001), pytest.approx(0.35, abs=0.001))
    assert fields["tracks"] == "1"
    assert "on 1 thread" in text(page, "#tl-selection")
    assert [row[:3] for row in table(page, STATISTICS)[1:]] == [["ConvBackward0", "operators", "2"]]
    page.keys("f")
    settle(page)
    assert view(page) == (pytest.approx(140 * MS, abs=2 * MS), pytest.approx(360 * MS, abs=2 * MS))
    page.keys("m")
    settle(page)
    assert values_of_hash(page)["mark"] == fields["t"]
    assert "marked: 200 ms" in text(page, ".tl-controls")
    page.keys("Escape")
    assert "tracks" not in values_of_hash(page)
    page.keys("Escape")
    assert "t" not in values_of_hash(page)
    assert "mark" in values_of_hash(page)
    page.run("history.back()")
    page.wait("location.hash.includes('t=')")


def test_all_tracks_need_no_filter(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.1-0.6s")
    bottom = canvas(page)[1] + canvas(page)[3]

    page.drag((x_of(page, 150 * MS), canvas(page)[1] + 2), (x_of(page, 350 * MS), bottom - 2))
    settle(page)

    assert "t" in values_of_hash(page)
    assert "tracks" not in values_of_hash(page)


def test_a_click_shows_everything_of_a_span(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.2-0.4s")

    choose(page, "aten::conv2d", 1)

    assert text(page, ".tl-span-name") == "aten::conv2d"
    assert facts(page) == {
        "layer, kind": "operators, function",
        "starts": "0.212 s",
        "duration": "20.0 ms (20,000,000 ns)",
        "self time": "20.0 ms (20,000,000 ns), 100.0 %",
        "thread": "rank 0 100, python 100",
        "module": "Net.conv1 Conv2d",
        "step": "1, forward",
    }
    assert "aten::conv2d" in text(page, ".tl-said")
    assert text(page, ".tl-chain") == "Net 40.0 ms"
    primitive = text(page, ".tl-primitives")
    assert primitive == "convolution 10.0 msshape: 64x1x28x28call: jit:avx2"
    assert text(page, ".tl-samples") == "11.0 ms in gemm (libmkl.so), from train (train.py:14)"
    assert "its backward function: ConvBackward0 25.0 ms" in text(page, ".tl-links")
    assert text(page, ".tl-same") == "Previous 2 of 10 Next"
    click(page, ".tl-links button", "ConvBackward0")
    settle(page)
    assert facts(page)["thread"] == "rank 0 100, autograd 101"
    assert "the forward operator of it: aten::conv2d" in text(page, ".tl-links")
    page.keys("Escape")
    settle(page)
    assert page.run("return document.querySelector('.tl-span')") is None
    assert "span" not in values_of_hash(page)


def test_the_chain_and_all_of_a_name_lead_on(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.2-0.4s")

    choose(page, "convolution", 1)
    click(page, ".tl-chain button", "Net")
    settle(page)
    assert text(page, ".tl-span-name") == "Net"
    assert text(page, ".tl-children tbody tr:first-child") == "aten::conv2d120.0 ms"
    click(page, ".tl-children button", "aten::relu")
    settle(page)
    assert text(page, ".tl-span-name") == "aten::relu"
    for button, which, dur in (
        ("Next", 3, "7.00 ms"),
        ("Next", 4, "8.00 ms"),
        ("Previous", 3, "7.00 ms"),
    ):
        click(page, ".tl-same button", button)
        settle(page)
        assert f"{which} of 10" in text(page, ".tl-same")
        assert facts(page)["duration"].startswith(dur)
        x, _ = place(page, "aten::relu", which - 1)
        assert canvas(page)[0] < x < canvas(page)[0] + canvas(page)[2]
    times = page.run("return [...document.querySelectorAll('.tl-times dd')].map(one => one.title)")
    # 5 to 14 ms: total, self, mean, min, p50, p99, max.
    wanted = [95, 95, 9.5, 5, 9, 14, 14]
    assert times == [f"{int(ms * MS):,}" for ms in wanted]
    click(page, ".tl-span button", "Filter by this name")
    assert values_of_hash(page)["name"] == "aten::relu"


def test_the_visible_stretch_as_a_table(page: chromium.Page, address: str) -> None:
    open_timeline(page, address, "#timeline?view=0.2-0.3s&tracks=0")

    page.keys("t")
    settle(page)
    rows = table(page, "[aria-label='spans that are shown']")
    assert text(page, "#tl-visible") == "All 5 spans that are shown"
    assert rows[0][:3] == ["name", "layer", "thread"]
    assert [row[0] for row in rows[1:]] == [
        "Net", "aten::conv2d", "Optimizer.step", "convolution", "aten::relu"
    ]  # fmt: skip
    click(page, "[aria-label='spans that are shown'] button", "Optimizer.step")
    settle(page)
    assert facts(page)["line"] == "train.py:30"
    page.keys("t")
    assert text(page, "#tl-visible") == ""


@pytest.mark.parametrize("by", ["name", "module", "kind", "layer", "track", "primitive"])
def test_statistics_are_those_of_the_recording(
    page: chromium.Page, address: str, written: tuple[str, Path], by: str
) -> None:
    chance = random.Random(by)
    open_timeline(page, address)
    column = {"track": "spans.track", "module": "modules.path", "primitive": "spans.name"}.get(
        by, f"spans.{by}"
    )
    where = "AND spans.layer = 'primitives'" if by == "primitive" else ""
    for _ in range(6):
        start_ns, end_ns = sorted(chance.sample(range(1300 * MS), 2))
        tracks = chance.choice(["", "0", "1", "0,2"])
        state = f"#timeline?t={start_ns / 1e9:.9f}-{end_ns / 1e9:.9f}s&tracks={tracks}&by={by}"
        page.run("location.hash = args[0]", state)
        settle(page)
        of_tracks = f"AND spans.track IN ({tracks})" if tracks else ""
        with reader_of(written[1]) as reader:
            answer = reader.query(
                f"""
                SELECT {column} AS key, count(*) AS n, sum(dur_ns)::BIGINT AS total, sum(self_ns)::BIGINT AS self,
                    min(dur_ns) AS least, list_sort(list(dur_ns)) AS every, max(dur_ns) AS most
                FROM spans LEFT JOIN modules USING (module)
                WHERE start_ns >= {start_ns} AND start_ns < {end_ns} {of_tracks} {where} GROUP BY 1"""
            ).to_pylist()
            waits = reader.query(
                f"""
                SELECT state, count(*) AS n, sum(least(at_ns + weight_ns, {end_ns})
                    - greatest(at_ns, {start_ns}))::BIGINT AS ns FROM samples spans
                WHERE kind = 'offcpu' AND at_ns + weight_ns > {start_ns} AND at_ns < {end_ns}
                {of_tracks} GROUP BY 1"""
            ).to_pylist()
        wanted = sorted(_statistics_row(row, by) for row in answer)
        shown = table(page, STATISTICS, exact=True)
        # Of names the layer stands beside them; the mean is compared by what it is made of.
        at = 2 if by in ("name", "primitive") else 1
        found = sorted([row[0], *row[at : at + 3], *row[at + 4 :]] for row in shown)
        assert found == wanted
        found_waits = [row[:3] for row in table(page, WAITS, exact=True)]
        assert sorted(found_waits) == sorted(
            [row["state"], f"{row['n']:,}", f"{row['ns']:,}"] for row in waits
        )


def _statistics_row(row: dict[str, object], by: str) -> list[str]:
    """As the page has it: percentiles by nearest rank."""
    every = row["every"]
    assert isinstance(every, list)
    ranked = [every[math.ceil(part * len(every)) - 1] for part in (0.5, 0.99)]
    key = row["key"]
    if by == "track":
        key = ["rank 0 100, python 100", "rank 0 100, autograd 101", "rank 1 200, python 200"][
            [0, 1, key].index(key)
        ]
    if key is None:
        key = "(no module)"
    numbers = [row["n"], row["total"], row["self"], row["least"], *ranked, row["most"]]
    return [str(key), *(f"{number:,}" for number in numbers)]


def test_a_row_of_the_statistics_filters(page: chromium.Page, address: str) -> None:
    open_timeline(page, address)

    click(page, f"{STATISTICS} button", "aten::relu")
    settle(page)
    assert values_of_hash(page)["name"] == "aten::relu"
    assert [row[:3] for row in table(page, STATISTICS)[1:]] == [["aten::relu", "operators", "10"]]
    click(page, f"{STATISTICS} button", "aten::relu")
    assert "name" not in values_of_hash(page)
    click(page, f"{STATISTICS} th button", "count")
    settle(page)
    counts = [int(row[2]) for row in table(page, STATISTICS)[1:8]]
    assert counts == sorted(counts, reverse=True)


def test_a_hash_restores_the_picture(page: chromium.Page, address: str) -> None:
    state = (
        "#timeline?t=0.2-0.4s&name=aten::relu&tracks=0&view=0.15-0.45s&mark=0.2-0.3s&span=3"
        "&find=conv&apart=1&pinned=t1&by=layer"
    )
    open_timeline(page, address, state)

    assert view(page) == (150 * MS, 450 * MS)
    assert hash_of(page) == state
    assert labels(page)[0] == "rank 0 100 autograd 101"
    assert page.run("return document.querySelector('[data-search]').value") == "conv"
    assert text(page, ".tl-selection tbody tr:nth-child(2)").startswith("operators")
