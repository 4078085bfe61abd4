"""How many CPUs a program may use: affinity, and the quota of its control group in both
versions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from layerscope.host import cpu

DEVICES = "sys/devices/system/cpu"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def eight(root: Path, **more: str) -> Path:
    """A machine of eight CPUs that a process may use all."""
    return write(
        root, {"proc/self/status": "Cpus_allowed_list:\t0-7", f"{DEVICES}/online": "0-7", **more}
    )


@pytest.mark.parametrize(
    ("limit", "cpus"),
    [("max 100000", 8), ("150000 100000", 1.5), ("50000 100000", 0.5), ("1600000 100000", 8), ("", 8), ("max", 8),
     ("0 100000", 8), ("50000 0", 8), ("-1 100000", 8)],
)  # fmt: skip
def test_version_2_of_the_control_groups(tmp_path: Path, limit: str, cpus: float) -> None:
    root = write(
        eight(tmp_path),
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/cgroup.controllers": "",
            "sys/fs/cgroup/cpu.max": limit,
        },
    )
    assert cpu.facts(root).granted == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("250000", 2.5), ("0", 8), ("9900000", 8)])
def test_version_1_of_the_control_groups(tmp_path: Path, quota: str, cpus: float) -> None:
    group = "sys/fs/cgroup/cpu/cpu.cfs"
    root = write(
        eight(tmp_path),
        {"proc/self/cgroup": "1:cpu:/", f"{group}_quota_us": quota, f"{group}_period_us": "100000"},
    )
    assert cpu.facts(root).granted == cpus


def test_half_a_quota_is_none(tmp_path: Path) -> None:
    root = write(
        eight(tmp_path),
        {"proc/self/cgroup": "1:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000"},
    )

    assert cpu.facts(root).granted == 8


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert cpu.facts(eight(tmp_path)).granted == 8


def test_the_limit_is_that_of_the_process_that_is_asked_for(tmp_path: Path) -> None:
    root = write(
        eight(tmp_path),
        {
            "proc/self/cgroup": "0::/",
            "proc/7/cgroup": "0::/job",
            "proc/7/status": "Cpus_allowed_list:\t0-1",
            "sys/fs/cgroup/cgroup.controllers": "",
            "sys/fs/cgroup/job/cpu.max": "50000 100000",
        },
    )
    assert cpu.facts(root).granted == 8
    assert (cpu.facts(root, 7).granted, cpu.facts(root, 7).allowed) == (0.5, (0, 1))


def test_threads_that_are_bound_elsewhere_count(tmp_path: Path) -> None:
    status = "Cpus_allowed_list:\t{}"
    root = write(
        eight(tmp_path),
        {
            "proc/7/status": status.format(0),
            "proc/7/task/7/status": status.format(0),
            "proc/7/task/8/status": status.format(5),
        },
    )
    assert cpu.facts(root, 7).allowed == (0, 5)


@pytest.mark.parametrize(
    ("online", "offline", "mask", "allowed"),
    [
        ("0-1", "2-127", "0-127", (0, 1)),  # all that could ever be plugged in
        ("0-3", "", "2-3", (2, 3)),
        ("0-1", "", "4-5", (4, 5)),  # LXCFS says that the container has two, whichever they are
        ("0-3", "", "", (0, 1, 2, 3)),
        ("", "", "1", (1,)),
    ],
)
def test_a_mask_may_have_more_than_there_is(
    tmp_path: Path, online: str, offline: str, mask: str, allowed: tuple[int, ...]
) -> None:
    names = {
        f"{DEVICES}/online": online,
        f"{DEVICES}/offline": offline,
        "proc/self/status": f"Cpus_allowed_list:\t{mask}",
    }
    found = cpu.facts(write(tmp_path, names))

    assert found.allowed == allowed
    assert set(found.allowed) <= set(found.online)


def test_the_cpus_of_a_group_count_where_the_mask_is_not_told(tmp_path: Path) -> None:
    group = {"sys/fs/cgroup/cgroup.controllers": "", "sys/fs/cgroup/cpuset.cpus.effective": "2-3"}

    assert cpu.facts(
        write(tmp_path, {f"{DEVICES}/online": "0-7", "proc/self/cgroup": "0::/", **group})
    ).allowed == (
        2,
        3,
    )


@pytest.mark.parametrize(
    ("mask", "firsts"),
    [("0-7", (0, 1, 2, 3)), ("1,5", (1,)), ("5-6", (5, 6)), ("2,4-6", (2, 4, 5))],
)
def test_the_cores_of_the_cpus_that_are_allowed(
    tmp_path: Path, mask: str, firsts: tuple[int, ...]
) -> None:
    """Of eight CPUs each two are a core: 0 and 4, 1 and 5, ..."""
    siblings = {
        f"{DEVICES}/cpu{cpu}/topology/core_cpus_list": f"{cpu % 4},{cpu % 4 + 4}"
        for cpu in range(8)
    }
    root = write(eight(tmp_path, **siblings), {"proc/self/status": f"Cpus_allowed_list:\t{mask}"})

    assert cpu.facts(root).allowed_cores == firsts
    assert cpu.facts(root).cores == 4


@pytest.mark.parametrize(
    ("capacities", "faster", "slower"),
    [
        ((1024, 1024, 1004, 930), (), ()),
        ((446, 1024, 980, 446), (1, 2), (0, 3)),
        ((0, 0, 0, 0), (), ()),
    ],
)
def test_cores_of_one_kind_may_differ_a_little(
    tmp_path: Path, capacities: tuple[int, ...], faster: tuple[int, ...], slower: tuple[int, ...]
) -> None:
    told = {
        f"{DEVICES}/cpu{number}/cpu_capacity": str(value) for number, value in enumerate(capacities)
    }
    root = write(
        tmp_path,
        {f"{DEVICES}/online": "0-3", "proc/self/status": "Cpus_allowed_list:\t0-3", **told},
    )

    assert (cpu.facts(root).faster, cpu.facts(root).slower) == (faster, slower)


def test_a_model_may_have_a_colon_and_an_unknown_arm_is_a_number(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: A CPU: fast @ 3 GHz"})
    assert (cpu.facts(root).model, cpu.facts(root).online) == ("A CPU: fast @ 3 GHz", (0,))

    write(
        root,
        {
            "proc/cpuinfo": "processor : 0\nFeatures : fp asimd\nCPU implementer : 0x77\nCPU part : 0xabc"
        },
    )
    found = cpu.facts(root)
    assert (found.model, found.vendor, found.machine) == ("0x77 part 0xabc", "0x77", "aarch64")


@pytest.mark.parametrize(
    ("told", "machine"),
    [
        ("processor : 0\ncpu : POWER9, altivec supported", "ppc64le"),
        ("processor : 0\nisa : rv64imafdc\nmmu : sv48", "riscv64"),
        ("vendor_id : GenuineIntel\nflags : fpu", "i686"),
        ("CPU implementer : 0x41\nCPU architecture: 7\nFeatures : half thumb neon", "armv7l"),
        ("nothing : of this", ""),
    ],
)
def test_the_architecture_by_the_processor_alone(tmp_path: Path, told: str, machine: str) -> None:
    assert cpu.facts(write(tmp_path, {"proc/cpuinfo": told})).machine == machine


@pytest.mark.parametrize(
    ("vendor", "product", "virtual"),
    [
        ("QEMU", "KVM Virtual Machine", True),
        ("Amazon EC2", "c7g.metal", False),
        ("GIGABYTE", "R272", False),
    ],
)
def test_a_virtual_machine_whose_processor_does_not_tell(
    tmp_path: Path, vendor: str, product: str, virtual: bool
) -> None:
    dmi = "sys/class/dmi/id"

    assert (
        cpu.facts(
            write(tmp_path, {f"{dmi}/sys_vendor": vendor, f"{dmi}/product_name": product})
        ).is_virtual
        is virtual
    )


def test_facts_that_are_not_there_are_empty_and_no_error(tmp_path: Path) -> None:
    assert cpu.facts(tmp_path) == cpu.Cpu()


@pytest.mark.parametrize(
    ("told", "boost", "file"),
    [
        ({"cpufreq/boost": "0"}, False, "cpufreq/boost"),
        ({"cpufreq/boost": "1"}, True, "cpufreq/boost"),
        ({"intel_pstate/no_turbo": "1"}, False, "intel_pstate/no_turbo"),
        ({"intel_pstate/no_turbo": "0", "cpufreq/boost": ""}, True, "intel_pstate/no_turbo"),
        ({}, None, ""),
    ],
)
def test_which_file_tells_of_the_boost(
    tmp_path: Path, told: dict[str, str], boost: bool | None, file: str
) -> None:
    found = cpu.facts(
        write(eight(tmp_path), {f"{DEVICES}/{name}": text for name, text in told.items()})
    )

    assert (found.boost, found.boost_file) == (boost, file)
