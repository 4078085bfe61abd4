"""Logs with lines of oneDNN's and MKL's verbose modes, of every version, as spans.

    [anything]marker,[v1,][time,][component,]operation[:what],payload,milliseconds

The marker is mkldnn_verbose, dnnl_verbose or onednn_verbose and may stand anywhere in a line, since
other output shares the file. Operations with a duration are `exec`, `create` and, of graphs,
`compile`; `info` describes library and machine; the rest are messages. Lines are taken apart column
by column: `_pieces` finds markers and commas in a chunk of the file, and each distinct text becomes
an object once.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from layerscope.model.errors import ReadError
from layerscope.sources import mkl_verbose, verbose_spans
from layerscope.sources.imported import Imported
from layerscope.sources.verbose_spans import Calls

MEANING = "a log of oneDNN's or MKL's verbose mode"
CHUNK_BYTES = 1 << 21
# A line without an end is looked at in pieces of this size.
_MOST_LINE_BYTES = 1 << 26
_GZIP = b"\x1f\x8b"
_MARKER = re.compile(rb"(?:mkldnn|dnnl|onednn)_verbose,|MKL_VERBOSE ")
_WORD = 8
_VERBOSE = int.from_bytes(b"_verbose", "little")
_LAST_OF_VERBOSE = ord("e")
# Names before `_verbose`, longest first: `mkldnn` and `onednn` end like `dnnl` and each other, and
# not.
_LIBRARIES = (b"mkldnn", b"onednn", b"dnnl")
_OLD = 0  # mkldnn: 1.0 and before, whose texts have fewer columns
_COMPONENTS = (b"primitive", b"graph", b"ukernel", b"common")
_GRAPH = _COMPONENTS.index(b"graph")
_EXECUTING, _CREATING = ("exec",), ("create", "create_nested", "compile")
# What is told of a creation or an execution without a duration, and what is no call at all.
_MESSAGES = re.compile(
    r"(?:create|create_nested|exec|compile):(?:check|dispatch|start|external)|error|warn(?:ing)?|"
    r"debuginfo|jit_perf|jit_dump|stack"
)
_INFO, _MESSAGE, _UNKNOWN = 100, 101, 102
# Columns of a text without its time: with an engine and attributes, of 1.0 without attributes,
# before it without both.
_COLUMNS, _COLUMNS_1_0, _COLUMNS_0 = 8, 7, 6
_ENGINE = re.compile(rb"(?:cpu|gpu|any)(?:2(?:cpu|gpu))?(?::[0-9]+)?,")
# oneDNN 2.7 writes its `gemm_api` without the auxiliary column; a later line that was cut has no
# whole shapes.
_GEMM_2_7 = re.compile(rb"cpu,gemm_api,(?:[^,]*,){4}[0-9]+x[0-9]+:[0-9]+x[0-9]+")
_TIME = re.compile(rb"[0-9]{1,12}(?:\.[0-9]{0,12})?(?:e[+-]?[0-9]{1,2})?")
_TIME_AND_JUNK = re.compile(
    rb"([0-9]{1,12}(?:\.[0-9]{0,12})?(?:e[+-]?[0-9]{1,2})?)[\s\x1b].*", re.DOTALL
)
_COMMA, _NEWLINE, _RETURN, _LETTER_V = (ord(character) for character in ",\n\rv")


def recognises(head: bytes) -> bool:
    """Whether a file that begins so (packed or not) is such a log."""
    return _MARKER.search(head) is not None


def read(path: Path) -> Imported:
    """The spans of the log `path`, which may be packed with gzip. ReadError when it cannot be
    read.
    """
    return verbose_spans.placed(*read_calls(path))


def read_calls(path: Path) -> tuple[Calls, int, str]:
    """The calls in the log `path`, how many lines with a marker could not be understood, and the
    first of those.
    """
    lines = _Lines()
    with _opened(path) as file:
        for chunk, position in _chunks(path, file):
            lines.add(chunk, position)
    return lines.calls, lines.rejected, lines.example


class _Lines(Struct):
    """What was read so far: the calls, and how many lines with a marker could not be understood,
    with the first.
    """

    calls: Calls = field(default_factory=Calls)
    rejected: int = 0
    example: str = ""

    def add(self, chunk: bytes, position: int) -> None:
        """Take in whole lines; `position` is where in the file they begin."""
        if b"M" in chunk and b"MKL_VERBOSE " in chunk:  # one character is found much quicker
            self._reject(mkl_verbose.add(chunk, position, self.calls))
        pieces = _pieces(chunk)
        if pieces is not None:
            self._add(pieces, position)

    def _add(self, pieces: _Pieces, position: int) -> None:
        operations = _operations(pieces)
        kind = operations.kind[operations.operation]
        cache = operations.cache[operations.operation]
        graph = operations.is_graph[operations.operation]
        self._note(pieces, operations, np.flatnonzero(kind == _INFO))
        call = np.flatnonzero(kind < _INFO)
        start = operations.payload[call]
        last, stop = pieces.last_comma[call], pieces.stop[call]
        has_time = last > start
        time_start = np.where(has_time, last + 1, stop)
        text_stop = np.where(has_time, last, start)
        dur_ms, readable = _milliseconds(pieces, time_start, stop)
        texts = pieces.encoded(start, text_stop)
        known = texts.dictionary.to_pylist()
        text = texts.indices.to_numpy()
        columns_of_text = np.array([_columns(one) for one in known], np.int8)
        columns = columns_of_text[text]
        least = np.where(pieces.library[call] == _OLD, _COLUMNS_0, _COLUMNS)
        is_short = dur_ms < verbose_spans.LONGEST_NS / 1e6
        good = has_time & readable & is_short & (columns >= least)
        self._reject_rows(pieces, call[~good])
        self._reject_rows(pieces, np.flatnonzero(kind == _UNKNOWN))
        rows = call[good]
        text_codes = self.calls.text_codes(known, "oneDNN")
        dur_ns = np.rint(dur_ms[good] * 1e6)
        self.calls.add(
            position=position + pieces.start[rows],
            kind=kind[rows],
            cache=cache[rows],
            is_graph=graph[rows],
            start_ns=operations.at_ns[rows],
            dur_ns=dur_ns.astype(np.int64),
            thread=np.zeros(len(rows), np.int32),
            text=text_codes[text[good]],
            process=self._processes(pieces, rows),
        )

    def _processes(self, pieces: _Pieces, rows: np.ndarray) -> np.ndarray:
        """The process of each record, by what stands before its marker."""
        line, marker = pieces.line[rows], pieces.start[rows]
        labelled = np.flatnonzero(marker > line)
        process = np.zeros(len(rows), np.int32)
        if len(labelled) < len(rows):
            process[:] = self.calls.process(b"")
        if len(labelled):
            prefixes = pieces.encoded(line[labelled], marker[labelled])
            distinct = prefixes.dictionary.to_pylist()
            numbers = [self.calls.process(prefix) for prefix in distinct]
            codes = np.array(numbers, np.int32)
            process[labelled] = codes[prefixes.indices.to_numpy()]
        return process

    def _note(self, pieces: _Pieces, operations: _Operations, rows: np.ndarray) -> None:
        """What `info` lines say."""
        if not len(rows):
            return
        start = operations.payload[rows]
        stop = np.maximum(pieces.stop[rows], start)
        sentences = pieces.encoded(start, stop)
        distinct = sentences.dictionary.to_pylist()
        counts = np.bincount(sentences.indices.to_numpy(), minlength=len(distinct))
        for sentence, count in zip(distinct, counts.tolist(), strict=True):
            text = sentence.decode("utf-8", "replace")
            self.calls.note(text, count)

    def _reject(self, lines: list[str]) -> None:
        """Count lines that cannot be read, and keep the first."""
        self.rejected += len(lines)
        if lines and not self.example:
            self.example = lines[0]

    def _reject_rows(self, pieces: _Pieces, rows: np.ndarray) -> None:
        self.rejected += len(rows)
        if len(rows) and not self.example:
            first = int(rows[0])
            self.example = pieces.text(first)


# -- pieces of a chunk -----------------------------------------------------------------------------


class _Pieces(Struct, frozen=True):
    """The records of a chunk, by place in it.

    `commas`: of all of it, and its end. `line`, `start`: of the line and of the marker. `first`:
    index into `commas` of the marker's comma. `stop`: end of the record. `last_comma`: the last one
    before `stop`. `library`: index into _LIBRARIES.
    """

    content: bytes
    commas: np.ndarray
    line: np.ndarray
    start: np.ndarray
    first: np.ndarray
    stop: np.ndarray
    last_comma: np.ndarray
    library: np.ndarray

    def field(self, rows: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Start and stop of the field `number` of these records; 0 is the first behind the
        marker.
        """
        # Behind its last comma a record has one more field, then empty ones.
        last = len(self.commas) - 1
        comma = self.first[rows] + number
        before = np.minimum(comma, last)
        after = np.minimum(comma + 1, last)
        record_stop = self.stop[rows]
        begin = np.minimum(self.commas[before] + 1, record_stop)
        end = np.minimum(self.commas[after], record_stop)
        return begin, np.maximum(end, begin)

    def encoded(self, start: np.ndarray, stop: np.ndarray) -> pa.DictionaryArray:
        """What stands between these places, which ascend and do not overlap, each distinct text
        once.
        """
        return self.taken(start, stop).dictionary_encode()

    def taken(self, start: np.ndarray, stop: np.ndarray) -> pa.BinaryArray:
        """What stands between these places, which ascend and do not overlap."""
        offsets = np.column_stack([start, stop]).astype(np.int32).ravel()
        if not len(offsets):
            return pa.array([], pa.binary())
        count = len(offsets) - 1
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.content)]
        all_ = pa.BinaryArray.from_buffers(pa.binary(), count, buffers)
        # Every second element is what lies between two texts.
        places = np.arange(0, count, 2, dtype=np.int32)
        return all_.take(pa.array(places))

    def text(self, row: int) -> str:
        """A record as it is."""
        start, stop = self.start[row], self.stop[row]
        record = self.content[start:stop]
        return record.decode("utf-8", "replace")


