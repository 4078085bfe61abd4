"""The passes over columns, built with the compiler's own checkers, on values without any sense."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.building import NATIVE, ROOT, build, sanitizer_flag

SOURCES = [ROOT / "tests" / "native" / "tables_driver.c", *sorted((NATIVE / "tables").glob("*.c"))]
SEEDS = 3


@pytest.mark.slow
def test_no_value_leads_outside_of_an_array_or_to_what_c_leaves_undefined(tmp_path: Path) -> None:
    flag = sanitizer_flag(tmp_path, "address,undefined")
    driver = build(tmp_path / "driver", SOURCES, "-O1", "-g", "-fno-omit-frame-pointer", flag)
    for seed in range(SEEDS):
        done = subprocess.run(
            [str(driver), str(seed)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"},
        )
        assert (done.returncode, done.stderr[:3000], done.stdout) == (0, "", "done\n")
