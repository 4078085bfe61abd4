"""Take the pictures of the report in docs/. usage: python docs/screenshot.py RUN.layerscope

Run it after `python3 dev.py demo` with the tool environment's Python, in the repository's root. It
needs Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser import chromium  # noqa: E402
from tests.browser.report_page import open_report  # noqa: E402

SIZE = (1400, 860)
# The picture, and the state of the page that it shows.
PICTURES = {"report.png": "#timeline?step=20"}


def take(recording: Path) -> None:
    """Write the pictures of the report of `recording`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        command = [sys.executable, "-m", "layerscope", "report", str(recording)]
        subprocess.run([*command, "-o", str(file), "-q"], check=True)
        with chromium.page(Path(folder)) as page:
            page.resize(*SIZE)
            page.prefer("light")
            for name, state in PICTURES.items():
                open_report(page, file.as_uri(), state)
                page.run("await new Promise(done => setTimeout(done, 2000))")
                page.screenshot(ROOT / "docs" / name)


if __name__ == "__main__":
    take(Path(sys.argv[1]))
