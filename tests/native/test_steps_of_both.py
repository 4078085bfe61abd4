"""Steps are decided in two places: by the agent while the program runs, for windows
(native/agent/steps.c), and from the whole recording afterwards (ingest/rules). Both read one table
of programs here, and must say the same.
"""

from __future__ import annotations

import random
import textwrap

import pytest

from layerscope.ingest.steps import RULES
from layerscope.rawfile import layout
from tests.native.door import Door
from tests.native.driven import Drive
from tests.native.windows import BEGINS, INSIDE, marks

# By the name of the rule: its number in the agent. A mark by name is one of its own there.
NUMBERS = {
    "mark": layout.RULE_MARK,
    "optimizer": layout.RULE_OPTIMIZER,
    "loader": layout.RULE_LOADER,
    "request": layout.RULE_REQUEST,
}
# What a loop does: the rule, the steps, and the lines.
LOOPS = {
    "one optimizer": ("optimizer", 4, "for _ in range(4): op('work'); optimize(1)"),
    "two optimizers": (
        "optimizer", 3, "for _ in range(3): op('a'); optimize(1); op('b'); optimize(2, 'Adam')",
    ),
    "the second optimizer steps more often": (
        "optimizer", 2, "for _ in range(2): op('a'); optimize(1); optimize(2); optimize(2)",
    ),
    "an optimizer in another": (
        "optimizer", 3, "for _ in range(3): op('a'); optimize(1, 'Outer', lambda: optimize(2, 'Inner'))",
    ),
    "an optimizer that calls itself": (
        "optimizer", 3, "for _ in range(3): op('a'); optimize(1, 'SGD', lambda: optimize(1, 'SGD'))",
    ),
    "a loader and an optimizer": (
        "optimizer", 3, "for _ in range(3): wait(); op('work'); optimize()",
    ),
    "accumulation": (
        "optimizer", 2,
        """
        for _ in range(2):
            for _ in range(3):
                wait()
                op('work')
            optimize()
        """,
    ),
    "a loader alone": ("loader", 5, "for _ in range(5): wait(); op('work')"),
    "two epochs of a loader": (
        "loader", 6,
        """
        for _ in range(2):
            for _ in range(3):
                wait()
                op('work')
            wait(is_empty=True)
        """,
    ),
    "evaluation after training": (
        "optimizer", 3,
        """
        for _ in range(3):
            wait()
            op('work')
            optimize()
        for _ in range(4):
            wait()
            op('evaluate')
        """,
    ),
    "marks": ("mark", 4, "for _ in range(4): op('work'); agent.ls_mark(b'step', MARK_STEP, 0)"),
    "marks and an optimizer": (
        "mark", 3, "for _ in range(3): op('a'); optimize(); op('b'); optimize(); agent.ls_mark(b'step', MARK_STEP, 0)",
    ),
}  # fmt: skip
SEEDS = range(6)


def shuffled(seed: int) -> str:
    """A loop of an optimizer, with other things between in an order of chance."""
    choice = random.Random(seed)
    between = ["op('work')", "wait(); op('load')", "optimize(2, 'Adam')", "op('range', RANGE)"]
    lines = ["op('work'); optimize(1)"]
    for _ in range(choice.randrange(2, 6)):
        some = "; ".join(choice.choices(between, k=choice.randrange(1, 4)))
        lines.append(f"op('work'); {some}; optimize(1, 'SGD')")
    return "\n".join(lines)


def in_folder(drive: Drive, name: str) -> Drive:
    """The same in a folder of its own."""
    (drive.folder / name).mkdir()
    return Drive(drive.agent, drive.fake_torch, drive.folder / name)


def seen_by_the_agent(drive: Drive, lines: str) -> tuple[int, int]:
    """The rule by which it counts at the end, and the number of the last step that it saw begin."""
    drive = in_folder(drive, "agent")
    door = Door(drive.folder / "raw")
    drive.options = {"window": {"first": 1}}
    driven = drive(INSIDE + "watch_exits()\nwindow(1, 1)\n" + textwrap.dedent(lines), door)
    assert (driven.status, driven.stderr) == (0, "")
    begun = [(rule, number) for what, number, rule in marks(door) if what == BEGINS]
    return begun[-1]


def found_afterwards(drive: Drive, lines: str) -> tuple[str, int]:
    """The rule of the table of steps, and how many there are."""
    drive = in_folder(drive, "whole")
    begin = "assert prepare() == 0\nstart()\n"
    driven = drive(INSIDE + begin + textwrap.dedent(lines), Door(drive.folder / "raw"))
    assert (driven.status, driven.stderr) == (0, "")
    (row,) = driven.rows("SELECT any_value(rule) AS rule, count(*) AS n FROM steps")
    return row["rule"], row["n"]


def test_the_agent_knows_the_rules_in_the_same_order() -> None:
    counted = [rule for rule in RULES if rule != "served"]  # in windows it counts calls
    assert counted == sorted(NUMBERS, key=lambda name: -NUMBERS[name])


@pytest.mark.parametrize("loop", LOOPS)
def test_both_count_the_same_steps(drive: Drive, loop: str) -> None:
    rule, steps, lines = LOOPS[loop]

    assert found_afterwards(drive, lines) == (rule, steps)
    # A wait begins its step, and that it was empty shows only when it ends; the end of an optimizer,
    # or a mark, begins the next one.
    begins_its_own = rule == "loader" and not lines.rstrip().endswith("wait(is_empty=True)")
    last = steps - 1 if begins_its_own else steps
    assert seen_by_the_agent(drive, lines) == (NUMBERS[rule], last)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_count_the_same_steps_whatever_is_between(drive: Drive, seed: int) -> None:
    lines = shuffled(seed)
    rule, steps = found_afterwards(drive, lines)

    assert (rule, steps) == ("optimizer", lines.count("optimize(1"))
    assert seen_by_the_agent(drive, lines) == (NUMBERS[rule], steps)
