"""What puts a command into a hostile setting: words that go in front of it, or a skip that names
the missing right.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.differential import PROGRAMS

HALF_A_CORE_US = 50_000  # of each 100 ms
NOBODY = 65534
WITHOUT_A_NAME = 54321  # a user that no passwd file knows


def shell(script: str) -> list[str]:
    """A command that runs `script` in a shell and then becomes the words behind it."""
    return ["/bin/sh", "-c", f'{script} && exec "$0" "$@"']


def tried(command: Sequence[str], what: str) -> list[str]:
    """`command`, if it can become another one here; otherwise the test is skipped for lack of
    `what`.
    """
    if not shutil.which(command[0]):
        pytest.skip(f"{what}: there is no {command[0]}(1) here")
    done = subprocess.run([*command, "/bin/true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{what}: {done.stderr.strip() or f'status {done.returncode}'}")
    return list(command)


def namespace(*kinds: str) -> list[str]:
    """Namespaces of the command's own, as unshare(1) names them."""
    return tried(["unshare", *kinds], f"no namespace can be made (unshare {' '.join(kinds)})")


def mounts(script: str) -> list[str]:
    """A mount namespace in which `script` has changed what is mounted."""
    return tried(
        ["unshare", "--mount", *shell(script)], f"no file system can be mounted ({script})"
    )


def user(number: int) -> list[str]:
    """Another user without rights, who may still read everything (our Python, wherever it lies)."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    caps = "+dac_read_search"
    words = ["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups"]
    return tried(
        [*words, f"--inh-caps={caps}", f"--ambient-caps={caps}"], "this root may not hand rights on"
    )


def limited(option: str, value: int) -> list[str]:
    """A limit of the kernel, by an option of prlimit(1)."""
    return tried(["prlimit", f"--{option}={value}"], f"the limit {option} cannot be set")


def refusing(python: str, calls: Sequence[int], error: int) -> list[str]:
    """System calls by their numbers on x86-64 that fail with `error`."""
    numbers = ",".join(map(str, calls))
    command = [python, str(PROGRAMS / "refuses.py"), numbers, str(error)]
    return tried(command, "no filter of system calls can be set")


class Cgroup:
    """A control group of the test's own, of version 1 or 2, with little memory and half a core."""

    def __init__(self, memory_bytes: int) -> None:
        name = f"layerscope-test-{os.getpid()}"
        root = Path("/sys/fs/cgroup")
        if (root / "cgroup.controllers").exists():
            self.folders = [root / name]
            values = {
                "memory.max": str(memory_bytes),
                "cpu.max": f"{HALF_A_CORE_US} {2 * HALF_A_CORE_US}",
            }
            limits = [(root / name / file, value) for file, value in values.items()]
            self._events = root / name / "memory.events"
        else:
            self.folders = [root / "memory" / name, root / "cpu" / name]
            limits = [
                (root / "memory" / name / "memory.limit_in_bytes", str(memory_bytes)),
                (root / "cpu" / name / "cpu.cfs_quota_us", str(HALF_A_CORE_US)),
            ]
            self._events = root / "memory" / name / "memory.oom_control"
        try:
            for folder in self.folders:
                folder.mkdir()
            for file, value in limits:
                file.write_text(value)
        except OSError as error:
            self.remove()
            pytest.skip(f"no control group can be made: {error}")

    def enter(self) -> None:
        """Put the calling process, and all that it starts, into the group."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def killed(self) -> int:
        """How many processes the kernel has killed for lack of memory."""
        words = dict(line.split() for line in self._events.read_text().splitlines())
        return int(words["oom_kill"])

    def remove(self) -> None:
        """Remove it; no process may be left in it."""
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):
                folder.rmdir()


@contextlib.contextmanager
def mounted(kind: str, options: str, folder: Path) -> Iterator[Path]:
    """A file system of `kind` at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", kind, "-o", options, "layerscope-test", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no right to mount {kind}: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
