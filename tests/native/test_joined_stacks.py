"""Native frames and frames of Python as one stack."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.building import build

SOURCE = Path(__file__).parent / "joined_stacks_driver.c"


@pytest.fixture(scope="module")
def join(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("joined") / "join", [SOURCE], "-O1", "-Wall", "-Wextra")


# The words of the driver, the leaf first, and the stack from the outside in.
STACKS = {
    "n f n python 1 2e": "n 2 1 n spliced",
    "n f n f n python 1e 2 3e": "n 3 2 n 1 n spliced",
    "n p f n python 1 2e": "n 2 1 n spliced",
    "p f n p f n python 1 2e 3e": "n 3 n 2 1 spliced",
    "n f f n python 1e 2e": "n 2 1 n spliced",
    "n p f n f n python 1e 2e": "n 2 n 1 n spliced",
    "n p f n p f n python 1e": "n f p n f p n 1 not spliced",
}


@pytest.mark.parametrize("words", STACKS)
def test_a_piece_that_the_interpreter_has_called_is_one_frame_with_it(
    join: Path, words: str
) -> None:
    told = subprocess.check_output([str(join), *words.split()], text=True, timeout=60)
    assert told.strip() == STACKS[words]
