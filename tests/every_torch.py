"""Tests layerscope against another PyTorch than the one that is pinned, by hand.

usage: python3 dev.py test --torch VERSION [--index-url URL] [ARGUMENTS FOR pytest]

Makes the environment .envs/torch-VERSION, which stays, and runs the tests that hold layerscope
against what PyTorch itself says. An old version may need an old Python: dev.py takes the one that
it was started with. The wheels of PyPI bring CUDA along: 5 GB; `--index-url` names an index with
builds for the CPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import dev  # noqa: E402

TESTS = (
    "capture/test_probe.py", "sources/test_kineto.py", "sources/test_stock_windows.py", "truth/test_operators.py",
    "truth/test_modules.py", "truth/test_lines.py", "truth/test_against_torch_profiler.py",
)  # fmt: skip
TRIES_NUMPY = "import torch; torch.ones(1).numpy()"


def environment(version: str, index_url: str | None) -> dev.Environment:
    """One with this PyTorch, made now if it is not there; its NumPy is an old one where a new one
    does not work.
    """
    old, new = (
        dev.Environment(
            f"torch-{version}", (f"torch=={version}", numpy), dev.index_options(index_url)
        )
        for numpy in ("numpy<2", "numpy")
    )
    if old.is_ready():
        return old
    tries = [dev.make(new), "-W", "error", "-c", TRIES_NUMPY]
    if not subprocess.run(tries, capture_output=True, check=False).returncode:
        return new
    dev.say(f"PyTorch {version} does not work with this NumPy: taking one below 2")
    dev.make(old)
    return old


def main() -> int:
    """The status of pytest, which names what passed."""
    parser = argparse.ArgumentParser(prog="dev.py test --torch", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--index-url")
    options, rest = parser.parse_known_args()
    try:
        program = environment(options.version, options.index_url)
    except dev.Failure as failure:
        dev.say(str(failure))
        return 2
    variables = {**os.environ, "LAYERSCOPE_TEST_PYTHON": program.python}
    tests = [str(ROOT / "tests" / name) for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-v", "--no-header", *tests, *rest]
    status = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    dev.say(
        f"PyTorch {options.version} {'is not understood in all' if status else 'passes all that was tested'}"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
