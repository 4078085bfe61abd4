"""Recordings and other programs' files, damaged at random places: every command ends with a table
or a sentence.

What is checked of each: no exception, a known exit status, no traceback; and where commands still
answer, operators that are missing are counted in `gaps` or said in `problems`.
"""

from __future__ import annotations

import contextlib
import io
import random
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.model.errors import LayerscopeError
from layerscope.recording.reader import Reader

PATIENCE_S = 60
# Exit statuses that commands have: done, found something, failed with a sentence, wrong words.
KNOWN = {0, 1, 2, 125}
ON_RECORDINGS: tuple[tuple[str, ...], ...] = (
    ("table", "{}", "operators"), ("table", "{}", "steps"), ("table", "{}", "functions"), ("table", "{}", "primitives"),
    ("query", "{}", "SELECT name, count(*), sum(dur_ns) FROM spans GROUP BY 1"), ("flame", "{}", "-o", "{}.svg"),
    ("export", "{}", "-o", "{}.json.gz"), ("export", "{}", "-o", "{}.fxt"), ("diff", "{}", "{}"),
    ("pack", "{}", "-o", "{}.zip"), ("platform", "{}"),
)  # fmt: skip
ON_FILES: tuple[tuple[str, ...], ...] = (
    ("table", "{}", "operators"), ("table", "{}", "functions"), ("table", "{}", "primitives"),
    ("flame", "{}", "-o", "{}.svg"), ("query", "{}", "SELECT count(*) FROM spans"),
)  # fmt: skip


def _flip(content: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 1, 8))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def _cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def _clear(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content))
    content[start : start + 512] = bytes(len(content[start : start + 512]))


def _repeat(content: bytearray, chance: random.Random) -> None:
    start, size = chance.randrange(len(content)), chance.randrange(1, 4096)
    content[start:start] = content[start : start + size]


def _drop(content: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(content))
    del content[start : start + chance.randrange(1, 4096)]


def _number(content: bytearray, chance: random.Random) -> None:
    """Another number in place of a digit, or of eight bytes."""
    at = chance.randrange(len(content))
    found = next((i for i in range(at, len(content)) if chr(content[i]).isdigit()), None)
    word = chance.choice((b"-1", b"9" * 25, b"1e400", b"null", b'"x"', b"[]", b"{}"))
    if found is None:
        content[at : at + 8] = chance.choice((bytes(8), b"\xff" * 8, b"\x7f" * 8))
    else:
        content[found : found + 1] = word


def _random(content: bytearray, chance: random.Random) -> None:
    content[:] = chance.randbytes(min(len(content), 4096))


MUTATIONS: Sequence[Callable[[bytearray, random.Random], None]] = (
    _flip, _flip, _flip, _cut, _clear, _repeat, _drop, _number, _number, _random,
)  # fmt: skip


def mutate_file(file: Path, chance: random.Random) -> str:
    """Damage one file; what was done."""
    content = bytearray(file.read_bytes())
    if not content:
        content = bytearray(b"0")
    mutation = chance.choice(MUTATIONS)
    mutation(content, chance)
    file.write_bytes(content)
    return f"{mutation.__name__} {file.name}"


def mutate_folder(folder: Path, chance: random.Random) -> str:
    """Damage one file of a recording, or remove it, or put another one in its place."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = chance.choice(files)
    about = str(file.relative_to(folder))
    kind = chance.random()
    if kind < 0.08:
        file.unlink()
        return f"without {about}"
    if kind < 0.14:
        other = chance.choice(files)
        file.write_bytes(other.read_bytes())
        return f"{about} is {other.relative_to(folder)}"
    return f"{mutate_file(file, chance)} ({about})"


def run(words: Sequence[str]) -> str:
    """Run one command in this process; what is wrong with how it ended, empty if nothing is."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with bounded(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main(list(words))
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        return f"{' '.join(words)}: {traceback.format_exc()}"
    said = err.getvalue()
    if status not in KNOWN or "Traceback" in said or "internal" in said:
        return f"{' '.join(words)}: status {status}: {said[-2000:]}"
    if status and not said.strip() and not out.getvalue().strip():
        return f"{' '.join(words)}: status {status} without a word"
    return ""


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"no end after {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def made_and_said(recording: Path) -> tuple[int, int] | None:
    """Spans of a recording and the rows that say what is missing; None where it is refused."""
    try:
        with Reader(open_run(recording)) as reader:
            asked = "SELECT (SELECT count(*) FROM spans), (SELECT count(*) FROM gaps) + (SELECT count(*) FROM problems)"
            spans, said = reader.query(asked).to_pydict().values()
    except (LayerscopeError, OSError):
        return None
    return int(spans[0]), int(said[0])
