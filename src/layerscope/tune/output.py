"""Whether a program printed what it prints by default, so that a setting that breaks it is no
winner.

Two runs by default say what differs from run to run. What is compared is text, word by word; a
number with a decimal point may differ by rounding, since another number of threads adds up in
another order; what is measured (a time, a rate, what --metric finds) may be anything.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

# More than this is not looked at: the beginning says whether it is the same program.
MOST_BYTES = 1 << 20
# How far numbers with a decimal point may be apart: training goes its own way after a different
# rounding.
TOLERANCE = 0.02
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")
# A number that one of these stands before or behind is a measurement, and so is one beside a rate
# such as `images/s`.
_MEASURED = re.compile(
    r"time|took|elapsed|speed|rate|throughput|latency|duration|wall|cpu|eta|pid|date|rss|mem(?:ory)?|threads?|"
    r"sec(?:ond)?s?|min(?:ute)?s?|hours?|m?s|[uµn]s|[kmg]i?b|fps|hz|qps|[kmgt]?flops?|.+/.+",
    re.IGNORECASE,
)
_WORDS = re.compile(rf"{_NUMBER.pattern}|[^\W\d]+(?:/[^\W\d]+)?|[^\w\s]", re.UNICODE)
# In place of a word that differs from run to run: any, or any number.
_ANY = None
_ANY_NUMBER = "0?"
_METRIC = "metric"

Words = tuple[str | None, ...]


class Expected(Struct, frozen=True):
    """What the program prints by default: of each line its words, None where anything may stand.
    `is_compared` is False where it prints differently each time. What `metric` matches is no part
    of it.
    """

    lines: tuple[Words, ...]
    is_compared: bool = True
    metric: re.Pattern[str] | None = None

    def difference(self, text: str) -> str:
        """In which way `text` is not that: a clause; empty where it is."""
        if not self.is_compared:
            return ""
        lines = _lines(text, self.metric)
        for number, (wanted, line) in enumerate(zip(self.lines, lines, strict=False), 1):
            words = _WORDS.findall(line)
            if len(words) != len(wanted) or not all(map(_alike, wanted, words)):
                return (
                    f"line {number} of what it printed is {_quoted(line)}, by default it is "
                    f"like {_shown(wanted)}"
                )
        if len(lines) != len(self.lines):
            return f"it printed {_counted(len(lines))}, by default {_counted(len(self.lines))}"
        return ""


def expected(first: str, second: str, metric: re.Pattern[str] | None = None) -> Expected:
    """What two runs by default have in common."""
    one = _words_of_lines(first, metric)
    other = _words_of_lines(second, metric)
    lengths = [len(words) for words in one]
    if lengths != [len(words) for words in other]:
        return Expected((), is_compared=False, metric=metric)
    common = map(_in_common, one, other)
    return Expected(tuple(common), metric=metric)


def _words_of_lines(text: str, metric: re.Pattern[str] | None) -> list[list[str]]:
    found = []
    for line in _lines(text, metric):
        words = _WORDS.findall(line)
        found.append(words)
    return found


def _in_common(words: Sequence[str], others: Sequence[str]) -> Words:
    found: list[str | None] = []
    for place, (word, other) in enumerate(zip(words, others, strict=True)):
        is_number = _is_number(word) and _is_number(other)
        is_same = word == other
        if is_same and not (is_number and _is_measured(words, place)):
            found.append(word)
        else:
            found.append(_ANY_NUMBER if is_number else _ANY)
    return tuple(found)


def _is_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None


def read(path: Path, *, from_end: bool = False) -> str:
    """The beginning of what it printed, or the end; nothing where that cannot be read."""
    try:
        with path.open("rb") as file:
            if from_end:
                file.seek(max(0, path.stat().st_size - MOST_BYTES))
            return file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def tail(path: Path, most_bytes: int = 300) -> str:
    """The end of what it printed, on one line."""
    try:
        with path.open("rb") as file:
            first = path.stat().st_size - most_bytes
            file.seek(max(0, first))
            content = file.read()
    except OSError:
        return ""
    text = content.decode("utf-8", "replace")
    lines = [line.strip() for line in text.split("\n")]
    return " / ".join(filter(None, lines))


def digest(text: str) -> str:
    """A short hash of it."""
    content = text.encode("utf-8", "replace")
    whole = hashlib.sha256(content)
    return whole.hexdigest()[:16]


def measured(text: str, metric: re.Pattern[str]) -> float | None:
    """The number that `metric` finds last: its first group, or all of it. None where it finds none.

    `1,950` is 1950, as most programs mean it, and `0,85` is 0.85.
    """
    found = list(metric.finditer(text))
    if not found:
        return None
    last = found[-1]
    group = last[1] if metric.groups else last[0]
    words = group or ""
    words = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), words)
    words = _DECIMAL_COMMA.sub(".", words)
    number = _NUMBER.search(words)
    if number is None:
        return None
    value = float(number[0])
    return value if math.isfinite(value) else None


def measured_in(paths: Iterable[Path], metric: re.Pattern[str]) -> float | None:
    """The same of the first of these files that has one: of its end, else of its beginning, where
    it is long.
    """
    for path in paths:
        for text in (read(path, from_end=True), read(path)):
            if (value := measured(text, metric)) is not None:
                return value
    return None


def _lines(text: str, metric: re.Pattern[str] | None) -> list[str]:
    if metric is not None:
        text = metric.sub(_METRIC, text)
    # Progress that rewrites its line ends as its last state.
    return (
        [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip("\n").split("\n")]
        if text.strip()
        else []
    )


def _is_measured(words: Sequence[str], place: int) -> bool:
    """Whether a number is one, by the words beside it: `took 3`, `time: 3`, `3 s`."""
    before, after = place - 1, place + 1
    if before > 0 and words[before] in ":=":
        before -= 1
    if after < len(words) and _MEASURED.fullmatch(words[after]):
        return True
    return before >= 0 and _MEASURED.fullmatch(words[before]) is not None


def _alike(wanted: str | None, word: str) -> bool:
    if wanted is _ANY or wanted == word:
        return True
    if not _NUMBER.fullmatch(word):
        return False
    if wanted == _ANY_NUMBER:
        return True
    if not _NUMBER.fullmatch(wanted) or "." not in wanted + word:
        return False
    a, b = float(wanted), float(word)
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b), 1e-6)


def _quoted(line: str) -> str:
    if len(line) > 80:
        line = line[:79] + "…"
    return repr(line)


def _shown(words: Words) -> str:
    texts = []
    for word in words:
        is_free = word in (_ANY, _ANY_NUMBER)
        texts.append("…" if is_free else str(word))
    line = " ".join(texts)
    return _quoted(line)


def _counted(lines: int) -> str:
    if lines == 1:
        return "1 line"
    return f"{lines:,} lines"
