"""The page of `layerscope view` and the frame of a notebook in a browser: the same report, from a
server or inside another page.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import layerscope
from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.show.report.server import Server
from tests.browser import chromium
from tests.browser.bad_input import HOSTILE, MAKERS
from tests.browser.test_report_bad_input import IS_READ, visit
from tests.recordings import MS, Recording
from tests.show.report_page import serving

pytestmark = pytest.mark.slow
MAIN = "return document.querySelector('main').innerText"
LINK = """
    const box = document.querySelector(`nav a[href='#${args[0]}']`).getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];"""
TITLE = "return document.querySelector('h1').textContent"


def stepped(path: Path) -> None:
    """A recording of 20 steps with two operators each."""
    recording = Recording()
    for step in range(20):
        start_ns = step * 10 * MS
        recording.add_step(step, start_ns, (MS, 4 * MS, 3 * MS, MS, MS), warmup=step == 0)
        outer = recording.add_span("aten::conv2d", start_ns, 8 * MS, step=step)
        recording.add_span("aten::convolution", start_ns + MS, 2 * MS, outer)
    recording.write(path)


@contextlib.contextmanager
def viewed(path: Path) -> Iterator[Server]:
    with serving(open_run(path)) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    stepped(tmp_path / "train.layerscope")
    return tmp_path


def go(page: chromium.Page, name: str) -> None:
    """Press the link to a page."""
    page.mouse(*page.run(LINK, name), click=True)
    page.wait(
        f"document.querySelector('nav a[aria-current]').getAttribute('href') === '#{name}'", 20
    )
    page.wait(IS_READ, 20)


# Without the menu of tables: the server does not know how many rows those have that divide others.
TABLE = """return [...document.querySelector('.tables').children].slice(1).map(one => one.innerText).join('\\n')"""


def table(page: chromium.Page, name: str) -> str:
    """What the page of tables says of one of them."""
    page.run("location.hash = `tables?table=${args[0]}`", name)
    page.wait(IS_READ, 20)
    page.wait("document.querySelector('.tables [role=status]')", 20)
    return str(page.run(TABLE))


def test_the_server_shows_what_the_file_shows(page: chromium.Page, folder: Path) -> None:
    names = ("operators", "operators-kind", "operators-thread", "steps", "threads")
    assert cli.main(["report", "train", "-q"]) == 0
    from_file = visit(page, (folder / "train.html").as_uri())
    tables_from_file = [table(page, name) for name in names]

    with viewed(folder / "train.layerscope") as server:
        shown = visit(page, server.address)
        assert page.run("return location.href").startswith(f"http://{server.hosts[0]}/#")
        assert page.run("return document.cookie") == ""  # scripts do not see it
        assert [table(page, name) for name in names] == tables_from_file
        assert page.console_errors() == []

    assert "aten::conv2d" in tables_from_file[0]
    assert "function" in tables_from_file[1]
    for what in (shown, from_file):
        del what["#tables"]
    assert shown == from_file
    assert "A step takes 10.0 ms" in shown["#overview"]["text"]


def test_the_address_without_its_token_is_refused(page: chromium.Page, folder: Path) -> None:
    page.run("return 1")
    with viewed(folder / "train.layerscope") as server:
        page.open(server.address.partition("?")[0])
        assert "open the whole address" in page.run("return document.body.innerText")
    page.console_errors()  # the browser complains about the refusal


def test_a_link_on_a_page_of_somebody_else_opens_it(page: chromium.Page, folder: Path) -> None:
    """As in the terminal of a notebook: browsers send strict cookies to what a page asks for that
    is not of another site.
    """
    with viewed(folder / "train.layerscope") as server:
        link = f'<!DOCTYPE html><title>other</title><a href="{server.address}">open</a>'
        (folder / "other.html").write_text(link)
        page.open((folder / "other.html").as_uri())
        page.mouse(20, 20, click=True)
        page.wait("document.querySelector('h1')", 20)
        assert page.run(TITLE) == "train"
        assert "token" not in page.run("return location.href")

        page.run("history.back()")
        page.wait("document.title === 'other'", 20)
    page.console_errors()


def test_two_viewers_at_once(page: chromium.Page, folder: Path, tmp_path: Path) -> None:
    """Cookies of a host go to all of its ports: one viewer must not take the other's away."""
    MAKERS["one_span"](folder / "other.layerscope")
    with (
        viewed(folder / "train.layerscope") as one,
        viewed(folder / "other.layerscope") as other,
    ):
        for server, name in ((one, "train"), (other, "other")):
            page.open(server.address)
            page.wait(IS_READ, 20)
            assert page.run(TITLE) == name
        page.open(one.address.partition("?")[0])  # its cookie is still there
        page.wait(IS_READ, 20)
        assert page.run(TITLE) == "train"
        with contextlib.ExitStack() as stack:
            second = tmp_path / "second"
            second.mkdir()
            browser = stack.enter_context(chromium.page(second))
            browser.open(one.address)
            browser.wait(IS_READ, 20)
            assert browser.run(TITLE) == "train"
    assert page.console_errors() == []


