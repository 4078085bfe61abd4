"""Programs that no Python of ours enters: the variables by which oneDNN, ITT and NVTX load the
agent.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from layerscope.capture import agent
from layerscope.ingest.open import open_run
from tests.native.clients import build_client
from tests.quick_torch import WITHOUT_COMPILER
from tests.recorded import Recorded, layerscope, record

CNN = (
    WITHOUT_COMPILER
    + """
import torch
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3))
optimizer = torch.optim.SGD(network.parameters(), 0.01)
for _ in range(3):
    optimizer.zero_grad()
    network(torch.randn(8, 3, 16, 16)).sum().backward()
    optimizer.step()
"""
)


def recorded(cwd: Path, *command: str, options: tuple[str, ...] = (), **variables: str) -> Recorded:
    """What `layerscope run` makes of any command."""
    done = layerscope("run", "-o", "recording", *options, "--", *command, cwd=cwd, env=variables)
    return Recorded(
        open_run(cwd / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )


def names(recording: Recorded) -> list[Any]:
    """The names of all spans, by start."""
    return [
        row["name"] for row in recording.rows("SELECT name FROM spans ORDER BY start_ns, depth")
    ]


def test_settings_say_what_has_another_meaning_by_percent(tmp_path: Path) -> None:
    told, problems = agent.without_python(
        {}, "a name;1", True, [0, 3], [1, -1, 2, 0, "100 %: one;two\udcff"], tmp_path / "semi;colon"
    )
    assert told[agent.ITT] == told[agent.NVTX] == str(agent.LIBRARY)
    assert set(told[agent.SETTINGS].split(";")) >= {
        "socket=a%20name%3B1", "tsc=1", "ranks=0,3", "window=1:-1:2:0:100%20%25%3A%20one%3Btwo%FF",
        f"refusals={tmp_path}/semi%3Bcolon",
    }  # fmt: skip
    assert not problems


def test_who_makes_code_is_told_whom_to_tell_only_where_stacks_are_recorded() -> None:
    assert agent.JIT not in agent.without_python({}, "name", True)[0]
    stacks = {"hz": 99, "timers": 0}
    assert agent.without_python({}, "name", True, stacks=stacks)[0][agent.JIT] == str(agent.LIBRARY)
    told, (problem,) = agent.without_python(
        {agent.JIT: "/opt/vtune/libjit.so"}, "name", True, stacks=stacks
    )
    assert agent.JIT not in told
    assert (problem.layer, problem.code) == ("stacks", "jit_taken")


@pytest.mark.parametrize(
    ("variable", "code"), [(agent.ITT, "itt_taken"), (agent.NVTX, "nvtx_taken")]
)
def test_a_collector_of_the_user_stays(variable: str, code: str) -> None:
    theirs = {variable: "/opt/vtune/libittnotify_collector.so"}
    told, (problem,) = agent.without_python(theirs, "name", True)
    assert variable not in told
    assert len(told) == 2
    assert problem.code == code
    assert theirs[variable] in problem.what


def test_that_of_a_recording_around_this_one_is_replaced() -> None:
    theirs = {agent.ITT: f"/elsewhere/{agent.LIBRARY.name}"}
    told, problems = agent.without_python(theirs, "name", True)
    assert (told[agent.ITT], problems) == (str(agent.LIBRARY), [])


def test_a_program_in_c_is_recorded(native_agent: Path, nvtx_client: Path, tmp_path: Path) -> None:
    recording = recorded(tmp_path, str(nvtx_client), "arguments")
    assert recording.status == 0
    assert names(recording) == [
        "colour",
        "categories",
        "categories",
        "categories",
        *["payloads"] * 6,
    ]
    assert recording.rows("SELECT code FROM problems") == []


def test_windows_and_ranks_hold_for_it(
    native_agent: Path, itt_client: Path, tmp_path: Path
) -> None:
    options = ("--steps", "1:3", "--step-mark", "step")
    recording = recorded(tmp_path, str(itt_client), "steps", options=options)
    assert names(recording) == ["step", "in step 1", "step", "in step 2"]


@pytest.mark.parametrize(("ranks", "expected"), [("1,2", 1), ("0", 0)])
def test_only_chosen_ranks(
    native_agent: Path, itt_client: Path, tmp_path: Path, ranks: str, expected: int
) -> None:
    """A launcher inside: the rank is known to the program, not to us."""
    command = ["/usr/bin/env", "RANK=1", "WORLD_SIZE=4", str(itt_client), "steps"]
    recording = recorded(tmp_path, *command, options=("--ranks", ranks))
    assert names(recording).count("step") == 5 * expected
    assert recording.status == 0


def test_a_collector_of_the_program_itself_gets_everything(
    native_agent: Path, itt_client: Path, tmp_path: Path
) -> None:
    """One that is not there: the program does as it would without us, and it is said."""
    recording = recorded(
        tmp_path, str(itt_client), "tasks", INTEL_LIBITTNOTIFY64="/nowhere/libcollector.so"
    )
    assert recording.stdout == "nobody collects\n"
    assert "itt_taken" in [row["code"] for row in recording.rows("SELECT code FROM problems")]


def test_without_us_nobody_collects(
    native_agent: Path, itt_client: Path, nvtx_client: Path
) -> None:
    """Our library without its settings, as a child has it whose environment was half kept."""
    without = {name: value for name, value in os.environ.items() if name != agent.SETTINGS}
    library = {agent.ITT: str(native_agent), agent.NVTX: str(native_agent)}
    for command in ([str(itt_client), "tasks"], [str(nvtx_client), "ranges"]):
        done = subprocess.run(
            command, env=without | library, capture_output=True, timeout=60, check=True
        )
        assert done.stdout.replace(b"nobody collects\n", b"") == done.stderr == b""


@pytest.mark.slow
def test_the_primitives_of_a_stock_torch_come_with_their_texts(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recording = record(program_python, CNN, tmp_path)
    assert recording.status == 0
    rows = recording.rows(
        "SELECT s.kind, s.name, count(*) AS calls, count(args) AS told FROM spans s WHERE layer = 'primitives' "
        "AND s.kind <> 'share' GROUP BY ALL"
    )
    calls = {(row["kind"], row["name"]): row["calls"] for row in rows}
    assert all(row["calls"] == row["told"] for row in rows)
    # Forward twice, weights twice, data once: each step.
    assert calls["execute", "convolution"] == calls["create", "convolution"] == 15
    assert calls["execute", "reorder"] > 0
    text = recording.value(
        "SELECT min(json) FROM spans JOIN args USING (args) WHERE spans.name = 'convolution'"
    )
    assert "cpu,convolution," in text
    assert recording.rows("SELECT code FROM problems WHERE code LIKE '%taken'") == []


@pytest.mark.slow
def test_emit_itt_lies_on_the_same_stack(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    text = "\nimport torch\nwith torch.autograd.profiler.emit_itt():\n    torch.ones(3) + 1\n"
    rows = record(program_python, text, tmp_path).rows(
        "SELECT p.name AS around, json FROM spans s JOIN spans p ON p.span = s.parent JOIN args a ON a.args = s.args "
        "WHERE s.layer = 'ranges' AND s.name = 'aten::add'"
    )
    assert [row["json"] for row in rows] == ['{"domain": "PyTorch"}']


@pytest.fixture(scope="session")
def itt_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_client(tmp_path_factory.mktemp("itt"), "itt_client")


@pytest.fixture(scope="session")
def nvtx_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_client(tmp_path_factory.mktemp("nvtx"), "nvtx_client")
