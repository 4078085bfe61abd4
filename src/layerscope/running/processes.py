"""The processes that can be looked at, and why one cannot, in a sentence with the remedy."""

from __future__ import annotations

import os
from pathlib import Path

from layerscope.host import files
from layerscope.model.errors import ReadError
from layerscope.model.secrets import mask

_PROC = Path("/proc")
_ELF64, _CLASS = 2, 4
_EPERM, _EACCES = 1, 13
_UNREAD = 1
_BUILDS = "its threads are shown with native functions alone; the release builds of CPython 3.11, "
_BUILDS += "3.12 and 3.13 are read"


def check(pid: int) -> None:
    """ReadError where there is no program to look at."""
    state = files.fields(_PROC / str(pid) / "status").get("State", "")[:1]
    if not state:
        raise ReadError(f"there is no process {pid}. `ps -e` lists those that run")
    if state in ("Z", "X"):
        raise ReadError(
            f"process {pid} has ended (its parent has not asked for its status yet). Name one that "
            "runs"
        )
    if files.fields(_PROC / str(pid) / "status").get("Kthread", "0") == "1" or _is_of_kernel(pid):
        raise ReadError(f"process {pid} is a thread of the kernel. Name a program")


def _is_of_kernel(pid: int) -> bool:
    """Threads of the kernel have no memory of their own."""
    return "VmSize" not in files.fields(_PROC / str(pid) / "status")


def refused(pid: int, number: int) -> str:
    """Why the memory of a process may not be read, and the remedy; `number`: the errno."""
    if number not in (_EPERM, _EACCES):
        return f"it could not be read: {os.strerror(number)}. Try again"
    uid = files.fields(_PROC / str(pid) / "status").get("Uid", "").split()
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
    return (
        "the kernel does not let this user read it. Run this as root; in a container, with "
        "--cap-add SYS_PTRACE"
    )


def unread_python(pid: int, version: int) -> str:
    """What is said where the Python of a process is not read; "" where it is, or there is none."""
    if version == _UNREAD:
        return f"its Python is not one that is read (another version, or a debug or free-threaded build): {_BUILDS}"
    try:
        with open(_PROC / str(pid) / "exe", "rb") as file:
            head = file.read(_CLASS + 1)
    except OSError:
        return ""
    if head[:_CLASS] == b"\x7fELF" and head[_CLASS] != _ELF64:
        return "it is a 32-bit program, whose stacks are not read"
    return ""


def command(pid: int) -> tuple[str, ...]:
    """Its command line, without secrets; its name where it has none."""
    words = files.text(_PROC / str(pid) / "cmdline").rstrip("\0").split("\0")
    return tuple(mask(words)) if words != [""] else (files.text(_PROC / str(pid) / "comm"),)


def environment(pid: int, names: tuple[str, ...]) -> dict[str, str]:
    """Those of its variables, as it was started with them."""
    found = {}
    for word in files.text(_PROC / str(pid) / "environ").split("\0"):
        name, equals, value = word.partition("=")
        if equals and name in names:
            found.setdefault(name, value)
    return found
