"""Reports of recordings in which something is missing, extreme or hostile: each opens, without a
complaint of the browser, and each of its pages shows what there is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from layerscope import cli
from tests.browser import chromium
from tests.browser.bad_input import FOREIGN, HOSTILE, MAKERS

pytestmark = pytest.mark.slow
# Waits until the page has read what it needs, then tells what is on it.
SHOWN = """
    const main = document.querySelector('main') ?? document.querySelector('#page');
    return {
        text: main.innerText, alerts: [...document.querySelectorAll('[role=alert]')].map(one => one.innerText),
        wide: document.documentElement.scrollWidth > innerWidth,
        foreign: [...document.querySelectorAll('script, img, iframe, object, embed, base')].filter(
            one => one.tagName !== 'SCRIPT' || one.id.startsWith('injected')).map(one => one.outerHTML.slice(0, 200)),
        empty: [...main.querySelectorAll('svg, canvas')].filter(one => {
            const box = one.getBoundingClientRect();
            return box.width < 2 || box.height < 2;
        }).length};"""
IS_READ = """document.querySelector('main')
    && ![...document.querySelectorAll('main [role=status]')].some(one => one.innerText.startsWith('Reading'))
    && !document.querySelector('main [aria-busy=true]')
    || document.querySelector('#page[role=alert]')"""


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the report of what a maker made; gives the address of the file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def write(name: str) -> str:
        path = tmp_path / (name if name in FOREIGN else f"{name}.layerscope")
        (FOREIGN if name in FOREIGN else MAKERS)[name](path)
        assert cli.main(["report", path.name, "-o", "page.html", "-q"]) == 0
        return (tmp_path / "page.html").as_uri()

    return write


def visit(page: chromium.Page, address: str) -> dict[str, dict[str, Any]]:
    """What each page of the report shows."""
    page.console_errors()
    page.open(address)
    page.wait(IS_READ, 20)
    names = page.run(
        "return [...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))"
    )
    assert names
    found = {}
    for name in names:
        page.run(f"location.hash = {name!r}")
        page.wait(
            f"document.querySelector('nav a[aria-current]').getAttribute('href') === {name!r}"
        )
        page.wait(IS_READ, 20)
        page.run(
            "return new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
        )
        found[name] = page.run(SHOWN)
    return found


def check(page: chromium.Page, shown: dict[str, dict[str, Any]]) -> None:
    assert page.console_errors() == []
    for name, what in shown.items():
        assert what["alerts"] == [], name
        assert what["foreign"] == [], name
        assert what["text"].strip(), name
        assert not what["wide"], name


@pytest.mark.parametrize("name", [*MAKERS, *FOREIGN])
def test_it_opens_and_every_page_says_something(
    name: str, page: chromium.Page, report: Any, tmp_path: Path
) -> None:
    shown = visit(page, report(name))

    page.screenshot(tmp_path / "page.png")
    check(page, shown)


def test_hostile_names_are_text(page: chromium.Page, report: Any) -> None:
    shown = visit(page, report("hostile_names"))

    for name in ("</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>"):
        assert name in HOSTILE
        assert name in shown["#tables"]["text"] + shown["#overview"]["text"]
    assert page.run("return document.querySelectorAll('#page script, #page img').length") == 0


def test_what_was_not_recorded_is_said(page: chromium.Page, report: Any) -> None:
    assert "killed" in visit(page, report("unfinished"))["#overview"]["text"]


def test_a_run_that_was_thinned_says_so_on_every_page(page: chromium.Page, report: Any) -> None:
    visit(page, report("thinned"))

    assert page.run("return document.querySelector('[role=note]').innerText") == (
        "The run was long: 16 of its 40 spans of 8 of 8 steps were kept, each with its weight: for how "
        "many it stands."
    )


def test_an_old_browser_gets_one_sentence(page: chromium.Page, report: Any, tmp_path: Path) -> None:
    """One without `DecompressionStream`: as if it were not there."""
    report("one_span")
    text = (tmp_path / "page.html").read_text()
    holder = '<iframe id="frame"></iframe>'
    (tmp_path / "old.html").write_text(holder)
    page.open((tmp_path / "old.html").as_uri())
    said = page.run(
        """const frame = document.querySelector('#frame'), made = frame.contentDocument;
        delete frame.contentWindow.DecompressionStream;
        const page = made.createElement('div');
        page.id = 'page';
        made.body.append(page);
        const script = made.createElement('script');
        script.textContent = args[0];
        made.body.append(script);
        return page.innerText;""",
        text.rpartition("<script>")[2].rpartition("</script>")[0],
    )
    assert "Chrome or Edge 103, Firefox 113, Safari 16.4" in said
