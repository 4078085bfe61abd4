"""The transformer and the convolutional networks of the examples: what they compute, learn and
print.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.examples.test_examples import EXAMPLES, run_example
from tests.recorded import record
from tests.repeated import also

TIMEOUT_S = 200
SMALL = ("--layers", 1, "--width", 32, "--batch", 16, "--sequence", 32, "--threads", 1)
# As others count them: the first two papers' networks in one tower, and torchvision's
# documentation.
PARAMETERS = {
    "alexnet": 61_100_840, "vgg11": 132_863_336, "resnet18": 11_689_512, "resnet50": 25_557_032,
    "squeezenet": 1_235_496,
}  # fmt: skip
LIGHT = ("resnet18", "googlenet", "mobilenet", "squeezenet", "densenet")
ROW = re.compile(r"(\w+) +([\d,]+) +(inference|training) +(\d+) +([\d.]+) +([\d,.]+)")


def ask(python: str, text: str) -> Any:
    """What lines of Python beside the examples print, which is JSON."""
    done = subprocess.run(
        [python, "-W", "error", "-c", text], cwd=EXAMPLES, capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(python: str, name: str, *words: str) -> str:
    """What an example says about wrong words."""
    command = [python, str(EXAMPLES / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2
    return done.stderr.splitlines()[-1]


def test_the_language_is_as_hard_as_the_transformer_says(program_python: str) -> None:
    told, counted = ask(
        program_python,
        """
import json, math, torch
from transformer import BEST_LOSS, LETTERS, write_sentences
draw = torch.Generator().manual_seed(3)
follows = torch.randint(LETTERS, (LETTERS, LETTERS), generator=draw)
(sentences,) = write_sentences(4000, 50, follows, draw).tensors
usual = follows[sentences[:, :-2], sentences[:, 1:-1]] == sentences[:, 2:]
p = usual.double().mean().item()
print(json.dumps([BEST_LOSS, -p * math.log(p) - (1 - p) * math.log((1 - p) / (LETTERS - 1))]))
""",
    )
    assert told == pytest.approx(counted, rel=0.03)


def test_no_letter_sees_the_ones_behind_it(program_python: str) -> None:
    before, behind = ask(
        program_python,
        """
