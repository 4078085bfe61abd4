"""Fixtures for the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential import Differential


@pytest.fixture
def differential(tmp_path: Path) -> Differential:
    return Differential(tmp_path)
