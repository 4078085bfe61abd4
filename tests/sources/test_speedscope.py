"""Profiles of speedscope, and calls and returns of perf script, made by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from layerscope import sources
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.sources import perf_calls, speedscope
from layerscope.sources.imported import Imported
from tests.corpus import corpus

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def profile(path: Path, *profiles: dict[str, Any]) -> Path:
    frames = [{"name": "main", "file": "train.py", "line": 3}, {"name": "work"}, {"name": "leaf"}]
    whole = {"$schema": SCHEMA, "shared": {"frames": frames}, "profiles": profiles}
    path.write_text(json.dumps(whole))
    return path


def evented(unit: str, *events: tuple[str, int, float], end: float = 0) -> dict[str, Any]:
    told = [{"type": kind, "frame": frame, "at": at} for kind, frame, at in events]
    about = {"type": "evented", "name": "main thread", "unit": unit, "startValue": 0}
    return {**about, "endValue": end, "events": told}


def weights(found: Imported) -> dict[str, int]:
    """The ns of each stack, by its names."""
    assert found.stacks is not None
    stacks, samples = found.stacks.stacks, found.stacks.samples
    names = found.stacks.frames["name"]
    sums: dict[str, int] = {}
    for stack, weight in zip(samples["stack"].tolist(), samples["weight_ns"].tolist(), strict=True):
        path = []
        while stack >= 0:
            path.append(names[stacks["frame"][stack]])
            stack = int(stacks["parent"][stack])
        key = ";".join(reversed(path))
        sums[key] = sums.get(key, 0) + weight
    return sums


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with Reader(open_run(path)) as reader:
        found = reader.query(query)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_calls_and_returns_become_stacks_with_the_time_between_them(tmp_path: Path) -> None:
    path = profile(
        tmp_path / "run.speedscope.json",
        evented(
            "microseconds",
            ("O", 0, 1.5),
            ("O", 1, 2),
            ("C", 1, 4.001),
            ("O", 2, 4.001),
            ("C", 2, 6),
            ("C", 0, 7),
        ),
    )
    assert weights(speedscope.read(path)) == {"main": 1500, "main;work": 2001, "main;leaf": 1999}
    assert rows(path, "SELECT sum(weight_ns), count(*) FROM samples") == [(5500, 4)]
    frames = "SELECT name, layer, file, line FROM frames ORDER BY name"
    assert rows(path, frames) == [
        ("leaf", "native", None, None),
        ("main", "python", "train.py", 3),
        ("work", "native", None, None),
    ]


def test_samples_follow_each_other(tmp_path: Path) -> None:
    sampled = {
        "type": "sampled",
        "name": "worker",
        "unit": "seconds",
        "startValue": 0,
        "endValue": 1,
        "samples": [[0, 1], [0, 2], [0, 1], [9]],
        "weights": [0.25, 0.5, 0.125, 1],
    }
    path = profile(tmp_path / "run.json", sampled, evented("none", ("O", 0, 0), ("C", 0, 9)))
    found = speedscope.read(path)
    assert weights(found) == {"main;work": 375_000_000, "main;leaf": 500_000_000, "main": 9}
    assert found.stacks is not None
    starts = found.stacks.samples["at_ns"].tolist()
    assert starts == [0, 250_000_000, 750_000_000, 0]
    assert [problem.code for problem in found.problems] == ["no_unit", "events_rejected"]
    assert [track.name for track in found.tracks] == ["worker", "main thread"]


def test_returns_without_a_call_and_times_that_go_back_are_counted(tmp_path: Path) -> None:
    events = (("C", 2, 1), ("O", 0, 5), ("O", 1, 3), ("C", 0, 8), ("O", 7, 9), ("X", 0, 9))
    found = speedscope.read(profile(tmp_path / "run.json", evented("nanoseconds", *events)))
    assert weights(found) == {"main;work": 3}
    counted = {problem.code: problem.what.split()[0] for problem in found.problems}
    assert counted == {"events_rejected": "3", "ends_unpaired": "1"}


def test_a_profile_that_is_cut_opens_to_the_cut_or_is_refused(tmp_path: Path) -> None:
    calls = [event for at in range(0, 100, 2) for event in (("O", 0, at), ("C", 0, at + 1))]
    path = profile(tmp_path / "run.json", evented("nanoseconds", *calls))
    whole = path.read_bytes()
    totals = []
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        try:
            totals.append(weights(speedscope.read(path)).get("main", 0))
        except ReadError:
            continue
    assert totals == sorted(totals)
    assert totals[-1] >= 49
    assert len(totals) > 100


def test_mutated_profiles_open_or_are_refused(tmp_path: Path) -> None:
    path = profile(tmp_path / "run.json", evented("none", ("O", 0, 1), ("C", 0, 2e9)))
    whole = path.read_bytes()
    chance = random.Random(1)
    odd = (b"NaN", b"1e999", b"-1", b"[" * 2000, b'"', b"\xff", b"99999999999999999999", b"null")
    for _ in range(300):
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at] + chance.choice(odd) + whole[at + chance.randrange(4) :])
        try:
            speedscope.read(path)
        except ReadError as error:
            assert "damaged" in str(error)  # noqa: PT017


def line(time: str, flags: str, symbol: str, own: str, object_: str = "/lib/libc.so") -> str:
    return f"  stress 70/71 [001] 17.{time}:   {flags:<24}{symbol:<30}7f01 {own}+0x1 ({object_})\n"


CALLS = (
    line("000000100", "tr strt", "main", "[unknown]", "[unknown]")
    + line("000000100", "call", "work", "main", "/bin/stress")
    + line("000000130", "call", "do_syscall_64", "work")
    + line("000000150", "return", "do_syscall_64", "do_syscall_64", "[kernel.kallsyms]")
    + line("000000160", "call", "rand@plt", "work")
    + line("000000170", "return", "__rand", "__rand")
    + line("000000180", "return", "work", "work")
    + line("000000190", "return", "main", "main", "/bin/stress")
    + " instruction trace error type 1 time 17.1 cpu 1 pid 70 tid 71 ip 0 code 6: no match\n"
)


def test_calls_of_perf_script_become_stacks(tmp_path: Path) -> None:
    path = tmp_path / "calls.txt"
    path.write_text(CALLS)
    found = perf_calls.read(path)
    assert weights(found) == {
        "main": 10,
        "main;work": 50,
        "main;work;do_syscall_64": 20,
        "main;work;rand@plt": 10,
    }
    layers = dict(rows(path, "SELECT name, layer FROM frames"))
    assert layers["do_syscall_64"] == "kernel"
    assert {layers[name] for name in ("main", "work", "rand@plt")} == {"native"}
    assert rows(path, "SELECT tid, name FROM tracks") == [(71, "stress")]
    assert {problem.code for problem in found.problems} == {"trace_gaps", "calls_unseen"}


def test_calls_are_no_samples_and_samples_no_calls() -> None:
    def recognised(head: bytes) -> list[str]:
        known = [one for one in sources.known() if one.recognises(head)]
        return [one.__name__.rpartition(".")[2] for one in known]

    assert recognised(CALLS.encode()) == ["perf_calls"]
    assert recognised(b"app 7 17.000001: cycles: \n\t7f01 main (/bin/app)\n") == ["perf_script"]
    assert recognised(json.dumps({"$schema": SCHEMA, "profiles": []}).encode()) == ["speedscope"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [("stress.txt.gz", 16360), ("stress_ushort.txt", 60), ("cpu_wide_short.txt", 24)],
)
def test_calls_of_the_corpus_open(name: str, lines: int) -> None:
    found = perf_calls.read(corpus(f"perf_script/perf_script_output__{name}"))
    assert found.stacks is not None
    assert 0 < len(found.stacks.samples["at_ns"]) <= lines
    assert all(
        problem.code != "lines_rejected" or name.startswith("cpu") for problem in found.problems
    )
