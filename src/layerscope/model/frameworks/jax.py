"""JAX: its operators are those of XLA, called by the compiler."""

from __future__ import annotations

from layerscope.model.framework import PLAIN_OPERATOR, Anchor, Framework, PublicNames

FRAMEWORK = Framework(
    name="jax",
    title="JAX",
    environment=("JAX_", "XLA_"),
    scope_classes=frozenset({"jit", "named_scope"}),
    scoped=r'"op_name": ?"p?jit\(',
    anchors=(
        Anchor("native", r"xla::cpu::ThunkExecutor::TracedExecute", "operators", PLAIN_OPERATOR),
    ),
    launches=r"PjitFunction\(.*\)",
    executed=r'"hlo_op": ?"',
    blocked=r"CommonPjRtBuffer::Await",
    # What a transformation has done to a scope is around its name: the gradient of a function is
    # the transpose of how it changes.
    backward_scoped=r"\btranspose\((\w+\()*jvp\(",
    public=PublicNames(libraries=("libjax_common", "xla_extension"), packages=("jax", "jaxlib")),
)
