"""Every check, on machines on which it is well and on machines on which it is not."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import defaultdict
from typing import Any

import pytest

from layerscope.checks import judge
from layerscope.checks.check import ERROR, NOTE, OK, UNSEEN, WARNING
from layerscope.host.isa import Support
from layerscope.host.numa import Node
from tests.checks import profiling_cases
from tests.checks.machines import EIGHT, FLAGS, GB, LIBRARIES, SUPPORT, case, judged, seen

TWO_NODES = (
    Node(0, (0, 1, 2, 3), 32 * GB, 5 * GB, (10, 21)),
    Node(1, (4, 5, 6, 7), 32 * GB, 30 * GB, (21, 10)),
)
WITHOUT_BF16 = tuple(
    Support("bfloat16", "emulated", "AVX-512", 512) if one.dtype == "bfloat16" else one
    for one in SUPPORT
)
AVX2 = tuple(flag for flag in FLAGS if not flag.startswith("avx512"))
SSE = (Support("float32", "native", "SSE2", 128), Support("int8", "absent", ""))
SPEC = "/opt/venv/lib/python3.11/site-packages/"
PRELOAD = {"LD_PRELOAD": "/usr/lib/libtcmalloc.so.4:/usr/lib/missing.so"}


LIMITED = {
    "version": 2,
    "cpus": 1.0,
    "periods": 1000,
    "throttled": 600,
    "throttled_ns": 61_000_000_000,
}
CASES = [
    case("threads", OK, "libraries count 8 CPUs and start as many threads; 8 CPUs are granted"),
    case("threads", WARNING, "libraries count 8 CPUs and start as many threads, but 1 CPU is granted",
         "export OMP_NUM_THREADS=1", cpu={"granted": 1.0}),
    case("threads", WARNING, "OMP_NUM_THREADS is 64, but 2.5 CPUs are granted", "export OMP_NUM_THREADS=2",
         cpu={"granted": 2.5}, variables={"OMP_NUM_THREADS": "64"}),
    case("threads", OK, "OMP_NUM_THREADS is 2; 2.5 CPUs are granted", cpu={"granted": 2.5},
         variables={"OMP_NUM_THREADS": "2"}),
    case("threads", OK, "OMP_NUM_THREADS is 4", variables={"OMP_NUM_THREADS": "4,2"}),
    case("threads", OK, "9 of its 12 threads worked, on 8 CPUs granted, and used 7 CPUs", process={}, watched={}),
    case("threads", OK, "11 of its 11 threads (9 began while it was watched) worked", process={"threads": 2},
         watched={"process_threads": 11, "threads_left": 11, "threads_begun": 9}),
    case("threads", OK, "1 of its 2 threads (1 began and 10 ended while it was watched) worked",
         process={"threads": 11}, watched={"process_threads": 1, "threads_left": 2, "threads_begun": 1,
                                           "threads_ended": 10}),
    case("threads", OK, "12 threads on 8 CPUs granted; how many of them work was not watched", process={}),
    case("threads", WARNING, "64 of its 66 threads worked, on 1 CPU granted, and used 1 CPU",
         "export OMP_NUM_THREADS=1", cpu={"granted": 1.0}, process={"threads": 66},
         watched={"process_threads": 64, "process_cpus": 1.0}),
    case("threads", NOTE, "66 threads on 1 CPU granted", "export OMP_NUM_THREADS=1", cpu={"granted": 1.0},
         process={"threads": 66}),
    case("threads", NOTE, "used 0.1 CPUs", "export OMP_NUM_THREADS=8", process={"threads": 66},
         watched={"process_threads": 64, "process_cpus": 0.1}),
    case("threads", NOTE, "used 1 CPU; OMP_NUM_THREADS is 1", "export OMP_NUM_THREADS=8", process={"threads": 5},
         watched={"process_threads": 1, "process_cpus": 1.0}, variables={"OMP_NUM_THREADS": "1"}),
    case("threads", WARNING, "3 threads on 1 CPU granted; how many of them work was not watched; OMP_NUM_THREADS is 8",
         "export OMP_NUM_THREADS=1", cpu={"granted": 1.0}, process={"threads": 3}, variables={"OMP_NUM_THREADS": "8"}),
    case("threads", UNSEEN, "the kernel does not report which CPUs may be used", cpu={"allowed": ()}),
    case("throttling", OK, "the control group has no limit of CPU time"),
    case("throttling", OK,
         "a limit of 1 CPU: not once in 5 s; since the group was made throttled in 600 of 1,000 periods",
         cgroup=LIMITED, watched={"periods": 50, "throttled": 0, "throttled_ns": 0}),
    case("throttling", ERROR,
         "throttled in 48 of 50 periods, 3.10 s of CPU time held back in 5 s (60 % since the group",
         "export OMP_NUM_THREADS=1", cgroup=LIMITED, cpu={"granted": 1.0},
         watched={"periods": 50, "throttled": 48, "throttled_ns": 3_100_000_000}),
    case("throttling", WARNING, "throttled in 5 of 50 periods", "export OMP_NUM_THREADS=1", cgroup=LIMITED,
         cpu={"granted": 1.0}, watched={"periods": 50, "throttled": 5, "throttled_ns": 3_100_000}),
    case("throttling", ERROR, "a limit of 1 CPU: throttled in 600 of 1,000 periods, 61.0 s of CPU time held back since",
         "docker update --cpus=N CONTAINER, or in Kubernetes a larger resources.limits.cpu", cgroup=LIMITED,
         cpu={"granted": 1.0}, variables={"OMP_NUM_THREADS": "1"}),
    case("throttling", NOTE, "throttled in 6 of 1,000 periods", cgroup={**LIMITED, "throttled": 6}),
    case("throttling", UNSEEN, "does not count", cgroup={"version": 1, "cpus": 1.0}),
    case("throttling", UNSEEN, "there is no control group", cgroup={"version": 0}),
    case("throttling", UNSEEN, "not visible here", cgroup={"version": 0, "is_hidden": True}),
    case("throttling", UNSEEN, "not visible here", cgroup={"version": 1, "is_hidden": True}),
    case("openmp", OK, "/opt/venv/lib/python3.11/site-packages/torch/lib/libgomp.so.1", process={}),
    case("openmp", OK, "none is loaded as a library of its own", process={"libraries": ("/bin/sleep",)}),
    case("openmp", WARNING, "2 runtimes", f"export LD_PRELOAD={SPEC}torch/lib/libgomp.so.1",
         process={"libraries": (*LIBRARIES, f"{SPEC}sk.libs/libgomp-a34b3233.so.1.0.0")}),
    case("openmp", WARNING, "2 runtimes", "export LD_PRELOAD=/opt/intel/libiomp5.so",
         process={"libraries": (*LIBRARIES, "/opt/intel/libiomp5.so")}),
    case("openmp", OK, "; LD_PRELOAD has libgomp serve in place of all",
         variables={"LD_PRELOAD": "/usr/lib/libgomp.so.1"},
         process={"libraries": (*LIBRARIES, f"{SPEC}sk.libs/libgomp-a34b3233.so.1.0.0")}),
    case("openmp", OK, "; LD_PRELOAD has libomp serve in place of all",
         variables={"LD_PRELOAD": "/x/libjemalloc.so.2 /x/libomp.so.5"},
         process={"libraries": (*LIBRARIES, "/opt/intel/libiomp5.so", "/x/libomp.so.5", "/x/libjemalloc.so.2")}),
    case("openmp", WARNING, "2 runtimes",
         "export LD_PRELOAD=/opt/intel/libiomp5.so:/usr/lib/libjemalloc.so.2:/usr/lib/libgomp.so.1",
         variables={"LD_PRELOAD": "/usr/lib/libjemalloc.so.2:/usr/lib/libgomp.so.1"},
         process={"libraries": (*LIBRARIES, "/opt/intel/libiomp5.so", "/usr/lib/libjemalloc.so.2")}),
    case("openmp", UNSEEN, "maps: it belongs to user root", "run this as root, or as its user",
         process={"libraries": (), "unread": ("environ: no", "maps: it belongs to user root")}),
    case("openmp", UNSEEN, "no library is loaded", process={"libraries": ()}),
    case("blas", OK, f"{SPEC}numpy.libs/libscipy_openblas64_-8fb3d286.so",
         process={"libraries": (f"{SPEC}numpy.libs/libscipy_openblas64_-8fb3d286.so",)}),
    case("blas", OK, "MKL", process={"libraries": ("/opt/mkl/libmkl_core.so.2", "/opt/mkl/libmkl_avx512.so.2")}),
    case("blas", NOTE, "2 libraries: libopenblas.so.0 and libscipy_openblas64_-8fb3d286.so",
         process={"libraries": ("/usr/lib/libopenblas.so.0", f"{SPEC}numpy.libs/libscipy_openblas64_-8fb3d286.so")}),
    case("cpus", OK, "8 CPUs online, 8 allowed, 8 granted"),
    case("cpus", NOTE, "8 CPUs online, 8 allowed, 2.5 granted", cpu={"granted": 2.5}),
    case("cpus", WARNING, "8 CPUs online, 8 allowed, 0.5 granted",
         "docker update --cpus=N CONTAINER, or in Kubernetes a larger resources.limits.cpu", cpu={"granted": 0.5}),
    case("cpus", NOTE, "8 CPUs online, 2 allowed, 2 granted; offline: 8-9,12",
         "in Python: len(os.sched_getaffinity(0))",
         cpu={"allowed": (0, 1), "granted": 2.0, "offline": (8, 9, 12)}),
    case("cpus", WARNING, "of those allowed 2-3 are isolated", "export OMP_PROC_BIND=close OMP_PLACES=threads",
         cpu={"allowed": (2, 3), "granted": 2.0, "isolated": (2, 3, 4)}),
    case("cpus", UNSEEN, "the kernel does not report how many there are", cpu={"online": ()}),
    *(case(f"dtype.{one.dtype}", OK, f"native: {one.by}, 512 bits at a time") for one in SUPPORT),
    case("dtype.bfloat16", NOTE, "emulated: AVX-512, 512 bits at a time", isa={"support": WITHOUT_BF16}),
    case("dtype.float32", WARNING, "native: SSE2, 128 bits at a time", isa={"support": SSE, "flags": ("sse2",)}),
    case("dtype.int8", NOTE, "absent", isa={"support": SSE, "flags": ("sse2",)}),
    case("dtype.float64", NOTE, "absent", isa={"support": (Support("float64", "absent", ""),)}),
    case("dtype.float16", NOTE, "absent", isa={"support": (Support("float16", "absent", ""),)}),
    case("dtype.float32", OK, "native: AVX2 FMA, 256 bits at a time",
         isa={"support": (Support("float32", "native", "AVX2 FMA", 256),)}),
    case("dtype.float32", OK, "native: ASIMD, 128 bits at a time",
         isa={"architecture": "aarch64", "support": (Support("float32", "native", "ASIMD", 128),)}),
    case("dtype.int8", OK, "native: SVE I8MM", isa={"support": (Support("int8", "native", "SVE I8MM"),)}),
    case("instructions", UNSEEN, "the kernel does not list them for riscv64",
         isa={"flags": (), "architecture": "riscv64"}),
    case("avx2", OK, "the CPU has it and the kernel allows it"),
    case("avx2", NOTE, "absent: the CPU does not have it, or it is switched off", isa={"flags": ("sse2",)}),
    case("avx512", OK, "the CPU has F, CD, BW, DQ and VL and the kernel allows it"),
    *(
        case(f"avx512.{part}", OK, "the CPU has it and the kernel allows it")
        for part in ("vnni", "bf16", "fp16")
    ),
    *(
        case(f"avx512.{part}", NOTE, "absent: the CPU does not have it, or it is switched off",
             isa={"flags": tuple(flag for flag in FLAGS if flag != f"avx512_{part}")})
        for part in ("vnni", "bf16", "fp16")
    ),
    case("avx512", NOTE, "absent: the CPU does not have it", isa={"flags": AVX2}),
    case("avx512", NOTE, "absent: the hypervisor of this virtual machine does not offer it",
         "if the CPU of the host has it, let the hypervisor pass the CPU on as it is (libvirt: cpu "
         "mode='host-passthrough')", isa={"flags": AVX2}, cpu={"is_virtual": True}),
    case("avx512", WARNING, "only F and CD: BW, DQ and VL are missing", isa={"flags": (*AVX2, "avx512f", "avx512cd")}),
    case("avx512", WARNING, "VL is missing",
         "let the hypervisor pass the CPU on as it is (libvirt: cpu mode='host-passthrough')",
         isa={"flags": tuple(flag for flag in FLAGS if flag != "avx512vl")}, cpu={"is_virtual": True}),
    case("amx", OK, "the CPU has it and the kernel gives programs its tiles"),
    case("amx", NOTE, "absent: the CPU does not have it, or it is switched off", isa={"amx": "absent"}),
    case("amx", NOTE, "absent: the hypervisor of this virtual machine does not offer it",
         "if the CPU of the host has it, let the hypervisor pass the CPU on as it is (libvirt: cpu "
         "mode='host-passthrough')", isa={"amx": "absent"}, cpu={"is_virtual": True}),
    case("amx", WARNING, "no permission for its tiles", "allow arch_prctl in the seccomp profile of the container",
         isa={"amx": "refused"}),
    case("amx", WARNING, "the kernel does not support it", "run Linux 5.16 or newer", isa={"amx": "no kernel support"}),
    case("amx", UNSEEN, "not known", isa={"amx": "unseen"}),
    case("smt", OK, "one thread a core"),
    case("smt", NOTE, "8 CPUs are 4 cores", "export OMP_NUM_THREADS=4", cpu={"cores": 4}),
    case("smt", OK, "8 CPUs are 4 cores; OMP_NUM_THREADS is 4", cpu={"cores": 4}, variables={"OMP_NUM_THREADS": "4"}),
    case("smt", OK, "8 CPUs are 4 cores; 2 CPUs are granted", cpu={"cores": 4, "granted": 2.0}),
    case("smt", UNSEEN, "not known", cpu={"cores": None}),
    case("smt", NOTE, "8 CPUs are 4 cores, the 2 allowed are 1 core", "export OMP_NUM_THREADS=1",
         cpu={"cores": 4, "allowed": (1, 5), "allowed_cores": (1,), "granted": 2.0}),
    case("smt", OK, "8 CPUs are 4 cores, the 2 allowed are 2 cores; 2 CPUs are granted",
         cpu={"cores": 4, "allowed": (1, 2), "allowed_cores": (1, 2), "granted": 2.0}),
    case("smt", OK, "8 CPUs are 4 cores, the 4 allowed are 2 cores; 1.5 CPUs are granted",
         cpu={"cores": 4, "allowed": (0, 1, 4, 5), "allowed_cores": (0, 1), "granted": 1.5}),
    case("smt", OK, "8 CPUs are 4 cores; 2 CPUs are granted", cpu={"cores": 4, "allowed": (1, 5), "granted": 2.0}),
    case("cores", OK, "one, as far as the kernel reports"),
    case("cores", OK, "two, of which only the faster may be used",
         cpu={"faster": (0, 1), "slower": (2, 3), "allowed": (0, 1)}),
    case("cores", NOTE, "4 faster CPUs (0-3) and 1 slower", "taskset -c 0-3 env OMP_NUM_THREADS=2 python train.py",
         cpu={"faster": EIGHT[:4], "slower": (4,), "online": EIGHT[:5], "allowed": EIGHT[:5], "cores": 3,
              "allowed_cores": (0, 2, 4)}),
    case("cores", NOTE, "2 faster CPUs (2-3) and 1 slower", "taskset -c 2-3 env OMP_NUM_THREADS=2 python train.py",
         cpu={"faster": EIGHT[:4], "slower": EIGHT[4:], "allowed": (2, 3, 6), "allowed_cores": (2, 3, 6)}),
    case("smt", OK, "6 CPUs are 4 cores of two kinds",
         cpu={"faster": EIGHT[:4], "slower": (4, 5), "online": EIGHT[:6], "allowed": EIGHT[:6], "cores": 4}),
    case("cores", UNSEEN, "the kernel does not report it", cpu={"online": ()}),
    case("cores", NOTE, "4 faster CPUs (0-3) and 4 slower", "layerscope tune -- python train.py",
         cpu={"faster": EIGHT[:4], "slower": EIGHT[4:]}),
    case("cores", NOTE, "4 faster CPUs (0-3) and 2 slower", "layerscope tune -- python train.py",
         cpu={"faster": EIGHT[:4], "slower": (4, 5), "online": EIGHT[:6], "allowed": EIGHT[:6], "cores": 4,
              "allowed_cores": (0, 2, 4, 5)}),
    case("numa", OK, "one node"),
    case("numa", OK, "one node, and 1 of memory alone",
         numa=(Node(0, EIGHT, 64 * GB, GB, (10, 40)), Node(1, (), 64 * GB, GB, (40, 10)))),
    case("numa", NOTE, "2 nodes, no binding: the CPUs of 2 of them may be used, the farthest memory 2.1 times as far",
         "numactl --cpunodebind=1 --membind=1 python train.py", numa=TWO_NODES),
    case("numa", WARNING, "2 nodes, no binding", "numactl --cpunodebind=1 --membind=1 python train.py", numa=TWO_NODES,
         process={}),
    case("numa", OK, "the allowed CPUs are those of node 0 of 2, which has 5.00 GB free", numa=TWO_NODES,
         cpu={"allowed": (1, 2), "granted": 2.0}),
    case("numa", UNSEEN, "the kernel does not report it", numa=()),
    case("governor", OK, "performance, at most 3,500 MHz"),
    case("governor", NOTE, "powersave", "cpupower frequency-set -g performance", cpu={"governor": "powersave"}),
    case("governor", NOTE, "ondemand and performance", "cpupower frequency-set -g performance",
         cpu={"governor": "ondemand, performance"}),
    case("governor", WARNING, "userspace", "cpupower frequency-set -g performance", cpu={"governor": "userspace"}),
    case("governor", UNSEEN, "a virtual machine does not show it", cpu={"governor": "", "is_virtual": True}),
    case("boost", OK, "on"),
    case("boost", WARNING, "off", "echo 0 > /sys/devices/system/cpu/intel_pstate/no_turbo",
         cpu={"boost": False, "boost_file": "intel_pstate/no_turbo"}),
    case("boost", WARNING, "off", "echo 1 > /sys/devices/system/cpu/cpufreq/boost",
         cpu={"boost": False, "boost_file": "cpufreq/boost"}),
    case("boost", WARNING, "off", cpu={"boost": False}),
    case("boost", UNSEEN, "the kernel does not report it", cpu={"boost": None}),
    case("load", OK, "0.5 tasks wanted a CPU or a disk in the last minute, on 8 CPUs"),
    case("load", NOTE, "6 tasks", noise={"load": (6.0, 1.0, 1.0)}),
    case("load", WARNING, "15.4 tasks", "top -o %CPU", noise={"load": (15.37, 11.0, 5.0)}),
    case("load", UNSEEN, "the kernel does not report it", noise={"load": None}),
    case("load", OK, "other programs used 0.2 CPUs of 8 in 5 s", process={}, watched={"busy_share": 0.9}),
    case("load", WARNING, "other programs used 4 CPUs of 8 in 5 s", process={},
         watched={"busy_share": 1.0, "process_cpus": 4.0}),
    case("load", OK, "other programs used 0 CPUs of 8 in 5 s", process={},
         watched={"busy_share": 1.0, "process_cpus": 0.5, "family_cpus": 8.0}),
    case("pressure", OK, "some thread waited, of the last 10 s: CPU 0 %, memory 0 %, disk 0 %"),
    case("pressure", WARNING, "CPU 97 %, memory 0 %", "top -o %CPU", noise={"pressure_cpu": 97.0}),
    case("pressure", NOTE, "memory 2 %", "top -o %MEM",
         noise={"pressure_memory": 2.0}),
    case("pressure", WARNING, "disk 50 %", "iostat -x 5", noise={"pressure_io": 50.0, "pressure_cpu": None}),
    case("pressure", UNSEEN, "the kernel does not report it",
         noise={"pressure_cpu": None, "pressure_memory": None, "pressure_io": None}),
    case("steal", OK, "0 % of the CPU time since the machine started went to other machines of the host"),
    case("steal", NOTE, "2.0 % of the CPU time since", "a machine with CPUs of its own (dedicated, not burstable)",
         noise={"steal_share": 0.02}),
    case("steal", WARNING, "12 % of the CPU time in 5 s", "a machine with CPUs of its own (dedicated, not burstable)",
         watched={"steal_share": 0.12}),
    case("steal", UNSEEN, "the kernel does not report it", noise={"steal_share": None}),
    case("wait_policy", OK, "threads of OpenMP spin while they wait for work: right while no other program needs the CPUs"),
    case("wait_policy", NOTE, "threads wait for CPUs here", "export OMP_WAIT_POLICY=passive", process={},
         noise={"pressure_cpu": 44.0}),
    case("wait_policy", NOTE, "(OMP_WAIT_POLICY is active), and they are more than the CPUs granted",
         "export OMP_WAIT_POLICY=passive", cpu={"granted": 2.0}, variables={"OMP_WAIT_POLICY": "active"}),
    case("wait_policy", NOTE, "more wants the CPUs than there are", "export OMP_WAIT_POLICY=passive",
         noise={"pressure_cpu": None, "load": (9.0, 1.0, 1.0)}),
    case("wait_policy", OK, "right while no other program", cpu={"granted": 2.0}, variables={"OMP_NUM_THREADS": "2"}),
    case("wait_policy", OK, "OMP_WAIT_POLICY is PASSIVE", noise={"pressure_cpu": 44.0},
         variables={"OMP_WAIT_POLICY": "PASSIVE"}),
    case("variables", OK, "none that concerns speed is set"),
    case("variables", OK, "OMP_NUM_THREADS", variables={"OMP_NUM_THREADS": "8"}),
    case("variables.kmp_affinity", WARNING,
         "KMP_AFFINITY and KMP_BLOCKTIME are read by the OpenMP runtimes of Intel and LLVM alone, which the process",
         "unset KMP_AFFINITY KMP_BLOCKTIME; export OMP_WAIT_POLICY=passive; export OMP_PROC_BIND=close", process={},
         variables={"KMP_BLOCKTIME": "0", "KMP_AFFINITY": "granularity=fine,compact,1,0"}),
    case("variables.kmp_blocktime", NOTE, "KMP_BLOCKTIME is read by", "unset KMP_BLOCKTIME",
         variables={"KMP_BLOCKTIME": "200"}),
    case("variables", OK, "KMP_BLOCKTIME and LD_PRELOAD",
         variables={"KMP_BLOCKTIME": "1", "LD_PRELOAD": "/opt/intel/libiomp5.so"}),
    case("variables", OK, "KMP_BLOCKTIME", variables={"KMP_BLOCKTIME": "1"},
         process={"libraries": (*LIBRARIES, "/opt/intel/libiomp5.so")}),
    case("variables", OK, "GOMP_SPINCOUNT, MKL_NUM_THREADS and ONEDNN_VERBOSE", process={},
         variables={"GOMP_SPINCOUNT": "0", "MKL_NUM_THREADS": "8", "ONEDNN_VERBOSE": "0"}),
    case("variables.malloc_arena_max", WARNING,
         "MALLOC_ARENA_MAX and MALLOC_TRIM_THRESHOLD_ are read by glibc's malloc alone, and tcmalloc serves",
         "unset MALLOC_ARENA_MAX MALLOC_TRIM_THRESHOLD_", process={"libraries": (*LIBRARIES, "/x/libtcmalloc.so.4")},
         variables={"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "-1"}),
    case("variables.glibc_tunables", WARNING,
         "GLIBC_TUNABLES has glibc.malloc.hugetlb=1 for glibc's malloc, and jemalloc serves", "unset GLIBC_TUNABLES",
         process={"libraries": (*LIBRARIES, "/x/libjemalloc.so.2")},
         variables={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    case("variables.glibc_tunables", WARNING, "GLIBC_TUNABLES has glibc.malloc.hugetlb=1 for",
         "export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384",
         process={"libraries": (*LIBRARIES, "/x/libjemalloc.so.2")},
         variables={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.rtld.optional_static_tls=16384"}),
    case("variables", OK, "GLIBC_TUNABLES", process={}, variables={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    case("variables", OK, "MALLOC_ARENA_MAX", process={}, variables={"MALLOC_ARENA_MAX": "1"}),
    case("variables", OK, "GOMP_CPU_AFFINITY", variables={"GOMP_CPU_AFFINITY": "0-7"},
         process={"libraries": ("/opt/intel/libiomp5.so",)}),
    case("variables.gomp_spincount", WARNING, "GNU's OpenMP runtime alone", "unset GOMP_SPINCOUNT",
         variables={"GOMP_SPINCOUNT": "0"}, process={"libraries": ("/opt/intel/libiomp5.so",)}),
    case("variables", UNSEEN, "environ: it belongs to user root", "run this as root, or as its user",
         process={"unread": ("environ: it belongs to user root",)}),
    case("variables.openblas_num_threads", NOTE, "OpenBLAS alone", "unset OPENBLAS_NUM_THREADS", process={},
         variables={"OPENBLAS_NUM_THREADS": "8"}),
    case("variables.mkl_num_threads", NOTE, "MKL alone", "unset MKL_NUM_THREADS", variables={"MKL_NUM_THREADS": "8"},
         process={"libraries": ("/usr/bin/python3",)}),
    case("variables", OK, "MKL_NUM_THREADS", variables={"MKL_NUM_THREADS": "8"}, process={"libraries": ()}),
    case("variables.torch_num_threads", NOTE, "nothing that is known", "unset TORCH_NUM_THREADS",
         variables={"TORCH_NUM_THREADS": "8"}),
    case("variables.onednn_max_cpu_isa", WARNING, "ONEDNN_MAX_CPU_ISA=AVX2", "unset ONEDNN_MAX_CPU_ISA",
         variables={"ONEDNN_MAX_CPU_ISA": "AVX2"}),
    case("variables", OK, "ONEDNN_MAX_CPU_ISA", variables={"ONEDNN_MAX_CPU_ISA": "ALL"}),
    case("variables", OK, "ONEDNN_MAX_CPU_ISA", variables={"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX"}),
    case("variables", OK, "ATEN_CPU_CAPABILITY", variables={"ATEN_CPU_CAPABILITY": "avx2"}, isa={"flags": AVX2}),
    case("variables.aten_cpu_capability", WARNING, "ATEN_CPU_CAPABILITY=default", "unset ATEN_CPU_CAPABILITY",
         variables={"ATEN_CPU_CAPABILITY": "default"}, isa={"flags": AVX2}),
    case("variables.mkl_enable_instructions", WARNING, "MKL_ENABLE_INSTRUCTIONS=AVX2", "unset MKL_ENABLE_INSTRUCTIONS",
         variables={"MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
    case("variables.openblas_coretype", WARNING, "OPENBLAS_CORETYPE=Haswell", "unset OPENBLAS_CORETYPE",
         variables={"OPENBLAS_CORETYPE": "Haswell"}),
    case("variables", OK, "OPENBLAS_CORETYPE", variables={"OPENBLAS_CORETYPE": "SkylakeX"}),
    case("variables", OK, "OPENBLAS_CORETYPE", variables={"OPENBLAS_CORETYPE": "Haswell"}, isa={"flags": AVX2}),
    case("variables.npy_disable_cpu_features", WARNING, "NPY_DISABLE_CPU_FEATURES=AVX512F",
         "unset NPY_DISABLE_CPU_FEATURES", variables={"NPY_DISABLE_CPU_FEATURES": "AVX512F"}),
    case("variables.omp_num_threads", WARNING, "OMP_NUM_THREADS='all' is no number of threads",
         "unset OMP_NUM_THREADS", variables={"OMP_NUM_THREADS": "all"}),
    case("variables.omp_proc_bind", NOTE, "OMP_PROC_BIND=close", "unset OMP_PROC_BIND",
         variables={"OMP_PROC_BIND": "close"}),
    case("variables.omp_proc_bind", WARNING, "OMP_PROC_BIND=close, with 2 of 8 CPUs allowed", "unset OMP_PROC_BIND",
         variables={"OMP_PROC_BIND": "close"}, cpu={"allowed": (0, 1), "granted": 2.0}),
    case("variables", OK, "OMP_PROC_BIND", variables={"OMP_PROC_BIND": "false"}),
    case("allocator", OK, "malloc of the C library", process={}),
    case("allocator", OK, "tcmalloc", process={"libraries": (*LIBRARIES, "/usr/lib/libtcmalloc.so.4.5.9")}),
    case("allocator", OK, "malloc of the C library", process={"libraries": (*LIBRARIES, "/usr/lib/libtbbmalloc.so.2")}),
    case("allocator", NOTE, "jemalloc with its defaults",
         "export MALLOC_CONF=background_thread:true,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1",
         process={"libraries": (*LIBRARIES, "/usr/lib/libjemalloc.so.2")}),
    case("allocator", WARNING, "jemalloc and tcmalloc are loaded at the same time", "unset LD_PRELOAD",
         process={"libraries": ("/usr/lib/libjemalloc.so.2", "/usr/lib/libtcmalloc.so.4")}),
    case("allocator", UNSEEN, "maps: it belongs to user root", "run this as root, or as its user",
         process={"libraries": (), "unread": ("maps: it belongs to user root",)}),
    case("preload", WARNING, "/usr/lib/missing.so is not loaded", "ls -lL /usr/lib/missing.so",
         process={"libraries": (*LIBRARIES, "/usr/lib/libtcmalloc.so.4.5.9")}, variables=PRELOAD),
    case("thp", OK, "transparent huge pages: always"),
    case("thp", NOTE, "transparent huge pages: madvise", "export GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
         memory={"thp": "madvise"}),
    case("thp", OK, "transparent huge pages: madvise; GLIBC_TUNABLES=glibc.malloc.hugetlb=1", memory={"thp": "madvise"},
         variables={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    case("thp", WARNING, "madvise; 80,000 page faults a second", "export GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
         memory={"thp": "madvise"}, process={}, watched={"faults": 400_000}),
    case("thp", NOTE, "madvise; 1,000 page faults a second", "export GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
         memory={"thp": "madvise"}, process={}, watched={"faults": 5_000}),
    case("thp", OK, "madvise; 100 page faults a second", memory={"thp": "madvise"}, process={},
         watched={"faults": 500}),
    case("thp", NOTE, "transparent huge pages: never",
         "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; export GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
         memory={"thp": "never"}),
    case("thp", NOTE, "transparent huge pages: madvise",
         "export GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.hugetlb=1", memory={"thp": "madvise"},
         variables={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0:glibc.malloc.tcache_count=0"}),
    case("thp", UNSEEN, "madvise; it is for mimalloc to ask, not for glibc, and page faults were not counted",
         memory={"thp": "madvise"}, process={"libraries": (*LIBRARIES, "/usr/lib/libmimalloc.so.2.1")},
         variables={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    case("thp", OK, "madvise; 100 page faults a second", memory={"thp": "madvise"}, watched={"faults": 500},
         process={"libraries": (*LIBRARIES, "/usr/lib/libmimalloc.so.2.1")}),
    case("thp", WARNING, "madvise; 80,000 page faults a second; it is for jemalloc to ask, not for glibc",
         "echo always > /sys/kernel/mm/transparent_hugepage/enabled", memory={"thp": "madvise"},
         watched={"faults": 400_000}, process={"libraries": (*LIBRARIES, "/usr/lib/libjemalloc.so.2")},
         variables={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "MALLOC_CONF": "thp:default"}),
    case("thp", NOTE, "transparent huge pages: never",
         "echo always > /sys/kernel/mm/transparent_hugepage/enabled", memory={"thp": "never"},
         process={"libraries": (*LIBRARIES, "/usr/lib/libjemalloc.so.2")}),
    case("thp", UNSEEN, "the kernel does not report it", memory={"thp": ""}),
    case("memory", OK, "60.0 GB are left of the 64.0 GB of this machine"),
    case("memory", OK, "3.00 GB are left of the 4.00 GB that the control group may use",
         cgroup={"memory_limit_bytes": 4 * GB, "memory_used_bytes": GB}),
    case("memory", WARNING,
         "200 MB are left of the 4.00 GB that the control group may use; process 4711 has 2.00 GB (5.0 %)",
         "smaller batches, fewer loader workers, or a larger limit: docker update --memory=N CONTAINER, in Kubernetes "
         "resources.limits.memory", process={},
         cgroup={"memory_limit_bytes": 4 * GB, "memory_used_bytes": 4 * GB - GB // 5}),
    case("memory", ERROR, "600 MB are left of the 64.0 GB of this machine (0.9 %)",
         "smaller batches, fewer loader workers", memory={"available_bytes": 600_000_000}),
    case("memory", UNSEEN, "the kernel does not report how much is left", memory={"available_bytes": None}),
    case("swap", OK, "0 bytes of 8.00 GB used; swappiness 60"),
    case("swap", OK, "none", memory={"swap_bytes": 0}),
    case("swap", NOTE, "2.00 GB of 8.00 GB used", "free memory, then as root: swapoff -a && swapon -a",
         memory={"swap_used_bytes": 2 * GB}),
    case("swap", NOTE, "swappiness 100", "sysctl vm.swappiness=10", memory={"swappiness": 100}),
    case("swap", UNSEEN, "the kernel does not report it", memory={"swap_bytes": None}),
    case("clock", OK, "the kernel's is tsc"),
    case("clock", WARNING, "the kernel's is hpet",
         "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource", cpu={"clocksource": "hpet"}),
    case("clock", UNSEEN, "the kernel does not report it", cpu={"clocksource": ""}),
    *profiling_cases.CASES,
]  # fmt: skip
# Those that speak only where something is wrong.
ONLY_BAD = re.compile(r"variables\..*|preload|instructions")
ONLY_WELL = ("variables", "instructions")
COMMANDS = re.compile(
    r"(export|unset|sysctl|numactl|taskset|cpupower|echo|ls|top|iostat|layerscope) "
)


@pytest.mark.parametrize(("code", "state", "evidence", "remedy", "about"), CASES)
def test_each_check_says_how_it_stands(
    code: str,
    state: str,
    evidence: str,
    remedy: str,
    about: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    found = judged(code, seen(**about))

    assert evidence in found.evidence
    assert found.state == state
    assert found.remedy == remedy
    assert bool(found.consequence) == (state in (NOTE, WARNING, ERROR))
    assert re.fullmatch(r"([^ ].*\.)?", found.consequence)
    assert not found.evidence.endswith(".")


def test_where_all_is_well_every_check_says_so() -> None:
    found = judge.judged(seen())
    assert {check.code: check.evidence for check in found if check.state != OK} == {}
    watched = judge.judged(seen(watched={}, process={}))
    assert {check.code: check.evidence for check in watched if check.state != OK} == {}


def test_every_check_of_ours_is_tried_well_and_not_well() -> None:
    states: dict[str, set[str]] = defaultdict(set)
    for given in CASES:
        code, state, *_ = given.values
        states[str(code)].add(str(state))
    for code, found in states.items():
        assert found & {NOTE, WARNING, ERROR} or code in ONLY_WELL, code
        assert OK in found or ONLY_BAD.fullmatch(code), code
    about = seen(
        watched={},
        process={"libraries": (*LIBRARIES, "/usr/lib/libopenblas.so.0")},
        isa={"amx": "usable"},
    )
    assert {check.code for check in judge.judged(about)} - {"gpu", "libraries", "speed"} <= set(
        states
    )


@pytest.mark.parametrize("command", sorted({str(given.values[3]) for given in CASES} - {""}))
def test_every_remedy_that_is_a_command_can_be_pasted(command: str) -> None:
    if COMMANDS.match(command):
        assert shlex.split(command)
        assert ", or " not in command
        done = subprocess.run(
            ["bash", "-n", "-c", command], capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
    else:
        assert command[0].islower()  # a sentence goes on behind "Remedy: "
