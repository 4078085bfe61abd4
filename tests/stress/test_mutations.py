"""Damaged recordings and files of other programs: no command fails otherwise than with a
sentence.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.recorded import ROOT
from tests.repeated import times
from tests.replayed import RECORDINGS, replay
from tests.stress import foreign_files
from tests.stress.mutating import (
    ON_FILES,
    ON_RECORDINGS,
    made_and_said,
    mutate_file,
    mutate_folder,
    run,
)

PERF = ROOT / "tests" / "golden" / "perf"
MXNET = ROOT / "tests" / "golden" / "mxnet_trace"
RECORDED, FOREIGN, PACKED = times((500, 300, 60), (16, 12, 3))
MOST_BYTES = 4 << 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The golden recordings with tables."""
    return {
        name: replay(name, tmp_path_factory.mktemp(name)).run.path for name in ("train", "threads")
    }


def prepared(converted: dict[str, Path], folder: Path, chance: random.Random) -> Path:
    """A recording: with raw files alone, with both, or with tables alone."""
    name, kind = (
        chance.choice(("train", "threads")),
        chance.choice(("raw", "both", "both", "tables")),
    )
    path = folder / f"{kind}-{name}.layerscope"
    shutil.copytree(RECORDINGS / name if kind == "raw" else converted[name], path)
    if kind == "tables":
        shutil.rmtree(path / "raw")
    return path


@pytest.mark.parametrize("seed", range(RECORDED))
def test_damaged_recordings(seed: int, converted: dict[str, Path], tmp_path: Path) -> None:
    chance = random.Random(seed)
    path = prepared(converted, tmp_path, chance)
    whole = made_and_said(converted[path.stem.partition("-")[2]])
    done = [mutate_folder(path, chance) for _ in range(chance.choice((1, 1, 2)))]

    commands = chance.sample(ON_RECORDINGS, 4)
    faults = [
        fault for command in commands if (fault := run([word.format(path) for word in command]))
    ]

    assert not faults, f"{done}: {faults[0]}"
    now = made_and_said(path)
    assert whole
    if now and now[0] < whole[0]:
        assert now[1] > whole[1], f"{done}: {whole[0] - now[0]} spans are missing without a word"


@pytest.mark.parametrize("seed", range(PACKED))
def test_damaged_packed_recordings(seed: int, converted: dict[str, Path], tmp_path: Path) -> None:
    chance = random.Random(seed)
    packed = tmp_path / "recording.layerscope.zip"
    assert not run(["pack", str(converted[chance.choice(("train", "threads"))]), "-o", str(packed)])
    done = mutate_file(packed, chance)

    faults = [
        fault for command in ON_FILES if (fault := run([word.format(packed) for word in command]))
    ]

    assert not faults, f"{done}: {faults[0]}"


def foreign() -> list[Path]:
    """Files of perf and MXNet that are here; where there is a corpus, its logs, traces and
    recordings of perf that are small.
    """
    files = [PERF / name for name in ("file.data", "pipe.data", "file.txt", "pipe.txt")]
    files += sorted(MXNET.glob("*/*.json.gz"))
    if corpus := os.environ.get("LAYERSCOPE_CORPUS"):
        for folder in ("mxnet", "onednn", "perf", "perf_script"):
            files += [path for path in sorted((Path(corpus) / folder).rglob("*")) if path.is_file()]
    return [path for path in files if 0 < path.stat().st_size <= MOST_BYTES]


@pytest.mark.parametrize("seed", range(FOREIGN))
def test_damaged_files_of_other_programs(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    source = chance.choice(foreign())
    path = tmp_path / source.name
    shutil.copyfile(source, path)
    done = mutate_file(path, chance)

    faults = [
        fault for command in ON_FILES if (fault := run([word.format(path) for word in command]))
    ]

    assert not faults, f"{source} {done}: {faults[0]}"


def test_damaged_traces_open_or_are_refused_in_a_sentence() -> None:
    first = random.randrange(1 << 30)
    assert not foreign_files.run(first, times(400, 40))
