"""Distributed stores of MXNet: which process is what, and what each of them executed."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from layerscope.analyse import tables
from layerscope.recording.reader import Reader
from tests.recorded import TIMEOUT_S, Recorded, record

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "mxnet_store.py"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(
    mxnet_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    """A scheduler, a server and two workers, with each version of MXNet."""
    recorded = record(mxnet_python, str(PROGRAM), tmp_path_factory.mktemp("store"))
    assert recorded.status == 0, recorded.stderr
    return recorded


def test_workers_are_ranks_and_the_others_have_their_role(store: Recorded) -> None:
    with Reader(store.run) as reader:
        rows = tables.build(reader, "processes").data.to_pylist()

    assert sorted((row["role"], row["rank"]) for row in rows if row["role"] != "rank") == [
        ("program", None),
        ("scheduler", None),
        ("server", None),
    ]
    assert sorted(row["rank"] for row in rows if row["role"] == "rank") == [0, 1]


def test_counts_of_each_worker_are_those_of_mxnet(store: Recorded) -> None:
    rows = store.rows(
        "SELECT rank, spans.name, count(*)::INT AS count FROM spans JOIN tracks USING (track) "
        "JOIN processes USING (process) WHERE spans.kind = 'function' AND rank IS NOT NULL "
        "AND spans.name <> '(no name)' AND spans.start_ns < (SELECT min(at_ns) FROM marks "
        "JOIN tracks AS own USING (track) WHERE marks.name = 'counted' "
        "AND own.process = processes.process) GROUP BY ALL"
    )
    found: dict[str, Counter[str]] = {"0": Counter(), "1": Counter()}
    for row in rows:
        found[str(row["rank"])][row["name"]] = row["count"]

    assert found == {rank: Counter(of) for rank, of in json.loads(store.stdout).items()}
    assert all(of["KVStoreDistDefaultPush"] >= 3 for of in found.values())
    assert not store.rows("SELECT * FROM problems")
    assert not store.rows("SELECT * FROM gaps")


def test_operators_of_the_server_are_recorded(store: Recorded) -> None:
    rows = store.rows(
        "SELECT spans.name, count(*)::INT AS count FROM spans JOIN tracks USING (track) "
        "JOIN processes USING (process) WHERE spans.kind = 'function' AND role = 'server' GROUP BY ALL"
    )
    found = {row["name"]: row["count"] for row in rows}
    assert found.get("sgd_update", found.get("multi_sgd_update")) == 3
    assert found["CopyCPU2CPU"] > 0


def test_the_summary_counts_ranks_server_and_scheduler(store: Recorded) -> None:
    summary = (store.run.path / "summary.txt").read_text()
    assert "2 ranks, 1 scheduler, 1 server, 5 processes" in summary.replace("\n", " ")


def test_the_program_computes_what_it_computes_alone(
    mxnet2_python: str, native_agent: Path, tmp_path: Path
) -> None:
    command = [mxnet2_python, str(PROGRAM), "--bare"]
    bare = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, cwd=tmp_path
    )

    recorded = record(mxnet2_python, str(PROGRAM), tmp_path, "--bare")

    assert json.loads(recorded.stdout) == json.loads(bare.stdout) == {"0": -2.0, "1": -2.0}
