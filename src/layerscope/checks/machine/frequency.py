"""How the clock of the CPUs is set: governor and boost."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.checks.check import NOTE, OK, UNSEEN, WARNING, Check, Seen

ORDER = 70

_FASTEST = "cpupower frequency-set -g performance"
_ON = {"cpufreq/boost": "1", "intel_pstate/no_turbo": "0"}
_FIXED = ("userspace",)
_DEPENDS = ("powersave",)
# Those raise the clock under load, after some milliseconds.
_DYNAMIC = ("ondemand", "schedutil", "interactive", "conservative")


def check(seen: Seen) -> Iterator[Check]:
    """The governor, then the boost."""
    yield _governor(seen)
    yield _boost(seen)


def _governor(seen: Seen) -> Check:
    cpu = seen.machine.cpu
    names = [name.strip() for name in cpu.governor.split(",") if name.strip()]
    if not names:
        why = "the kernel does not report it"
        if cpu.is_virtual:
            why = "a virtual machine does not show it"
        return Check("governor", "governor", UNSEEN, why)
    what = " and ".join(names) + (f", at most {cpu.most_mhz:,} MHz" if cpu.most_mhz else "")
    if any(name in _FIXED for name in names):
        return Check(
            "governor",
            "governor",
            WARNING,
            what,
            "The clock stays where somebody has set it.",
            _FASTEST,
        )
    if any(name in _DEPENDS for name in names):
        return Check(
            "governor",
            "governor",
            NOTE,
            what,
            "With the drivers intel_pstate and amd-pstate it raises the clock under load, only "
            "later than performance does; with others the clock stays at its lowest.",
            _FASTEST,
        )
    if any(name in _DYNAMIC for name in names):
        return Check(
            "governor",
            "governor",
            NOTE,
            what,
            "The clock rises some milliseconds after work comes: short requests "
            "are slower, and times vary.",
            _FASTEST,
        )
    return Check("governor", "governor", OK, what)


def _boost(seen: Seen) -> Check:
    cpu = seen.machine.cpu
    if cpu.boost is None:
        why = "the kernel does not report it"
        if cpu.is_virtual:
            why = "a virtual machine does not show it"
        return Check("boost", "boost", UNSEEN, why)
    if cpu.boost:
        return Check("boost", "boost", OK, "on")
    remedy = (
        f"echo {_ON[cpu.boost_file]} > /sys/devices/system/cpu/{cpu.boost_file}"
        if cpu.boost_file in _ON
        else ""
    )
    return Check(
        "boost",
        "boost",
        WARNING,
        "off",
        "The clock stays at the base frequency or below: slower, but times vary less.",
        remedy,
    )
