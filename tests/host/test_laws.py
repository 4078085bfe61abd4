"""What holds for any machine, however strange its files are."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.host import files, machine, process, runtimes, watch
from layerscope.host.cgroup import Throttling
from layerscope.model.errors import ReadError

PID = 7
READ = (
    "proc/cpuinfo", "proc/meminfo", "proc/loadavg", "proc/stat", "proc/self/status", "proc/self/cgroup",
    "proc/7/status", "proc/7/cgroup", "proc/7/maps", "proc/7/environ", "proc/7/cmdline", "proc/7/limits", "proc/7/stat",
    "proc/7/task/7/status", "proc/7/task/7/stat", "proc/7/task/x/schedstat", "proc/pressure/cpu",
    "proc/sys/kernel/osrelease", "proc/sys/kernel/arch", "proc/sys/kernel/numa_balancing", "proc/sys/vm/swappiness",
    "proc/sys/abi/sve_default_vector_length", "sys/devices/system/cpu/online", "sys/devices/system/cpu/offline",
    "sys/devices/system/cpu/present", "sys/devices/system/cpu/cpu0/topology/core_cpus_list",
    "sys/devices/system/cpu/cpu0/cpu_capacity", "sys/devices/system/cpu/cpu1/cpu_capacity",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
    "sys/devices/system/cpu/cpu0/cache/index0/level", "sys/devices/system/cpu/cpu0/cache/index0/type",
    "sys/devices/system/cpu/cpu0/cache/index0/size", "sys/devices/cpu_core/cpus", "sys/devices/cpu_atom/cpus",
    "sys/devices/system/node/online", "sys/devices/system/node/node0/meminfo", "sys/devices/system/node/node0/distance",
    "sys/fs/cgroup/cgroup.controllers", "sys/fs/cgroup/cpu.max", "sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "sys/fs/cgroup/cpu/cpu.cfs_period_us", "sys/fs/cgroup/cpuset.cpus.effective",
    "sys/kernel/mm/transparent_hugepage/enabled", "sys/class/dmi/id/sys_vendor",
)  # fmt: skip
# Lines and words that get further than junk does.
WORDS = st.sampled_from(
    (
        "0-3", "0-999999999999", "3-0", "-1", "0-3,8,,x", "9" * 5000, "\u0663", "\u00b2", "1e999", "nan", "-5", "0",
        "1,5", "max 100000", "50000 100000", "0 0", "max", "[madvise]", "32K", "-1K", "K", "Data", "some avg10=nan",
        "0::/", "0::/../x", "4:cpu,cpuacct:/\x00", "9:memory:/a", "processor\t: 0",
        "flags\t: lm avx2 amx_tile hypervisor", "Features : asimd sve", "CPU implementer : zz", "CPU part\t: 0xd40",
        "vendor_id : GenuineIntel", "lm", "Cpus_allowed_list:\t1-2", "State:\tR (running)",
        "Uid:\t99999999999999999999", "NSpid:\tx y", "VmRSS:\t-1 kB", "MemTotal: 1 kB", "Node 0 MemTotal: x kB",
        ": :", "cpu 1 2 3 4 5 6 7 8 9 10", "7 (a) b) S 1 2 3", "aarch64", "x86_64",
        "0-1 r-xp 0 0 5 /lib/libgomp.so.1", "OMP_NUM_THREADS=1\x00=\x00", "nr_periods -5", "nr_throttled 9",
        "1 2 3 4/", "Max locked memory x", "6.1", "99999999999999999999.1", "Amazon EC2",
    )
)  # fmt: skip
CONTENT = st.one_of(
    st.lists(WORDS, max_size=4).map(lambda lines: "\n".join(lines).encode("utf-8", "replace")),
    st.binary(max_size=40),
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(READ), CONTENT, max_size=len(READ)))
def test_no_content_of_any_file_is_an_error(contents: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        for pid in (None, PID):
            try:
                found = machine.facts(root, pid)
            except ReadError:  # in words, and only where there is no such process
                assert pid == PID
                continue
            cpu = found.cpu
            assert 0 <= cpu.granted <= len(cpu.allowed) <= len(cpu.online)
            assert set(cpu.allowed) <= set(cpu.online)
            assert not set(cpu.faster) & set(cpu.slower)
            assert machine.of_json(machine.as_json(found)) == found
        reading = watch.read(root, PID)
        assert watch.difference(reading, reading).throttled in (0, None)


@given(st.sets(st.integers(0, 300)))
def test_a_list_as_the_kernel_writes_it_is_read_back(numbers: set[int]) -> None:
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    written = ",".join(f"{low}-{high}" if high > low else str(low) for low, high in ranges)

    assert files.listed(written) == tuple(sorted(numbers))


@given(st.text(), st.text())
def test_no_mapping_and_no_environment_is_an_error(maps: str, environ: str) -> None:
    libraries = process.mapped_code(maps)
    runtimes.told_apart([*libraries, maps])
    assert all(name for name in process.variables(environ))


COUNT = st.none() | st.integers(0, 1 << 50)


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 40), COUNT, COUNT)
def test_no_two_readings_give_a_negative_number(
    at_ns: int, later_ns: int, first: int | None, second: int | None
) -> None:
    before, after = (
        watch.Reading(
            at,
            (),
            (Throttling(count, count, count),),
            None,
            5,
            count,
            count,
            {1: count or 0},
            count,
        )
        for at, count in ((at_ns, first), (at_ns + later_ns, second))
    )
    found = watch.difference(before, after)

    for told in (found.throttled, found.faults, found.process_cpus, found.family_cpus):
        assert told is None or told >= 0
    assert (found.faults is None) == (first is None or second is None or second < first)
