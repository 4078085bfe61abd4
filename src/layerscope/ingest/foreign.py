"""A file of another program as a recording in the user's cache, so that every command takes it like
one.

The folder is keyed by where the file lies, its size and when it was changed: it is made again when
one of them changes. The file itself is only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from layerscope import __version__, sources
from layerscope.host import cgroup
from layerscope.ingest.foreign_stacks import write_stacks
from layerscope.ingest.heap import give_back
from layerscope.ingest.limits import IngestLimits, limits_of
from layerscope.ingest.parents import Keys, TrackNesting
from layerscope.ingest.parts import Parts, by_process
from layerscope.ingest.small_tables import SmallTables
from layerscope.ingest.spans import LAYERS, Columns
from layerscope.ingest.string_table import StringTable
from layerscope.ingest.totals import SpanTotals, keys_of
from layerscope.model import cache
from layerscope.model.errors import ReadError
from layerscope.model.layers import KINDS, LAYER_OF_KIND, SPAN_LAYERS
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.model.secrets import mask
from layerscope.rawfile.raw_file import FULL
from layerscope.recording.complete import COMPLETE
from layerscope.recording.packed import complete_by_rename
from layerscope.recording.run import SUFFIX, Run, RunInfo
from layerscope.recording.writer import write_columns, write_rows
from layerscope.sources.imported import Imported

# What a format may look at to recognise a file: other output may come first.
_HEAD_BYTES = 1 << 20
_NO_LINKS: Columns = {
    "from_span": np.zeros(0, np.int64),
    "to_span": np.zeros(0, np.int64),
    "kind_code": np.zeros(0, np.int8),
}


def imported(path: Path) -> Path:
    """The folder of the recording made of the file `path`. ReadError when no format of ours is
    known of it.
    """
    try:
        about = path.stat()
        head = _head(path)
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror or error}") from error
    known = sources.known()
    format_ = next((one for one in known if one.recognises(head)), None)
    if format_ is None:
        readable = ", ".join(one.MEANING for one in known)
        raise ReadError(f"{path} is no recording, nor a file that can be read as one: {readable}")
    words = (
        os.fsencode(path.resolve()),
        about.st_size,
        about.st_mtime_ns,
        SCHEMA_VERSION,
        __version__,
    )
    key = hashlib.blake2b(repr(words).encode(), digest_size=16).hexdigest()
    name = f"{path.name}{SUFFIX}"
    why: OSError = PermissionError(13, "no place can be written")
    for base in cache.caches(cache.PACKED):
        folder = base / key
        try:
            cache.make(base)
            if not (folder / name / COMPLETE).exists():
                _make(path, format_, base, folder, name)
            cache.remember(folder, path)
        except OSError as error:
            why = error
            continue
        return folder / name
    raise ReadError(
        f"{path} cannot be imported: {why.strerror or why}. Free some space, or set XDG_CACHE_HOME"
    )


def _head(path: Path) -> bytes:
    """How a file begins, unpacked."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(b"\x1f\x8b"):
        unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        with contextlib.suppress(zlib.error):
            return unpacking.decompress(head, _HEAD_BYTES)
    return head


def _make(path: Path, format_: sources.SourceFormat, base: Path, folder: Path, name: str) -> None:
    """Make the recording of `path` as `folder`/`name`, complete by rename."""
    content = format_.read(path)
    with complete_by_rename(base, folder) as draft:
        run = Run.create(draft / name, _info(path, content, folder.name))
        write_tables(run, content)
    del content
    give_back()


def _info(path: Path, content: Imported, key: str) -> RunInfo:
    began_s = path.stat().st_mtime if content.realtime_ns is None else content.realtime_ns / 1e9
    return RunInfo(
        schema=SCHEMA_VERSION,
        layerscope=__version__,
        run_id=key,
        state="finished",
        command=mask(content.command) or [path.name],
        cwd=str(path.absolute().parent),
        environment=content.environment,
        host={"name": content.host} if content.host else {},
        started_utc=datetime.fromtimestamp(began_s, UTC).isoformat(timespec="seconds"),
        start_ns=_extent(content)[0],
        versions=content.versions,
        imported_from=path.name,
    )


def write_tables(run: Run, content: Imported) -> None:
    """Write every table of `run`, whose folder is there, from the spans and samples of
    `content`.
    """
    from layerscope.ingest.open import mark_complete

    folder, texts, totals = run.path, StringTable(), SpanTotals()
    for text in content.args_texts:
        texts.arguments(text)
    limits = limits_of({FULL: True}, cgroup.facts().memory_most_bytes)
    parts = Parts(folder, texts, totals, limits)
    process_of = np.array([track.process for track in content.tracks], np.int32)
    parts.process_of = process_of
    _add_spans(content, texts, totals, parts, limits)
    parts.finish()
    rows = {"spans": parts.rows, "links": parts.links, "primitives": parts.primitives}
    rows["steps"] = write_rows(folder, "steps", [])
    rows["totals"] = write_columns(folder, "totals", _named(totals, texts))
    rows["histograms"] = write_rows(folder, "histograms", [])
    for table in ("frames", "stacks", "samples") if content.stacks is None else ():
        rows[table] = write_rows(folder, table, [])
    if content.stacks is not None:
        rows |= write_stacks(folder, content.stacks)
    rows |= _small(content, texts).write(folder)
    mark_complete(folder, run.raw, rows)


