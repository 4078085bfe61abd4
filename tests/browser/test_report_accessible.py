"""axe-core, the checker of accessibility that browsers' own tools use, finds nothing serious."""

from __future__ import annotations

import pytest

from layerscope.show.report.pages import pages
from tests.browser import chromium
from tests.browser.report_page import open_report, write_report
from tests.browser.trained import trained
from tests.web.node import WEB, npm_with_libraries

CHECK = """
    const found = await axe.run(document, {resultTypes: ["violations"]});
    return found.violations.filter(one => ["serious", "critical"].includes(one.impact)).map(
        one => `${one.id}: ${one.nodes.map(node => node.html.slice(0, 200)).join(" | ")}`);"""


@pytest.fixture(scope="module")
def axe() -> str:
    """The checker's program."""
    npm_with_libraries()
    return (WEB / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(trained(), tmp_path_factory.mktemp("report"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", pages())
def test_nothing_serious_on_any_page(
    page: chromium.Page, address: str, axe: str, name: str, scheme: str
) -> None:
    page.prefer(scheme)
    open_report(page, address, f"#{name}")

    assert page.run(f"{axe};{CHECK}") == []


def test_nothing_serious_in_the_list_of_keys(page: chromium.Page, address: str, axe: str) -> None:
    open_report(page, address)
    page.keys("?")
    page.wait("document.querySelector('dialog[open]')")

    assert page.run(f"{axe};{CHECK}") == []


def test_the_page_is_usable_on_a_phone(page: chromium.Page, address: str) -> None:
    page.resize(500, 900)  # the narrowest window that Chromium makes
    try:
        for name in pages():
            open_report(page, address, f"#{name}")
            assert page.run("return document.documentElement.scrollWidth <= innerWidth + 1"), name
    finally:
        page.resize(1300, 800)
