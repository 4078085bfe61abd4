"""Makes an xplane.pb of three steps of a jitted function, and says beside it what was done.

python3 jax_steps.py FOLDER
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

STEPS = 3


@jax.jit
def step(w, x):
    """A layer, and how it would be changed."""
    h = jnp.tanh(x @ w)
    return w - 0.1 * (x.T @ (h * (1 - h * h)))


def main(folder):
    """Make the trace."""
    w, x = jnp.ones((128, 128)), jnp.ones((64, 128))
    step(w, x).block_until_ready()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 2
    around = []
    with jax.profiler.trace(folder, profiler_options=options):
        for number in range(STEPS):
            began = time.clock_gettime_ns(time.CLOCK_REALTIME)
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                w = step(w, x)
            with jax.profiler.TraceAnnotation("waiting"):
                w.block_until_ready()
            around.append([began, time.clock_gettime_ns(time.CLOCK_REALTIME)])
    truth = {
        "program": "jax_steps.py",
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "launched": {"jit_step": STEPS, "train": STEPS, "waiting": STEPS},
        "realtime_ns_around_each_step": around,
        "value": float(w[0, 0]),
    }
    Path(f"{folder}/xplane.truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
