"""Trains a perceptron of two layers by JAX on data that it makes itself.

Needs jax. Nothing is downloaded.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp

INPUTS, HIDDEN, CLASSES, BATCH = 256, 512, 10, 128
Parameters = dict[str, jax.Array]


def loss(parameters: Parameters, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Cross entropy of a batch."""
    with jax.named_scope("hidden"):
        hidden = jnp.tanh(images @ parameters["hidden"])
    with jax.named_scope("classes"):
        scores = hidden @ parameters["classes"]
    chosen = jax.nn.log_softmax(scores)[jnp.arange(BATCH), labels]
    return -chosen.mean()


@jax.jit
def step(
    parameters: Parameters, images: jax.Array, labels: jax.Array
) -> tuple[Parameters, jax.Array]:
    """One step of gradient descent."""
    value, gradients = jax.value_and_grad(loss)(parameters, images, labels)
    return jax.tree.map(lambda one, gradient: one - 0.1 * gradient, parameters, gradients), value


def main() -> None:
    """Train."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    parameters = {
        "hidden": jax.random.normal(keys[0], (INPUTS, HIDDEN)) * 0.05,
        "classes": jax.random.normal(keys[1], (HIDDEN, CLASSES)) * 0.05,
    }
    images = jax.random.normal(keys[2], (BATCH, INPUTS))
    labels = jax.random.randint(keys[3], (BATCH,), 0, CLASSES)
    for _ in range(steps):
        parameters, value = step(parameters, images, labels)
    print(f"{steps} steps, loss {float(value):.3f}")


if __name__ == "__main__":
    main()
