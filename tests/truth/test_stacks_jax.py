"""Samples of a JAX program: its matrix kernels use the stack pointer for something else, on threads
of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorded import record
from tests.repeated import also

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]

PROGRAM = """
import jax, jax.numpy as jnp

def loss(parameters, x, y):
    hidden = jnp.tanh(x @ parameters["in"])
    return jnp.mean((hidden @ parameters["out"] - y) ** 2)

@jax.jit
def step(parameters, x, y):
    value, gradient = jax.value_and_grad(loss)(parameters, x, y)
    return {name: parameters[name] - 0.01 * gradient[name] for name in parameters}, value

key = jax.random.PRNGKey(0)
parameters = {"in": jax.random.normal(key, (512, 1024)), "out": jax.random.normal(key, (1024, 64))}
x, y = jax.random.normal(key, (256, 512)), jnp.zeros((256, 64))
for _ in range(300):
    parameters, value = step(parameters, x, y)
print("loss is a number:", bool(value.block_until_ready() == value))
"""


@pytest.mark.parametrize("number", [1, *also(range(2, 21))])
def test_a_jax_program_trains_to_its_end_with_samples_of_its_workers(
    jax_python: str, tmp_path: Path, number: int
) -> None:
    """20 times in `dev.py stress`: where the stack pointer lies when a signal comes is chance."""
    recorded = record(jax_python, PROGRAM, tmp_path, options=("--rate", "400", "--budget", "none"))

    assert (recorded.status, recorded.stdout) == (0, "loss is a number: True\n"), recorded.stderr
    # Of the threads that nobody has told the agent of, as many as there are CPUs compute.
    workers = """
    SELECT count(*) FROM (
        SELECT s.track FROM samples s JOIN tracks t USING (track)
        WHERE s.kind = 'cpu' AND s.stack IS NOT NULL AND t.name LIKE 'tf_XLA%' GROUP BY s.track HAVING count(*) > 20
    )
    """
    assert recorded.value(workers) >= 1
    # Operators of XLA lie between the frames that ask for them and those of the library.
    inside = """
    SELECT count(*) FROM stacks s JOIN frames f USING (frame) JOIN stacks p ON p.stack = s.parent
    JOIN frames begins ON begins.frame = p.frame
    WHERE f.layer = 'operators' AND begins.name LIKE 'xla::cpu::ThunkExecutor::TracedExecute%'
    """
    assert recorded.value(inside) > 3
