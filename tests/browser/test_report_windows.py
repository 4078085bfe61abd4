"""A page that asks the server for its spans shows and says what a page shows that has all of them:
the same picture, pixel by pixel, the same statistics, spans, hits and tables.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from layerscope.recording.run import Run
from layerscope.show.report import live_timeline
from tests.browser import chromium
from tests.browser.report_page import open_report, text, write_report
from tests.browser.timeline_page import open_timeline, training
from tests.recordings import Recording
from tests.repeated import also
from tests.show.report_page import serving

pytestmark = pytest.mark.slow

SPANS, SEED = 1500, 7
WINDOWS, QUESTIONS = 6, 12
# The picture of a stretch of time as a text, when it is all there.
_PIXELS = """
    const [from, to] = args, picture = window.layerscopeTimeline;
    picture.view.show([from, to]);
    const canvas = document.querySelector('.tl-canvases canvas');
    for (let still = 0, last = -1; still < 8; still++) {
        await new Promise(done => setTimeout(() => requestAnimationFrame(done), 25));
        if (picture.spans.pictures.value !== last) still = 0;
        last = picture.spans.pictures.value;
    }
    const {data, width, height} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let hash = 2166136261;
    const pixels = new Uint32Array(data.buffer);
    for (const pixel of pixels) hash = Math.imul(hash ^ pixel, 16777619);
    return [width, height, new Set(pixels).size, hash];"""
# What the page's spans say to some questions, as JSON.
_ANSWERS = """
    const {spans} = window.layerscopeTimeline, plain = span => span && [span.row, span.track, span.start,
        span.dur, span.self, span.cls, span.step];
    const told = async ask => {
        for (let at = 0; at < 400; at++) {
            const found = ask();
            if (found !== undefined) return found;
            await new Promise(done => setTimeout(done, 10));
        }
        throw new Error('there was no answer');
    };
    const filterOf = ({classes, steps, tracks}) => ({steps, tracks, classes: classes &&
        Uint8Array.from(spans.about.classes, (_, at) => Number(at % classes === 0))});
    const found = [];
    for (const {filter, from, to, row, direction, by, lane} of args[0]) {
        const kept = filterOf(filter);
        const rows = await told(() => spans.statistics(kept, from, to, by));
        const shown = await told(() => spans.shown(kept, from, to));
        const story = await told(() => spans.story(row));
        spans.emphasise(kept, Uint8Array.from(spans.about.classes, (_, at) => at % 3 ? 1 : 0));
        const lanes = spans.about.tracks.flatMap(track => [...spans.lanes(track)]);
        const one = lanes[lane % lanes.length];
        found.push({
            rows, all: shown.all, shown: shown.spans.map(plain), lanes: lanes.map(of => [of.track, of.count]),
            story: {...story, span: plain(story.span), around: story.around.map(plain),
                below: story.below.map(sum => ({...sum, first: plain(sum.first)})),
                primitives: story.primitives.map(({span, args}) => [plain(span), args]),
                links: story.links.map(link => ({...link, other: plain(link.other)})),
                partners: story.partners.map(link => ({...link, other: plain(link.other)}))},
            hit: plain(await spans.hit(from, row, direction)),
            same: plain(await spans.ofSameName(row, direction)),
            at: plain(await spans.at(one, Math.min(row, one.count - 1))),
            reaching: plain(await spans.reaching(one, from)), before: plain(await spans.before(one, to)),
            place: lanes.map(of => spans.placeIn(of, story.span)),
            counts: [...spans.counts], first: spans.first_ns, end: spans.end_ns,
        });
    }
    return JSON.stringify(found);"""


def crowded() -> Recording:
    """Spans at random: some without length, some at the same moment, and on one thread so many that
    overlap that they share lanes.
    """
    chance = random.Random(SEED)
    recording = Recording()
    other = recording.add_thread(recording.process, 101, "worker")
    for _ in range(SPANS // 5):
        start_ns = chance.randrange(0, 2_000_000, 500)
        about = {"step": chance.randrange(4), "line": f"train.py:{chance.randrange(3)}"}
        outer = recording.add_span(f"call {chance.randrange(9)}", start_ns, 40_000, **about)
        for layer, kind in (("operators", "function"), ("modules", "module")):
            at_ns = start_ns + chance.randrange(0, 20_000, 100)
            of = {"layer": layer, "kind": kind}
            inner = recording.add_span(
                f"{layer} {chance.randrange(5)}", at_ns, chance.randrange(0, 9000), outer, **of
            )
            recording.rows["spans"][outer]["self_ns"] += recording.rows["spans"][inner]["dur_ns"]
    for at in range(SPANS // 5):
        dur_ns = chance.choice([0, 1, 700, 3000])
        recording.add_span(f"short {at % 7}", at * 3500, dur_ns, track=other)
        recording.add_span(f"short {at % 5}", at * 3500 + dur_ns, 0, track=other)
    return recording


@pytest.fixture(scope="module", params=["training", "crowded"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The addresses of a report in one file, and of the server that is asked for the same."""
    folder = tmp_path_factory.mktemp("windows")
    recording = {"training": training, "crowded": crowded}[request.param]()
    file = write_report(recording, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setattr(live_timeline, "MOST_IN_PAGE", 0)
        with serving(Run.open(folder / "train.layerscope")) as server:
            yield file, server.address


def of_both(
    page: chromium.Page, both: tuple[str, str], state: str, script: str, *given: Any
) -> Any:
    """What a script gives in each of the pages, for each of the arguments."""
    found = []
    for address in both:
        open_timeline(page, address, state)
        found.append([page.run(script, *one) for one in given])
    assert page.complaints() == []
    return found


def windows(page: chromium.Page, both: tuple[str, str]) -> list[tuple[float, float]]:
    """Stretches of time at random, of all sizes, some of which begin between two nanoseconds."""
    chance = random.Random(SEED)
    open_timeline(page, both[0])
    first, last = page.run("return [...window.layerscopeTimeline.view.whole]")
    found = [(first, last), (0, 1_000_000), (0, 2**20)]
    for _ in range(WINDOWS):
        long = (last - first) * 10 ** chance.uniform(-4, 0)
        from_ns = chance.uniform(first, last - long)
        found.append((from_ns, from_ns + long))
    return found


@pytest.mark.parametrize(
    "state",
    [
        "#timeline",
        *also(["#timeline?apart=1", "#timeline?find=o&step=1", "#timeline?name=short+3"]),
    ],
)
def test_the_picture_is_the_same(page: chromium.Page, both: tuple[str, str], state: str) -> None:
    stretches = windows(page, both)

    file, served = of_both(page, both, state, _PIXELS, *stretches)

    assert [one[2] > 1 for one in file].count(True) > len(file) // 2
    assert served == file


def test_the_answers_are_the_same(page: chromium.Page, both: tuple[str, str]) -> None:
    chance = random.Random(SEED)
    stretches = windows(page, both)
    count = page.run("return window.layerscopeTimeline.spans.count")
    questions = []
    for at in range(QUESTIONS):
        from_ns, to_ns = stretches[at % len(stretches)]
        questions.append(
            {
                "filter": {
                    "classes": chance.choice([None, 1, 2, 3]),
                    "steps": chance.choice([None, [0, 2], [1, 2]]),
                    "tracks": chance.choice([None, [0], [1, 0], [7]]),
                },
                "from": from_ns,
                "to": to_ns,
                "row": chance.randrange(count),
                "direction": chance.choice([1, -1]),
                "by": chance.choice(["name", "module", "kind", "layer", "track"]),
                "lane": chance.randrange(40),
            }
        )

    [file], [served] = of_both(page, both, "#timeline", _ANSWERS, (questions,))

    assert served == file
    assert '"hit":[' in file
    assert '"around":[[' in file


def test_no_other_page_waits_for_spans(page: chromium.Page, both: tuple[str, str]) -> None:
    _, served = both
    open_report(page, served, "#overview")
    assert "aten::conv2d" in text(page, ".top") or "call" in text(page, ".top")
    open_report(page, served, "#tables?table=operators")
    page.wait("document.querySelectorAll('.tables tbody tr:not(.spare)').length > 1", 20)
    assert page.complaints() == []
