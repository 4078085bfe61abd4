"""tests/every_torch.py: which environment another PyTorch gets, tested without a network."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import every_torch
from tests.every_torch import dev


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """What was installed; nothing is."""
    installed: list[tuple[str, ...]] = []

    def make(environment: dev.Environment) -> str:
        installed.append(environment.requirements)
        return (
            "/bin/false"
            if "numpy" in environment.requirements and tmp_path.joinpath("odd").exists()
            else "/bin/true"
        )

    monkeypatch.setattr(dev, "ENVS", tmp_path)
    monkeypatch.setattr(dev, "make", make)
    return installed


def test_another_torch_gets_the_newest_numpy(made: list[tuple[str, ...]]) -> None:
    found = every_torch.environment("2.5.1", "https://index")
    assert found.name == "torch-2.5.1"
    assert found.pip_options == ("--index-url", "https://index")
    assert made == [("torch==2.5.1", "numpy")]


def test_a_torch_that_does_not_work_with_it_gets_an_old_numpy(
    made: list[tuple[str, ...]], tmp_path: Path
) -> None:
    (tmp_path / "odd").touch()
    assert every_torch.environment("2.1.2", None).requirements == ("torch==2.1.2", "numpy<2")
    assert made == [("torch==2.1.2", "numpy"), ("torch==2.1.2", "numpy<2")]


def test_an_old_numpy_that_is_there_stays(
    made: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev.Environment, "is_ready", lambda self: "numpy<2" in self.requirements)
    assert every_torch.environment("2.1.2", None).requirements == ("torch==2.1.2", "numpy<2")
    assert made == []


def test_every_test_of_the_list_is_there() -> None:
    assert all((every_torch.ROOT / "tests" / name).exists() for name in every_torch.TESTS)


def test_dev_hands_the_version_and_the_rest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 4)

    monkeypatch.setattr(dev, "setting", lambda index_url, whole: ("our-python", {}))
    monkeypatch.setattr(dev.subprocess, "run", run)
    assert dev.main(["test", "--torch", "2.5.1", "--index-url", "somewhere", "-k", "known"]) == 4
    script = str(dev.ROOT / "tests" / "every_torch.py")
    assert commands == [["our-python", script, "2.5.1", "-k", "known", "--index-url", "somewhere"]]
