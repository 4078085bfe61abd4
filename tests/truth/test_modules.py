"""Which module every operator belongs to, against a second witness that knows nothing of us."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.recorded import Recorded, record

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
NETWORKS = (
    "cnn", "transformer", "lstm", "nested", "checkpoint_reentrant", "checkpoint_plain", "backward_elsewhere",
    "two_threads", "double_backward", "hooked",
)  # fmt: skip
OUTSIDE = "outside any module"
SEES_TOO_LITTLE = 3  # module_oracle.py


TRAINS = """
import torch
model = torch.nn.Linear(2, 2)
model(torch.ones(2)).sum().backward()
"""


@pytest.fixture(scope="module")
def python(
    native_agent: Path, program_python: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The program's Python, once all is known about its torch: the first recordings cannot link the
    backward pass.
    """
    for _ in range(20):
        if record(program_python, TRAINS, tmp_path_factory.mktemp("first")).value(
            "SELECT count(*) FROM links"
        ):
            return program_python
    raise AssertionError("recordings do not link backward functions to their operators")


def by_module(recorded: Recorded) -> dict[str, dict[str, int]]:
    """{path: {name: count}} of the operators of a recording."""
    rows = recorded.rows(
        f"SELECT coalesce(path, '{OUTSIDE}') AS path, name, count(*) AS n FROM spans "
        "LEFT JOIN modules USING (module) WHERE layer = 'operators' GROUP BY ALL"
    )
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["path"], {})[row["name"]] = row["n"]
    return found


# The others have all that is in these.
REPEATED = (
    "lstm", "nested", "checkpoint_plain", "double_backward", "cnn", "transformer", "two_threads",
)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.stress if name in REPEATED else ()) for name in NETWORKS],
)
def test_every_operator_belongs_to_the_module_that_hooks_and_the_profiler_say(
    python: str, tmp_path: Path, name: str
) -> None:
    done = subprocess.run(
        [python, str(HERE / "module_oracle.py"), name],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    if done.returncode == SEES_TOO_LITTLE:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)

    recorded = record(python, str(HERE / "networks.py"), tmp_path, name)

    assert recorded.status == 0, recorded.stderr
    ours = by_module(recorded)
    assert sum(sum(counts.values()) for counts in theirs.values()) > 300
    assert set(ours) == set(theirs)
    assert ours == theirs


def calls(recorded: Recorded) -> dict[str, tuple[str, int]]:
    """{path: (class, calls)} of a recording without problems and gaps."""
    assert recorded.status == 0, recorded.stderr
    assert not recorded.rows("SELECT * FROM problems UNION ALL BY NAME SELECT * FROM gaps")
    rows = recorded.rows(
        "SELECT path, class, count(*) AS n FROM spans JOIN modules USING (module) WHERE layer = 'modules' GROUP BY ALL"
    )
    return {row["path"]: (row["class"], row["n"]) for row in rows}


def test_known_operators_are_where_they_were_called(python: str, tmp_path: Path) -> None:
    program = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.Tanh()
    def forward(self, x):
        for _ in range(3):
            x = self.act(self.fc(x)).exp()
        return x