def _add_spans(
    content: Imported, texts: StringTable, totals: SpanTotals, parts: Parts, limits: IngestLimits
) -> None:
    """Give the spans parents and self times, and add them to sums and parts."""
    keys = Keys()
    names = np.array([texts.name(name) for name in content.names], np.int32)
    order = np.lexsort((content.depth, content.start_ns, content.track))
    for piece in _pieces(content.depth[order], limits.epoch_spans):
        rows = order[piece]
        start_ns, depth, kind = content.start_ns[rows], content.depth[rows], content.kind[rows]
        self_ns = content.dur_ns[rows].copy()
        parent, span = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64)
        for track in np.unique(content.track[rows]).tolist():
            mine = np.flatnonzero(content.track[rows] == track)
            nested = TrackNesting(keys, len(SPAN_LAYERS)).add(
                start_ns[mine], start_ns[mine] + self_ns[mine], depth[mine], LAYERS[kind[mine]]
            )
            span[mine], parent[mine], self_ns[mine] = nested.key, nested.parent, nested.self_ns
        args = content.args[rows].astype(np.int64)
        columns: Columns = {
            "span": span,
            "track": content.track[rows],
            "parent": parent,
            "depth": depth,
            "start_ns": start_ns,
            "dur_ns": content.dur_ns[rows],
            "self_ns": self_ns,
            "kind_code": kind.astype(np.int32),
            "name_code": names[content.name[rows]],
            "args": args,
            "unfinished": np.zeros(len(rows), np.bool_),
            **{
                name: np.full(len(rows), -1, np.int32)
                for name in ("line_code", "module", "seq", "step")
            },
            "phase": np.full(len(rows), -1, np.int8),
        }
        key = keys_of(
            columns["kind_code"],
            columns["name_code"],
            columns["module"],
            np.zeros(len(rows), np.bool_),
        )
        for process, mine in by_process(parts.process_of[columns["track"]]):
            totals.add(process, key[mine], columns["dur_ns"][mine], self_ns[mine])
        parts.add(columns, dict(_NO_LINKS), {})


def _pieces(depth: np.ndarray, length: int) -> Iterator[slice]:
    """Rows of about this number, of spans in order with these depths: what lies in one stays with
    it.
    """
    outermost = np.flatnonzero(depth == 0)
    first = 0
    while first < len(depth):
        place = int(np.searchsorted(outermost, first + length))
        behind = int(outermost[place]) if place < len(outermost) else len(depth)
        yield slice(first, behind)
        first = behind


def _named(totals: SpanTotals, texts: StringTable) -> dict[str, Any]:
    """The rows of the table `totals`. No step is known of a file of others."""
    columns: dict[str, Any] = totals.columns()
    kind, name = columns.pop("kind_code"), columns.pop("name_code")
    columns["layer"] = np.array(SPAN_LAYERS, object)[np.array(LAYER_OF_KIND)[kind]]
    columns["kind"] = np.array(KINDS, object)[kind]
    columns["name"] = np.array([*texts.names, ""], object)[name]
    columns["module"] = pa.nulls(len(kind), pa.int32())
    del columns["in_step"]
    return columns | {"step_class": np.full(len(kind), "outside", object)}


def _small(content: Imported, texts: StringTable) -> SmallTables:
    """The tables that are not made of spans."""
    small = SmallTables(texts, len(content.tracks))
    start_ns, end_ns = _extent(content)
    for number, process in enumerate(content.processes):
        small.rows["processes"].append(
            {
                "process": number,
                "pid": process.pid,
                "ppid": process.ppid,
                "rank": process.rank,
                "host": content.host,
                "argv": process.name,
                "start_ns": process.start_ns or start_ns,
                "end_ns": end_ns if process.end_ns is None else process.end_ns,
            }
        )
    for number, track in enumerate(content.tracks):
        small.rows["tracks"].append(
            {
                "track": number,
                "process": track.process,
                "kind": "thread",
                "tid": track.tid,
                "name": track.name,
                "start_ns": track.start_ns or start_ns,
                "end_ns": track.end_ns,
            }
        )
    for at_ns, count in content.lost:
        small.rows["gaps"].append(
            {"start_ns": at_ns, "end_ns": at_ns, "lost": count, "reason": "ring_full"}
        )
    if content.realtime_ns is not None:
        small.rows["clock_readings"].append(
            {
                "clock": "realtime",
                "its": content.realtime_ns,
                "run_ns": content.realtime_at_ns,
                "error_ns": 1_000,
            }
        )
    small.add_texts()
    small.rows["problems"].extend(asdict(problem) for problem in content.problems)
    return small


def _extent(content: Imported) -> tuple[int, int]:
    """When the first of all spans and samples began, or a thread before it, and when the last of
    them ended.
    """
    start_ns, end_ns = content.start_ns, content.start_ns + content.dur_ns
    if content.stacks is not None:
        start_ns = content.stacks.samples["at_ns"]
        end_ns = start_ns + content.stacks.samples["weight_ns"] * content.stacks.samples["exact"]
    if not len(start_ns):
        return 0, 0
    # Threads that were there before the file began have the time 0.
    told = [one.start_ns for one in content.processes] + [one.start_ns for one in content.tracks]
    return min([int(start_ns.min()), *filter(None, told)]), int(end_ns.max())
