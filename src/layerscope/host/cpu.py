"""How many CPUs a program may use here, and what kind they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from layerscope.host import cgroup, cpuinfo, files
from layerscope.host.cgroup import Cgroup
from layerscope.host.cpuinfo import Cpuinfo

_DEVICES = "sys/devices/system/cpu"
# What firmware calls itself in a virtual machine of an architecture whose processor does not tell;
# Amazon's machines without a hypervisor have names that end so.
_HYPERVISORS = (
    "QEMU",
    "KVM",
    "VMware",
    "Xen",
    "innotek",
    "Google",
    "Amazon EC2",
    "Virtual Machine",
    "Parallels",
)
_BARE_METAL = ".metal"
# Cores of one kind differ a little in what the scheduler thinks of them: one may be allowed a
# higher clock.
_AS_FAST = 0.9
_CACHES = {"Data": "d", "Instruction": "i", "Unified": ""}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Cpu(msgspec.Struct, frozen=True):
    """What is not told is empty or None.

    `online`, `offline`, `allowed`, `isolated`: numbers of CPUs; `allowed` by affinity and cpuset of
    the process (of any of its threads), `granted`: how much CPU time a limit leaves of those, in
    CPUs (all control groups on the way up, both versions); 0 where no number is known. `machine`:
    the architecture in the kernel's word (x86_64, aarch64). `sockets`, `cores`: of the online ones;
    `allowed_cores`: of each core that has allowed CPUs the first of them, empty where it is not
    told. `smt`: the kernel's word for hardware threads: on, off, forceoff, notsupported,
    notimplemented. `faster`, `slower`: CPUs of unlike kinds (P and E cores), empty where all are
    alike. `governor`: of the allowed ones, several with commas between them. `boost`: above the
    base frequency; `boost_file`: which file below /sys/devices/system/cpu tells. `caches`: bytes of
    one cache of that level and kind, such as {"L1d": 32768, "L2": 1048576}, of the first CPU.
    """

    model: str = ""
    vendor: str = ""
    machine: str = ""
    online: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    allowed: tuple[int, ...] = ()
    isolated: tuple[int, ...] = ()
    granted: float = 0.0
    sockets: int | None = None
    cores: int | None = None
    allowed_cores: tuple[int, ...] = ()
    smt: str = ""
    faster: tuple[int, ...] = ()
    slower: tuple[int, ...] = ()
    governor: str = ""
    boost: bool | None = None
    boost_file: str = ""
    most_mhz: int | None = None
    caches: dict[str, int] = msgspec.field(default_factory=dict)
    is_virtual: bool = False
    clocksource: str = ""


def facts(
    root: Path = Path("/"),
    pid: int | None = None,
    info: Cpuinfo | None = None,
    group: Cgroup | None = None,
) -> Cpu:
    """The CPUs of the machine below `root`, for process `pid`, else for this one.

    `info`, `group`: what is already known of them, read here where it is not.
    """
    info = info or cpuinfo.read(root)
    group = group or cgroup.facts(root, pid)
    devices = root / _DEVICES
    online = files.listed(files.text(devices / "online")) or info.processors
    not_online = files.listed(files.text(devices / "offline"))
    allowed = (
        _allowed(_affinity(root, pid), online, not_online)
        or _allowed(group.cpuset, online, not_online)
        or online
    )
    # LXCFS numbers the online ones of its containers anew.
    online = online if set(allowed) <= set(online) else allowed
    present = files.listed(files.text(devices / "present"))
    faster, slower = _kinds(root, online)
    boost, boost_file = _boost(devices)
    cores, allowed_cores = (
        _firsts(devices, cpus, ("core_cpus_list", "thread_siblings_list"))
        for cpus in (online, allowed)
    )
    return Cpu(
        model=info.model,
        vendor=info.vendor,
        machine=files.text(root / "proc/sys/kernel/arch") or info.machine,
        online=online,
        offline=tuple(sorted(set(not_online) & set(present))) if present else not_online,
        allowed=allowed,
        isolated=files.listed(files.text(devices / "isolated")),
        granted=min(float(len(allowed)), group.cpus or float(len(allowed))),
        sockets=len(_firsts(devices, online, ("package_cpus_list", "core_siblings_list")))
        or info.sockets,
        cores=len(cores) or info.cores,
        allowed_cores=allowed_cores,
        smt=files.text(devices / "smt/control"),
        faster=faster,
        slower=slower,
        governor=_governor(devices, allowed),
        boost=boost,
        boost_file=boost_file,
        most_mhz=_most_mhz(devices, (*faster[:1], *online[:1])),
        caches=_caches(devices / f"cpu{online[0]}/cache") if online else {},
        is_virtual="hypervisor" in info.flags
        or (not info.first.get("flags") and _is_virtual_firmware(root)),
        clocksource=files.text(
            root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
    )


def _affinity(root: Path, pid: int | None) -> tuple[int, ...]:
    """Where threads may run, by their masks; a bound main thread says nothing of the others."""
    process = root / "proc" / ("self" if pid is None else str(pid))
    threads = (
        []
        if pid is None
        else [process / "task" / name / "status" for name in files.names(process / "task")]
    )
    found: set[int] = set()
    for path in threads or [process / "status"]:
        found.update(files.listed(files.fields(path).get("Cpus_allowed_list", "")))
    return tuple(found)


def _allowed(mask: Iterable[int], online: Iterable[int], offline: Iterable[int]) -> tuple[int, ...]:
    """The CPUs of `mask` that run: a mask may have all that the machine could ever get."""
    not_offline = set(mask).difference(offline)
    running = not_offline.intersection(online)
    allowed = running or not_offline
    return tuple(sorted(allowed))


def _firsts(devices: Path, online: tuple[int, ...], names: tuple[str, str]) -> tuple[int, ...]:
    """The first of each group of CPUs that the lists called `names` (new, old name) tell; none
    where one is missing.
    """
    in_groups: set[int] = set()
    firsts = []
    new_name, old_name = names
    for cpu in online:
        if cpu in in_groups:
            continue
        topology = devices / f"cpu{cpu}/topology"
        members = files.listed(files.text(topology / new_name))
        if not members:
            members = files.listed(files.text(topology / old_name))
        if cpu not in members:
            return ()
        in_groups.update(members)
        firsts.append(cpu)
    return tuple(firsts)


def _kinds(root: Path, online: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The faster and the slower CPUs: Intel's by their counting units, others by what the scheduler
    thinks of them.
    """
    faster = _counted_by(root, "cpu_core", online)
    slower = _counted_by(root, "cpu_atom", online)
    if faster and slower:
        return faster, slower
    capacities = _capacities(root / _DEVICES, online)
    if not capacities:
        return (), ()
    least = _AS_FAST * max(capacities.values())
    slower = tuple(cpu for cpu in online if capacities[cpu] < least)
    if not slower:
        return (), ()
    faster = tuple(cpu for cpu in online if capacities[cpu] >= least)
    return faster, slower


