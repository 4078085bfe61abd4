"""What the checks say of recorded and hand-made machines: tests/golden/platform/NAME.txt, of
machines/NAME.txt beside.

`python tests/platform/test_golden.py` writes all anew. Look at the difference before you keep it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from layerscope.checks import judge
from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen
from layerscope.host import machine as machines
from tests.host.machines import NAMES, unpack
from tests.host.test_machines import CHECKER, SUPPORT

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "platform"
# The data types of SUPPORT in its order.
DTYPES = ("float32", "float16", "bfloat16", "int8")
STATES = {"n": OK, "e": NOTE, "a": NOTE}


def checks(name: str, folder: Path) -> list[Check]:
    root, pid = unpack(name, folder)
    machine = machines.facts(root, pid)
    return judge.judged(
        Seen(machine, variables=machine.process.variables if machine.process else {})
    )


def text(found: list[Check]) -> str:
    """A line for each check, and below it what follows."""
    lines = []
    for check in found:
        lines.append(f"{check.state:<8} {check.code}: {check.evidence}")
        lines += [
            f"         {words}"
            for words in (check.consequence, check.remedy and f"> {check.remedy}")
            if words
        ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_checks_of_machines_are_as_they_were_looked_at(name: str, tmp_path: Path) -> None:
    assert text(checks(name, tmp_path)) == (GOLDEN / f"{name}.txt").read_text()


def test_each_machine_is_told_of() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == NAMES


@pytest.mark.parametrize("name", sorted(CHECKER))
def test_the_question_of_the_article_is_answered_rightly(name: str, tmp_path: Path) -> None:
    """Its checker calls AVX-512 and AMX a success as soon as any part of them is there."""
    avx512, vnni, amx, state = CHECKER[name]
    found = {check.code: check for check in checks(name, tmp_path)}

    if "instructions" in found:
        assert found["instructions"].state == UNSEEN
        assert "avx512" not in found
        return
    if "avx512" in found:  # not on ARM
        expected = OK if not avx512 else NOTE if "avx512f" in avx512 else WARNING
        assert found["avx512"].state == expected
        assert (found["avx512.vnni"].state == OK) == (not vnni)
        assert (found["amx"].evidence.startswith("absent")) == (state == "absent")
    if amx and "amx" in found:
        assert found["amx"].state in (NOTE, WARNING, UNSEEN)
    int8 = found["dtype.int8"]
    assert int8.state == OK or vnni
    assert "AMX" not in int8.evidence or not amx


@pytest.mark.parametrize("name", sorted(SUPPORT))
def test_fast_kernels_are_where_the_instructions_are(name: str, tmp_path: Path) -> None:
    found = {check.code: check for check in checks(name, tmp_path)}
    for dtype, told in zip(DTYPES, SUPPORT[name].split(" | "), strict=True):
        how, _, by = told.partition(" ")
        check = found[f"dtype.{dtype}"]
        # AVX without FMA is native, but the fast kernels of libraries need more.
        is_slow = (name, dtype) == ("before-avx2", "float32")
        assert check.state == (WARNING if is_slow else STATES[how]), dtype
        assert by.strip() in check.evidence


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    GOLDEN.mkdir(exist_ok=True)
    for each in NAMES:
        with tempfile.TemporaryDirectory() as made:
            (GOLDEN / f"{each}.txt").write_text(text(checks(each, Path(made))))
