"""When segments of JAX's profiler are recorded: not while the program uses that itself, and in
windows alone where these are asked for. Profilers of the program see nothing of ours.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.differential import Differential
from tests.recorded import record

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("native_agent")]

OWN = """
import jax, jax.numpy as jnp, pathlib
double = jax.jit(lambda x: x * 2)
double(jnp.ones(3)).block_until_ready()
for number in (1, 2):
    with jax.profiler.trace(f"mine{number}"):
        with jax.profiler.StepTraceAnnotation("train", step_num=1):
            double(jnp.ones(3)).block_until_ready()
    raw = pathlib.Path("recording.layerscope/raw")
    while raw.exists() and not list(raw.glob(f"*-{number + 1}.profile")): pass
    for _ in range(7): double(jnp.ones(3)).block_until_ready()
print(len(list(pathlib.Path().rglob("*.xplane.pb"))))
try: jax.profiler.stop_trace()
except RuntimeError as error: print(error)
jax.profiler.start_server(0)
double(jnp.ones(4)).block_until_ready()
"""
# What the program's own profilers see, and what it finds where XLA's is.
UNSEEN = """
import cProfile, gc, pstats, shutil
import jax, jax.numpy as jnp
from jax._src.lib import _profiler
jax.jit(lambda x: x * 3)(jnp.ones(3)).block_until_ready()
print(dir(_profiler))
jax.profiler.start_trace("mine")
try: jax.profiler.start_trace("another")
except RuntimeError as error: print(error)
jax.profiler.stop_trace()
shutil.rmtree("mine")  # its files are called by the time
double = jax.jit(lambda x: x * 2)
gc.disable()
profile = cProfile.Profile()
profile.enable()
double(jnp.ones(3)).block_until_ready()
profile.disable()
names = {where[:1] + where[2:] for where in pstats.Stats(profile).stats}
print(sorted(name for name in names if " at 0x" not in name[1]))
print(_profiler.ProfilerSession, isinstance(profile, _profiler.ProfilerSession), hasattr(_profiler, "nothing"))
print(sorted(vars(_profiler)))
"""

LOOPS = """
import time
begin = time.monotonic()
import jax, jax.numpy as jnp
double = jax.jit(lambda x: x * 2)
while time.monotonic() < begin + 3.5:
    double(jnp.ones(3)).block_until_ready()
    time.sleep(0.002)
"""


def test_a_trace_of_the_program_s_own_comes_first_and_ours_goes_on_behind_it(
    jax_python: str, tmp_path: Path
) -> None:
    recorded = record(jax_python, OWN, tmp_path, options=("--budget", "none"))
    assert recorded.status == 0, recorded.stderr
    assert recorded.stdout == "2\nNo profile started\n"
    calls = """SELECT count(*) FROM spans
        WHERE name = 'PjitFunction(<lambda>)' AND kind = 'function'"""
    assert recorded.value(calls) >= 14
    said = recorded.value("SELECT what FROM problems WHERE code = 'segments_over'")
    assert re.search(r"\(\d\.\d\d to \d+\.\d\d s, \d.* to .* s, from \S+ s on, counted", said), said
    assert recorded.value("SELECT count(*) FROM gaps WHERE reason = 'no_segment'") == 3


def test_profilers_of_the_program_see_nothing_of_ours(tmp_path: Path, jax_python: str) -> None:
    differential = Differential(tmp_path, ("--without", "stacks"))
    program = tmp_path / "unseen.py"
    program.write_text(UNSEEN)

    outcome = differential.same([jax_python, str(program)])

    assert outcome.status == 0, outcome.stderr
    assert differential.recorded().count("compile jit(<lambda>)") == 2


def test_in_a_window_of_seconds_only_that_is_recorded(jax_python: str, tmp_path: Path) -> None:
    options = ("--without", "stacks", "--after", "2.5", "--for", "0.4")
    recorded = record(jax_python, LOOPS, tmp_path, options=options)
    assert recorded.status == 0, recorded.stderr
    assert len(list(recorded.run.raw.glob("*_segment.pb"))) == 1
    (found,) = recorded.rows(
        """SELECT count(*) AS n, max(start_ns) - min(start_ns) AS ns FROM spans
        WHERE name = 'PjitFunction(<lambda>)' AND kind = 'function'"""
    )
    assert found["n"] > 3
    assert 0 < found["ns"] <= 450_000_000
    assert recorded.value("SELECT count(*) FROM gaps") == 0
