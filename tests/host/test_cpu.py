"""How many CPUs a program may use: affinity, and the quota of its control group in both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from layerscope.host import cpu


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("limit", "cpus"),
    [("max 100000", 8), ("150000 100000", 1.5), ("50000 100000", 0.5), ("1600000 100000", 8), ("", 8), ("max", 8)],
)
def test_version_2_of_the_control_groups(tmp_path: Path, limit: str, cpus: float) -> None:
    assert cpu.usable_cpus(write(tmp_path, cpu_DOT_max=limit)) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("250000", 2.5), ("0", 8), ("9900000", 8)])
def test_version_1_of_the_control_groups(tmp_path: Path, quota: str, cpus: float) -> None:
    root = write(tmp_path, cpu__cpu_DOT_cfs_quota_us=quota, cpu__cpu_DOT_cfs_period_us="100000")

    assert cpu.usable_cpus(root) == cpus


def test_half_a_quota_is_none(tmp_path: Path) -> None:
    assert cpu.usable_cpus(write(tmp_path, cpu__cpu_DOT_cfs_quota_us="250000")) == 8


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert cpu.usable_cpus(tmp_path) == 8


def test_facts_are_read_from_the_root_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: A CPU: fast @ 3 GHz\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16331552 kB\nMemFree: 1 kB\n")
    found = cpu.facts(write(tmp_path, cpu_DOT_max="300000 100000"))

    assert (found["cpus"], found["cpu_model"], found["memory_bytes"]) == (3, "A CPU: fast @ 3 GHz", 16331552 * 1024)


def test_facts_that_are_not_there_are_empty_and_no_error(tmp_path: Path) -> None:
    found = cpu.facts(tmp_path)

    assert (found["cpu_model"], found["memory_bytes"]) == ("", 0)
