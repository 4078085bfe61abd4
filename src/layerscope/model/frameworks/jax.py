"""JAX: its operators are those of XLA, called by the compiler."""

from __future__ import annotations

from layerscope.model.framework import Framework, PublicNames

FRAMEWORK = Framework(
    name="jax",
    title="JAX",
    environment=("JAX_", "XLA_"),
    public=PublicNames(libraries=("libjax_common", "xla_extension"), packages=("jax", "jaxlib")),
)
