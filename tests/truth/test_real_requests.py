"""Requests of real programs that only call modules: how many there are, and what belongs to
them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.recorded import Recorded, record

pytestmark = pytest.mark.slow

# How long a request took decides how many are warm-up, and the machine may have been busy.
WARM_UP = r"the first( \d)? excluded \(warm-up\)"

MODEL = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 8)
    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
net = Net().eval()
"""

INFERENCE = (
    MODEL
    + """
loss = nn.MSELoss()
with torch.inference_mode():
    for number in range(12):
        x = torch.randn(4, 32)
        loss(net(x), torch.zeros(4, 8))
"""
)

GENERATION = """
import torch
from torch import nn
torch.set_num_threads(1)
encoder, decoder = nn.TransformerEncoderLayer(16, 2), nn.TransformerDecoderLayer(16, 2)
with torch.no_grad():
    for request in range(5):
        memory = encoder(torch.randn(4, 1, 16))
        tokens = torch.randn(1, 1, 16)
        for token in range(2 + request):
            tokens = torch.cat([tokens, decoder(tokens, memory)[-1:]])
"""

SERVER = (
    MODEL
    + """
import threading
meet = threading.Barrier(3)
def serve():
    for number in range(4):
        meet.wait()
        with torch.inference_mode():
            for _ in range(number + 1):
                net(torch.randn(256, 32))
threads = [threading.Thread(target=serve) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
)

FAILING = (
    MODEL
    + """
for width in (32, 32, 31, 32, 31, 32, 32, 32):
    try:
        net(torch.randn(4, width))
    except RuntimeError:
        pass
class Strict(nn.Module):
    def forward(self, x):
        torch.relu(x)
        raise ValueError("never\\nsecond line")
try:
    Strict()(torch.randn(2))
except ValueError:
    pass
"""
)

GENERATE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
torch.set_num_threads(1)
config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=64, bos_token_id=1, eos_token_id=None)
model = GPT2LMHeadModel(config).eval()
for _ in range(4):
    model.generate(torch.randint(0, 50, (2, 5)), max_new_tokens=6, do_sample=False, pad_token_id=0)
"""

BY_HAND = (
    MODEL
    + """
for number in range(6):
    net(torch.randn(4, 32)).square().mean().backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.sub_(0.01 * parameter.grad)
            parameter.grad = None
"""
)

TRANSFORMS = (
    MODEL
    + """
class Data(torch.utils.data.Dataset):
    crop = nn.Linear(32, 32)
    def __len__(self):
        return 32
    def __getitem__(self, number):
        return self.crop(torch.randn(32)).detach()
if __name__ == "__main__":
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x in torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=2):
        net(x).sum().backward()
        optimizer.step()
"""
)


def requests(recorded: Recorded) -> list[dict[str, int]]:
    """The table `steps`, all of rule `request`, whose phases add up."""
    assert recorded.status == 0, recorded.stderr
    rows = recorded.rows("select * from steps order by step")
    assert {row["rule"] for row in rows} == {"request"}
    for row in rows:
        phases = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
        assert sum(row[phase] for phase in phases) == row["dur_ns"]
    return rows


def test_each_pass_of_an_inference_loop_is_a_request(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, INFERENCE, tmp_path)

    assert len(requests(recorded)) == 12
    within = "select step, list(name order by start_ns) names from spans where kind = 'module' group by step"
    assert [row["names"] for row in recorded.rows(f"{within} order by step")] == [
        ["Net", "Net.first", "Net.second", "MSELoss"]
    ] * 12
    phases = recorded.rows("select distinct phase from spans where name = 'aten::addmm'")
    assert phases == [{"phase": "forward"}]
    assert re.search(rf"12 calls, {WARM_UP}\.", recorded.stderr)
    assert "A call takes " in recorded.stderr
    assert "functional ops in Net.forward" in recorded.stderr


def test_a_forward_that_raises_is_a_failed_request_and_names_the_operator(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, FAILING, tmp_path)

    raised = recorded.rows(
        "select name, json from marks left join args using (args) where kind = 'raised' order by at_ns"
    )
    assert [row["json"] for row in raised] == ['{"operator": "aten::addmm"}'] * 2 + [None]
    assert raised[0]["name"].startswith(
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x31 and 32x64)"
    )
    assert raised[2]["name"] == "ValueError: never"
    assert re.search(rf"8 calls, {WARM_UP}; [12] failed and excluded\.", recorded.stderr)
    assert (
        "Failed: 2 calls in aten::addmm: RuntimeError: mat1 and mat2 shapes cannot be"
        in recorded.stderr
    )
    assert "in no operator: ValueError: never" in recorded.stderr


def test_a_call_of_generate_is_one_request_and_its_passes_are_the_tokens(
    native_agent: Path, trainers_python: str, tmp_path: Path
) -> None:
    recorded = record(trainers_python, GENERATE, tmp_path)

    assert len(requests(recorded)) == 4
    counted = "select count(*) n from spans where name = 'GPT2LMHeadModel' and layer = 'modules' group by step"
    assert [row["n"] for row in recorded.rows(f"{counted} order by step")] == [6] * 4
    assert "a call is one of GPT2LMHeadModel.generate" in recorded.stderr
    assert "6 tokens a call, " in recorded.stderr


def test_an_encoder_and_the_calls_of_its_decoder_are_one_request(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, GENERATION, tmp_path)

    assert len(requests(recorded)) == 5
    counted = "select count(*) n from spans where name = 'TransformerDecoderLayer' group by step order by step"
    assert [row["n"] for row in recorded.rows(counted)] == [2, 3, 4, 5, 6]


def test_requests_that_threads_serve_at_the_same_time(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, SERVER, tmp_path)

    rows = requests(recorded)
    assert len(rows) == 3 * 10
    # Every operator belongs to the request of its own thread.
    first = "select step, count(*) n, count(distinct track) t from spans where name = 'aten::addmm' group by step"
    assert [
        (row["step"], row["n"], row["t"]) for row in recorded.rows(f"{first} order by step")
    ] == [(number, 2, 1) for number in range(30)]
    begun = "select count(*) from steps s join spans m on m.step = s.step and m.name = 'Net' and m.start_ns = s.start_ns"
    assert recorded.value(begun) == 30


def test_training_by_hand_has_a_step_for_each_call(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, BY_HAND, tmp_path)

    rows = requests(recorded)
    assert len(rows) == 6
    assert all(row["forward_ns"] and row["backward_ns"] and row["other_ns"] for row in rows)
    assert "A step takes " in recorded.stderr
    assert "a step is one pass through Net" in recorded.stderr


def test_modules_that_prepare_data_in_the_workers_of_a_loader_are_no_requests(
    native_agent: Path, program_python: str, tmp_path: Path
) -> None:
    recorded = record(program_python, TRANSFORMS, tmp_path)

    assert recorded.value("select count(*) from spans where name = 'Linear'") == 32
    assert recorded.rows("select rule, count(*) n from steps group by rule") == [
        {"rule": "optimizer", "n": 4}
    ]
    assert re.search(rf"4 steps, {WARM_UP}\.", recorded.stderr)
