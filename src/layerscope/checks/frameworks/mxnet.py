"""What can be recorded of MXNet: operators, calls of its C interface, modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from layerscope.capture import agent
from layerscope.capture.frameworks.mxnet.builds import LIBRARY, is_known, version_of
from layerscope.checks.program_python import ProgramPython
from layerscope.checks.recording_check import NO, OK, RecordingCheck
from layerscope.host.libraries import build_id
from layerscope.model.layers import API, MODULES, OPERATORS

_REMEDY = "install a wheel of MXNet 1.9.1 or 2.0.0b1 for Linux on x86-64"


def check(program: ProgramPython, refused: dict[str, str]) -> Iterator[RecordingCheck]:
    """The lines of `doctor` about it."""
    library = Path(program.origin("mxnet")).parent / LIBRARY
    problem = agent.check()
    if problem is not None:
        yield RecordingCheck(OPERATORS, NO, problem.what, problem.remedy)
        return
    version = version_of(library) or "of an unknown version"
    if not is_known(library):
        identity = build_id(library) or "none"
        what = f"MXNet {version}: nobody has looked at this build of it (build-id {identity})"
        yield RecordingCheck(OPERATORS, NO, what, _REMEDY)
        return
    what = f"MXNet {version}: every operator on every thread of its engine"
    yield RecordingCheck(OPERATORS, OK, what)
    yield RecordingCheck(API, OK, "every call of MXNet's C interface, and what it submits")
    if program.about["kind"] == "CPython" and program.about["gil"]:
        yield RecordingCheck(MODULES, OK, "every call of a gluon.Block")
    else:
        what = "they need CPython with the GIL; operators are recorded all the same"
        yield RecordingCheck(MODULES, NO, what, "use such a Python")
