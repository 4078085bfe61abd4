"""JAX on a CPU: `train` makes jitted steps of 0.7 ms, `eager` small operators one by one, `many`
steps of many tiny operators, by which a profile grows quickly. Prints what its loop took.
"""

from __future__ import annotations

import json
import sys
import time

import jax
import jax.numpy as jnp

INPUTS, HIDDEN, OUTPUTS, BATCH = 256, 512, 64, 64
TINY = 32
WARM_UP = 20


def loss(parameters: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """Of a perceptron with two layers."""
    hidden = jnp.tanh(x @ parameters["in"])
    return jnp.mean((hidden @ parameters["out"] - y) ** 2)


@jax.jit
def train(parameters: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    """A step of gradient descent."""
    gradients = jax.grad(loss)(parameters, x, y)
    return jax.tree.map(lambda one, gradient: one - 0.01 * gradient, parameters, gradients)


@jax.jit
def many(x: jax.Array) -> jax.Array:
    """Some 20 instructions that take nothing."""
    for _ in range(6):
        x = jnp.tanh(x @ x) - x.mean()
    return x


def main() -> None:
    """Run one of them."""
    what, count = sys.argv[1], int(sys.argv[2])
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    parameters = {
        "in": jax.random.normal(keys[0], (INPUTS, HIDDEN)) * 0.05,
        "out": jax.random.normal(keys[1], (HIDDEN, OUTPUTS)) * 0.05,
    }
    x, y = jax.random.normal(keys[2], (BATCH, INPUTS)), jnp.zeros((BATCH, OUTPUTS))
    tiny = jnp.eye(TINY)
    for number in range(WARM_UP + count):
        if number == WARM_UP:
            jax.block_until_ready((parameters, tiny))
            begin_ns, begin_cpu_ns = time.monotonic_ns(), time.process_time_ns()
        if what == "train":
            parameters = train(parameters, x, y)
            parameters["out"].block_until_ready()
        elif what == "eager":
            tiny = tiny + tiny
        else:
            tiny = many(tiny)
    jax.block_until_ready((parameters, tiny))
    cpu_ns = time.process_time_ns() - begin_cpu_ns
    print(json.dumps({"cpu_ns": cpu_ns, "wall_ns": time.monotonic_ns() - begin_ns}))


if __name__ == "__main__":
    main()
