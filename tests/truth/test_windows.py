"""A window holds exactly its steps: the same ones, with the same operators, as in a recording of
the whole program.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from layerscope.ingest.open import open_run
from tests.quick_torch import WITHOUT_COMPILER, quick
from tests.recorded import NO_STACKS, Recorded, layerscope
from tests.repeated import also, first

pytestmark = pytest.mark.slow

LOOPS = Path(__file__).resolve().parent.parent / "programs" / "loops.py"
# How many of these arrive when, in batches of worker processes, is a matter of time.
OF_ARRIVAL = ("aten::set_", "aten::empty")


class Loop(NamedTuple):
    """A loop of `programs/loops.py`: the rule and number of its steps, windows of it, and what
    --step-mark says.
    """

    kind: str
    rule: str
    steps: int
    windows: tuple[str, ...]
    mark: str = ""


CASES = (
    Loop("train", "optimizer", 20, (":2", "3:6", "18:")),
    Loop("workers", "optimizer", 20, ("5:9",)),
    Loop("gan", "optimizer", 12, (":3", "5:8")),
    Loop("accumulation", "optimizer", 10, (":2", "1:3", "6:8")),
    Loop("closure", "optimizer", 8, ("0:2", "3:5")),
    Loop("in_backward", "optimizer", 12, (":2", "5:7")),
    Loop("sanity_first", "optimizer", 20, (":2", "1:4")),
    Loop("inference", "loader", 20, (":2", "3:9")),
    Loop("requests", "request", 30, (":3", "7:9")),
    Loop("generation", "request", 12, (":1", ":2", "1:2", "1:4", "5:6")),
    Loop("threads", "request", 60, ("20:25", "20:22")),
    Loop("by_hand", "request", 20, ("4:6",)),
    Loop("marks", "mark", 20, (":2", "4:6")),
    Loop("ranges", "mark", 20, (":2", "3:5"), "iteration"),
    Loop("ranges", "mark", 22, ("3:5",), "aten::randn"),
    Loop("ranges", "mark", 20, ("3:5",), "Sequential"),
    Loop("ranges", "mark", 20, ("3:5",), "programs/loops.py:LINE"),
    Loop("gan", "mark", 12, ("5:8",), "Optimizer.step#Adam.step"),
)


class Whole:
    """Recordings without a window, each made once."""

    def __init__(self, python: str, folder: Path) -> None:
        self._python = python
        self._folder = folder
        self._made: dict[tuple[str, ...], Recorded] = {}

    def __call__(self, loop: str, *options: str) -> Recorded:
        key = (loop, *options)
        if key not in self._made:
            folder = self._folder / str(len(self._made))
            self._made[key] = record(self._python, folder, *options, loop=loop)
        return self._made[key]


@pytest.fixture(scope="module")
def whole_of(program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(program_python, tmp_path_factory.mktemp("whole"))


def record(python: str, folder: Path, *options: str, loop: str) -> Recorded:
    """Record a loop with these options of `run`."""
    folder.mkdir(exist_ok=True)
    words = ["run", "-o", "recording", *NO_STACKS, *options, "--", python, str(LOOPS), loop]
    done = layerscope(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return Recorded(
        open_run(folder / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )


def operators(recorded: Recorded) -> Counter[tuple[int, str, str]]:
    """How many spans of each kind and name each step has."""
    rows = recorded.rows(
        "SELECT step, kind, name, count(*) AS n FROM spans WHERE step IS NOT NULL GROUP BY ALL"
    )
    return Counter(
        {
            (row["step"], row["kind"], row["name"]): row["n"]
            for row in rows
            if row["name"] not in OF_ARRIVAL
        }
    )


def numbers(recorded: Recorded) -> list[int]:
    """The numbers of the steps."""
    return [row["step"] for row in recorded.rows("SELECT step FROM steps ORDER BY start_ns")]


def named_line() -> str:
    """The outer range of the loop `ranges`, as --step-mark names a line."""
    lines = LOOPS.read_text().splitlines()
    return f"programs/loops.py:{1 + next(i for i, line in enumerate(lines) if 'record_function(' in line)}"


# Each of these counts its steps by the rule of another one.
REPEATED = {
    ("accumulation", ""),
    ("by_hand", ""),
    ("gan", ""),
    ("in_backward", ""),
    ("closure", ""),
    ("sanity_first", ""),
    ("generation", ""),
    ("ranges", "Sequential"),
    ("ranges", "programs/loops.py:LINE"),  # test_lines.py
}
REPEATED |= {("gan", "Optimizer.step#Adam.step"), ("ranges", "aten::randn")}


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if (case.kind, case.mark) not in REPEATED]
    + also((case,) for case in CASES if (case.kind, case.mark) in REPEATED),
    ids=lambda case: f"{case.kind}-{case.mark}" if case.mark else case.kind,
)
def test_a_window_holds_exactly_its_steps(
    case: Loop, whole_of: Whole, program_python: str, tmp_path: Path
) -> None:
    mark = named_line() if case.mark.endswith(":LINE") else case.mark
    options = ("--step-mark", mark) if mark else ()
    whole = whole_of(case.kind, *options)
    assert whole.rows("SELECT DISTINCT rule FROM steps") == [{"rule": case.rule}]
    assert numbers(whole) == list(range(case.steps))
    in_whole = operators(whole)

    for number, window in enumerate(first(1, case.windows[::-1])):
        begin, last = (int(word) if word else None for word in window.split(":"))
        part = record(
            program_python, tmp_path / str(number), "--steps", window, *options, loop=case.kind
        )
        wanted = range(begin or 0, case.steps if last is None else last)
        assert part.stdout == whole.stdout
        assert numbers(part) == list(wanted)
        assert operators(part) == Counter(
            {key: n for key, n in in_whole.items() if key[0] in wanted}
        )
        assert part.rows("SELECT code FROM problems") == []
        assert part.rows("SELECT * FROM gaps") == []
        spans = part.value("SELECT count(*) FROM spans")
        assert spans < whole.value("SELECT count(*) FROM spans")
        if case.kind in ("gan", "in_backward", "by_hand", "marks") and begin:
            assert part.value("SELECT count(*) FROM spans WHERE step IS NULL") == 0


def test_a_window_repeats_with_the_numbers_of_its_steps(
    whole_of: Whole, program_python: str, tmp_path: Path
) -> None:
    whole = operators(whole_of("train"))
    part = record(program_python, tmp_path / "part", "--steps", "2:4", "--every", "6", loop="train")

    kept = numbers(part)
    assert kept == [2, 3, 8, 9, 14, 15]
    assert operators(part) == Counter({key: n for key, n in whole.items() if key[0] in kept})
    kinds = [
        row["kind"]
        for row in part.rows("SELECT kind FROM marks WHERE kind <> 'setting' ORDER BY at_ns")
    ]
    assert kinds == ["opened", "closed"] * 3 + ["opened"]  # step 20 would have been the next one


TIMED = (
    WITHOUT_COMPILER
    + """
