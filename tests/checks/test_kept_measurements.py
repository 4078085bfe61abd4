"""What was measured is kept for the next time."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from layerscope.checks import kept_measurements
from layerscope.host import machine as machines
from layerscope.host.machine import Machine
from layerscope.model import cache
from layerscope.model.measured import (
    Measured,
)  # fmt: skip
from tests.checks.machines import changed, machine
from tests.checks.test_measured import MEASURED, with_library


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return machine()


def test_what_was_measured_is_kept_for_such_a_machine(here: Machine) -> None:
    assert kept_measurements.kept(here) is None
    kept_measurements.keep(here, MEASURED)

    assert kept_measurements.kept(here) == MEASURED
    assert kept_measurements.kept(here, "/opt/venv/bin/python") == MEASURED
    assert kept_measurements.kept(here, "/usr/bin/python3") is None
    assert kept_measurements.kept(machine(cpu={"granted": 4.0})) is None
    assert kept_measurements.kept(machine(cpu={"model": "Another"})) is None


def test_a_recording_keeps_it_with_the_facts_about_the_machine(here: Machine) -> None:
    assert kept_measurements.as_host(here) == machines.as_json(here)
    kept_measurements.keep(here, MEASURED)
    told = json.loads(json.dumps(kept_measurements.as_host(here)))

    assert machines.of_json(told) == here
    assert msgspec.convert(told["measured"], Measured) == MEASURED


def test_the_newest_counts_and_few_are_kept(here: Machine) -> None:
    for number in range(20):
        for path in cache.caches(cache.PLATFORM)[0].glob(
            "*"
        ):  # a file system may not tell moments apart
            os.utime(path, (path.stat().st_mtime - 10,) * 2)
        kept_measurements.keep(here, changed(MEASURED, python=f"/env{number}/bin/python"))
        newest = kept_measurements.kept(here)
        assert newest is not None
        assert newest.python == f"/env{number}/bin/python"
    assert len(list(cache.caches(cache.PLATFORM)[0].iterdir())) == 8


def test_another_build_of_torch_is_another_entry_and_the_same_one_replaces(here: Machine) -> None:
    for version, seconds in (("2.13.0", 1.0), ("2.12.0", 2.0), ("2.13.0", 3.0)):
        libraries = with_library("PyTorch", version=version)
        kept_measurements.keep(here, changed(MEASURED, libraries=libraries, seconds=seconds))
    kept = [
        msgspec.json.decode(path.read_bytes()) for path in cache.caches(cache.PLATFORM)[0].iterdir()
    ]
    assert sorted(one["seconds"] for one in kept) == [2.0, 3.0]


def test_a_damaged_entry_is_passed_over_and_one_without_products_is_not_kept(here: Machine) -> None:
    kept_measurements.keep(here, MEASURED)
    path = next(cache.caches(cache.PLATFORM)[0].iterdir())
    older = path.with_name(path.name[:17] + "0" * 16 + ".json")
    for damaged in (b"", b"{}", b'{"python": 3}', b"\xff"):
        older.write_bytes(damaged)
        assert kept_measurements.kept(here) == MEASURED
    kept_measurements.keep(here, changed(MEASURED, python="/other", rates=()))
    assert kept_measurements.kept(here, "/other") is None


def test_without_a_place_nothing_is_kept(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "caches", lambda kind: [])
    kept_measurements.keep(here, MEASURED)

    assert kept_measurements.kept(here) is None
