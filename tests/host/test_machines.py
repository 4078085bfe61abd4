"""Recorded and hand-made machines: everything that is known of each, and the answers to the
questions that matter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from layerscope.host import files, isa, machine, runtimes
from layerscope.host.machine import Machine
from layerscope.model.errors import ReadError
from tests.host import machines

VNNI, AMX = ("avx512_vnni",), ("amx_tile", "amx_bf16", "amx_int8")
NO_AVX512 = ("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")
CORE_LISTS, PACKAGE_LISTS = (
    ("core_cpus_list", "thread_siblings_list"),
    ("package_cpus_list", "core_siblings_list"),
)
# Without a topology; and lscpu 2.38 crashes on the recorded one, which test_this_machine.py
# compares alive.
NOT_FOR_LSCPU = ("broken", "without-sys", "commas", "amd-epyc-vm")
# What the article's checker asks, part by part: what is missing of AVX-512, of VNNI, and of AMX;
# what AMX is.
CHECKER: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str]] = {
    "sapphire-rapids": ((), (), (), "usable"),
    "pod-from-outside": ((), (), (), "usable"),
    "amx-linux-5.10": ((), (), AMX, "no kernel support"),
    "skylake-server": ((), VNNI, AMX, "absent"),
    "one-cpu": ((), VNNI, AMX, "absent"),
    "half-a-core": ((), (), AMX, "absent"),
    "without-sys": ((), (), AMX, "absent"),
    "amd-epyc-vm": ((), (), AMX, "absent"),
    "hybrid-client": (NO_AVX512, VNNI, AMX, "absent"),
    "before-avx2": (NO_AVX512, VNNI, AMX, "absent"),
    "a100-node": (NO_AVX512, VNNI, AMX, "absent"),
    "gpu-without-driver": (NO_AVX512, VNNI, AMX, "absent"),
    "container-v1": (NO_AVX512, VNNI, AMX, "absent"),
    "container-v2": (NO_AVX512, VNNI, AMX, "absent"),
    "cpuset": (NO_AVX512, VNNI, AMX, "absent"),
    "commas": (NO_AVX512, VNNI, AMX, "absent"),
    "graviton3": (NO_AVX512, VNNI, AMX, "absent"),
    "altra": (NO_AVX512, VNNI, AMX, "absent"),
    "small-arm": (NO_AVX512, VNNI, AMX, "absent"),
    "broken": (NO_AVX512, VNNI, AMX, "unseen"),
}
# float32, float16, bfloat16, int8: n native, e emulated, a absent, and the best instructions for
# them.
SUPPORT = {
    "sapphire-rapids": "n AVX-512 | n AVX-512 FP16 | n AMX-BF16, AVX-512 BF16 | n AMX-INT8, AVX-512 VNNI, AVX-VNNI",
    "amx-linux-5.10": "n AVX-512 | n AVX-512 FP16 | n AVX-512 BF16 | n AVX-512 VNNI, AVX-VNNI",
    "amd-epyc-vm": "n AVX-512 | e F16C and AVX-512 | n AVX-512 BF16 | n AVX-512 VNNI",
    "skylake-server": "n AVX-512 | e F16C and AVX-512 | e AVX-512 | e AVX-512BW",
    "hybrid-client": "n AVX2 FMA | e F16C | e AVX2 | n AVX-VNNI",
    "before-avx2": "n AVX | a  | a  | e SSSE3",
    "graviton3": "n SVE | n SVE FP16, ASIMD FP16 | n SVE BF16, ASIMD BF16 | "
    "n SVE I8MM, ASIMD I8MM, SVE DotProd, ASIMD DotProd",
    "altra": "n ASIMD | n ASIMD FP16 | e ASIMD | n ASIMD DotProd",
    "small-arm": "n ASIMD | e ASIMD | e ASIMD | e ASIMD",
}
# CPUs that a program may use, how many of them at once, how many are online; cores; sockets; nodes.
CPUS: dict[str, tuple[int, float, int, int | None, int | None, int]] = {
    "sapphire-rapids": (224, 224, 224, 112, 2, 2),
    "skylake-server": (56, 56, 56, 56, 2, 2),
    "before-avx2": (32, 32, 32, 16, 2, 2),
    "hybrid-client": (20, 20, 20, 12, 1, 1),
    "graviton3": (8, 8, 8, 8, 1, 1),
    "altra": (70, 70, 80, 80, 1, 1),
    "container-v2": (64, 1.5, 64, 32, 1, 1),
    "container-v1": (64, 2.5, 64, 32, 1, 1),
    "cpuset": (2, 2, 64, 32, 1, 1),
    "half-a-core": (4, 0.5, 4, 2, 1, 1),
    "one-cpu": (1, 1, 1, 1, 1, 1),
    "without-sys": (2, 2, 2, 2, 1, 0),
    "commas": (2, 2, 2, 2, 1, 0),
    "broken": (0, 0, 0, None, None, 1),
    "amd-epyc-vm": (2, 2, 2, 2, 1, 1),
    "pod-from-outside": (224, 8, 224, 112, 2, 2),
}


@pytest.fixture
def facts(tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    return machine.facts(*machines.unpack(request.param, tmp_path))


@pytest.mark.parametrize("name", machines.NAMES)
def test_all_that_is_known_of_a_machine(name: str, tmp_path: Path) -> None:
    found = json.loads(machines.written(machine.facts(*machines.unpack(name, tmp_path))))

    assert found == machines.expected(name)


def test_every_machine_has_an_answer() -> None:
    assert set(CHECKER) == set(machines.NAMES)


@pytest.mark.parametrize(("facts", "name"), [(name, name) for name in CHECKER], indirect=["facts"])
def test_the_questions_of_the_article_are_answered_one_by_one(facts: Machine, name: str) -> None:
    lacks = (
        facts.isa.lacks(isa.AVX512),
        facts.isa.lacks(isa.AVX512_VNNI),
        facts.isa.lacks(isa.AMX),
    )

    assert (*lacks, facts.isa.amx) == CHECKER[name]


@pytest.mark.parametrize(("facts", "name"), [(name, name) for name in SUPPORT], indirect=["facts"])
def test_how_each_type_of_number_is_multiplied(facts: Machine, name: str) -> None:
    types = {one.dtype: one for one in facts.isa.support}
    said = [
        f"{types[dtype].how[0]} {types[dtype].by}"
        for dtype in ("float32", "float16", "bfloat16", "int8")
    ]

    assert " | ".join(said) == SUPPORT[name]
    assert (types["float64"].how, types["float64"].by) == (
        types["float32"].how,
        types["float32"].by,
    )


@pytest.mark.parametrize(("facts", "name"), [(name, name) for name in CPUS], indirect=["facts"])
def test_how_many_cpus_there_are_and_are_left(facts: Machine, name: str) -> None:
    cpu = facts.cpu
    counts = (
        len(cpu.allowed),
        cpu.granted,
        len(cpu.online),
        cpu.cores,
        cpu.sockets,
        len(facts.numa),
    )

    assert counts == CPUS[name]


def test_kinds_of_cores(tmp_path: Path) -> None:
    hybrid = machine.facts(*machines.unpack("hybrid-client", tmp_path / "a")).cpu
    arm = machine.facts(*machines.unpack("small-arm", tmp_path / "b")).cpu

    assert (hybrid.faster, hybrid.slower) == (tuple(range(16)), (16, 17, 18, 19))
    assert (arm.faster, arm.slower) == ((2, 3), (0, 1))


def test_a_container_that_is_kept_off_its_cpus(tmp_path: Path) -> None:
    found = machine.facts(*machines.unpack("container-v2", tmp_path))

    assert (found.cgroup.periods, found.cgroup.throttled, found.cgroup.throttled_ns) == (
        1000,
        900,
        5400 * 10**9,
    )
    assert (found.cgroup.memory_limit_bytes, found.cgroup.memory_used_bytes) == (4 << 30, 2 << 30)
    assert found.process is not None
    assert (found.process.threads, found.process.variables["OMP_NUM_THREADS"]) == (64, "64")
    assert "hunter2" not in json.dumps(machine.as_json(found))
    told = runtimes.told_apart(found.process.libraries)
    assert [(one.name, one.path.rpartition("/")[2]) for one in runtimes.of_kind(told, runtimes.OPENMP)] == [
        ("libgomp", "libgomp-a34b3233.so.1.0.0"), ("libgomp", "libgomp.so.1"),
    ]  # fmt: skip
    assert runtimes.allocator(told) == "glibc"


def test_a_process_in_a_pod_has_two_numbers_and_threads_that_are_not_bound(tmp_path: Path) -> None:
    found = machine.facts(*machines.unpack("pod-from-outside", tmp_path))

    assert found.process is not None
    assert (found.process.pid, found.process.namespace_pid) == (48123, 9)
    assert (len(found.cpu.allowed), found.cpu.granted) == (224, 8)
    assert runtimes.allocator(runtimes.told_apart(found.process.libraries)) == "jemalloc"


@pytest.mark.parametrize("name", machines.NAMES)
def test_what_a_recording_keeps_is_read_back_as_it_was(name: str, tmp_path: Path) -> None:
    found = machine.facts(*machines.unpack(name, tmp_path))
    told = json.loads(json.dumps(machine.as_json(found)))

    assert next(iter(told)) == "name"
    assert machine.of_json(told) == found


@pytest.mark.parametrize(
    "told", [{}, {"name": "imported"}, {"name": "old", "cpus": 4}, {"name": "x", "cpu": 4}]
)
def test_what_is_no_machine_is_refused_in_words(told: dict[str, Any]) -> None:
    with pytest.raises(ReadError, match="facts about the machine are not all there"):
        machine.of_json(told)


def mask(numbers: tuple[int, ...]) -> str:
    """As the kernel writes a set of CPUs besides lists: words of 32 bits in hex, the last CPUs
    first.
    """
    value = sum(1 << number for number in numbers)
    return ",".join(f"{value >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(16)))


@pytest.mark.skipif(not shutil.which("lscpu"), reason="lscpu is not installed")
@pytest.mark.parametrize("name", [name for name in CPUS if name not in NOT_FOR_LSCPU])
def test_lscpu_sees_the_same_machine(name: str, tmp_path: Path) -> None:
    """An independent reader of such folders; it wants masks, which are made here of the lists."""
    root, pid = machines.unpack(name, tmp_path)
    found = machine.facts(root, pid)
    devices = root / "sys/devices/system/cpu"
    (devices / "possible").write_text(files.text(devices / "present"))
    (devices / "kernel_max").write_text("511\n")
    for cpu in found.cpu.online:
        topology = devices / f"cpu{cpu}/topology"
        for lists, written in ((CORE_LISTS, "thread_siblings"), (PACKAGE_LISTS, "core_siblings")):
            if numbers := next(
                (told for one in lists if (told := files.listed(files.text(topology / one)))), ()
            ):
                (topology / written).write_text(mask(numbers))
    for node in found.numa:
        (root / f"sys/devices/system/node/node{node.number}/cpumap").write_text(mask(node.cpus))
    command = ["lscpu", "--sysroot", str(root), "--json"]
    done = subprocess.run(
        command, capture_output=True, check=True, timeout=60, env={**os.environ, "LC_ALL": "C"}
    )
    told = {row["field"].rstrip(":"): row["data"] for row in json.loads(done.stdout)["lscpu"]}

    assert files.listed(told["On-line CPU(s) list"]) == found.cpu.online
    assert int(told["Socket(s)"]) == (found.cpu.sockets or 1)
    assert int(told["Core(s) per socket"]) * int(told["Socket(s)"]) == found.cpu.cores
    assert int(told.get("NUMA node(s)", 0)) == len(found.numa)
    assert set(told["Flags"].split()) == set(found.isa.flags)
    assert told["Model name"] in found.cpu.model
