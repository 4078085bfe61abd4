"""Databases of Nsight Systems and of nvprof, made by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[dict[str, Any]]


def thread(pid: int, tid: int) -> int:
    """The number that Nsight Systems has for a thread."""
    return 1 << 48 | pid << 24 | tid


def write(path: Path, tables: dict[str, Rows], create: str = "") -> Path:
    """A database with these tables, whose columns are those of their rows; `create`: how the first
    column of each is declared beside them.
    """
    with sqlite3.connect(path) as database:
        for name, rows in tables.items():
            columns = list(dict.fromkeys(key for row in rows for key in row)) or ["start"]
            declared = ", ".join([create, *(f'"{one}"' for one in columns)] if create else columns)
            database.execute(f'CREATE TABLE "{name}" ({declared})')
            places = ", ".join("?" for _ in columns)
            called = ", ".join(f'"{one}"' for one in columns)
            values = [tuple(row.get(one) for one in columns) for row in rows]
            database.executemany(f'INSERT INTO "{name}" ({called}) VALUES ({places})', values)
    database.close()
    return path


def texts(*known: str) -> Rows:
    """`StringIds`, numbered from 1 on."""
    return [{"id": number, "value": text} for number, text in enumerate(known, 1)]
