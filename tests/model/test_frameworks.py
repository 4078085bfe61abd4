"""How frameworks name their spans, here and in the agent."""

from __future__ import annotations

import fnmatch
import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.model import frameworks
from layerscope.model.framework import Framework, any_of
from layerscope.model.layers import KINDS
from tests.recorded import ROOT


def test_the_agents_table_is_made_of_these_declarations() -> None:
    spec = importlib.util.spec_from_file_location("native_names", ROOT / "native_names.py")
    assert spec is not None
    assert spec.loader is not None
    native_names = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native_names)
    assert native_names.header() == native_names.OUTPUT.read_text(), "run: python3 dev.py native"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("autograd::engine::evaluate_function: MulBackward0", "backward"),
        ("Optimizer.step#Adam.step", "optimizer"),
        ("Optimizer.zero_grad#SGD.zero_grad", "optimizer"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "loader"),
        ("enumerate(DataLoader)", ""),
        ("my Optimizer.step#", ""),
        ("aten::add", ""),
    ],
)
def test_a_name_says_what_its_span_is(name: str, kind: str) -> None:
    assert frameworks.kind_of(name) == kind


def test_every_declared_kind_is_one() -> None:
    for framework in frameworks.frameworks():
        assert {kind for kind, _ in framework.kinds} <= set(KINDS)


@given(st.text("ab*", max_size=6), st.text("ab\n", max_size=8))
def test_a_star_stands_for_any_text(pattern: str, name: str) -> None:
    framework = Framework(name="x", title="X", kinds=(("loader", pattern),))
    assert bool(framework.kind_of(name)) == fnmatch.fnmatchcase(name, pattern)


def test_no_pattern_matches_nothing() -> None:
    assert any_of(("", "")).search("") is None
    assert any_of(("a", "", "b")).search("b")


def test_what_declares_nothing_is_a_framework() -> None:
    nothing = Framework(name="x", title="X")
    assert nothing.kind_of("anything") == ""


@pytest.mark.parametrize(
    ("op_name", "is_backward"),
    [
        ("jit(step)/jvp(hidden)/dot_general", False),
        ("jit(step)/transpose(jvp(hidden))/dot_general", True),
        ("jit(step)/vmap(transpose(jvp(loss)))/mul", True),
        ("jit(step)/transpose(vmap(jvp()))/mul", True),
        ("jit(step)/transpose", False),  # of a matrix
        ("gradients/MatMul", None),
    ],
)
def test_a_scope_says_whether_it_is_of_a_backward_pass(
    op_name: str, is_backward: bool | None
) -> None:
    assert frameworks.in_backward(f'{{"op_name": "{op_name}", "opcode": "dot"}}') is is_backward
