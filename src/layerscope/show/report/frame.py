"""The report inside another page: a frame that a notebook shows, with everything in it.

The frame is a sandbox: its scripts reach nothing of the notebook, and the notebook's can do nothing
with its policy.
"""

from __future__ import annotations

import io
from html import escape

from layerscope.recording.reader import Reader
from layerscope.show.report import document
from layerscope.show.report.contents import ReportContents

# A notebook keeps it in its file.
MOST_BYTES = 5_000_000
# No recording of a program had fewer: with more spans the page need not be made to know its size.
_LEAST_BYTES_PER_SPAN = 3
_FRAME = (
    '<iframe title="{title}" sandbox="allow-scripts" style="width: 100%; height: 720px; '
    'border: 1px solid #8886" srcdoc="{page}"></iframe>'
)


def framed(reader: Reader, most_bytes: int = MOST_BYTES) -> str | None:
    """The report of a recording as an element of HTML; None where it would be too large."""
    if reader.rows("spans") * _LEAST_BYTES_PER_SPAN > most_bytes:
        return None
    name = reader.run.name
    contents = ReportContents(reader)
    stream = io.BytesIO()
    document.write(name, contents.head(), contents.blocks(), stream)
    page = stream.getvalue().decode("utf-8")
    frame = _FRAME.format(title=escape(f"layerscope: {name}"), page=escape(page))
    return frame if len(frame.encode("utf-8")) <= most_bytes else None
