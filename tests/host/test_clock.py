"""Whether the time stamp counter may be the clock, by what the kernel and the CPU say."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.host.clock import tsc_is_usable

SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
GOOD = "fpu tsc msr constant_tsc rep_good nopl nonstop_tsc cpuid"


def machine(root: Path, source: str, flags: str) -> Path:
    (root / SOURCE).parent.mkdir(parents=True)
    (root / SOURCE).write_text(source + "\n")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\nvmx flags\t: x\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    return root


@pytest.mark.parametrize(
    ("source", "flags", "usable"),
    [
        ("tsc", GOOD, True),
        ("hpet", GOOD, False),
        ("kvm-clock", GOOD, False),
        ("tsc-early", GOOD, False),
        ("tsc", GOOD.replace("nonstop_tsc", ""), False),
        ("tsc", GOOD.replace("constant_tsc", ""), False),
        ("tsc", "my_nonstop_tsc_flag constant_tsc_known", False),
        ("tsc", "", False),
    ],
)
def test_both_must_vouch_for_it(tmp_path: Path, source: str, flags: str, usable: bool) -> None:
    assert tsc_is_usable(machine(tmp_path, source, flags)) is usable


@pytest.mark.parametrize("missing", [SOURCE, "proc/cpuinfo"])
def test_without_either_it_is_not_used(tmp_path: Path, missing: str) -> None:
    (machine(tmp_path, "tsc", GOOD) / missing).unlink()

    assert tsc_is_usable(tmp_path) is False
