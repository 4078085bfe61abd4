"""Programs with a known answer, as the samples of their threads tell it.

Shares of CPU time are compared within the error of sampling: of n samples a share p is known to
sqrt(p (1 - p) / n), and five times that is never exceeded by chance. Waits are compared with what
the program itself measured.
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest

from layerscope.ingest.open import open_run
from tests.attempts import once_in_three
from tests.quick_torch import quick
from tests.recorded import Recorded, layerscope

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.usefixtures("native_agent", "perf_events"),
]

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "stacked.py"
SIGMAS = 5
# Frames of Python on each sample's stack.
ABOVE = """
    WITH RECURSIVE above(stack, ancestor) AS (
        SELECT stack, stack FROM stacks
        UNION ALL SELECT above.stack, s.parent FROM above JOIN stacks s ON s.stack = above.ancestor
        WHERE s.parent IS NOT NULL
    ),
    framed AS (SELECT above.stack, f.* FROM above JOIN stacks s ON s.stack = above.ancestor JOIN frames f USING (frame))
"""


def record(python: str, folder: Path, kind: str, *options: str) -> tuple[Recorded, dict[str, Any]]:
    """Record one of the programs, with what it says itself."""
    folder = Path(tempfile.mkdtemp(dir=folder))  # of each attempt one of its own
    words = (
        "run",
        "-o",
        "recording",
        "--layers",
        "+stacks",
        *options,
        "--",
        python,
        str(PROGRAM),
        kind,
    )
    done = layerscope(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    recorded = Recorded(
        open_run(folder / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )
    assert recorded.rows("SELECT code, what FROM problems WHERE layer = 'stacks'") == []
    return recorded, json.loads(done.stdout)


def line_of(text: str) -> int:
    """The line of the program with this text."""
    return 1 + next(i for i, line in enumerate(PROGRAM.read_text().splitlines()) if text in line)


def weight_below(recorded: Recorded, function: str, where: str) -> int:
    """The weight of all samples that have this function of Python on their stack."""
    found = recorded.value(
        f"{ABOVE} SELECT sum(weight_ns) FROM samples WHERE {where} AND stack IN "
        f"(SELECT stack FROM framed WHERE layer = 'python' AND name = '{function}')"
    )
    return int(found or 0)


def test_cpu_time_is_shared_as_it_was_used(program_python: str, tmp_path: Path) -> None:
    recorded, _ = record(program_python, tmp_path, "split")

    most, less = (
        weight_below(recorded, f"burn_{name}", "kind = 'cpu'") for name in ("most", "less")
    )
    count = recorded.value("SELECT count(*) FROM samples WHERE kind = 'cpu' AND state = 'user'")
    error = SIGMAS * math.sqrt(0.24 / count)
    assert error < 0.15
    assert abs(most / (most + less) - 0.6) < error
    # Together they are all the CPU time that the program measured.
    assert abs((most + less) / 3.6e9 - 1) < 0.05
    whole = recorded.value("SELECT sum(weight_ns) FROM samples WHERE kind = 'cpu'")
    threads = recorded.value("SELECT sum(cpu_ns) FROM tracks")
    assert abs(whole / threads - 1) < 0.02


@once_in_three
def test_waits_for_a_lock_are_charged_to_their_line(program_python: str, tmp_path: Path) -> None:
    recorded, told = record(program_python, tmp_path, "locks")

    line = line_of("# the line that waits")
    found = recorded.rows(
        f"{ABOVE}, here AS (SELECT DISTINCT stack FROM framed WHERE layer = 'python' AND line = {line}) "
        "SELECT state, exact, sum(weight_ns) AS ns, count(*) AS n FROM samples JOIN here USING (stack) "
        "WHERE kind = 'offcpu' GROUP BY ALL"
    )
    ns = sum(row["ns"] for row in found if row["state"] == "lock" and row["exact"])
    # A wait has a stack if the sampler got a CPU while it lasted.
    assert sum(row["n"] for row in found if row["state"] == "lock") >= 8
    # The program's own clock runs on while it goes into the wait and comes out of it, or waits for
    # a CPU.
    assert 0.4 * told["waited_ns"] < ns <= told["waited_ns"]


@once_in_three
def test_a_fight_for_the_interpreter_is_one(program_python: str, tmp_path: Path) -> None:
    recorded, _ = record(program_python, tmp_path, "gil")

    waited = recorded.rows("SELECT state, sum(weight_ns) AS ns FROM samples WHERE kind = 'offcpu' AND track IN "
                           "(SELECT track FROM tracks WHERE cpu_ns > 1000000000) GROUP BY 1")  # fmt: skip
    ns = {row["state"]: int(row["ns"]) for row in waited}
    # While one has it the other waits: about 1.2 s each, more where others have the CPU.
    assert ns["gil"] > 1e9
    assert (
        weight_below(recorded, "burn_most", "kind = 'offcpu' AND state = 'gil'") > 0.9 * ns["gil"]
    )


@once_in_three
def test_waiting_for_a_pipe_is_found_where_it_is_read(program_python: str, tmp_path: Path) -> None:
    recorded, told = record(program_python, tmp_path, "pipes")

    ns = weight_below(recorded, "_ConnectionBase.recv_bytes", "kind = 'offcpu' AND state = 'pipe'")
    assert 0.4 * told["waited_ns"] < ns <= told["waited_ns"]
    # The child sleeps meanwhile, and is a process of the recording too.
    assert weight_below(recorded, "_send", "kind = 'offcpu' AND state = 'sleep'") > 0.4e9


@once_in_three
def test_page_faults_are_counted_and_found(program_python: str, tmp_path: Path) -> None:
    recorded, told = record(program_python, tmp_path, "faults")

    counted = recorded.value(
        f"{ABOVE} SELECT sum(count) FROM samples WHERE kind = 'fault' AND stack IN "
        "(SELECT stack FROM framed WHERE layer = 'python' AND name = 'faults')"
    )
    assert abs(counted / told["pages"] - 1) < 0.05
    kernel, user = (
        weight_below(recorded, "faults", f"kind = 'cpu' AND state = '{state}'")
        for state in ("kernel", "user")
    )
    assert kernel > 0.2 * user


MAKES_CODE = """
import json, os, time, torch
torch.set_num_threads(1)
x, w = torch.rand(8, 16, 64, 64), torch.rand(32, 16, 3, 3)
end = time.process_time() + 0.5
while time.process_time() < end:
    torch.conv2d(x, w)
