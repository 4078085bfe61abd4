"""Puts the tables of several ranks together: what is unique over all of them, and the few tables
that they have in common.

No row of a rank is copied: `recording.rank_keys` says how its tables are read. Written are the
modules (the same path and class in every rank have one key), the problems (each once) and, of
every rank, the numbers that are added to its keys and times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from layerscope.ingest.ranks import problems_of_tables
from layerscope.ingest.string_table import StringTable
from layerscope.model.errors import ReadError
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.rawfile import host_clocks
from layerscope.rawfile.json_files import ProblemFields
from layerscope.rawfile.raw_file import has_raw_files
from layerscope.recording.complete import COMPLETE
from layerscope.recording.rank_keys import (
    COUNTED_KEYS,
    JoinedState,
    RankKeys,
    read_joined,
    write_joined,
)
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.recording.writer import write_rows

# Keys of 32 bits.
_MOST_KEYS = 2**31 - 1
# The rule of steps that count only where nobody has steps of a stronger one.
_WEAKEST = "request"
Problems = Sequence[dict[str, str]]


def made_of(parts: Mapping[int, Run], known: Problems) -> str:
    """What tells this join from another one: the tables of the ranks, and what is said of
    others.
    """
    tables = {
        rank: _digest((part.tables_path / COMPLETE).read_bytes()) for rank, part in parts.items()
    }
    return _digest(msgspec.json.encode([SCHEMA_VERSION, tables, known]))


def _digest(content: bytes) -> str:
    digest = hashlib.blake2b(content, digest_size=16)
    return digest.hexdigest()


def join(
    folder: Path, parts: Mapping[int, Run], known: Problems, before: JoinedState | None
) -> dict[str, int]:
    """Write into `folder` what `parts`, ranks with their tables, have together; the rows of its
    tables.

    `before`: an earlier join, which tells the clocks of hosts whose raw files are gone.
    """
    shifts_ns, clock_problems = _clocks(parts, before)
    readers = {rank: Reader(part) for rank, part in parts.items()}
    counting = _with_steps(readers)
    texts = StringTable()
    keys: list[RankKeys] = []
    first = dict.fromkeys(COUNTED_KEYS, 0)
    for rank, reader in readers.items():
        modules = _modules(reader, texts)
        is_same = modules == list(range(len(modules)))
        its = None if is_same else modules
        keys.append(RankKeys(rank, shifts_ns.get(rank, 0), dict(first), its, rank in counting))
        for key, table in COUNTED_KEYS.items():
            first[key] += _next_key(reader, table, key)
            if first[key] > _MOST_KEYS:
                raise ReadError(f"the ranks have more {table} together than one recording can hold")
    found = {str(rank): _problems(reader) for rank, reader in readers.items()}
    problems = [*known, *clock_problems, *problems_of_tables(found)]
    rows = {
        "modules": write_rows(folder, "modules", texts.module_rows()),
        "problems": write_rows(folder, "problems", problems),
    }
    write_joined(folder, JoinedState(made_of(parts, known), keys, clock_problems))
    return rows


def _clocks(
    parts: Mapping[int, Run], before: JoinedState | None
) -> tuple[dict[int, int], list[dict[str, str]]]:
    """What puts the times of each rank on the clock of the first one's host, and what is wrong with
    these clocks.
    """
    known = {keys.rank: keys.shift_ns for keys in before.ranks} if before else {}
    is_whole = all(has_raw_files(part.raw) for part in parts.values())
    if before and not is_whole and parts.keys() <= known.keys():
        reference = known[next(iter(parts))] if parts else 0
        return {rank: known[rank] - reference for rank in parts}, before.clock_problems
    if all(part.info.imported_from for part in parts.values()):
        return _shifts_of_traces(parts), []
    shifts_ns, problems = host_clocks.shifts({rank: part.raw for rank, part in parts.items()})
    return shifts_ns, [asdict(problem) for problem in problems]


def _shifts_of_traces(parts: Mapping[int, Run]) -> dict[int, int]:
    """The same for files of other programs, whose times count from their beginning: by what each
    says of CLOCK_REALTIME. One that says nothing begins with the first.
    """
    ahead_ns = {}
    for rank, part in parts.items():
        with Reader(part) as reader:
            readings = reader.arrays("clock_readings", ["clock", "clock_value", "run_ns"])
        if len(readings["run_ns"]):
            ahead_ns[rank] = int(readings["clock_value"][0] - readings["run_ns"][0])
    reference_ns = next(iter(ahead_ns.values()), 0)
    return {rank: ahead_ns.get(rank, reference_ns) - reference_ns for rank in parts}


def _with_steps(readers: Mapping[int, Reader]) -> set[int]:
    """The ranks whose steps count: requests are none where another rank has steps of a stronger
    rule.
    """
    rules = {rank: _texts(reader, "steps", "rule") for rank, reader in readers.items()}
    if not any(rule != _WEAKEST for of_rank in rules.values() for rule in of_rank):
        return set(readers)
    return {rank for rank, of_rank in rules.items() if set(of_rank) != {_WEAKEST}}


def _modules(reader: Reader, texts: StringTable) -> list[int]:
    """By key of a module of a rank, its key among those of all."""
    columns = reader.arrays("modules", ["module", "path", "class", "line"])
    largest = int(columns["module"].max(initial=-1))
    found = [-1] * (largest + 1)
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    for key, path, class_name, line in rows:
        about = (path or "", class_name or "", line or "")
        found[key] = texts.module("\n".join(about))
    return found


def _next_key(reader: Reader, table: str, key: str) -> int:
    """The number of keys that a rank has used."""
    return int(reader.arrays(table, [key])[key].max(initial=-1)) + 1


def _problems(reader: Reader) -> list[dict[str, str]]:
    names = list(ProblemFields.__annotations__)
    columns = reader.arrays("problems", names)
    layers = columns["layer.names"]
    columns["layer"] = layers[columns["layer"]]
    values = [columns[name].tolist() for name in names]
    rows = zip(*values, strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _texts(reader: Reader, table: str, column: str) -> list[str]:
    """The different texts in a column of names."""
    arrays = reader.arrays(table, [column])
    names = arrays[f"{column}.names"]
    return [str(text) for text in names.tolist()]


def last_join(folders: Sequence[Path]) -> JoinedState | None:
    """The join that one of these folders holds."""
    return next((state for folder in folders if (state := read_joined(folder))), None)
