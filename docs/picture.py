"""Draw the summary of a recording as the picture of the README. usage: python docs/picture.py
RUN.layerscope

Run it after `python3 dev.py demo`, with the tool environment's Python: the text is what the run
printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 124


def draw(recording: Path, into: Path) -> None:
    """Write the summary of `recording` as an SVG of a terminal to `into`."""
    console = Console(record=True, width=WIDTH, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text("$ layerscope run examples/mnist_cnn.py", style="bold"))
    console.print(Text((recording / "summary.txt").read_text().rstrip()))
    into.write_text(console.export_svg(title="layerscope", clear=True))


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(__file__).parent / "summary.svg")
