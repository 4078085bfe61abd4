"""The example in C with MXNet: trained and recorded with both versions, with calls of MXNet's own
profiler and without.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.mxnet_folder import mxnet_folder
from tests.recorded import NO_STACKS, ROOT, Recorded, layerscope

BUILD = ROOT / "examples" / "native" / "build.py"
EPOCH = re.compile(r"Epoch: (\d+) (\d+\.\d) samples/sec Accuracy: ([01]\.\d{4})")
# Of the data that it makes up, in batches of 100, with two hidden layers.
EPOCHS, BATCHES, UNSEEN, LAYERS = 2, 12, 10, 3
EACH_OPERATOR = ("--epochs", str(EPOCHS), "--limit", str(BATCHES))
NO_BULKS = {
    "OMP_NUM_THREADS": "1",
    "MXNET_EXEC_BULK_EXEC_TRAIN": "0",
    "MXNET_EXEC_BULK_EXEC_INFERENCE": "0",
    "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN": "0",
}
LIMIT_S = 120

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(
    mxnet_python: str, native_agent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The compiled example, for each version of MXNet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXNET", str(mxnet_folder(mxnet_python)))
        built = runpy.run_path(str(BUILD))["build_mxnet_mlp"](tmp_path_factory.mktemp("built"))
    assert isinstance(built, Path)
    return built


def recorded(
    program: Path, cwd: Path, *words: str, options: tuple[str, ...] = NO_STACKS
) -> Recorded:
    """The recording of the example with these arguments."""
    command = ("run", "-o", "recording", *options, "--", str(program), *words)
    done = layerscope(*command, cwd=cwd, env=NO_BULKS)
    run = open_run(cwd / "recording.layerscope")
    found = Recorded(run, done.returncode, done.stdout, done.stderr)
    assert found.status == 0, found.stderr
    return found


def counts(recording: Recorded, where: str) -> Counter[str]:
    """Spans by name."""
    rows = recording.rows(
        f"SELECT name, count(*)::INT AS count FROM spans WHERE {where} GROUP BY name"
    )
    return Counter({row["name"]: row["count"] for row in rows})


def expected(batches: int, unseen: int) -> Counter[str]:
    """What the program hands to the engine by name, from its first operator on."""
    forward = batches + unseen
    return Counter(
        {
            "FullyConnected": LAYERS * forward,
            "Activation": (LAYERS - 1) * forward,
            "SoftmaxOutput": forward,
            "_backward_FullyConnected": LAYERS * batches,
            "_backward_Activation": (LAYERS - 1) * batches,
            "_backward_SoftmaxOutput": batches,
            "sgd_update": 2 * LAYERS * batches,
            # Copies from the program's memory: of the parameters, of images and labels.
            "(no name)": 2 * LAYERS + 2 * forward,
        }
    )


@pytest.fixture(scope="module")
def plain(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A recording without calls of MXNet's profiler."""
    return recorded(program, tmp_path_factory.mktemp("plain"), *EACH_OPERATOR)


