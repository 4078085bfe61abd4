"""What is mapped where: files, the vdso, libraries that come and go, code of no file, thousands of
mappings.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.building import build, sanitizer_flag
from tests.stacks.oracles import HERE, STRICT, UNWINDER


@pytest.mark.slow
def test_what_is_mapped_where(plugin: Path, tmp_path: Path) -> None:
    flag = sanitizer_flag(tmp_path, "undefined")
    program = build(
        tmp_path / "spaces",
        [HERE / "spaces.c", *UNWINDER],
        *STRICT,
        flag,
        "-Wl,--build-id",
        "-rdynamic",
    )
    done = subprocess.run(
        [str(program), str(plugin)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
