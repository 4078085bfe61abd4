"""Limits of control groups of both versions, what they leave and what they cost, from made up
roots.
"""

from __future__ import annotations

from pathlib import Path

from layerscope.host import cgroup, memory
from layerscope.host.cgroup import Cgroup, CgroupUsage, Throttling

MB = 1_000_000
V1 = "9:memory:/job/1\n4:cpu,cpuacct:/job/1\n1:name=systemd:/\n0::/\n"
V2 = {"sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def test_without_groups_there_are_no_limits(tmp_path: Path) -> None:
    assert cgroup.facts(tmp_path) == Cgroup()


def test_of_version_2_the_tightest_on_the_way_up_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/jobs/one\n",
            **V2,
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/jobs/memory.max": f"{512 * MB}\n",
            "sys/fs/cgroup/jobs/memory.current": f"{300 * MB}\n",
            "sys/fs/cgroup/jobs/memory.stat": f"anon 1\ninactive_file {100 * MB}\n",
            "sys/fs/cgroup/jobs/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/jobs/one/memory.max": f"{900 * MB}\n",
            "sys/fs/cgroup/jobs/one/cpu.max": "max 100000\n",
        },
    )
    assert cgroup.facts(tmp_path) == Cgroup(2, 512 * MB, 200 * MB, 1.5)


def test_in_a_container_the_mounted_group_is_ours(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../../elsewhere\n",
            **V2,
            "sys/fs/cgroup/memory.max": f"{512 * MB}\n",
            "sys/fs/cgroup/memory.current": "5\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
        },
    )
    assert cgroup.facts(tmp_path) == Cgroup(2, 512 * MB, 5, 0.5)
    write(tmp_path, {"proc/7/cgroup": "0::/../../elsewhere\n", "proc/8/cgroup": "0::/../other\n"})
    assert cgroup.facts(tmp_path, 7) == cgroup.facts(tmp_path)
    assert cgroup.facts(tmp_path, 8) == Cgroup(is_hidden=True, is_memory_hidden=True)


def test_the_group_of_another_process_that_is_not_visible_is_not_taken_for_ours(
    tmp_path: Path,
) -> None:
    ours = "9:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n"
    write(
        tmp_path,
        {
            "proc/self/cgroup": ours,
            "proc/7/cgroup": ours,
            "proc/8/cgroup": ours.replace("/docker/a", "/docker/b"),
            "proc/9/cgroup": "9:memory:/docker/b\n4:cpu,cpuacct:/docker/a\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{512 * MB}\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cgroup.facts(tmp_path) == cgroup.facts(tmp_path, 7) == Cgroup(1, 512 * MB, 0, 0.5)
    assert cgroup.facts(tmp_path, 8) == Cgroup(1, is_hidden=True, is_memory_hidden=True)
    assert cgroup.facts(tmp_path, 9) == Cgroup(1, None, 0, 0.5, is_memory_hidden=True)


def test_two_points_in_a_name_lead_nowhere_else(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job..7\n",
            **V2,
            "sys/fs/cgroup/cpu.max": "800000 100000\n",
            "sys/fs/cgroup/job..7/cpu.max": "100000 100000\n",
        },
    )
    assert cgroup.facts(tmp_path).cpus == 1.0
    write(tmp_path, {"proc/7/cgroup": "0::/job..7\n", "proc/8/cgroup": "0::/job..8\n"})
    assert cgroup.facts(tmp_path, 7).cpus == 1.0
    assert cgroup.facts(tmp_path, 8) == Cgroup(is_hidden=True, is_memory_hidden=True)


def test_of_version_1_a_controller_that_is_not_mounted_is_hidden(tmp_path: Path) -> None:
    limit = {"sys/fs/cgroup/memory/job/1/memory.limit_in_bytes": f"{512 * MB}\n"}
    write(tmp_path, {"proc/self/cgroup": V1, **limit})
    assert cgroup.facts(tmp_path) == Cgroup(1, 512 * MB, is_hidden=True)


def test_the_memory_limit_is_the_one_that_leaves_the_least_room(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/app\n",
            **V2,
            "sys/fs/cgroup/pod/memory.max": f"{1000 * MB}\n",
            "sys/fs/cgroup/pod/memory.current": f"{960 * MB}\n",
            "sys/fs/cgroup/pod/app/memory.max": f"{512 * MB}\n",
            "sys/fs/cgroup/pod/app/memory.current": f"{100 * MB}\n",
        },
    )
    found = cgroup.facts(tmp_path)
    assert (found.memory_limit_bytes, found.memory_used_bytes) == (1000 * MB, 960 * MB)
    assert found.memory_lower_bytes == found.memory_most_bytes == 512 * MB

    write(tmp_path, {"sys/fs/cgroup/pod/memory.current": f"{200 * MB}\n"})
    found = cgroup.facts(tmp_path)
    assert (found.memory_limit_bytes, found.memory_used_bytes) == (512 * MB, 100 * MB)
    assert (found.memory_lower_bytes, found.memory_most_bytes) == (None, 512 * MB)


