"""What to say when a question to a recording has no answer. Imports nothing heavy: `--help` passes
here.
"""

from __future__ import annotations

import re
import tempfile

from layerscope.model.errors import ReadError


def unreadable(recording: object, error: Exception) -> ReadError:
    """What to say about a question of ours that DuckDB could not answer: too little room, or
    damaged tables.
    """
    reason = first_line(error)
    if type(error).__name__ == "OutOfMemoryException" or "No space left" in reason:
        return ReadError(
            f"{recording}: the question needs more memory, or room in {tempfile.gettempdir()}, "
            "than there is. Close other programs, or set TMPDIR to a folder with room"
        )
    return ReadError(
        f"{recording} is damaged: {reason}. If it has raw files, remove tables.json in it and its "
        "tables are made from them again; else copy the recording again from where it was made"
    )


def first_line(error: Exception) -> str:
    """DuckDB's own words, without its error class and without the picture of the query."""
    words = str(error).strip() or type(error).__name__
    first, *_ = words.splitlines()
    sentence = re.sub(r"^[A-Z][A-Za-z -]* Error: ", "", first)
    return sentence.rstrip("!. ")
