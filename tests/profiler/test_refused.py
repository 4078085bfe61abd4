"""A framework that is loaded and cannot be recorded is one warning; all else goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.profiler import library

pytestmark = pytest.mark.slow
# A build of MXNet that nobody has looked at.
LIBRARY = "int MXGetVersion(int *out) { *out = 30000; return 0; }\n"
PACKAGE = """
import ctypes, os


class base:
    _LIB = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "libmxnet.so"))


__version__ = "3.0.0"
"""


@pytest.mark.parametrize("order", ["import mxnet\n", ""])
def test_an_unknown_build_is_one_warning(
    order: str, tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    package = tmp_path / "mxnet"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    source = tmp_path / "library.c"
    source.write_text(LIBRARY)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", package / "libmxnet.so", source], check=True, timeout=60
    )
    text = order + "from layerscope import profiler\n"
    text += (
        "profiler.set_state('run')\n"
        "import mxnet\n"
        "with profiler.Event('mine'):\n    pass\n"
        "profiler.set_state('stop')\n"
        "profiler.set_state('run')\n"
        "profiler.set_state('stop')\n"
        "print(profiler.dumps())\n"
    )
    done = library.run(program_python, text, tmp_path)

    assert done.stderr.count("RuntimeWarning") == 1
    assert "this build of mxnet cannot be recorded" in done.stderr
    assert "mine" in done.stdout
    found = library.recorded(tmp_path / "program.layerscope")
    problems = found.rows("SELECT code, what FROM problems")
    assert [row["code"] for row in problems] == ["build_refused"]
