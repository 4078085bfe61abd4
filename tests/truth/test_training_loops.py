"""Steps of real training loops: those of the libraries that many people train with, and those
written by hand.

Each program says itself how often it stepped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.quick_torch import WITHOUT_COMPILER
from tests.recorded import Recorded, record
from tests.repeated import also

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"

MODEL = (
    WITHOUT_COMPILER
    + """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
data = torch.utils.data.TensorDataset(torch.randn(64, 32), torch.randn(64, 8))
loader = torch.utils.data.DataLoader(data, batch_size=8)
loss = nn.MSELoss()
steps = 0
"""
)

ACCUMULATION = (
    MODEL
    + """
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
for epoch in range(2):
    for number, (x, y) in enumerate(loader):
        (loss(model(x), y) / 4).backward()
        if number % 4 == 3:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            steps += 1
print(steps)
"""
)

MIXED_PRECISION = (
    MODEL
    + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")
for number, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(model(x), y)
    if number in (2, 5):
        value = value * float("inf")
    before = model[0].weight.detach().clone()
    scaler.scale(value).backward()
    scaler.step(optimizer)
    scaler.update()
    steps += not torch.equal(before, model[0].weight)
print(steps)
"""
)

OPTIMIZER_IN_BACKWARD = (
    MODEL
    + """
of = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
def update(parameter):
    of[parameter].step()
    of[parameter].zero_grad()
for parameter in of:
    parameter.register_post_accumulate_grad_hook(update)
for x, y in loader:
    loss(model(x), y).backward()
    steps += 1
print(steps)
"""
)

PHASES = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")


def checked_steps(recorded: Recorded, phases: tuple[str, ...] = PHASES[:4]) -> list[dict[str, int]]:
    """The table `steps`: as many rows as the program says, by the first optimizer, with time in
    these phases.
    """
    assert recorded.status == 0, recorded.stderr
    rows = recorded.rows("select * from steps order by step")
    assert len(rows) == int(recorded.stdout.split()[-1])
    assert {row["rule"] for row in rows} == {"optimizer"}
    assert len({row["optimizer"] for row in rows}) == 1
    for row in rows:
        assert sum(row[phase] for phase in PHASES) == row["dur_ns"]
        assert all(row[phase] for phase in phases)
    return rows


def calls(recorded: Recorded, name: str) -> list[int]:
    """How many spans of this name each step has."""
    counted = f"select step, count(*) n from spans where name = '{name}' and step is not null group by step"
    return [row["n"] for row in recorded.rows(f"{counted} order by step")]


@pytest.mark.parametrize("evaluates", [True, *also([False])])
def test_the_trainer_of_transformers(
    native_agent: Path, trainers_python: str, tmp_path: Path, *, evaluates: bool
) -> None:
    arguments = ["evaluate"] if evaluates else []
    recorded = record(
        trainers_python, str(PROGRAMS / "transformers_trainer.py"), tmp_path, *arguments
    )

    assert len(checked_steps(recorded)) == 8
    # Two batches are accumulated for a step; the two of each evaluation are in none.
    assert calls(recorded, "GPT2LMHeadModel") == [2] * 8
    outside = recorded.value(
        "select count(*) from spans where name = 'GPT2LMHeadModel' and step is null"
    )
    assert outside == (8 if evaluates else 0)


@pytest.mark.parametrize(("accumulate", "evaluates"), [(2, True), *also([(1, False), (1, True)])])
def test_the_trainer_of_lightning(
    native_agent: Path, trainers_python: str, tmp_path: Path, accumulate: int, *, evaluates: bool
) -> None:
    arguments = [str(accumulate), *(["evaluate"] if evaluates else [])]
    recorded = record(trainers_python, str(PROGRAMS / "lightning_trainer.py"), tmp_path, *arguments)

    assert len(checked_steps(recorded)) == 16 // accumulate
    assert calls(recorded, "Network") == [accumulate] * (16 // accumulate)
    # Two batches are tried before the training, and eight are looked at after each epoch.
    outside = recorded.value("select count(*) from spans where name = 'Network' and step is null")
    assert outside == (2 + 2 * 8 if evaluates else 0)


def test_accumulated_gradients_are_one_step(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, ACCUMULATION, tmp_path)

    assert len(checked_steps(recorded)) == 4
    assert calls(recorded, "MSELoss") == [4] * 4


def test_steps_that_the_scaler_of_mixed_precision_skips_belong_to_the_next(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, MIXED_PRECISION, tmp_path)

    assert len(checked_steps(recorded)) == 6
    assert calls(recorded, "MSELoss") == [1, 1, 2, 1, 2, 1]


def test_optimizers_that_run_inside_the_backward_pass(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, OPTIMIZER_IN_BACKWARD, tmp_path)

    assert len(checked_steps(recorded)) == 8
    assert calls(recorded, "Optimizer.step#SGD.step") == [4] * 8
    assert calls(recorded, "MSELoss") == [1] * 8
    inside = recorded.rows(
        "select distinct phase from spans where kind = 'optimizer' and step is not null"
    )
    assert inside == [{"phase": "optimizer"}]