def test_cached_files_do_not_count_however_often_they_were_read(tmp_path: Path) -> None:
    stat = f"anon 1\nfile {80 * MB}\ninactive_file {30 * MB}\nactive_file {50 * MB}\nslab_reclaimable {5 * MB}\n"
    group = {"memory.max": f"{100 * MB}\n", "memory.current": f"{96 * MB}\n", "memory.stat": stat}
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            **V2,
            **{f"sys/fs/cgroup/{name}": group[name] for name in group},
        },
    )
    assert cgroup.facts(tmp_path).memory_used_bytes == 11 * MB

    stat = f"inactive_file 1\nactive_file 1\ntotal_inactive_file {30 * MB}\ntotal_active_file {50 * MB}\n"
    names = {"limit_in_bytes": f"{100 * MB}\n", "usage_in_bytes": f"{96 * MB}\n", "stat": stat}
    write(tmp_path, {"proc/self/cgroup": "9:memory:/\n"})
    write(tmp_path, {f"sys/fs/cgroup/memory/memory.{name}": names[name] for name in names})
    assert cgroup.facts(tmp_path) == Cgroup(1, 100 * MB, 16 * MB)


def test_of_version_1_no_limit_is_a_large_number(tmp_path: Path) -> None:
    group = {
        "proc/self/cgroup": V1,
        "sys/fs/cgroup/memory/job/1/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/cpu/job/1/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/job/1/cpu.cfs_period_us": "100000\n",
    }
    write(tmp_path, group)
    assert cgroup.facts(tmp_path) == Cgroup(1, None, 0, None)
    write(
        tmp_path,
        {
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{512 * MB}\n",
            "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{50 * MB}\n",
            "sys/fs/cgroup/cpu/job/1/cpu.cfs_quota_us": "50000\n",
        },
    )
    assert cgroup.facts(tmp_path) == Cgroup(1, 512 * MB, 50 * MB, 0.5)


def test_the_group_of_another_process_its_swap_its_cpus_and_what_it_waited(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/7/cgroup": "0::/jobs/one\n",
            "proc/self/cgroup": "0::/\n",
            **V2,
            "sys/fs/cgroup/jobs/cpu.max": "100000 100000\n",
            "sys/fs/cgroup/jobs/cpu.stat": STAT_V2.format(5, 7000),
            "sys/fs/cgroup/jobs/memory.swap.max": "max\n",
            "sys/fs/cgroup/jobs/one/memory.swap.max": f"{MB}\n",
            "sys/fs/cgroup/jobs/one/cpuset.cpus.effective": "0-1,8\n",
        },
    )
    assert cgroup.facts(tmp_path, 7) == Cgroup(2, None, 0, 1.0, MB, (0, 1, 8), 12, 5, 7_000_000)
    assert cgroup.facts(tmp_path) == Cgroup(2)


def test_of_version_1_swap_is_limited_with_memory(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "9:memory:/\n3:cpuset:/job\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{5 * MB}\n",
            "sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": f"{7 * MB}\n",
            "sys/fs/cgroup/cpuset/job/cpuset.effective_cpus": "3\n",
        },
    )
    assert cgroup.facts(tmp_path) == Cgroup(1, 5 * MB, 0, None, 2 * MB, (3,))


def test_limits_that_are_not_visible_are_not_taken_for_none(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/jobs/one\n"})
    assert cgroup.facts(tmp_path) == Cgroup(is_hidden=True, is_memory_hidden=True)


def test_damaged_files_are_no_error(tmp_path: Path) -> None:
    write(
        tmp_path, {"proc/self/cgroup": "nothing\n::\n", **V2, "sys/fs/cgroup/memory.max": "many\n"}
    )
    assert cgroup.facts(tmp_path).memory_limit_bytes is None


def test_what_is_left_is_cut_by_the_group(tmp_path: Path) -> None:
    write(tmp_path, {"proc/meminfo": "MemTotal: 900 kB\nMemAvailable:  800000 kB\n"})
    assert memory.available_bytes(tmp_path) == 800_000 * 1024
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            **V2,
            "sys/fs/cgroup/memory.max": f"{100 * MB}\n",
            "sys/fs/cgroup/memory.current": f"{120 * MB}\n",
            "sys/fs/cgroup/memory.stat": f"inactive_file {50 * MB}\n",
        },
    )
    assert memory.available_bytes(tmp_path) == 30 * MB


