"""What `doctor` says of MXNet."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.capture.frameworks.mxnet import builds
from layerscope.checks.frameworks import mxnet
from layerscope.checks.program_python import find_program
from layerscope.checks.recording_check import NO, OK


def test_a_wheel_that_is_known_is_recorded(mxnet_python: str, native_agent: Path) -> None:
    found = list(mxnet.check(find_program([mxnet_python]), {}))

    assert [(one.subject, one.state) for one in found] == [
        ("operators", OK),
        ("api", OK),
        ("modules", OK),
    ]
    assert found[0].what.startswith(("MXNet 1.9.1: every", "MXNet 2.0.0b1: every"))


def test_another_build_is_named_by_its_build_id(
    mxnet2_python: str, native_agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (builds, mxnet):
        monkeypatch.setattr(module, "build_id", lambda path: "0123abcd")

    (found,) = mxnet.check(find_program([mxnet2_python]), {})

    assert (found.subject, found.state) == ("operators", NO)
    assert "build-id 0123abcd" in found.what
    assert "2.0.0b1" in found.remedy