net, x = Net(), torch.ones(2, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    torch.nn.functional.relu(net(x)).sum().backward()
    optimizer.step()
"""
    recorded = record(python, program, tmp_path)

    assert calls(recorded) == {"Net": ("Net", 5), "Net.fc": ("Linear", 15), "Net.act": ("Tanh", 15)}
    found = by_module(recorded)
    names = (
        "aten::linear",
        "aten::tanh",
        "aten::exp",
        "aten::relu",
        "aten::sum",
        "TanhBackward0",
        "ExpBackward0",
        "AddmmBackward0",
        "torch::autograd::AccumulateGrad",
        "ReluBackward0",
        "Optimizer.step#SGD.step",
    )
    counts = {path: {name: of[name] for name in names if name in of} for path, of in found.items()}
    assert counts == {
        # aten::sum calls itself. Three uses of the weights in a step: their gradients meet, and are
        # kept once each.
        "Net.fc": {"aten::linear": 15, "aten::sum": 15, "AddmmBackward0": 15, "torch::autograd::AccumulateGrad": 10},
        "Net.act": {"aten::tanh": 15, "TanhBackward0": 15},
        "Net": {"aten::exp": 15, "ExpBackward0": 15},
        OUTSIDE: {"aten::relu": 5, "aten::sum": 10, "ReluBackward0": 5, "Optimizer.step#SGD.step": 5},
    }  # fmt: skip
    parents = recorded.rows(
        "SELECT m.path, o.path AS around FROM modules m LEFT JOIN modules o ON o.module = m.parent ORDER BY m.path"
    )
    assert [(row["path"], row["around"]) for row in parents] == [
        ("Net", None),
        ("Net.act", "Net"),
        ("Net.fc", "Net"),
    ]
    lines = recorded.rows("SELECT path, line FROM modules ORDER BY path")
    assert [row["line"].rpartition("/")[2] for row in lines] == [
        "program.py:17",
        "program.py:11",
        "program.py:11",
    ]


def test_roots_are_numbered_while_they_live_and_take_their_place_when_somebody_holds_them(
    python: str, tmp_path: Path
) -> None:
    program = """
import gc, torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
    def forward(self, x):
        return self.fc(x)
class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner(x)
x = torch.ones(1, 2)
first, second = Net(), Net()
first(x), second(x), second(x)
del first
gc.collect()
third, fourth = Net(), Net()
[third(x) for _ in range(3)]          # Net again: the first is gone
[fourth(x) for _ in range(4)]         # Net#3
outer = Outer(second)
[outer(x) for _ in range(5)]          # second is Outer.inner now
fifth = Net()
[fifth(x) for _ in range(6)]          # Net#2 is free again
late = nn.Tanh()
fourth.late = late
fourth.forward = lambda x: fourth.late(x)
fourth(x)                             # a module that was put there later
"""
    recorded = record(python, program, tmp_path)

    assert calls(recorded) == {
        "Net": ("Net", 4), "Net.fc": ("Linear", 4), "Net#2": ("Net", 8), "Net#2.fc": ("Linear", 8),
        "Net#3": ("Net", 5), "Net#3.fc": ("Linear", 4), "Net#3.late": ("Tanh", 1),
        "Outer": ("Outer", 5), "Outer.inner": ("Net", 5), "Outer.inner.fc": ("Linear", 5),
    }  # fmt: skip


@pytest.mark.stress
def test_ten_thousand_modules_are_told_apart(python: str, tmp_path: Path) -> None:
    program = """
import torch
from torch import nn
model = nn.ModuleList([nn.Sequential(nn.Identity(), nn.Identity()) for _ in range(3000)])
loose = [nn.Identity() for _ in range(1000)]
x = torch.ones(1)
for _ in range(2):
    for block in model:
        block(x)
    for module in loose:
        module(x)
"""
    recorded = record(python, program, tmp_path)

    found = calls(recorded)
    assert len(found) == 10_000
    assert {n for _, n in found.values()} == {2}
    assert found["Sequential#3000.1"] == ("Identity", 2)
    assert found["Identity#1000"] == ("Identity", 2)


def test_modules_that_come_and_go_use_the_same_memory_and_names(
    python: str, tmp_path: Path
) -> None:
    program = """
import gc, resource, sys, torch
from torch import nn
class Net(nn.Module):
    def forward(self, x):
        for kind in kinds:
            x = kind()(x)
        return x
kinds, net, x = [nn.Identity, nn.ReLU, nn.Tanh], Net(), torch.ones(1)
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
def work(rounds):
    for i in range(rounds):
        net(x)
        kinds[i % 3]()(x)
        kinds.append(kinds.pop(0))
work(5_000)
gc.collect()
before = rss()
work(20_000)
gc.collect()
print(rss() - before)
"""
    recorded = record(python, program, tmp_path)

    assert int(recorded.stdout) < 3 << 20
    found = {path: kind for path, (kind, _) in calls(recorded).items()}
    assert found == {"Net": "Net", **{f"Net.({kind})": kind for kind in ("Identity", "ReLU", "Tanh")},
                     **{kind: kind for kind in ("Identity", "ReLU", "Tanh")}}  # fmt: skip
    # An address of one class is soon one of another: no call may keep the name of who had it
    # before.
    rows = recorded.rows(
        "SELECT class, name, count(*) AS n FROM spans JOIN modules USING (module) "
        "WHERE name IN ('aten::relu', 'aten::tanh') AND layer = 'operators' GROUP BY ALL"
    )
    assert {(row["class"], row["name"]) for row in rows} == {
        ("ReLU", "aten::relu"),
        ("Tanh", "aten::tanh"),
    }
    assert sum(row["n"] for row in rows) > 50_000
    assert recorded.value("SELECT count(*) FROM spans WHERE layer = 'modules'") == 25_000 * 5


def test_calls_that_cross_on_one_thread_end_where_they_should(python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [python, "-c", "import greenlet"], capture_output=True, timeout=60, check=False
    )
    if done.returncode:
        pytest.skip("greenlet is not installed in the program's environment")
    program = """
import torch
from greenlet import getcurrent, greenlet
from torch import nn
main = getcurrent()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.Tanh()
    def forward(self, x):
        main.switch()
        x = self.act(x)
        main.switch()
        return nn.Sigmoid()(x)
one, other, x = Net(), Net(), torch.ones(2)
one.act(x), other.act(x)
for _ in range(100):
    first, second = greenlet(lambda: one(x)), greenlet(lambda: other(x))
    first.switch(), second.switch()
    first.switch(), first.switch()    # over before the second one, which began in it
    second.switch(), second.switch()
    torch.hypot(x, x)
nn.Sequential(nn.ReLU())(x)
"""
    recorded = record(python, program, tmp_path)

    found = calls(recorded)
    assert sum(n for kind, n in found.values() if kind == "Net") == 200
    assert sum(n for kind, n in found.values() if kind == "Tanh") == 202
    assert sum(n for kind, n in found.values() if kind == "Sigmoid") == 200
    assert found["Sequential.0"] == ("ReLU", 1)
    assert not recorded.rows("SELECT * FROM spans WHERE unfinished")
    assert recorded.rows(
        "SELECT depth, module, count(*) AS n FROM spans WHERE name = 'aten::hypot' GROUP BY ALL"
    ) == [{"depth": 0, "module": None, "n": 100}]


def test_a_python_that_cannot_be_watched_is_a_problem_and_the_rest_is_recorded(
    python: str, tmp_path: Path
) -> None:
    program = """
import sys
sys._is_gil_enabled = lambda: False
import torch
torch.nn.Tanh()(torch.ones(2))
"""
    recorded = record(python, program, tmp_path)

    assert recorded.status == 0, recorded.stderr
    (problem,) = recorded.rows("SELECT * FROM problems")
    assert (problem["layer"], problem["code"]) == ("modules", "modules_refused")
    assert problem["what"].endswith(
        "this Python runs without the GIL, which guards what is known of modules"
    )
    assert recorded.value("SELECT count(*) FROM spans WHERE name = 'aten::tanh'") == 1
    assert recorded.value("SELECT count(*) FROM modules") == 0