def _pieces(content: bytes) -> _Pieces | None:
    """The records in `content`; None when there are none."""
    octets = np.frombuffer(content, np.uint8)
    commas = np.flatnonzero(octets == _COMMA).astype(np.int32)
    if len(octets) < _WORD or not len(commas):
        return None
    first, start, library = _markers(content, octets, commas)
    if not len(first):
        return None
    length = len(octets)
    newlines = np.flatnonzero(octets == _NEWLINE)
    at = np.searchsorted(newlines, start)
    line = np.append(newlines + 1, 0)[at - 1]
    stop = np.append(newlines, length)[at]
    # Lines of two processes may run into each other: a record ends where the next begins.
    next_start = np.append(start[1:], length)
    cut = next_start < stop
    stop = np.where(cut, next_start, stop)
    is_cut_before = cut[:-1]
    line[1:][is_cut_before] = start[1:][is_cut_before]
    has_return = octets[stop - 1] == _RETURN
    stop = np.where(has_return, stop - 1, stop)
    # Of each record's commas the last is one before that of the next record's marker, or before
    # those of junk.
    last_comma = commas[np.searchsorted(commas, stop) - 1]
    all_commas = np.append(commas, length)
    return _Pieces(content, all_commas, line, start, first, stop, last_comma, library)


