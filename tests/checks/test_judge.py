"""The checks together: their order, their levels, and machines that tell little."""

from __future__ import annotations

from typing import Any

import pytest

from layerscope.checks import judge, machine
from layerscope.checks.check import ERROR, NOTE, OK, STATES, UNSEEN, WARNING, Check
from layerscope.host.gpu import Gpus
from tests.checks.machines import seen
from tests.checks.test_checks import LIMITED


def test_the_files_of_the_folder_are_the_checks() -> None:
    modules = judge.modules()
    assert [module.ORDER for module in modules] == sorted(module.ORDER for module in modules)
    assert {module.__name__.rpartition(".")[2] for module in modules} >= {
        "threads",
        "throttling",
        "variables",
        "profiling",
    }
    assert all(
        module.__name__.startswith(f"{machine.__name__}.") and module.__doc__ for module in modules
    )


def test_the_worst_comes_first_and_is_counted() -> None:
    found = [
        Check(state, state, state, "x") for state in (OK, UNSEEN, NOTE, WARNING, ERROR, WARNING)
    ]
    assert [check.state for check in judge.worst_first(found)] == [
        ERROR,
        WARNING,
        WARNING,
        NOTE,
        OK,
        UNSEEN,
    ]
    assert judge.count_sentence(found) == "1 error, 2 warnings, 1 note, 1 ok, 1 unseen"
    assert judge.totals(found) == {OK: 1, NOTE: 1, WARNING: 2, ERROR: 1, UNSEEN: 1}
    assert set(judge.totals([])) == set(STATES)


@pytest.mark.parametrize(
    ("state", "fails_on"),
    [(OK, []), (UNSEEN, []), (NOTE, []), (WARNING, [WARNING]), (ERROR, [WARNING, ERROR])],
)
def test_a_level_fails_for_what_is_as_bad_or_worse(state: str, fails_on: list[str]) -> None:
    found = [Check("x", "x", OK, "x"), Check("x", "x", state, "x")]
    assert [level for level in (WARNING, ERROR) if judge.fails(found, level)] == fails_on


ODD: dict[type, tuple[Any, ...]] = {
    int: (0, 1, 2**40), float: (0.0, 1e-9, 1e9), str: ("", "?", "x" * 5000), bool: (True, False),
    tuple: ((), (0,), (7,)),
}  # fmt: skip
NO_NUMBERS = ("support", "libraries", "argv", "flags", "unread", "pmus", "capabilities")


@pytest.mark.parametrize(
    "section", ["cpu", "isa", "cgroup", "memory", "noise", "kernel", "process", "watched"]
)
def test_no_fact_that_is_missing_or_odd_breaks_a_check(section: str) -> None:
    """One fact after the other is not told, or is what nobody expects."""
    plain = seen(watched={}, process={}, cgroup=LIMITED)
    about = plain.watched if section == "watched" else getattr(plain.machine, section)
    for field in fields(about):
        value = getattr(about, field)
        odd = ((),) if field in NO_NUMBERS else ODD.get(type(value), ())
        for other in (None, *odd) if _may_be_none(about, field) else odd:
            given = {"process": {}, "watched": {}, "cgroup": LIMITED}
            given[section] = {**given.get(section, {}), field: other}
            found = judge.judged(seen(**given))
            assert {check.state for check in found} <= set(STATES)
            assert all(check.evidence for check in found), (field, other)
            codes = [check.code for check in found]
            assert len(codes) == len(set(codes)), (field, other)


def fields(about: Any) -> tuple[str, ...]:
    return tuple(type(about).__annotations__)


def _may_be_none(about: Any, field: str) -> bool:
    return "None" in str(type(about).__annotations__[field])


def test_a_machine_that_tells_nothing_breaks_no_check() -> None:
    about = seen(
        cpu={"online": (), "allowed": (), "granted": 0.0, "cores": None, "governor": "", "model": ""},
        isa={"flags": (), "support": ()}, numa=(), cgroup={"version": 0}, gpus={},
        memory=dict.fromkeys(("total_bytes", "available_bytes", "swap_bytes", "swappiness")),
        noise=dict.fromkeys(("load", "pressure_cpu", "pressure_memory", "pressure_io", "steal_share")),
        process={"libraries": (), "threads": 0},
        watched=dict.fromkeys(("process_threads", "process_cpus", "busy_share", "steal_share", "faults")),
    )  # fmt: skip
    assert about.machine.gpus == Gpus()
    found = judge.judged(about)
    assert {check.state for check in found} <= {OK, UNSEEN}