child = os.fork()
if not child:
    end = time.process_time() + 0.5
    while time.process_time() < end:
        torch.conv2d(x, w)
    os._exit(0)
os.waitpid(child, 0)
print(json.dumps([os.path.exists(f"/tmp/perf-{pid}.map") for pid in (os.getpid(), child)]))
"""


def test_code_that_onednn_makes_has_its_name_and_leaves_no_file(
    program_python: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(quick(MAKES_CODE))
    done = layerscope("run", "-o", "recording", "--", program_python, "program.py", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)) == (0, [False, False]), done.stderr

    recorded = Recorded(
        open_run(tmp_path / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )
    by_process = recorded.rows(
        f"{ABOVE} SELECT process, count(DISTINCT at_ns) AS n FROM samples JOIN framed USING (stack) "
        "JOIN tracks USING (track) WHERE framed.name LIKE 'jit_avx%' GROUP BY process"
    )
    assert len(by_process) == 2  # the child has what its parent had made
    assert min(row["n"] for row in by_process) > 3


def test_samples_are_inside_of_the_operators_that_ran(program_python: str, tmp_path: Path) -> None:
    recorded, _ = record(program_python, tmp_path, "operators")

    names = recorded.rows(
        f"{ABOVE} SELECT layer, name, sum(weight_ns) AS ns FROM samples JOIN framed USING (stack) "
        "WHERE kind = 'cpu' AND layer IN ('modules', 'operators') GROUP BY ALL"
    )
    sampled = {(row["layer"], row["name"]): row["ns"] for row in names}
    spans = recorded.rows("SELECT layer, name, sum(dur_ns) AS ns FROM spans GROUP BY ALL")
    timed = {(row["layer"], row["name"]): row["ns"] for row in spans}
    whole = recorded.value(
        "SELECT sum(weight_ns) FROM samples WHERE kind = 'cpu' AND span IS NOT NULL"
    )
    count = recorded.value("SELECT count(*) FROM samples WHERE kind = 'cpu' AND span IS NOT NULL")
    # Shares of CPU time against shares of time: the program runs nothing else, but others may take
    # its CPU meanwhile.
    for key in (("operators", "aten::mm"), ("operators", "aten::linear"), ("modules", "Linear")):
        outer = timed["operators", "products"] + timed["modules", "Linear"]
        share = timed[key] / outer
        assert (
            abs(sampled[key] / whole - share)
            < SIGMAS * math.sqrt(share * (1 - share) / count) + 0.1
        )
    # From the outside in: Python, range, operator, native.
    stack = recorded.value(
        "SELECT any_value(stack) FROM samples JOIN spans USING (span) "
        "WHERE samples.kind = 'cpu' AND spans.name = 'aten::mm'"
    )
    layers = [
        row["layer"]
        for row in recorded.rows(f"{ABOVE} SELECT layer FROM framed WHERE stack = {stack}")
    ]
    assert {"python", "operators", "native"} <= set(layers)
