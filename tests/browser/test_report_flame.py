"""The flame graphs of a report: their numbers are those of `layerscope flame`, frame by frame, and
mouse and keys do what they do in its files.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layerscope.analyse.stacks.frames import FrameTable
from layerscope.analyse.stacks.sample_reader import read_stacks
from layerscope.analyse.stacks.tree import has_above
from layerscope.model.units import duration
from tests.browser import chromium
from tests.browser.flame_page import FOCUSED, FOUND, OUTSIDE, TIP
from tests.browser.report_flame import (
    READY,
    READY_S,
    numbers_of_command,
    numbers_of_page,
    of_every_sort,
    open_flame,
)
from tests.browser.report_page import (
    click,
    hash_of,
    reader_of,
    table,
    text,
    wait_hash,
    write_report,
)
from tests.recordings import MS, Recording, S

pytestmark = pytest.mark.slow

SAMPLED = ("cpu", "offcpu", "wall", "pagefaults")
KINDS = (*SAMPLED, "operators", "primitives")
CHOICES = (
    ("t=0.5-1.2s", ("--time", "0.5:1.2", "--by", "none")),
    ("t=0.111-0.777s&inverted=yes", ("--time", "0.111:0.777", "--by", "none", "--invert")),
    ("by=thread", ("--by", "thread")),
    ("by=process", ("--by", "process")),
    ("by=rank&t=0.2-1.9s", ("--by", "rank", "--time", "0.2:1.9")),
    ("by=step", ("--by", "step")),
    ("by=step&inverted=yes&t=0.3-1.5s", ("--by", "step", "--invert", "--time", "0.3:1.5")),
    ("step=3", ("--step", "3", "--by", "none")),
    ("step=2:6&by=thread", ("--step", "2:6", "--by", "thread")),
    ("module=Net", ("--module", "Net", "--by", "none")),
    ("module=conv&t=0.3-1.9s", ("--module", "conv", "--time", "0.3:1.9", "--by", "none")),
)
LAYERS = ("python", "operators,native", "modules,waits")
EVERY_LAYER = "python,modules,operators,api,ranges,primitives,native,kernel,waits"
# The middle of the frame that has this label, by what the picture knows of itself.
MIDDLE = """
    const svg = document.querySelector('#layerscope-flame'), box = svg.getBoundingClientRect();
    const text = [...svg.querySelectorAll('#labels text')].find(text => text.textContent === args[0]);
    const at = text.getBoundingClientRect();
    return [at.x + 4, at.y + at.height / 2];"""
LABELS = """
    return [...document.querySelectorAll('#layerscope-flame #labels text')].map(text => text.textContent)"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The address of a report, and the folder with its recording `train`."""
    folder = tmp_path_factory.mktemp("report")
    return write_report(of_every_sort(), folder), folder


