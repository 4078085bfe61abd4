"""What the tests of web/ share."""

from __future__ import annotations

import pytest

from tests.web.node import npm_with_libraries


@pytest.fixture(scope="session")
def npm() -> str:
    """npm with the libraries of web/ installed."""
    return npm_with_libraries()
