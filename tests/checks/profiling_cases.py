"""What a profiler may see: cases of test_checks.py."""

from __future__ import annotations

from layerscope.checks.check import NOTE, OK, UNSEEN
from tests.checks.machines import case

CASES = [
    case("perf_events", OK, "perf_event_paranoid is 1: every thread of your own programs can be sampled"),
    case("perf_events", NOTE, "perf_event_paranoid is 4",
         "sysctl kernel.perf_event_paranoid=2", kernel={"perf_event_paranoid": 4}),
    case("perf_events", NOTE, "perf_event_paranoid is 4", "docker run --cap-add PERFMON IMAGE",
         kernel={"perf_event_paranoid": 4, "seccomp": "filter", "is_container": True}),
    case("perf_events", NOTE, "perf_event_paranoid is 2, but a seccomp filter may refuse perf_event_open",
         "docker run --cap-add PERFMON IMAGE",
         kernel={"perf_event_paranoid": 2, "seccomp": "filter", "is_container": True}),
    case("perf_events", NOTE, "perf_event_paranoid is -1, but a seccomp filter may refuse", "layerscope doctor",
         kernel={"perf_event_paranoid": -1, "seccomp": "filter"}),
    case("perf_events", OK, "which this user's rights go beyond",
         kernel={"seccomp": "filter", "is_container": True, "capabilities": ("CAP_PERFMON",)}),
    case("perf_events", OK, "which this user's rights go beyond",
         kernel={"perf_event_paranoid": 4, "capabilities": ("CAP_PERFMON",)}),
    case("perf_events", NOTE, "perf_event_mlock_kb is 64", "sysctl kernel.perf_event_mlock_kb=516",
         kernel={"perf_event_mlock_kb": 64}),
    case("perf_events", UNSEEN, "hides it", kernel={"perf_event_paranoid": None}),
    case("kernel_frames", OK, "kptr_restrict is 0, perf_event_paranoid 1"),
    case("kernel_frames", NOTE, "kptr_restrict is 1, perf_event_paranoid 2",
         "sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0",
         kernel={"kptr_restrict": 1, "perf_event_paranoid": 2}),
    case("kernel_frames", OK, "kptr_restrict is 1",
         kernel={"kptr_restrict": 1, "perf_event_paranoid": 2, "capabilities": ("CAP_SYS_ADMIN", "CAP_SYSLOG")}),
    case("kernel_frames", OK, "kptr_restrict is 1, perf_event_paranoid 1",
         kernel={"kptr_restrict": 1, "capabilities": ("CAP_SYSLOG",)}),
    *(
        case("kernel_frames", NOTE, f"kptr_restrict is {kptr}, perf_event_paranoid {paranoid}",
             "sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0",
             kernel={"kptr_restrict": kptr, "perf_event_paranoid": paranoid, "capabilities": rights})
        for kptr, paranoid, rights in (
            (1, 1, ()), (1, 2, ("CAP_PERFMON",)), (1, 2, ("CAP_SYS_ADMIN",)), (0, 2, ("CAP_PERFMON",)),
            (0, 2, ("CAP_SYSLOG",)), (2, 1, ("CAP_PERFMON", "CAP_SYSLOG")),
        )
    ),
    case("kernel_frames", UNSEEN, "hides", kernel={"kptr_restrict": None}),
    case("ptrace", OK, "ptrace_scope is 1"),
    case("ptrace", OK, "no Yama", kernel={"ptrace_scope": None}),
    case("ptrace", NOTE, "ptrace_scope is 2", "sysctl kernel.yama.ptrace_scope=1", kernel={"ptrace_scope": 2}),
    case("ptrace", NOTE, "ptrace_scope is 3", "sysctl kernel.yama.ptrace_scope=1 at boot", kernel={"ptrace_scope": 3}),
    case("hardware_counters", OK, "hardware counters of the cores are there"),
    case("hardware_counters", OK, "are there", kernel={"pmus": ("armv8_pmuv3_0", "software")}),
    case("hardware_counters", NOTE, "no hardware counters",
         "a machine without a hypervisor, or one that passes its counters on (libvirt: <pmu state='on'/>)",
         kernel={"pmus": ("software", "msr", "uprobe")}, cpu={"is_virtual": True}),
    case("hardware_counters", UNSEEN, "does not list", kernel={"pmus": ()}),
    case("seccomp", OK, "no filter"),
    case("seccomp", NOTE, "a seccomp filter of the container", "layerscope doctor",
         kernel={"seccomp": "filter", "is_container": True}),
    case("seccomp", UNSEEN, "not known", kernel={"seccomp": ""}),
]  # fmt: skip