@pytest.fixture(scope="module", params=["old", "new"])
def profiled(
    request: pytest.FixtureRequest, program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    """A recording with calls of MXNet's profiler, by its old names and by its new ones."""
    words = (*EACH_OPERATOR, "--profile", request.param, "--statistics")
    folder = tmp_path_factory.mktemp("profiled")
    return recorded(program, folder, *words, options=(*NO_STACKS, "--step-mark", "batch"))


def test_it_learns_digits(program: Path, program_python: str, tmp_path: Path) -> None:
    draw = [program_python, str(ROOT / "examples" / "make_digits.py"), "--data", str(tmp_path)]
    subprocess.run([*draw, "--train", "1200", "--test", "300"], capture_output=True, check=True)
    command = [str(program), "--data", str(tmp_path), "--epochs", "8", "64", "128"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)

    assert done.returncode == 0, done.stderr
    epochs = [EPOCH.fullmatch(line) for line in done.stdout.splitlines()]
    assert [found and found[1] for found in epochs] == [str(epoch) for epoch in range(8)]
    accuracies = [float(found[3]) for found in epochs if found]
    assert accuracies[-1] > 0.9
    assert accuracies[-1] > accuracies[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data"], "--data needs a value"),
        (["--bogus", "1"], "there is no option --bogus"),
        (["--epochs", "0"], "--epochs wants a whole number from 1, not 0"),
        (["--profile", "both"], "--profile wants old or new, not both"),
        (["--data", "/nowhere"], "/nowhere/train-images-idx3-ubyte cannot be read"),
        (["--batch-size", "100000"], "there are fewer images than a batch has"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(program: Path, words: list[str], said: str) -> None:
    command = [str(program), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1]


def test_every_operator_is_recorded_from_the_first_one_on(plain: Recorded) -> None:
    submitted = expected(EPOCHS * BATCHES, EPOCHS * UNSEEN)

    operators = counts(plain, "layer = 'operators'")
    assert {name: operators[name] for name in submitted} == submitted
    assert operators == counts(plain, "layer = 'api' AND kind = 'submit'")
    assert plain.value("SELECT count(*) FROM links WHERE kind = 'submit_execute'") == sum(
        operators.values()
    )
    assert not plain.rows("SELECT * FROM problems")
    assert not plain.rows("SELECT * FROM gaps")


def test_every_call_of_the_c_interface_is_recorded(plain: Recorded) -> None:
    calls = counts(plain, "layer = 'api' AND kind = 'call'")

    invoked = expected(EPOCHS * BATCHES, EPOCHS * UNSEEN)
    by_name = ("FullyConnected", "Activation", "SoftmaxOutput", "sgd_update")
    assert calls["MXImperativeInvoke"] == sum(invoked[name] for name in by_name)
    assert calls["MXNDArraySyncCopyFromCPU"] == invoked["(no name)"]
    assert calls["MXNDArraySyncCopyToCPU"] == EPOCHS * UNSEEN
    assert calls["MXAutogradBackwardEx"] == EPOCHS * BATCHES


def test_every_primitive_lies_in_an_operator(plain: Recorded) -> None:
    assert plain.value("SELECT count(*) FROM primitives") > 5 * EPOCHS * BATCHES
    assert plain.value("SELECT count(*) FROM primitives WHERE operator IS NULL") == 0


def test_it_names_the_version_and_counts_memory(plain: Recorded) -> None:
    assert plain.run.info.versions["mxnet"] in ("1.9.1", "2.0.0b1")
    assert plain.value("SELECT max(value) FROM counters WHERE name = 'memory_bytes of cpu(0)'") > 0


def test_calls_are_left_out_where_nobody_asks_for_them(program: Path, tmp_path: Path) -> None:
    options = ("--without", "stacks,api")
    recording = recorded(program, tmp_path, *EACH_OPERATOR, options=options)

    assert counts(recording, "layer = 'api'") == {}
    submitted = expected(EPOCHS * BATCHES, EPOCHS * UNSEEN)
    assert {**counts(recording, "layer = 'operators'"), **submitted} == counts(
        recording, "layer = 'operators'"
    )


def test_operators_are_those_that_mxnets_profiler_counts(profiled: Recorded) -> None:
    """While it runs: it pauses where the program tests what it has learned."""
    text = profiled.stdout[profiled.stdout.index("{") : profiled.stdout.rindex("}") + 1]
    counted = json.loads(text)["Time"]["operator"]

    running = counts(
        profiled,
        "layer = 'operators' AND name != '(no name)' AND 'resumed' = (SELECT arg_max(kind, at_ns) FROM marks "
        "WHERE name = 'MXNet profiler' AND at_ns < start_ns)",
    )
    assert running == {name: entry["Count"] for name, entry in counted.items()}
    assert running["FullyConnected"] == LAYERS * EPOCHS * BATCHES


def test_the_summary_speaks_of_no_python(profiled: Recorded) -> None:
    assert "no operator running" in profiled.stderr
    assert "Python" not in profiled.stderr


def test_nothing_is_left_out_where_mxnets_profiler_pauses(profiled: Recorded) -> None:
    operators = counts(profiled, "layer = 'operators'")

    submitted = expected(EPOCHS * BATCHES, EPOCHS * UNSEEN)
    assert {name: operators[name] for name in submitted} == submitted


def test_its_profiler_objects_are_ranges_counters_and_marks(profiled: Recorded) -> None:
    ranges = profiled.rows("SELECT kind, name FROM spans WHERE layer = 'ranges'")
    assert ranges == [{"kind": "task", "name": "batch"}] * EPOCHS * BATCHES
    losses = [
        row["value"]
        for row in profiled.rows(
            "SELECT value FROM counters JOIN tracks USING (track) WHERE counters.name = 'loss_millionths' "
            "AND tracks.name = 'mxnet_mlp' ORDER BY at_ns"
        )
    ]
    assert len(losses) == EPOCHS * BATCHES
    assert min(losses) < losses[0]
    marks = [
        (row["kind"], row["name"])
        for row in profiled.rows("SELECT kind, name FROM marks ORDER BY at_ns")
    ]
    state = "MXNet profiler"
    test = [
        ("paused", state),
        ("marker", "test begins"),
        ("resumed", state),
        ("marker", "test ends"),
    ]
    end = [("paused", state), ("marker", f"{state}: dump")]
    assert marks == [("resumed", state), *(EPOCHS * test), *end]


def test_a_task_is_a_step_where_it_is_asked_for(profiled: Recorded) -> None:
    assert profiled.value("SELECT count(*) FROM steps") == EPOCHS * BATCHES
    per_step = profiled.rows(
        "SELECT DISTINCT count(*)::INT AS count FROM spans WHERE layer = 'operators' AND name = 'sgd_update' "
        "GROUP BY step"
    )
    assert per_step == [{"count": 2 * LAYERS}]


def test_mxnets_profiler_writes_its_file_as_without_us(program: Path, tmp_path: Path) -> None:
    words = (*EACH_OPERATOR, "--profile", "new", "--profile-file", "own.json")
    recorded(program, tmp_path, *words)

    events = json.loads((tmp_path / "own.json").read_text())["traceEvents"]
    begun = Counter(e["name"] for e in events if e["ph"] == "B" and e.get("cat") == "operator")
    assert begun["FullyConnected"] == LAYERS * EPOCHS * BATCHES


def test_what_was_recorded_survives_a_kill(program: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "layerscope", "run", "-o", "recording", *NO_STACKS]
    words = ["--", str(program), "--epochs", "100000", "--limit", "2"]
    environment = {**os.environ, **NO_BULKS, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [*command, *words],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as session:
        assert session.stdout
        epochs = [session.stdout.readline() for _ in range(20)]
        time.sleep(0.5)  # the drainer looks several times a second
        os.kill(child_called(session.pid, program), signal.SIGKILL)
        session.communicate(timeout=LIMIT_S)

    assert all(map(EPOCH.match, epochs))
    recording = Recorded(open_run(tmp_path / "recording.layerscope"), session.returncode, "", "")
    assert session.returncode == -signal.SIGKILL
    operators = counts(recording, "layer = 'operators' AND NOT unfinished")
    assert operators["FullyConnected"] >= len(epochs) * LAYERS * (2 + UNSEEN)


def child_called(parent: int, program: Path) -> int:
    """The process that `parent` has started for this program."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (found,) = [
        int(child)
        for child in children
        if Path(f"/proc/{child}/cmdline").read_bytes().startswith(os.fsencode(program) + b"\0")
    ]
    return found


def test_a_script_that_starts_it_is_told_what_is_missing(program: Path, tmp_path: Path) -> None:
    command = f"{program} {' '.join(EACH_OPERATOR)}; exit 3"
    words = ("run", "-o", "recording", *NO_STACKS, "--", "/bin/sh", "-c", command)
    done = layerscope(*words, cwd=tmp_path, env=NO_BULKS)
    recording = Recorded(
        open_run(tmp_path / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )

    assert recording.status == 3
    (problem,) = recording.rows("SELECT code, remedy FROM problems")
    assert problem["code"] == "begun_late"
    assert "layerscope run -- ./program" in problem["remedy"]
    operators = counts(recording, "layer = 'operators'")
    # Its first product is the first that oneDNN computes; by then some copies are over.
    submitted = expected(EPOCHS * BATCHES, EPOCHS * UNSEEN)
    assert operators["sgd_update"] == submitted["sgd_update"]
    assert operators["_backward_FullyConnected"] == submitted["_backward_FullyConnected"]
    assert operators["(no name)"] < submitted["(no name)"]