@pytest.fixture
def in_folder(report: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> str:
    address, folder = report
    monkeypatch.chdir(folder)
    return address


def shown(page: chromium.Page) -> dict[Any, Any]:
    """The numbers of what is shown; empty where a sentence stands instead."""
    if sentence := text(page, ".flame-nothing"):
        assert sentence.startswith("Nothing of this kind is left to show")
        return {}
    return numbers_of_page(page)


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_run_has_the_numbers_of_the_command(
    page: chromium.Page, in_folder: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for query, options in (("", ()), ("&inverted=yes", ("--invert",))):
        open_flame(page, in_folder, f"?kind={kind}{query}")
        wanted = numbers_of_command(capsys, "train", "--kind", kind, "--by", "none", *options)
        assert wanted
        assert shown(page) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_chosen_has_the_numbers_of_the_command(
    page: chromium.Page, in_folder: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = 0
    for query, options in CHOICES:
        open_flame(page, in_folder, f"?kind={kind}&{query}")
        wanted = numbers_of_command(capsys, "train", "--kind", kind, *options)
        assert shown(page) == wanted, query
        found += bool(wanted)
    assert found >= len(CHOICES) - 2  # no primitive ran in some of them


@pytest.mark.parametrize("kind", SAMPLED)
def test_layers_are_those_of_the_command(
    page: chromium.Page, in_folder: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for layers in (*LAYERS, EVERY_LAYER):
        open_flame(page, in_folder, f"?kind={kind}&layers={layers}")
        options = ("--kind", kind, "--layers", layers, "--by", "none")
        assert shown(page) == numbers_of_command(capsys, "train", *options), layers


def test_random_stretches_of_time(
    page: chromium.Page, in_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(11)
    for _ in range(8):
        first, last = sorted(chance.sample(range(2_000_000_000), 2))
        ends = [f"{at // 10**9}.{at % 10**9:09}" for at in (first, last)]
        kind = chance.choice(KINDS)
        open_flame(page, in_folder, f"?kind={kind}&t={ends[0]}-{ends[1]}s")
        options = ("--kind", kind, "--time", ":".join(ends), "--by", "none")
        assert shown(page) == numbers_of_command(capsys, "train", *options)


def test_a_wait_counts_with_its_part_of_the_time(
    page: chromium.Page,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recording = Recording()
    stack = recording.add_stack("python main train.py:5")
    recording.add_sample(stack, 3 * S, at_ns=S, kind="offcpu", state="sleep")
    recording.add_sample(stack, 2 * S, at_ns=2 * S + 1, kind="offcpu", state="lock")
    recording.add_sample(stack, 10 * MS, at_ns=2 * S)
    address = write_report(recording, tmp_path)
    monkeypatch.chdir(tmp_path)
    for stretch, kind, sums in (
        ("1.5-2.5", "offcpu", {"sleeps": S, "waits for a lock": S // 2 - 1}),
        ("1.5-2.5", "wall", {"sleeps": S, "waits for a lock": S // 2 - 1}),
        ("2.1-2.100000001", "offcpu", {"sleeps": 1, "waits for a lock": 1}),
        ("1.5-2.5", "cpu", {}),
        ("4-5", "offcpu", {"waits for a lock": 1}),
    ):
        open_flame(page, address, f"?kind={kind}&t={stretch}s")
        found = shown(page)
        options = ("--kind", kind, "--time", stretch.replace("-", ":"), "--by", "none")
        assert found == numbers_of_command(capsys, "train", *options)
        waits = {path[-1][1]: own for path, (own, _, _) in found.items() if path[-1][0] == "waits"}
        assert waits == sums
        assert all(count == 1 for path, (_, _, count) in found.items() if len(path) == 2)


def test_what_trees_are_made_of_is_there(
    in_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recording of these tests has every rule of `analyse/stacks` in it."""
    of_samples = numbers_of_command(capsys, "train", "--kind", "wall", "--by", "none")
    names = {name for path in of_samples for _, name, _ in path}
    assert {"import numpy", "import", "OpenMP workers", "stack not known", "inner"} <= names
    assert {"waits for the GIL", "waits for a lock", "waits for work"} <= names
    of_operators = numbers_of_command(capsys, "train", "--kind", "operators", "--by", "none")
    own = {path[-1][1]: own for path, (own, _, _) in of_operators.items() if len(path) > 1}
    assert own["matmul"] > 0  # taken from its operator, which `long` was too long for
    assert "long" not in own


def test_a_name_and_tracks_are_followed(page: chromium.Page, report: tuple[str, Path]) -> None:
    address, folder = report
    with reader_of(folder) as reader:
        frames = FrameTable()
        stacks = read_stacks(reader, frames)
        called = np.array([frame.name == "aten::conv2d" for frame in frames.all()])
        is_below = np.append(has_above(stacks.up, called[stacks.frame]), False)
        samples = reader.arrays("samples", ["stack", "weight_ns", "kind", "track"])
    is_cpu = (samples["kind.names"] == "cpu")[samples["kind"]]
    is_called = is_cpu & is_below[samples["stack"]]
    for query, is_chosen in (
        ("name=aten::conv2d", is_called),
        ("tracks=1", is_cpu & (samples["track"] == 1)),
        ("name=aten::conv2d&tracks=0", is_called & (samples["track"] == 0)),
    ):
        open_flame(page, address, f"?{query}")
        found = shown(page)
        assert sum(own for own, _, _ in found.values()) == samples["weight_ns"][is_chosen].sum()
        assert found


def point(page: chromium.Page, label: str, is_click: bool = False) -> None:
    page.mouse(*page.run(MIDDLE, label), click=is_click)


def test_a_click_zooms_and_escape_goes_back(page: chromium.Page, in_folder: str) -> None:
    open_flame(page, in_folder)
    before = page.run(LABELS)

    point(page, "Net.conv", is_click=True)

    zoomed = page.run(LABELS)
    assert {"all", "Net", "Net.conv"} <= set(zoomed)
    assert "OpenMP workers" in before
    assert "OpenMP workers" not in zoomed
    assert page.run(FOCUSED).startswith("Net.conv; modules; ")
    assert page.run(OUTSIDE.replace("#frames rect", "#frames path")) == []
    assert text(page, "#flame-chosen") == "Net.conv"
    page.keys("Escape")
    assert sorted(page.run(LABELS)) == sorted(before)


def test_the_tooltip_says_what_the_command_says(
    page: chromium.Page, in_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    open_flame(page, in_folder)
    numbers = numbers_of_command(capsys, "train", "--by", "none")
    own, total, count = next(of for path, of in numbers.items() if path[-1][1] == "Net.conv")
    assert page.run(TIP) is None

    point(page, "Net.conv")

    lines = page.run(TIP).splitlines()
    assert lines[:2] == ["Net.conv", "modules"]
    assert lines[2].startswith(f"{duration(total)}, ")
    assert lines[2].endswith(f"; its own {duration(own)}")
    assert lines[3].startswith(f"{count} samples: ")
    page.mouse(5, 5)
    assert page.run(TIP) is None


def test_search_is_in_the_address(page: chromium.Page, in_folder: str) -> None:
    open_flame(page, in_folder)
    page.keys("/", *"conv")
    wait_hash(page, "search=conv")
    found = page.run(FOUND)
    assert found.endswith(" frames")

    open_flame(page, in_folder, hash_of(page).removeprefix("#flame"))

    assert page.run(FOUND) == found
    page.keys("Escape")
    page.wait("!location.hash.includes('search')")
    assert page.run(FOUND) == ""


def test_callers_and_callees_and_keys(page: chromium.Page, in_folder: str) -> None:
    open_flame(page, in_folder, "?t=0-2s")
    point(page, "Net.conv", is_click=True)
    page.keys("s")
    assert page.run(FOUND).startswith("Net.conv: ")
    assert page.run(FOUND).endswith(" in 1 place, callers above, callees below")
    page.keys("ArrowUp")
    assert page.run(FOCUSED).startswith("forward (net.py); python")
    page.keys("Escape")
    assert page.run(FOCUSED).startswith("Net.conv; ")
    page.keys("Escape")
    page.wait("location.hash.includes('t=0-2s')")
    # Where the picture has nothing to go back from, the key takes the filter away.
    page.keys("Escape")
    page.wait("!location.hash.includes('t=')")


def test_the_same_content_is_a_table(
    page: chromium.Page, in_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    open_flame(page, in_folder, "?kind=primitives")
    numbers = numbers_of_command(capsys, "train", "--kind", "primitives", "--by", "none")

    page.keys("t")

    page.wait("document.querySelector('.flame-page table')")
    rows = table(page, ".flame-page table", exact=True)
    wanted = {(path[-1][1], len(path), *of) for path, of in numbers.items()}
    exact = [[row[0], *(int(row[at].replace(",", "")) for at in (6, 2, 3, 5))] for row in rows[1:]]
    assert {tuple(row) for row in exact} == wanted
    assert rows[0][0] == "all"
    page.keys("t")
    page.wait("document.querySelector('#layerscope-flame.ready')")


def test_controls_choose_and_stand_in_the_address(page: chromium.Page, in_folder: str) -> None:
    open_flame(page, in_folder)
    click(page, ".controls label", "innermost first")
    wait_hash(page, "inverted=yes")
    click(page, ".controls summary", "Layers")
    click(page, ".columns label", "python")
    wait_hash(page, "layers=python")
    page.wait(READY, READY_S)
    assert text(page, ".command code") == (
        "layerscope flame train --kind cpu --layers python --by none --invert"
    )
    layers = page.run(
        "return [...document.querySelectorAll('.flame-key li')].map(item => item.textContent)"
    )
    assert layers == ["other", "python"]


def test_a_frame_leads_to_a_filter_of_all_pages(page: chromium.Page, in_folder: str) -> None:
    open_flame(page, in_folder, "?kind=operators")
    point(page, "aten::mm", is_click=True)
    click(page, ".flame-chosen button", "Only this name")
    wait_hash(page, "name=aten::mm")
    assert text(page, ".chip").startswith("name aten::mm")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_have_the_colours_of_the_files(
    page: chromium.Page, in_folder: str, scheme: str
) -> None:
    from layerscope.show.flame.palette import DARK, LIGHT

    page.prefer(scheme)
    try:
        open_flame(page, in_folder)
        fill = page.run("return getComputedStyle(document.querySelector('path.python')).fill")
        click(page, "header button", "Colours")  # light, whatever the system asks for
        chosen = page.run("return getComputedStyle(document.querySelector('path.python')).fill")
    finally:
        page.prefer("light")
    theme = {"light": LIGHT, "dark": DARK}[scheme]
    assert fill == in_rgb(theme.layers["python"])
    assert chosen == in_rgb(LIGHT.layers["python"])


def in_rgb(colour: str) -> str:
    parts = [str(int(colour[place : place + 2], 16)) for place in (1, 3, 5)]
    return f"rgb({', '.join(parts)})"


def test_names_of_every_sort_are_texts(page: chromium.Page, tmp_path: Path) -> None:
    names = ["</script><b>", "a\"b'c&amp;", "\u202eltr", "\U0001f525", "x" * 2000]
    recording = Recording()
    for at, name in enumerate(names):
        operator = recording.add_span(name, at * 10 * MS, 9 * MS)
        recording.add_primitive("reorder", at * 10 * MS, MS, operator)
        stack = recording.add_stack(f"operators {name}")
        recording.add_sample(stack, 10 * MS, at_ns=at * 10 * MS)
    address = write_report(recording, tmp_path)
    for query in ("", "?t=0-1s", "?kind=operators&t=0-1s"):
        open_flame(page, address, query)
        assert len(numbers_of_page(page)) == len(names) + ("operators" in query) * len(names)
        assert page.run("return document.querySelectorAll('main b, main script').length") == 0
        point(page, "</script><b>")
        assert page.run(TIP).splitlines()[0] == "</script><b>"


def test_without_samples_a_sentence_says_why(page: chromium.Page, tmp_path: Path) -> None:
    recording = Recording()
    recording.add_primitive("reorder", MS, MS, recording.add_span("aten::mm", 0, 9 * MS))
    recording.add_problem("stacks", "perf is not allowed here", "allow it")
    address = write_report(recording, tmp_path)
    for query in ("", "?t=0-1s", "?by=thread"):
        open_flame(page, address, query)
        sentence = "train.layerscope has no samples: perf is not allowed here. Allow it."
        assert text(page, ".flame-nothing") == sentence
    open_flame(page, address, "?kind=operators")
    assert len(numbers_of_page(page)) == 2
