"""Which part of a program an instruction belongs to, by what JAX calls it."""

from __future__ import annotations

import pytest

from layerscope.sources.xplane_scopes import module_of


@pytest.mark.parametrize(
    ("op_name", "path", "kind"),
    [
        ("jit(step)/add", "step", "jit"),
        ("jit(step)/jvp(hidden)/dot_general", "step.hidden", "named_scope"),
        ("jit(step)/transpose(jvp(hidden))/dot_general", "step.hidden", "named_scope"),
        ("jit(step)/transpose(jvp(Net))/Dense_0/dot_general", "step.Net.Dense_0", "named_scope"),
        ("jit(step)/jvp(jit(log_softmax))/exp", "step.log_softmax", "jit"),
        ("jit(step)/jvp()/gather", "step", "jit"),
        ("jit(f)/while/body/closed_call/layer.1/add", "f.layer_1", "named_scope"),
        ("jit(f)/cond/branch_1_fun/add", "f", "jit"),
        ("jit(f)/jvp(net)/mul;jit(f)/transpose(jvp(net))/neg", "f.net", "named_scope"),
    ],
)
def test_scopes_are_modules_in_the_function_that_is_compiled(
    op_name: str, path: str, kind: str
) -> None:
    assert module_of(op_name) == f"{path}\n{kind}\n"


@pytest.mark.parametrize("op_name", ["", "add", "while/body/add", "jvp()/add"])
def test_what_is_in_no_scope_is_in_no_module(op_name: str) -> None:
    assert module_of(op_name) == ""