def _counted_by(root: Path, unit: str, online: tuple[int, ...]) -> tuple[int, ...]:
    """The CPUs of a counting unit that run."""
    text = files.text(root / f"sys/devices/{unit}/cpus")
    cpus = set(files.listed(text))
    return tuple(sorted(cpus.intersection(online)))


def _capacities(devices: Path, online: tuple[int, ...]) -> dict[int, int]:
    """What the scheduler thinks of each CPU; empty where it does not tell them apart."""
    if not online or not (devices / f"cpu{online[0]}/cpu_capacity").exists():
        return {}
    found = {}
    for cpu in online:
        capacity = files.number(devices / f"cpu{cpu}/cpu_capacity")
        found[cpu] = capacity or 0
    return found


def _governor(devices: Path, cpus: tuple[int, ...]) -> str:
    if not cpus or not (devices / f"cpu{cpus[0]}/cpufreq").is_dir():
        return ""
    governors = set()
    for cpu in cpus:
        text = files.text(devices / f"cpu{cpu}/cpufreq/scaling_governor")
        if text:
            governors.add(text)
    return ", ".join(sorted(governors))


def _boost(devices: Path) -> tuple[bool | None, str]:
    """By acpi-cpufreq and its like, or by intel_pstate, which says the contrary; and the file."""
    for name, on, off in (("cpufreq/boost", "1", "0"), ("intel_pstate/no_turbo", "0", "1")):
        value = files.text(devices / name)
        if value == on:
            return True, name
        if value == off:
            return False, name
    return None, ""


def _most_mhz(devices: Path, cpus: tuple[int, ...]) -> int | None:
    """The highest frequency of the first of these CPUs that states one."""
    for cpu in cpus:
        khz = files.number(devices / f"cpu{cpu}/cpufreq/cpuinfo_max_freq")
        if khz:
            return khz // 1000
    return None


def _caches(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in files.names(folder):
        if not name.startswith("index"):
            continue
        cache = folder / name
        level = files.text(cache / "level")
        kind = files.text(cache / "type")
        size_bytes = _size_bytes(files.text(cache / "size"))
        if kind in _CACHES and level.isdecimal() and size_bytes is not None:
            found[f"L{level}{_CACHES[kind]}"] = size_bytes
    return found


def _size_bytes(text: str) -> int | None:
    """Such as 32K."""
    count, unit = files.whole(text[:-1]), text[-1:]
    if count is None or unit not in _UNITS:
        return None
    return count * _UNITS[unit]


def _is_virtual_firmware(root: Path) -> bool:
    if files.text(root / "sys/hypervisor/type"):
        return True
    folder = root / "sys/class/dmi/id"
    vendor = files.text(folder / "sys_vendor")
    product = files.text(folder / "product_name")
    if product.endswith(_BARE_METAL):
        return False
    return any(word in vendor or word in product for word in _HYPERVISORS)
