"""The examples in C++, compiled and run as a user would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.ingest.open import open_run
from tests.recorded import Recorded, layerscope

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "native"
EPOCH = re.compile(r"Epoch: (\d+) (\d+\.\d) samples/sec Accuracy: ([01]\.\d{4})")
TRAIN, TEST, BATCH = 1200, 300, 100
# Inputs, two hidden layers, classes. A forward pass: 3 inner products, 2 ReLU, 1 softmax. A
# backward pass: 3 inner products for weights, 2 for data (none for the images), 2 ReLU.
FORWARD, BACKWARD = 6, 7
LIMIT_S = 120

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, native_agent: Path) -> Path:
    """A folder with the compiled examples."""
    folder = tmp_path_factory.mktemp("native")
    command = [sys.executable, str(EXAMPLES / "build.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    # A failure, not a skip: without the examples nothing here would be tested, and nobody would
    # notice.
    assert done.returncode == 0, (
        f"{done.stderr}\n`python3 dev.py test` as root installs what is missing"
    )
    assert done.stdout.split() == [str(folder / "mlp"), str(folder / "mlp_nvtx")]
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "fatal error: oneapi/dnnl/dnnl.hpp: No such file or directory",
            "apt-get install libdnnl-dev",
        ),
        ("error: something else", "error: something else"),
    ],
)
def test_what_the_build_lacks_is_said(
    tmp_path: Path, native_agent: Path, words: str, said: str
) -> None:
    fake = tmp_path / "fake"
    fake.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n")
    fake.chmod(0o755)
    variables = {**os.environ, "CXX": str(fake), "NVTX_INCLUDE": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "build.py"), str(tmp_path / "out")],
        capture_output=True, text=True, env=variables, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count(said) == 2
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def digits(program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with fewer digits than the examples draw."""
    folder = tmp_path_factory.mktemp("digits")
    draw = [program_python, str(ROOT / "examples" / "make_digits.py"), "--data", str(folder)]
    subprocess.run(
        [*draw, "--train", str(TRAIN), "--test", str(TEST)], capture_output=True, check=True
    )
    return folder


def run(
    program: Path, *arguments: object, cwd: Path, threads: int = 1
) -> subprocess.CompletedProcess[str]:
    """Run an example by itself."""
    return subprocess.run(
        [str(program), *map(str, arguments)], cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["mlp", "mlp_nvtx"])
