"""Real programs of MXNet: its operators, each once, by MXNet's own count."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.recorded import Recorded, record

NETWORKS = Path(__file__).resolve().parent.parent / "programs" / "mxnet_networks.py"
# MXNet's profiler cuts names, and leaves out executions that have none.
MXNET_NAME = 127
UNNAMED = "(no name)"


def counts(recorded: Recorded) -> Counter[str]:
    """Executions by name until MXNet stopped counting."""
    rows = recorded.rows(
        "SELECT name, count(*)::INT AS count FROM spans WHERE layer = 'operators' "
        "AND start_ns < (SELECT at_ns FROM marks WHERE name = 'counted') GROUP BY name"
    )
    found: Counter[str] = Counter()
    for row in rows:
        found[row["name"][:MXNET_NAME]] += row["count"]
    del found[UNNAMED]
    return found


@pytest.fixture(scope="module")
def networks(
    mxnet_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    """A CNN, an MLP, and the CNN hybridized and with static memory, with each version of MXNet."""
    folder = tmp_path_factory.mktemp("networks")
    kinds = ("cnn", "mlp", "hybrid", "static")
    return record(mxnet_python, str(NETWORKS), folder, *kinds)


def test_counts_by_operator_are_those_of_mxnet(networks: Recorded) -> None:
    assert networks.status == 0, networks.stderr

    assert counts(networks) == Counter(json.loads(networks.stdout))
    assert not networks.rows("SELECT * FROM problems")
    assert not networks.rows("SELECT * FROM gaps")


def test_operators_run_on_threads_of_the_engine(networks: Recorded) -> None:
    tids = networks.rows(
        "SELECT DISTINCT tid, pid FROM spans JOIN tracks USING (track) "
        "JOIN processes USING (process) WHERE spans.name = 'FullyConnected'"
    )
    assert tids
    assert all(row["tid"] != row["pid"] for row in tids)


def test_the_engine_without_threads_is_counted_too(
    mxnet_python: str, native_agent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXNET_ENGINE_TYPE", "NaiveEngine")

    recorded = record(mxnet_python, str(NETWORKS), tmp_path, "cnn", "hybrid")

    assert recorded.status == 0, recorded.stderr
    assert counts(recorded) == Counter(json.loads(recorded.stdout))
