"""The built page is what its sources make, small enough, with the licences of what is in it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tests.web.node import ROOT, WEB, run_npm

OUT = ROOT / "src" / "layerscope" / "show" / "report"
SETTINGS = ("build.mjs", "package.json", "package-lock.json", "tsconfig.json")
MOST_BYTES = 250_000


def hash_of_sources() -> str:
    """As web/build.mjs makes it."""
    files = [*(WEB / name for name in SETTINGS)]
    files += [file for file in (WEB / "src").rglob("*") if file.is_file()]
    found = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.relative_to(WEB).as_posix()):
        name = file.relative_to(WEB).as_posix()
        found.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()


def test_the_page_was_built_from_these_sources() -> None:
    built = re.match(r"/\* sources ([0-9a-f]{64}) \*/", (OUT / "page.js").read_text())

    assert built, "page.js does not say what it was built from"
    assert built[1] == hash_of_sources(), "web/ was changed and not built: python3 dev.py web"


def test_the_page_is_small() -> None:
    assert sum((OUT / name).stat().st_size for name in ("page.js", "page.css")) <= MOST_BYTES


def test_dark_colours_stand_in_one_place_and_hold_for_both_ways_to_them() -> None:
    sheets = {file.name: file.read_text() for file in (WEB / "src").rglob("*.css")}
    del sheets["palette.css"], sheets["panel.css"]  # show/flame/palette.py writes these
    assert not [name for name, sheet in sheets.items() if "prefers-color-scheme" in sheet]
    named = re.findall(
        r"(--[\w-]+):",
        "".join(re.findall(r"^@dark \{(.*?)^\}", "".join(sheets.values()), re.S | re.M)),
    )
    assert len(named) == len(set(named)) > 20

    built = (OUT / "page.css").read_text()
    system, chosen = (
        "".join(re.findall(rf"@media {media}\{{:root{selector}\{{(.*?)\}}", built))
        for media, selector in (
            (r"screen and \(prefers-color-scheme: ?dark\)", r":not\(\[data-theme=\"?light\"?\]\)"),
            ("screen", r"\[data-theme=\"?dark\"?\]"),
        )
    )
    assert system == chosen
    assert set(re.findall(r"(--[\w-]+):", chosen)) == set(named)


def test_licences_of_what_is_bundled_lie_beside_it() -> None:
    said = (OUT / "page.licenses.txt").read_text()

    for name in ("preact", "@preact/signals"):
        assert re.search(rf"^{re.escape(name)} \d", said, re.MULTILINE)
    assert said.count("MIT License") >= 2


def test_nothing_in_the_page_asks_the_network() -> None:
    script = (OUT / "page.js").read_text() + (OUT / "page.css").read_text()

    addresses = set(re.findall(r"https?://[^\"'`\s)]+", script))
    # Names of XML vocabularies, which nobody fetches.
    assert {
        address for address in addresses if not address.startswith("http://www.w3.org/")
    } == set()


def test_the_types_fit_together(npm: str) -> None:
    done = run_npm(npm, "run", "check")
    assert done.returncode == 0, done.stdout


def test_the_same_sources_give_the_same_bytes(npm: str, tmp_path: Path) -> None:
    done = run_npm(npm, "run", "build", "--", str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("page.js", "page.css", "page.licenses.txt"):
        assert (tmp_path / name).read_bytes() == (OUT / name).read_bytes(), name