def test_it_learns_and_says_so_as_the_articles_program_does(
    built: Path, digits: Path, tmp_path: Path, name: str
) -> None:
    done = run(built / name, "--data", digits, "--epochs", 8, 64, 128, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    epochs = [EPOCH.fullmatch(line) for line in done.stdout.splitlines()]
    assert [found and found[1] for found in epochs] == [str(epoch) for epoch in range(8)]
    accuracies = [float(found[3]) for found in epochs if found]
    assert accuracies[-1] > 0.9
    assert accuracies[-1] > accuracies[0]
    assert all(float(found[2]) > 0 for found in epochs if found)


def test_both_learn_the_same(built: Path, digits: Path, tmp_path: Path) -> None:
    options = ("--data", digits, "--epochs", 2, "--seed", 5, "--batch-size", 50)
    said = [
        run(built / name, *options, cwd=tmp_path).stdout for name in ("mlp", "mlp_nvtx", "mlp_nvtx")
    ]

    assert len({tuple(found[3] for found in EPOCH.finditer(text)) for text in said}) == 1
    assert (
        EPOCH.findall(run(built / "mlp_nvtx", *options, "--seed", 6, cwd=tmp_path).stdout)[0][2]
        != (EPOCH.findall(said[0])[0][2])
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data"], "--data needs a value"),
        (["--bogus", "1"], "there is no option --bogus; --help names them"),
        (["--epochs", "0"], "--epochs wants a whole number from 1, not 0"),
        (["64", "1x"], "1x wants a whole number from 1, not 1x"),
        (["--data", "/nowhere"], "/nowhere/train-images-idx3-ubyte cannot be read"),
        (["--batch-size", "100000"], "there are fewer images than a batch has"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(
    built: Path, digits: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    done = run(built / "mlp_nvtx", "--data", digits, *words, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\x08", b"\0\0\x08\x03" + bytes(12) + b"x", b"\0\0\x0d\x01\0\0\0\1data"]
)
def test_files_that_are_no_idx_files_are_refused(
    built: Path, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)

    done = run(built / "mlp_nvtx", "--data", tmp_path, cwd=tmp_path)

    assert done.returncode == 2
    assert "is not an IDX file of unsigned bytes, or not the whole of one" in done.stderr


def recorded(
    program: Path, digits: Path, cwd: Path, *options: str, epochs: int = 2, threads: int = 1
) -> Recorded:
    """The recording of an example that trains with one thread, or more."""
    command = [
        str(program),
        "--data",
        str(digits),
        "--epochs",
        str(epochs),
        "--batch-size",
        str(BATCH),
        "64",
        "128",
    ]
    variables = {"OMP_NUM_THREADS": str(threads)}
    done = layerscope("run", "-o", "recording", *options, "--", *command, cwd=cwd, env=variables)
    assert done.returncode == 0, done.stderr
    return Recorded(
        open_run(cwd / "recording.layerscope"), done.returncode, done.stdout, done.stderr
    )


@pytest.mark.parametrize(("name", "options"), [("mlp", ()), ("mlp_nvtx", ("--step-mark", "batch"))])
def test_under_layerscope_it_gives_ranges_steps_and_primitives(
    built: Path, digits: Path, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    epochs, batches, unseen = 2, TRAIN // BATCH, TEST // BATCH

    done = recorded(built / name, digits, tmp_path, *options, epochs=epochs)

    assert len(EPOCH.findall(done.stdout)) == epochs
    ranges = {row["name"]: row["n"] for row in done.rows(
        "SELECT name, count(*) AS n FROM spans WHERE layer = 'ranges' AND name != 'batch' GROUP BY name"
    )}  # fmt: skip
    assert ranges == {
        **dict.fromkeys(("load", "forward", "backward", "update"), epochs * batches),
        "test": epochs,
    }
    assert done.value("SELECT count(*) FROM steps") == epochs * batches
    below = {(row["above"], row["kind"]): row["n"] for row in done.rows(
        "SELECT parent.name AS above, child.kind, count(*) AS n FROM spans AS child JOIN spans AS parent "
        "ON child.parent = parent.span WHERE child.layer = 'primitives' GROUP BY ALL"
    )}  # fmt: skip
    assert below == {
        ("forward", "execute"): FORWARD * epochs * batches,
        ("backward", "execute"): BACKWARD * epochs * batches,
        ("test", "execute"): FORWARD * epochs * unseen,
    }
    kinds = {row["name"]: row["n"] for row in done.rows(
        # Version 2.6 calls it softmax_v2.
        "SELECT regexp_replace(name, '_v2$', '') AS name, count(*) AS n FROM spans WHERE layer = 'primitives' "
        "GROUP BY ALL"
    )}  # fmt: skip
    assert kinds == {
        "inner_product": 8 * epochs * batches + 3 * epochs * unseen,
        "eltwise": 4 * epochs * batches + 2 * epochs * unseen,
        "softmax": epochs * batches + epochs * unseen,
    }
    assert done.value("SELECT count(*) FROM primitives") == sum(kinds.values())


def test_threads_have_shares_and_the_counts_stay(built: Path, digits: Path, tmp_path: Path) -> None:
    done = recorded(built / "mlp_nvtx", digits, tmp_path, epochs=1, threads=2)

    executes = "FROM spans WHERE layer = 'primitives' AND kind = 'execute'"
    assert done.value(f"SELECT count(*) {executes}") == (
        (FORWARD + BACKWARD) * (TRAIN // BATCH) + FORWARD * (TEST // BATCH)
    )
    assert done.value(f"SELECT count(DISTINCT track) {executes}") == 1
    shares = done.value("SELECT count(*) FROM spans WHERE kind = 'share'")
    assert shares > 0
    linked = done.rows(
        "SELECT execute.kind, execute.name = share.name AS same, execute.track = share.track AS here, count(*) AS n "
        "FROM links JOIN spans AS execute ON from_span = execute.span JOIN spans AS share ON to_span = share.span "
        "WHERE links.kind = 'primitive_share' GROUP BY ALL"
    )
    assert linked == [{"kind": "execute", "same": True, "here": False, "n": shares}]


@pytest.mark.parametrize("name", ["mlp", "mlp_nvtx"])
def test_its_recording_is_in_the_tables(
    built: Path, digits: Path, tmp_path: Path, name: str
) -> None:
    recorded(built / name, digits, tmp_path)

    table = layerscope("table", "recording", "primitives", cwd=tmp_path)
    query = layerscope(
        "query", "SELECT count(*) AS n FROM spans WHERE name = 'forward'", "recording", cwd=tmp_path
    )

    assert table.returncode == 0, table.stderr
    assert "inner_product" in table.stdout
    assert query.returncode == 0, query.stderr
    assert re.search(rf"\b{2 * TRAIN // BATCH}\b", query.stdout)


def test_the_loss_is_a_counter_and_alone_it_records_itself(
    built: Path, digits: Path, tmp_path: Path
) -> None:
    under = recorded(built / "mlp", digits, tmp_path)
    (tmp_path / "alone").mkdir()
    done = run(built / "mlp", "--data", digits, "--epochs", 2, cwd=tmp_path / "alone")
    assert (done.returncode, done.stderr) == (0, "")
    alone = open_run(tmp_path / "alone" / "mlp.layerscope")

    loss = "SELECT value FROM counters WHERE name = 'loss_millionths' ORDER BY at_ns"
    for rows in (under.rows(loss), Recorded(alone, 0, "", "").rows(loss)):
        assert len(rows) == 2 * TRAIN // BATCH
        assert rows[-1]["value"] < rows[0]["value"]