def test_a_recording_that_goes_away_is_one_sentence(page: chromium.Page, folder: Path) -> None:
    with viewed(folder / "train.layerscope") as server:
        page.open(server.address)
        page.wait(IS_READ, 20)
        shutil.rmtree(folder / "train.layerscope")

        go(page, "timeline")

        said = page.run("return document.querySelector('main [role=alert]').innerText")
        assert said.startswith("This part of the report cannot be read: the recording ")
        assert "is not there any more. Put it back, or end layerscope view" in said
        go(page, "overview")
        assert "A step takes" in page.run(MAIN)
    page.console_errors()  # the browser notes the answer 503


def test_a_server_that_has_ended_is_one_sentence(page: chromium.Page, folder: Path) -> None:
    with viewed(folder / "train.layerscope") as server:
        page.open(server.address)
        page.wait(IS_READ, 20)

    go(page, "timeline")

    said = page.run("return document.querySelector('main [role=alert]').innerText")
    assert "layerscope view does not answer any more; start it again, and open the address" in said
    page.console_errors()


def test_hostile_names_come_from_the_server_as_text(page: chromium.Page, folder: Path) -> None:
    MAKERS["hostile_names"](folder / "hostile.layerscope")
    with viewed(folder / "hostile.layerscope") as server:
        shown = visit(page, server.address)
    assert page.console_errors() == []
    assert HOSTILE[0] in shown["#tables"]["text"] + shown["#overview"]["text"]
    assert page.run("return document.querySelectorAll('#page script, #page img').length") == 0


def test_a_page_of_somebody_else_gets_nothing(page: chromium.Page, folder: Path) -> None:
    """From another origin, even in the browser that has the cookie."""
    with (
        viewed(folder / "train.layerscope") as server,
        viewed(folder / "train.layerscope") as other,
    ):
        page.open(server.address)
        page.wait(IS_READ, 20)
        # A page that may ask everybody: a file.
        (folder / "other.html").write_text("<!DOCTYPE html><title>other</title>")
        page.open((folder / "other.html").as_uri())
        for how in ("cors", "no-cors"):
            got = page.run(
                "return fetch(args[0], {mode: args[1], credentials: 'include'})"
                ".then(answer => answer.text(), () => null)",
                f"http://{server.hosts[0]}/head",
                how,
            )
            assert not got
        framed = page.run(
            """const frame = document.createElement('iframe');
            frame.src = args[0];
            const loaded = new Promise(done => { frame.onload = done; setTimeout(done, 3000); });
            document.body.append(frame);
            await loaded;
            try { return frame.contentDocument?.body.innerText ?? null; } catch { return null; }""",
            f"http://{server.hosts[0]}/",
        )
        assert not framed
        assert other.address != server.address
    page.console_errors()


@pytest.fixture
def notebook(folder: Path) -> Any:
    """A page like a notebook's, with what `_repr_html_` gives in it."""
    with layerscope.open_run(str(folder / "train")) as opened:
        text = opened._repr_html_()
    path = folder / "notebook.html"
    path.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body><p>Cell 1</p>{text}', "utf-8")
    return path.as_uri()


def test_in_a_notebook_the_page_lives_in_its_frame(
    page: chromium.Page, notebook: str, tmp_path: Path
) -> None:
    page.console_errors()
    page.open(notebook)
    with page.frame("iframe"):
        page.wait(IS_READ, 20)
        assert "A step takes 10.0 ms" in page.run(MAIN)
        assert "Copy link" not in page.run("return document.body.innerText")
        x, y = page.run(LINK, "tables")
    assert page.run("return document.querySelector('iframe').contentDocument") is None
    left, top = page.run(
        "const box = document.querySelector('iframe').getBoundingClientRect(); return [box.x, box.y]"
    )
    page.mouse(left + 1 + x, top + 1 + y, click=True)
    with page.frame("iframe"):
        page.wait(
            "document.querySelector('nav a[aria-current]').getAttribute('href') === '#tables'", 20
        )
        page.wait(IS_READ, 20)
        assert "aten::conv2d" in page.run(MAIN)
    assert page.run("return location.href") == notebook
    page.screenshot(tmp_path / "notebook.png")
    assert page.console_errors() == []
