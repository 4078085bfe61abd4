"""Programs that use ITT and NVTX in disorder, with the agent built by the compiler's own
checkers.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.native.building import sanitized
from tests.native.clients import Clients, build_client_with_agent
from tests.native.driven import Drive
from tests.native.test_agent_under_sanitizers import OPTIONS
from tests.repeated import also


def chaos(record: Clients, program: Path, threads: int, count: int, seed: int) -> None:
    """Every span that the program began is recorded or counted, and nothing is said on stderr."""
    driven = record(program, "chaos", str(threads), str(count), str(seed))
    assert (driven.status, driven.stderr[:6000]) == (0, "")
    recorded = len(driven.spans())
    assert recorded > 1000
    assert recorded + sum(driven.losses().values()) == int(driven.stdout)
    wrong = driven.rows(
        "SELECT count(*) AS wrong FROM spans c JOIN spans p ON p.span = c.parent WHERE p.track <> c.track "
        "OR p.depth <> c.depth - 1 OR p.start_ns > c.start_ns"
    )
    assert wrong == [{"wrong": 0}]


@pytest.mark.slow
def test_chaos_of_itt_is_recorded_or_counted(record: Clients, itt_client: Path) -> None:
    chaos(record, itt_client, 3, 1_000, 1)


@pytest.mark.slow
def test_chaos_of_nvtx_is_recorded_or_counted(record: Clients, nvtx_client: Path) -> None:
    chaos(record, nvtx_client, 3, 3_000, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sanitizer"),
    [
        ("itt_client", "address,undefined"),
        *also(
            [
                ("nvtx_client", "thread"),
                ("itt_client", "thread"),
                ("nvtx_client", "address,undefined"),
            ]
        ),
    ],
)
def test_chaos_under_a_sanitizer(
    native_agent: Path, tmp_path: Path, name: str, sanitizer: str
) -> None:
    program = build_client_with_agent(tmp_path, name, *sanitized(tmp_path, sanitizer))
    scenarios = {"itt_client": ["tasks", "metadata", "carried", "moments", "counters", "names"],
                 "nvtx_client": ["ranges", "arguments", "names"]}  # fmt: skip
    for scenario in scenarios[name]:
        driven = Clients(Drive(native_agent, Path(), tmp_path), OPTIONS)(program, scenario, "50")
        assert (driven.status, driven.stderr[:6000]) == (0, ""), scenario
        shutil.rmtree(tmp_path / "driven.layerscope")
        shutil.rmtree(tmp_path / "raw")
    chaos(Clients(Drive(native_agent, Path(), tmp_path), OPTIONS), program, 4, 1_500, 11)
