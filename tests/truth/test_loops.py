"""Steps and phases of real training loops with a known number of steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick_torch import WITHOUT_COMPILER
from tests.recorded import Recorded, record

pytestmark = pytest.mark.slow

MODEL = (
    WITHOUT_COMPILER
    + """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
data = torch.utils.data.TensorDataset(torch.randn(64, 32), torch.randn(64, 8))
loader = torch.utils.data.DataLoader(data, batch_size=16)
loss = nn.MSELoss()
"""
)

TRAINING = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(5):
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in loader:
            model(x)
"""
)

GAN = (
    WITHOUT_COMPILER
    + """
import torch
from torch import nn
torch.manual_seed(0)
g, d = nn.Linear(4, 8), nn.Linear(8, 1)
opt_d, opt_g = torch.optim.Adam(d.parameters()), torch.optim.Adam(g.parameters())
loss = nn.BCEWithLogitsLoss()
for i in range(12):
    real, noise = torch.randn(16, 8), torch.randn(16, 4)
    opt_d.zero_grad()
    (loss(d(real), torch.ones(16, 1)) + loss(d(g(noise).detach()), torch.zeros(16, 1))).backward()
    opt_d.step()
    for _ in range(2):
        opt_g.zero_grad()
        loss(d(g(noise)), torch.ones(16, 1)).backward()
        opt_g.step()
"""
)

INFERENCE = (
    MODEL
    + """
model.eval()
with torch.no_grad():
    for x, _ in loader:
        model(x)
"""
)

CLOSURE = (
    MODEL
    + """
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
x, y = data.tensors
def closure():
    optimizer.zero_grad()
    value = loss(model(x), y)
    value.backward()
    return value
for _ in range(6):
    optimizer.step(closure)
"""
)


def steps(recorded: Recorded) -> list[dict[str, int]]:
    """The table `steps`; the phases of each add up to its duration."""
    rows = recorded.rows("select * from steps order by step")
    for row in rows:
        phases = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
        assert sum(row[phase] for phase in phases) == row["dur_ns"]
    return rows


@pytest.fixture(scope="module")
def trained(
    native_agent: Path, program_python: str, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    return record(program_python, TRAINING, tmp_path_factory.mktemp("trained"))


def test_a_training_loop_with_evaluation_has_one_step_a_batch(trained: Recorded) -> None:
    rows = steps(trained)
    assert len(rows) == 20
    assert {row["rule"] for row in rows} == {"optimizer"}
    assert all(
        row["load_ns"] and row["forward_ns"] and row["backward_ns"] and row["optimizer_ns"]
        for row in rows
    )
    per_step = (
        "select count(*) n from spans where name = 'aten::addmm' and step is not null group by step"
    )
    assert [row["n"] for row in trained.rows(per_step)] == [2] * 20


def test_phases_of_operators_follow_from_where_they_run(trained: Recorded) -> None:
    phases = trained.rows(
        "select distinct name, phase from spans where step is not null and kind != 'function'"
    )
    named = {(row["name"].partition("#")[0], row["phase"]) for row in phases}
    assert ("Optimizer.step", "optimizer") in named
    assert ("Optimizer.zero_grad", "optimizer") in named
    assert ("enumerate(DataLoader)", "loading") in named
    assert ("AddmmBackward0", "backward") in named
    forward = trained.rows(
        "select distinct phase from spans where name = 'aten::addmm' and step is not null"
    )
    assert forward == [{"phase": "forward"}]


def test_a_gan_has_one_step_for_each_step_of_its_first_optimizer(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, GAN, tmp_path)

    assert (
        recorded.value("select count(*) from spans where name = 'Optimizer.step#Adam.step'") == 36
    )
    rows = steps(recorded)
    assert len(rows) == 12
    assert {row["optimizer"] for row in rows} == {1}


def test_a_loader_of_four_batches_gives_four_steps_without_an_optimizer(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, INFERENCE, tmp_path)

    assert recorded.value("select count(*) from spans where kind = 'loader'") == 5
    rows = steps(recorded)
    assert [row["rule"] for row in rows] == ["loader"] * 4


def test_forward_and_backward_inside_a_closure_are_not_the_optimizers_time(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, CLOSURE, tmp_path)

    rows = steps(recorded)
    assert len(rows) == 6
    assert all(row["forward_ns"] and row["backward_ns"] and row["optimizer_ns"] for row in rows)
    inside = recorded.rows(
        "select distinct phase from spans where name = 'aten::addmm' and step is not null"
    )
    assert inside == [{"phase": "forward"}]
