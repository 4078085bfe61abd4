"""Named scopes of JAX as modules: which part of a program an instruction of XLA belongs to, by what
JAX calls it. Used by `xplane_recorded`.

JAX calls an instruction by the functions and scopes that it was traced in and the primitive, such
as `jit(step)/transpose(jvp(hidden))/dot_general`: the scope `hidden` of `step`, in its backward
pass.
"""

from __future__ import annotations

import re

# What a transformation has done to a scope; the innermost name is the scope.
_WRAPPED = re.compile(r"(\w+)\((.*)\)$", re.DOTALL)
_FUNCTION = "jit"
# Of control flow and of transformations, which nobody has named.
_UNNAMED = {
    "",
    "while",
    "body",
    "cond",
    "scan",
    "closed_call",
    "core_call",
    "checkpoint",
    "rematted_computation",
    "remat",
    "pjit",
    "shard_map",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
}
_BRANCH = re.compile(r"branch_\d+_fun$")
_CLASS_OF_FUNCTION, _CLASS_OF_SCOPE = "jit", "named_scope"


def module_of(op_name: str) -> str:
    """The module of an instruction as raw files have it: path, class and line, a line each; empty:
    it is in none. One that is fused of several may have the names of all.
    """
    first, _, _ = op_name.partition(";")
    *around, _ = first.split("/")
    parts = [_named(one) for one in around]
    path = [name for name, _ in parts if name]
    if not path:
        return ""
    kind = next(kind for name, kind in reversed(parts) if name)
    return f"{'.'.join(path)}\n{kind}\n"


def _named(part: str) -> tuple[str, str]:
    """The name in one part, and what has it."""
    kind = _CLASS_OF_SCOPE
    while wrapped := _WRAPPED.match(part):
        kind = _CLASS_OF_FUNCTION if wrapped[1] == _FUNCTION else _CLASS_OF_SCOPE
        part = wrapped[2]
    if part in _UNNAMED or _BRANCH.match(part):
        return "", kind
    return part.replace(".", "_"), kind
