"""What the system accounted for each thread, as the sampler has read it: totals of threads,
counters of processes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

# Columns of `tracks` and where they come from.
OF_TRACK = {
    "cpu_ns": "run_ns",
    "delay_ns": "delay_ns",
    "switches_voluntary": "switches_voluntary",
    "switches_forced": "switches_forced",
    "migrations": "migrations",
    "faults_minor": "faults_minor",
    "faults_major": "faults_major",
}
# What is read of a thread while it lives, and what is known of one that has ended before.
_READ = (
    "delay_ns",
    "user_ns",
    "system_ns",
    "switches_voluntary",
    "switches_forced",
    "faults_minor",
    "faults_major",
)
_KNOWN_AT_THE_END = ("run_ns", "migrations")
# Counters that nobody else reads of a process, with their units.
OF_PROCESS = {
    "delay_ns": "ns",
    "switches_voluntary": "count",
    "switches_forced": "count",
    "migrations": "count",
}
# More of one that was sampled alone: its CPU time by the threads, and what was read of it as a
# whole.
_OF_ONE_ALONE = {**OF_PROCESS, "run_ns": "ns"}
_AS_A_WHOLE = {
    "user_ns": "ns",
    "system_ns": "ns",
    "faults_minor": "count",
    "faults_major": "count",
    "rss_peak_bytes": "bytes",
}
_WHILE_IT_LIVES = {"rss_bytes": "bytes", "threads": "count"}


def untold(accounts: np.ndarray, has_switches: bool) -> tuple[str, ...]:
    """The fields of accounts that nobody filled. `has_switches`: the sampler was told of every
    switch.

    Whoever comes onto a CPU has waited for it some ns: a kernel by which nobody ever did does not
    count that.
    """
    found = () if has_switches else ("migrations",)
    return found if accounts["delay_ns"].any() else (*found, "delay_ns")


def totals_of_threads(
    accounts: np.ndarray, without: Collection[str] = ()
) -> dict[int, dict[str, int]]:
    """The last account of each of the sampler's threads, as columns of `tracks`; rows of
    `sampled.ACCOUNT`.

    A thread that ended before it was read for the first time has its CPU time alone: nobody knows
    the rest.
    """
    last = accounts[np.argsort(accounts["at_ns"], kind="stable")]
    stated = {name: of for name, of in OF_TRACK.items() if of not in without}
    alone = {name: of for name, of in stated.items() if of in _KNOWN_AT_THE_END}
    read = np.any([last[name] > 0 for name in _READ], axis=0)
    return {
        int(row["thread"]): {
            name: int(row[of]) for name, of in (stated if is_read else alone).items()
        }
        for row, is_read in zip(last, read.tolist(), strict=True)
    }


def counters_of_one_alone(
    accounts: np.ndarray, whole: np.ndarray, without: Collection[str]
) -> dict[str, Any]:
    """Columns of `counters` but `track` of a process of which nothing else was recorded; `whole`:
    rows of `sampled.PROCESS_ACCOUNT`.
    """
    columns = counters_of_process(accounts, without, _OF_ONE_ALONE)
    columns["name"][columns["name"] == "run_ns"] = "cpu_ns"
    parts = [columns]
    for name, unit in {**_AS_A_WHOLE, **_WHILE_IT_LIVES}.items():
        is_read = whole["rss_bytes"] > 0 if name in _WHILE_IT_LIVES else whole[name] >= 0
        rows = whole[is_read]
        parts.append(
            {
                "at_ns": rows["at_ns"].astype(np.int64),
                "name": np.full(len(rows), name, object),
                "value": rows[name].astype(np.int64),
                "unit": np.full(len(rows), unit, object),
            }
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in columns}


def counters_of_process(
    accounts: np.ndarray, without: Collection[str] = (), wanted: Mapping[str, str] = OF_PROCESS
) -> dict[str, Any]:
    """Columns of `counters` but `track`: sums over the threads of one process, those that have
    ended included.

    One value for each moment at which some of its threads were looked at. `without`: fields that
    nobody filled.
    """
    order = np.lexsort((accounts["at_ns"], accounts["thread"]))
    rows = accounts[order]
    thread = rows["thread"]
    is_first = np.append(True, thread[1:] != thread[:-1])
    at_ns, moment = np.unique(rows["at_ns"], return_inverse=True)
    columns: dict[str, list[np.ndarray]] = {"at_ns": [], "name": [], "value": [], "unit": []}
    for name, unit in wanted.items():
        if name in without:
            continue
        grown = _growth(rows[name].astype(np.int64), is_first)
        sums = np.zeros(len(at_ns), np.int64)
        np.add.at(sums, moment, grown)
        columns["at_ns"].append(at_ns.astype(np.int64))
        columns["name"].append(np.full(len(at_ns), name, object))
        columns["value"].append(np.cumsum(sums))
        columns["unit"].append(np.full(len(at_ns), unit, object))
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def _growth(value: np.ndarray, is_first: np.ndarray) -> np.ndarray:
    """By how much each total is larger than the one before it of its thread, never less than 0."""
    change = np.diff(value, prepend=0)
    grown = np.where(is_first, value, change)
    return np.maximum(grown, 0)
