"""Whether the time stamp counter may be the clock, by what the kernel and the CPU say."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.host.clock import ahead_ns, monotonic_clock, tsc_is_usable

SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
GOOD = "fpu tsc msr constant_tsc rep_good nopl nonstop_tsc cpuid"


def machine(root: Path, source: str, flags: str) -> Path:
    (root / SOURCE).parent.mkdir(parents=True)
    (root / SOURCE).write_text(source + "\n")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(
        f"processor\t: 0\nvmx flags\t: x\nflags\t\t: {flags}\n\nprocessor\t: 1\n"
    )
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


def test_a_monotonic_clock_is_one_boot_in_one_time_namespace(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    assert monotonic_clock(tmp_path) == ""

    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("b00t\n")
    assert monotonic_clock(tmp_path) == "b00t"

    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/time").symlink_to("time:[4026531834]")
    assert monotonic_clock(tmp_path) == "b00t time:[4026531834]"


def test_the_clock_of_another_time_namespace_is_ahead_of_ours(tmp_path: Path) -> None:
    offsets = {
        "7": "monotonic      86400         5\nboottime  1 0\n",
        "self": "monotonic 60 0\nboottime 0 0\n",
    }
    for process, text in offsets.items():
        (tmp_path / "proc" / process).mkdir(parents=True)
        (tmp_path / "proc" / process / "timens_offsets").write_text(text)

    assert ahead_ns(7, tmp_path) == 86_340 * 10**9 + 5
    assert ahead_ns(8, tmp_path) == 0  # it has ended
    assert ahead_ns(7, tmp_path / "nowhere") == 0
