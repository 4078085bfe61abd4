"""What the system accounted for threads."""

from __future__ import annotations

import numpy as np

from layerscope.ingest.accounts import totals_of_threads
from layerscope.rawfile import sampler_file


def test_what_nobody_read_of_a_short_thread_is_not_nothing() -> None:
    accounts = np.zeros(3, sampler_file.ACCOUNT)
    accounts["thread"], accounts["at_ns"] = [0, 0, 1], [5, 9, 7]
    accounts["run_ns"] = [100, 250, 42]
    accounts["faults_minor"], accounts["delay_ns"] = [3, 3, 0], [0, 8, 0]

    found = totals_of_threads(accounts)

    assert found[0] == {
        "cpu_ns": 250, "delay_ns": 8, "switches_voluntary": 0, "switches_forced": 0, "migrations": 0,
        "faults_minor": 3, "faults_major": 0,
    }  # fmt: skip
    assert found[1] == {"cpu_ns": 42, "migrations": 0}
    assert totals_of_threads(accounts, ("migrations",))[1] == {"cpu_ns": 42}
