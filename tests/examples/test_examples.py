"""The example programs, run as a user would run them."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
IMAGES = {"train": 12_800, "t10k": 2_000}


def run_example(python: str, name: str, *arguments: object) -> str:
    """What the example prints; it must succeed and have nothing to complain about."""
    command = [python, "-W", "error", str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def read_idx(path: Path) -> np.ndarray:
    """An IDX file read by its definition, apart from the code under test."""
    content = path.read_bytes()
    assert content[:3] == b"\0\0\x08"  # unsigned bytes
    sizes = [int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(content[3])]
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(sizes)


@pytest.fixture(scope="session")
def digits(program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "mnist"
    run_example(program_python, "make_digits.py", "--data", folder)
    return folder


@pytest.mark.parametrize(("part", "count"), IMAGES.items())
def test_drawn_digits_are_idx_files_like_those_of_mnist(
    digits: Path, part: str, count: int
) -> None:
    images = read_idx(digits / f"{part}-images-idx3-ubyte")
    labels = read_idx(digits / f"{part}-labels-idx1-ubyte")

    assert images.shape == (count, 28, 28)
    assert labels.shape == (count,)
    assert set(labels) == set(range(10))
    # As in MNIST: mostly black, with white ink that keeps away from the border.
    assert 0.05 < images.mean() / 255 < 0.25
    assert images.max() == 255
    assert images[:, 0, :].mean() < 1


def test_no_two_drawn_digits_are_the_same(digits: Path) -> None:
    images = read_idx(digits / "t10k-images-idx3-ubyte")

    assert max(Counter(image.tobytes() for image in images).values()) == 1


def test_the_same_seed_draws_the_same_digits(program_python: str, tmp_path: Path) -> None:
    for folder, seed in (("a", 7), ("b", 7), ("c", 8)):
        run_example(
            program_python,
            "make_digits.py",
            "--data",
            tmp_path / folder,
            "--train",
            50,
            "--test",
            20,
            "--seed",
            seed,
        )

    a, b, c = (
        {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} for folder in "abc"
    )
    assert len(a) == 4
    assert a == b
    assert a != c


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist_cnn.py", "mnist_mlp.py"])
def test_mnist_programs_train_for_a_few_batches(
    program_python: str, digits: Path, name: str
) -> None:
    printed = run_example(
        program_python, name, "--data", digits, "--epochs", 2, "--limit", 3, "--threads", 1
    )

    assert re.fullmatch(
        r"epoch 1: loss \d+\.\d{4}, \d+\.\d s\nepoch 2: loss \d+\.\d{4}, \d+\.\d s\ntest accuracy: 0\.\d{4}\n",
        printed,
    )


@pytest.mark.slow
@pytest.mark.stress
def test_the_seed_decides_what_is_learned(program_python: str, digits: Path) -> None:
    losses = [
        re.search(
            r"loss (\S+),",
            run_example(
                program_python,
                "mnist_mlp.py",
                "--data",
                digits,
                "--epochs",
                1,
                "--limit",
                5,
                "--seed",
                seed,
                "--threads",
                1,
            ),
        )
        for seed in (3, 3, 4)
    ]

    a, b, c = (loss and loss[1] for loss in losses)
    assert a == b
    assert a != c


@pytest.mark.slow
def test_gzipped_files_with_loader_processes_are_read(
    program_python: str, digits: Path, tmp_path: Path
) -> None:
    for path in digits.iterdir():
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))

    printed = run_example(
        program_python,
        "mnist_mlp.py",
        "--data",
        tmp_path,
        "--epochs",
        1,
        "--limit",
        3,
        "--workers",
        2,
    )

    assert "drawing" not in printed
    assert "test accuracy" in printed


@pytest.mark.slow
def test_without_mnist_on_disk_digits_are_drawn(program_python: str, tmp_path: Path) -> None:
    printed = run_example(
        program_python, "mnist_mlp.py", "--data", tmp_path / "new", "--epochs", 1, "--limit", 1
    )

    assert printed.startswith(f"no MNIST in {tmp_path / 'new'}: drawing digits there\n")
    assert len(list((tmp_path / "new").iterdir())) == 4


def test_many_small_modules_counts_its_calls(program_python: str) -> None:
    printed = run_example(program_python, "many_small_modules.py", "--blocks", 20, "--rounds", 30)

    assert re.fullmatch(
        r"1830 module calls in \d+\.\d\d s: \d+\.\d\d µs each\nsum of the last answer: -?\d+\.\d{3}\n",
        printed,
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_many_small_ops_counts_its_operators(program_python: str, threads: int) -> None:
    printed = run_example(
        program_python, "many_small_ops.py", "--operators", 20_000, "--threads", threads
    )

    assert printed.startswith(f"{20_000 * threads} operators in ")
    assert printed.endswith("averages: 0.00 1.00 2.00 3.00 4.00 5.00 6.00 7.00\n")


@pytest.mark.stress
@pytest.mark.parametrize("name", ["mnist_cnn.py", "mnist_mlp.py"])
def test_the_default_training_learns_the_digits(
    program_python: str, digits: Path, name: str
) -> None:
    printed = run_example(program_python, name, "--data", digits)

    found = re.search(r"test accuracy: (\S+)", printed)
    assert found
    assert float(found[1]) > 0.9


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_does_not_know_that_it_is_profiled(path: Path) -> None:
    assert "layerscope" not in path.read_text(encoding="utf-8")