def _markers(
    content: bytes, octets: np.ndarray, commas: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each marker its comma, as a place in `commas`, where it starts, and its library."""
    # Eight bytes at a time from any place on, as a number.
    words = np.ndarray((len(octets) - _WORD + 1,), "<u8", content, strides=(1,))
    first = np.flatnonzero(octets[commas - 1] == _LAST_OF_VERBOSE)
    first = first[commas[first] >= _WORD]
    is_verbose = words[commas[first] - _WORD] == _VERBOSE
    first = first[is_verbose]
    end = commas[first] - _WORD
    before = words[np.maximum(end - _WORD, 0)]
    for row in np.flatnonzero(end < _WORD).tolist():  # the first of the chunk
        beginning = content[: end[row]]
        before[row] = int.from_bytes(beginning.rjust(_WORD, b"\0"), "little")
    library = np.full(len(first), -1, np.int8)
    start = np.zeros(len(first), np.int64)
    for number, name in enumerate(_LIBRARIES):
        shift = np.uint64(8 * (_WORD - len(name)))
        is_name = before >> shift == int.from_bytes(name, "little")
        fits = (library < 0) & is_name
        library[fits] = number
        start[fits] = end[fits] - len(name)
    known = library >= 0
    return first[known], start[known], library[known]


class _Operations(Struct, frozen=True):
    """By record: `operation`, an index into the other tables; where its payload begins; when it
    began, -1: not told.

    By operation: `kind` (0 execute, 1 create, else what it is instead), `cache` and `is_graph`.
    """

    operation: np.ndarray
    payload: np.ndarray
    at_ns: np.ndarray
    kind: np.ndarray
    cache: np.ndarray
    is_graph: np.ndarray


def _operations(pieces: _Pieces) -> _Operations:
    """What each record says before its payload."""
    octets = np.frombuffer(pieces.content, np.uint8)
    last_octet = len(octets) - 1
    rows = np.arange(len(pieces.start))
    number = np.zeros(len(rows), np.int64)
    at_ns = np.full(len(rows), -1, np.int64)

    def skip_time() -> None:
        begin, end = pieces.field(rows, number)
        first = octets[np.minimum(begin, last_octet)]
        digit = first - np.uint8(ord("0"))
        is_time = (digit < 10) & (end - begin >= 10)
        timed = np.flatnonzero(is_time)
        at_ms, good = _milliseconds(pieces, begin[timed], end[timed])
        timed = timed[good]
        # The clock has microseconds; the digits behind them are those of a double.
        at_us = np.rint(at_ms[good] * 1e3).astype(np.int64)
        at_ns[timed] = at_us * 1000
        number[timed] += 1

    begin, end = pieces.field(rows, number)
    starts_with_v = octets[np.minimum(begin, last_octet)] == _LETTER_V
    is_version = starts_with_v & (end - begin < 4)
    number[is_version] += 1
    skip_time()
    begin, end = pieces.field(rows, number)
    component = _component(octets, begin, end)
    number[component >= 0] += 1
    is_graph = component == _GRAPH
    skip_time()
    begin, end = pieces.field(rows, number)
    words = pieces.encoded(begin, end)
    kinds, caches = [], []
    for word in words.dictionary.to_pylist():
        kind, cache = _operation(word.decode("utf-8", "replace"))
        kinds.append(kind)
        caches.append(cache)
    # Each word twice: of a call of the library itself, and of one of its graphs.
    return _Operations(
        words.indices.to_numpy() * 2 + is_graph,
        np.minimum(end + 1, pieces.stop),
        at_ns,
        np.array(kinds, np.uint8).repeat(2),
        np.array(caches, np.uint8).repeat(2),
        np.tile([False, True], len(kinds)),
    )


def _component(octets: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Which of _COMPONENTS each of these fields is, -1: none. First letter, second and length tell
    them apart.
    """
    found = np.full(len(begin), -1, np.int8)
    most = len(octets) - 1
    first = octets[np.minimum(begin, most)]
    second = octets[np.minimum(begin + 1, most)]
    length = end - begin
    for number, name in enumerate(_COMPONENTS):
        has_letters = (first == name[0]) & (second == name[1])
        is_component = has_letters & (length == len(name))
        found[is_component] = number
    return found


def _operation(word: str) -> tuple[int, int]:
    """What a word such as `create:cache_hit` means: kind, and what is known of the cache."""
    operation, _, what = word.rstrip("\r").partition(":")
    if operation == "info":
        return _INFO, verbose_spans.NOT_TOLD
    if _MESSAGES.match(word):
        return _MESSAGE, verbose_spans.NOT_TOLD
    cache = verbose_spans.HIT if what.endswith("hit") else verbose_spans.NOT_TOLD
    cache = verbose_spans.MISS if what.endswith("miss") else cache
    if operation in _EXECUTING:
        return verbose_spans.EXECUTED, cache
    return (verbose_spans.CREATED if operation in _CREATING else _UNKNOWN), cache


def _columns(text: bytes) -> int:
    """How many columns a text has; 0 when no version writes so many with what it begins with."""
    count = text.count(b",") + 1
    if _GEMM_2_7.fullmatch(text):
        return _COLUMNS
    if _ENGINE.match(text):
        return min(count, _COLUMNS) if count >= _COLUMNS_1_0 else 0
    return _COLUMNS_0 if count >= _COLUMNS_0 else 0


def _milliseconds(
    pieces: _Pieces, start: np.ndarray, stop: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers between these places, and which of them are numbers."""
    texts = pieces.taken(start, np.maximum(stop, start))
    good = np.ones(len(texts), np.bool_)
    try:
        # The cast takes `inf`, `nan`, signs and what a cut leaves of an exponent for numbers or
        # fails as a whole.
        found = texts.cast(pa.string()).cast(pa.float64()).to_numpy()
        good = np.isfinite(found) & (found >= 0) & ~np.signbit(found)
    except pa.ArrowInvalid:
        numbers = [_number(text) for text in texts.to_pylist()]
        found = np.array([np.nan if number is None else number for number in numbers], np.float64)
        good = np.isfinite(found)
    limited = np.minimum(found, 1e13)
    return np.where(good, limited, 0), good


def _number(text: bytes) -> float | None:
    """A time, behind which there may be what something else has printed after white space."""
    match = _TIME_AND_JUNK.fullmatch(text)
    if match:
        return float(match[1])
    return float(text) if _TIME.fullmatch(text) else None


# -- the file --------------------------------------------------------------------------------------


def _opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    try:
        with path.open("rb") as file:
            magic = file.read(2)
        if magic == _GZIP:
            return gzip.open(path, "rb")
        return path.open("rb")
    except OSError as error:
        reason = error.strerror or error
        raise ReadError(f"{path} cannot be read: {reason}") from error


def _chunks(path: Path, file: gzip.GzipFile | io.BufferedReader) -> Iterator[tuple[bytes, int]]:
    """Whole lines of the file in pieces, and where each begins."""
    rest, position = b"", 0
    while True:
        fresh = _filled(path, file)
        content = rest + fresh if rest else fresh
        end = len(content)
        if fresh and end < _MOST_LINE_BYTES:
            last_newline = content.rfind(b"\n")
            end = last_newline + 1
        if end:
            yield content[:end], position
        position += end
        rest = content[end:]
        if not fresh:
            return


def _filled(path: Path, file: gzip.GzipFile | io.BufferedReader) -> bytes:
    """The next CHUNK_BYTES of the file; less only at its end. What is packed may be cut or damaged:
    it ends there.
    """
    pieces, left = [], CHUNK_BYTES
    while left > 0:
        try:
            piece = file.read1(left)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            break
        except OSError as error:
            raise ReadError(f"{path} cannot be read: {error.strerror or error}") from error
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