import time, torch
from torch.profiler import record_function
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
square, product = torch.ones(96, 96), torch.ones(96, 96)

class Busy(torch.optim.SGD):
    def step(self, closure=None):
        for _ in range(OPERATORS):
            torch.mm(square, square, out=product)
        super().step(closure)

optimizer = Busy(model.parameters(), lr=0.01)
begin = time.monotonic()
number = 0
# A slow machine makes as many steps, in more windows.
while time.monotonic() - begin < 2.5 or number < 150:
    with record_function(f"step {number}"):
        time.sleep(0.01)
        model(torch.ones(2, 8)).sum().backward()
        optimizer.zero_grad()
    optimizer.step()
    number += 1
"""
)


# With many operators in the optimizer the window opens, mostly, while it is at work. They are no
# small ones: on a busy machine the drainer may be too late for a million of these in a second, and
# then not every step is whole.
@pytest.mark.parametrize("in_optimizer", [400, *also([0])])
@pytest.mark.parametrize(
    "options", [("--for", "0.3", "--every", "1"), ("--steps", "20:", "--for", "1")]
)
def test_a_window_of_seconds_holds_whole_steps_with_their_numbers(
    options: tuple[str, ...], in_optimizer: int, program_python: str, tmp_path: Path
) -> None:
    program = tmp_path / "timed.py"
    program.write_text(quick(TIMED.replace("OPERATORS", str(in_optimizer))))
    words = ["run", "-o", "recording", *NO_STACKS, *options, "--", program_python, str(program)]
    done = layerscope(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    part = Recorded(open_run(tmp_path / "recording.layerscope"), 0, done.stdout, done.stderr)

    found = part.rows(
        "SELECT DISTINCT name, step FROM spans WHERE name LIKE 'step %' AND step IS NOT NULL"
    )
    assert {row["name"] for row in found} == {f"step {row['step']}" for row in found}
    # Step 0, where a window is open then, begins with its first operator: its range has begun
    # before.
    assert sorted(row["step"] for row in found if row["step"]) == [
        number for number in numbers(part) if number
    ]
    assert len(found) > 5
    assert part.rows("SELECT * FROM gaps") == []
    # Every step is whole.
    counts = part.rows(
        "SELECT DISTINCT n FROM (SELECT step, count(*) AS n FROM spans WHERE step > 0 GROUP BY 1)"
    )
    assert len(counts) == 1
    if "--steps" in options:
        assert numbers(part)[0] == 20
    assert "Only a window was recorded: " in done.stderr


WORKERS = (
    WITHOUT_COMPILER
    + """
import time, torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, number):
        time.sleep(0.005)
        return torch.ones(8).mul(number)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2):
    model(x).sum().backward()
    optimizer.step()
"""
)


def test_workers_of_a_loader_are_recorded_while_the_window_is_open(
    program_python: str, tmp_path: Path
) -> None:
    def batches(*options: str) -> int:
        program = tmp_path / "program.py"
        program.write_text(quick(WORKERS))
        name = f"recording{len(options)}"
        done = layerscope(
            "run",
            "-q",
            "-o",
            name,
            *NO_STACKS,
            *options,
            "--",
            program_python,
            str(program),
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        part = Recorded(open_run(tmp_path / f"{name}.layerscope"), 0, "", "")
        loads = (
            "SELECT count(*) FROM spans JOIN tracks USING (track) WHERE spans.name = 'aten::mul' "
        )
        return int(part.value(loads + "AND process NOT IN (SELECT process FROM steps)"))

    assert batches() == 400
    assert 40 <= batches("--steps", "40:60") <= 200


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--steps", "100:110"), "came to step 100: step"),
        (
            ("--after", "500", "--for", "1"),
            "because nothing ran in the window (from 500 s on, for 1 s)",
        ),
    ],
)
def test_a_window_that_the_program_does_not_reach_is_a_problem(
    options: tuple[str, ...], said: str, program_python: str, tmp_path: Path
) -> None:
    part = record(program_python, tmp_path / "part", *options, loop="gan")

    assert part.value("SELECT count(*) FROM spans") == 0
    assert part.rows("SELECT code FROM problems") == [{"code": "window_never_opened"}]
    assert said in " ".join(part.stderr.split())
