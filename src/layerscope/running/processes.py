"""The processes that can be looked at, and why one cannot, in a sentence with the remedy."""

from __future__ import annotations

import os
from pathlib import Path

from layerscope.host import files, process
from layerscope.model.errors import ReadError
from layerscope.model.secrets import mask

_PROC = Path("/proc")
_EPERM, _EACCES = 1, 13
ENDED = "it has ended meanwhile"


def check(pid: int) -> None:
    """ReadError where there is no program to look at."""
    status = files.fields(_PROC / str(pid) / "status")
    state = status.get("State", "")[:1]
    process.refuse(_PROC / str(pid), pid, state)
    group = status.get("Tgid", "")
    if group != str(pid):
        raise ReadError(f"{pid} is a thread of process {group}: layerscope dump {group}")
    if "VmSize" not in status:  # it has no memory of its own
        raise ReadError(f"process {pid} is a thread of the kernel. Name a program")
    if process.is_32_bit(pid):
        raise ReadError(f"process {pid} is a 32-bit program, and only 64-bit ones are read")


def refused(pid: int, number: int) -> str:
    """Why the memory of a process may not be read, and the remedy; `number`: the errno."""
    status = files.fields(_PROC / str(pid) / "status")
    if status.get("State", "")[:1] in ("", "Z", "X"):
        return ENDED
    if number not in (_EPERM, _EACCES):
        return f"it could not be read: {os.strerror(number)}. Try again"
    uid = status.get("Uid", "").split()
    if os.geteuid() and uid and uid[0] != str(os.geteuid()):
        return "it belongs to another user. Run this as that user, or as root (sudo)"
    scope = files.text(_PROC / "sys/kernel/yama/ptrace_scope")
    if scope in ("1", "2") and os.geteuid():
        return (
            f"the kernel lets only its parents read it (Yama, ptrace_scope {scope}). Run this as "
            "root, or: sudo sysctl kernel.yama.ptrace_scope=0"
        )
    if scope == "3":
        return "the kernel lets nobody read it (Yama, ptrace_scope 3), until the next boot"
    if not os.geteuid():
        return (
            "the system does not let even root read it here, as in a container without the "
            "capability SYS_PTRACE. Start the container with --cap-add SYS_PTRACE, or run this "
            "outside of it"
        )
    return (
        "the kernel does not let this user read it. Run this as root; in a container, with "
        "--cap-add SYS_PTRACE"
    )


def unread(refused: str) -> str:
    """What is said where the Python of a process is not read because it is `refused`; "" where it
    is read, or there is none.
    """
    if not refused:
        return ""
    return (
        f"the frames of its Python are not read: {refused}. Its native functions are shown; run it "
        "with the release build of CPython 3.11 to 3.14"
    )


def command(pid: int) -> tuple[str, ...]:
    """Its command line, without secrets; its name where it has none."""
    text = files.text(_PROC / str(pid) / "cmdline").rstrip("\0")
    if not text:
        return (files.text(_PROC / str(pid) / "comm"),)
    words = text.split("\0")
    return tuple(mask(words))


def environment(pid: int) -> dict[str, str]:
    """Its variables, as it was started with them: what it has set itself since is not told. Of a
    name that comes twice the first.
    """
    found: dict[str, str] = {}
    text = files.text(_PROC / str(pid) / "environ")
    words = text.split("\0")
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            found.setdefault(name, value)
    return found
