"""What the kernel allows, from made up roots; which system calls are refused, on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from layerscope.host import kernel, system_calls
from layerscope.host.kernel import Kernel


def write(root: Path, **files: str) -> None:
    for name, content in files.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def test_the_settings_of_a_strict_container(tmp_path: Path) -> None:
    write(
        tmp_path,
        proc__sys__kernel__perf_event_paranoid="4\n",
        proc__sys__kernel__yama__ptrace_scope="1\n",
        proc__self__status="Name:\tpython\nNoNewPrivs:\t1\nSeccomp:\t2\n",
        proc__self__cgroup="0::/kubepods/besteffort/pod1\n",
    )
    assert kernel.facts(tmp_path) == Kernel(4, 1, "filter", True, True)


def test_a_plain_machine_and_one_that_tells_nothing(tmp_path: Path) -> None:
    assert kernel.facts(tmp_path) == Kernel()
    write(
        tmp_path,
        proc__sys__kernel__perf_event_paranoid="-1\n",
        proc__self__status="Seccomp:\t0\nNoNewPrivs:\t0\n",
        proc__self__cgroup="0::/user.slice\n",
    )
    assert kernel.facts(tmp_path) == Kernel(-1, None, "off", False, False)


@pytest.mark.parametrize("name", [".dockerenv", "run__.containerenv"])
def test_containers_leave_a_file(name: str, tmp_path: Path) -> None:
    write(tmp_path, **{name: ""})
    assert kernel.facts(tmp_path).is_container


def test_damaged_files_are_no_error(tmp_path: Path) -> None:
    write(
        tmp_path, proc__sys__kernel__perf_event_paranoid="much\n", proc__self__status="Seccomp\n\n:"
    )
    assert kernel.facts(tmp_path) == Kernel()


@pytest.mark.parametrize(
    ("users", "counts"),
    [
        ("         0          0 4294967295\n", tuple(kernel.CAPABILITIES)),
        ("         0       1000          1\n", ("CAP_SYS_PTRACE",)),
        ("0 100000 65536\n65536 200000 4\n", ("CAP_SYS_PTRACE",)),
    ],
)
def test_capabilities_of_a_user_namespace_do_not_count_outside(
    users: str, counts: tuple[str, ...], tmp_path: Path
) -> None:
    write(tmp_path, proc__self__status="CapEff:\t000001ffffffffff\n", proc__self__uid_map=users)
    assert kernel.facts(tmp_path).capabilities == counts
    (tmp_path / "proc/self/uid_map").unlink()  # a kernel without user namespaces
    assert len(kernel.facts(tmp_path).capabilities) == 5


def test_a_refused_call_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    before = set(os.listdir("/proc/self/fd"))
    allowed = system_calls.refused()
    assert set(allowed) <= {
        "perf_event_open",
        "process_vm_readv",
    }  # no other test could run here without these
    monkeypatch.setattr(os, "memfd_create", refuse)
    assert system_calls.refused() == {**allowed, "memory": "Operation not permitted"}
    assert set(os.listdir("/proc/self/fd")) == before
