"""Each rule against its pair of programs (tests/findings/pairs): with the fault it is the first finding, without it
there is none, and in the pairs of other rules it is absent.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from layerscope.analyse import findings
from layerscope.analyse.findings import RunFindings
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader

PAIRS = Path(__file__).resolve().parent / "pairs"
RECORDINGS = PAIRS.parents[1] / "golden" / "findings"
RULES = sorted(file.stem for file in PAIRS.glob("*.py"))


@cache
def found_in(rule: str, twin: str) -> RunFindings:
    with Reader(open_run(RECORDINGS / rule / f"{twin}.layerscope.zip")) as reader:
        return findings.find(reader)


def rules_in(rule: str, twin: str) -> list[str]:
    """What was found in a twin, in order."""
    return [one.rule for one in found_in(rule, twin).found]


def also(rule: str) -> tuple[str, ...]:
    """What else the sick program rightly has."""
    for node in ast.parse((PAIRS / f"{rule}.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ALSO":
            return tuple(ast.literal_eval(node.value))
    raise AssertionError(f"{rule}.py has no ALSO")


@pytest.fixture(autouse=True, scope="module")
def cache_of_unpacked(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def test_every_rule_has_a_pair() -> None:
    assert sorted(findings.names()) == RULES


@pytest.mark.parametrize("rule", RULES)
def test_the_fault_is_the_first_finding(rule: str) -> None:
    found = rules_in(rule, "sick")

    assert found[:1] == [rule]
    assert set(found) <= {rule, *also(rule)}


@pytest.mark.parametrize("rule", RULES)
def test_the_healthy_twin_has_no_finding(rule: str) -> None:
    assert rules_in(rule, "healthy") == []


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_fails_on_a_pair(rule: str) -> None:
    assert found_in(rule, "sick").problems == []
    assert found_in(rule, "healthy").problems == []