import json, torch
from transformer import LETTERS, Transformer
torch.manual_seed(1)
model = Transformer(layers=2, width=32, heads=4, length=20)
sentences = torch.randint(LETTERS, (3, 20))
others = sentences.clone()
others[:, 12] = (others[:, 12] + 1) % LETTERS
far = (model(sentences) - model(others)).abs().amax((0, 2))
print(json.dumps([far[:12].max().item(), far[12:].min().item()]))
""",
    )
    assert before == 0
    assert behind > 0


@pytest.mark.slow
def test_the_transformer_learns_the_language(program_python: str) -> None:
    printed = run_example(
        program_python, "transformer.py", *SMALL, "--steps", 200, "--report-every", 100
    )

    assert re.fullmatch(
        r"[\d,]+ parameters; guessing has loss 3\.1781, knowing the language 0\.6163\n"
        r"(step +\d+: loss \d\.\d{4}, [\d,]+ tokens/s\n){2}"
        r"200 steps, [\d,]+ tokens/s; loss on unseen sentences \d\.\d{4}\n",
        printed,
    )
    first, second, unseen = map(float, re.findall(r"(?:: loss|sentences) (\d\.\d{4})", printed))
    assert 0.6163 < unseen < second < first < 3.1781
    assert unseen < 2.15  # who attends to one of the two letters only gets to 2.18


@pytest.mark.slow
def test_the_transformer_ends_when_its_seconds_are_over(program_python: str) -> None:
    printed = run_example(program_python, "transformer.py", *SMALL, "--seconds", 0.5)

    steps = re.search(r"^(\d+) steps, ", printed, re.MULTILINE)
    assert steps
    assert int(steps[1]) >= 1


@pytest.mark.slow
def test_a_recording_of_the_transformer_has_its_steps_and_modules(
    program_python: str, native_agent: Path, tmp_path: Path
) -> None:
    words = [*map(str, SMALL), "--steps", "6", "--report-every", "6"]
    found = record(program_python, str(EXAMPLES / "transformer.py"), tmp_path, *words)
    plain = run_example(program_python, "transformer.py", *words)

    losses = r"(?:: loss|sentences) (\d\.\d{4})"
    assert re.findall(losses, found.stdout) == re.findall(losses, plain) != []
    assert found.rows("SELECT count(*) AS steps, min(rule) AS rule FROM steps") == [
        {"steps": 6, "rule": "optimizer"}
    ]
    paths = {row["path"] for row in found.rows("SELECT DISTINCT path FROM modules")}
    parts = (
        "letters",
        "positions",
        "blocks.0.attention.project",
        "blocks.0.feedforward.1",
        "norm",
        "head",
    )
    assert {f"Transformer.{part}" for part in parts} <= paths


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--width", "10", "--heads", "4"], "a width of 10 cannot be split into 4 heads"),
        (["--sequence", "1"], "a sentence has two letters at least"),
    ],
)
def test_the_transformer_refuses_what_cannot_be(
    program_python: str, words: list[str], said: str
) -> None:
    assert refused(program_python, "transformer.py", *words).endswith(said)


@pytest.mark.slow
def test_the_convolutional_networks_have_the_weights_of_their_papers(program_python: str) -> None:
    words = (
        "--mode",
        "inference",
        "--batch-size",
        1,
        "--image-size",
        64,
        "--seconds",
        0,
        "--threads",
        1,
    )
    printed = run_example(program_python, "cnn_benchmarks.py", *words)

    rows = [match.groups() for line in printed.splitlines() if (match := ROW.fullmatch(line))]
    assert len(rows) == 8
    counted = {name: int(parameters.replace(",", "")) for name, parameters, *_ in rows}
    assert {name: counted[name] for name in PARAMETERS} == PARAMETERS
    for _, _, mode, batches, batch_ms, rate in rows:
        assert (mode, batches) == ("inference", "3")
        assert float(rate.replace(",", "")) == pytest.approx(1000 / float(batch_ms), rel=0.05)


@pytest.mark.slow
def test_the_convolutional_networks_are_measured_in_both_modes(program_python: str) -> None:
    words = "--batch-size", 2, "--image-size", 64, "--seconds", 0, "--warm-up", 1, "--threads", 1
    printed = run_example(program_python, "cnn_benchmarks.py", "squeezenet", "mobilenet", *words)

    assert printed.startswith(
        "batches of 2 synthetic images of 64x64, 1 threads; wall time, the first 1 batches left"
    )
    rows = [match.groups() for line in printed.splitlines() if (match := ROW.fullmatch(line))]
    assert [(row[0], row[2]) for row in rows] == [
        (name, mode) for name in ("squeezenet", "mobilenet") for mode in ("inference", "training")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [LIGHT[0], *also(LIGHT[1:])])
def test_training_a_network_reaches_all_of_its_weights(program_python: str, name: str) -> None:
    without, answers = ask(
        program_python,
        f"""
import json, torch
from cnn_benchmarks import NETWORKS, batch_of
torch.manual_seed(1)
torch.set_num_threads(1)
model = NETWORKS[{name!r}]()
images, labels = torch.randn(2, 3, 64, 64), torch.randint(0, 1000, (2,))
batch_of(model, "training", images, labels)()
without = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
print(json.dumps([without, list(model(images).shape)]))
""",
    )
    assert answers == [2, 1000]
    assert without == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lenet"], "there is no network lenet; there are alexnet, vgg11, resnet18, resnet50, googlenet, mobilenet, "
                    "squeezenet, densenet"),
        (["alexnet", "--image-size", "32"], "images have 64 pixels along a side at least"),
    ],
)  # fmt: skip
def test_the_convolutional_networks_refuse_what_cannot_be(
    program_python: str, words: list[str], said: str
) -> None:
    assert refused(program_python, "cnn_benchmarks.py", *words).endswith(said)
