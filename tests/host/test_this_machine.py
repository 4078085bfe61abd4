"""The machine that runs the tests, as other tools see it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from layerscope.host import cpu, isa, kernel, machine, memory, noise, numa


def output_of(*words: str) -> str:
    if not shutil.which(words[0]):
        pytest.skip(f"{words[0]} is not installed")
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        words, capture_output=True, text=True, check=True, timeout=60, env=environment
    ).stdout


def lscpu() -> dict[str, str]:
    return {
        row["field"].rstrip(":"): row["data"]
        for row in json.loads(output_of("lscpu", "--json"))["lscpu"]
    }


def test_the_processor_is_that_of_lscpu() -> None:
    other, found, instructions = lscpu(), cpu.facts(), isa.facts()

    assert (found.machine, found.vendor) == (other["Architecture"], other["Vendor ID"])
    assert len(found.online) == int(other["CPU(s)"])
    assert found.sockets == int(other["Socket(s)"])
    assert found.cores == int(other["Core(s) per socket"]) * int(other["Socket(s)"])
    assert set(instructions.flags) == set(other["Flags"].split())
    if found.machine == "x86_64":
        assert found.model == other["Model name"]
        assert found.is_virtual == ("Hypervisor vendor" in other)


def test_the_caches_are_those_of_lscpu() -> None:
    told = {
        row["name"]: int(row["one-size"])
        for row in json.loads(output_of("lscpu", "-B", "-C", "--json"))["caches"]
    }

    assert cpu.facts().caches == told


def test_the_cpus_that_are_allowed_are_those_of_the_scheduler() -> None:
    found = cpu.facts()

    assert found.allowed == tuple(sorted(os.sched_getaffinity(0)))
    assert found.online == tuple(
        sorted(int(name) for name in output_of("lscpu", "-p=CPU").splitlines() if name.isdigit())
    )
    if "OMP_NUM_THREADS" not in os.environ:
        assert len(found.allowed) == int(output_of("nproc"))


def test_a_narrower_mask_is_seen() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cpu.facts().allowed == (min(before),)
        assert cpu.facts().granted <= 1
    finally:
        os.sched_setaffinity(0, before)


def test_memory_and_swap_are_those_of_another_tool() -> None:
    found = memory.facts()

    assert (found.total_bytes, found.swap_bytes) == (
        psutil.virtual_memory().total,
        psutil.swap_memory().total,
    )
    assert found.available_bytes is not None
    assert 0 < found.available_bytes <= psutil.virtual_memory().total


def test_nodes_have_all_cpus_and_their_own_distance() -> None:
    nodes = numa.facts()
    if not nodes:
        pytest.skip("the kernel of this machine tells of no nodes")

    assert sorted(number for node in nodes for number in node.cpus) == list(cpu.facts().online)
    for place, node in enumerate(nodes):
        assert node.distances[place] == 10 == min(node.distances)
        assert 0 < node.free_bytes <= node.memory_bytes


def test_load_and_kernel_are_what_the_system_calls_say() -> None:
    load, found = noise.facts().load, kernel.facts()

    assert load is not None
    assert all(abs(ours - theirs) < 5 for ours, theirs in zip(load, os.getloadavg(), strict=True))
    assert found.release == os.uname().release
    assert ("CAP_SYS_ADMIN" in found.capabilities) == (
        os.geteuid() == 0 and bool(effective() >> 21 & 1)
    )


def effective() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff"))


def test_all_facts_of_this_machine_and_process_are_read_back() -> None:
    found = machine.facts(pid=os.getpid())

    assert found.name == os.uname().nodename
    assert machine.of_json(json.loads(json.dumps(machine.as_json(found)))) == found