def test_where_nothing_is_told_little_is_assumed(tmp_path: Path) -> None:
    assert 0 < memory.available_bytes(tmp_path) <= 1_000_000_000


STAT_V2 = "usage_usec 51\nuser_usec 40\nsystem_usec 11\nnr_periods 12\nnr_throttled {}\nthrottled_usec {}\n"
STAT_V1 = "nr_periods 12\nnr_throttled {}\nthrottled_time {}\n"


def usage(root: Path, pid: int = 7) -> CgroupUsage:
    return cgroup.group_of(pid, root).usage()


def test_of_version_2_throttling_is_added_up_on_the_way_to_the_root(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/7/cgroup": "0::/jobs/one\n",
            "proc/self/cgroup": "0::/elsewhere\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/cpu.stat": "usage_usec 1\n",  # that of the root group has no more
            "sys/fs/cgroup/jobs/cpu.stat": STAT_V2.format(2, 300),
            "sys/fs/cgroup/jobs/one/cpu.stat": STAT_V2.format(5, 7000),
            "sys/fs/cgroup/jobs/memory.max": f"{512 * MB}\n",
            "sys/fs/cgroup/jobs/memory.current": f"{300 * MB}\n",
            "sys/fs/cgroup/jobs/one/memory.max": "max\n",
            "sys/fs/cgroup/jobs/one/memory.current": f"{90 * MB}\n",
        },
    )
    assert usage(tmp_path) == CgroupUsage(7, 7_300_000, 300 * MB, 512 * MB)
    own, above = Throttling(12, 5, 7_000_000), Throttling(12, 2, 300_000)
    assert cgroup.group_of(7, tmp_path).throttling() == (own, above, Throttling())


def test_the_group_that_is_throttled_most_is_not_diluted_by_those_around_it(tmp_path: Path) -> None:
    """Each counts the same stretches of time."""
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/app\n",
            **V2,
            "sys/fs/cgroup/pod/cpu.stat": "nr_periods 100\nnr_throttled 60\nthrottled_usec 5000\n",
            "sys/fs/cgroup/pod/app/cpu.stat": "nr_periods 100\nnr_throttled 0\nthrottled_usec 0\n",
        },
    )
    found = cgroup.facts(tmp_path)
    assert (found.periods, found.throttled, found.throttled_ns) == (100, 60, 5_000_000)
    few, many = Throttling(10, 6, 1), Throttling(1000, 500, 9)
    assert cgroup.most_throttled((many, few, Throttling(5, None, 7))) == few
    assert cgroup.most_throttled((Throttling(), Throttling(5))) == Throttling()


def test_of_version_1_controllers_have_groups_of_their_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/7/cgroup": V1,
            "sys/fs/cgroup/cpu/cpu.stat": STAT_V1.format(0, 0),
            "sys/fs/cgroup/cpu/job/1/cpu.stat": STAT_V1.format(4, 123_456_789),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/job/1/memory.limit_in_bytes": f"{64 * MB}\n",
            "sys/fs/cgroup/memory/job/1/memory.usage_in_bytes": f"{50 * MB}\n",
        },
    )
    assert usage(tmp_path) == CgroupUsage(4, 123_456_789, 50 * MB, 64 * MB)


def test_without_a_limit_of_memory_and_in_the_root_group_nothing_is_made_up(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/7/cgroup": "0::/\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
            "sys/fs/cgroup/cpu.stat": "usage_usec 1\n",
            "sys/fs/cgroup/memory.stat": "anon 1\n",
        },
    )
    assert usage(tmp_path) == CgroupUsage()
    assert not cgroup.group_of(7, tmp_path).is_hidden


def test_a_group_whose_files_are_not_there_is_hidden_and_no_group_is_not(tmp_path: Path) -> None:
    assert cgroup.group_of(7, tmp_path) == cgroup.Group()
    for groups in ("0::/jobs/one\n", V1):
        write(tmp_path, {"proc/7/cgroup": groups})
        group = cgroup.group_of(7, tmp_path)
        assert (group.is_hidden, group.key, group.usage()) == (True, (), CgroupUsage())


def test_processes_of_one_group_are_known_by_its_key(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/7/cgroup": "0::/jobs/one\n",
            "proc/8/cgroup": "0::/jobs/one\n",
            "proc/9/cgroup": "0::/jobs\n",
            "sys/fs/cgroup/cgroup.controllers": "",
            "sys/fs/cgroup/jobs/one/cpu.stat": "",
        },
    )
    one, same, other = (cgroup.group_of(pid, tmp_path).key for pid in (7, 8, 9))
    assert one == same != other
