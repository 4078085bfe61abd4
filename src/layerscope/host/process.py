"""One live process, as far as /proc tells: nothing is attached to it."""

from __future__ import annotations

import pwd
import re
from pathlib import Path

import msgspec

from layerscope.host import files
from layerscope.model.errors import ReadError
from layerscope.model.secrets import mask

# Of an ELF file: the place of its class, and that of 64 bits.
_CLASS, _ELF64 = 4, 2
# Variables that say how a deep-learning program uses the machine: a name, or its beginning with a
# `*`.
VARIABLES = (
    "OMP_*",
    "KMP_*",
    "GOMP_*",
    "MKL_*",
    "DNNL_*",
    "ONEDNN_*",
    "ATEN_CPU_CAPABILITY",
    "OPENBLAS_*",
    "NPY_DISABLE_CPU_*",
    "NPY_ENABLE_CPU_*",
    "MALLOC_*",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "TORCH_NUM_THREADS",
    "NUMEXPR_*",
    "BLIS_*",
    "TF_NUM_*",
    "TF_ENABLE_ONEDNN_OPTS",
    "MXNET_*",
    "XLA_FLAGS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "PYTHONMALLOC",
    "VECLIB_*",
)
_BEGINNINGS = tuple(name.removesuffix("*") for name in VARIABLES if name.endswith("*"))
# A line of /proc/PID/maps: addresses, rights, offset, device, inode, path (which may have spaces).
_MAPPED_CODE = re.compile(r"^\S+ ..x. \S+ \S+ [1-9]\d*\s+(/.*)$", re.MULTILINE)
_DELETED = " (deleted)"
_NOT_A_FILE = ("/memfd:", "/dev/", "/SYSV", "/anon_hugepage", "/[aio]")


class ProcessFacts(msgspec.Struct, frozen=True):
    """`state`: the letter of proc(5). `threads`: how many it has; `libraries`: paths of what is
    mapped as code, sorted (its own executable is among them); they are those of its own container.

    `argv`: without secrets (model/secrets.py). `variables`: those of VARIABLES that it was started
    with. `unread`: which of "maps", "environ", "io" may not be read, with whose right they could be
    ("maps: it belongs to user root"). `namespace_pid`: its number in its own container, where that
    differs. `memory_bytes`: resident; `memlock_bytes`: its limit of locked memory, None: no limit,
    or not told.
    """

    pid: int
    name: str
    argv: tuple[str, ...]
    state: str
    uid: int
    threads: int
    libraries: tuple[str, ...]
    variables: dict[str, str]
    memory_bytes: int
    memlock_bytes: int | None = None
    namespace_pid: int | None = None
    unread: tuple[str, ...] = ()


def facts(root: Path, pid: int) -> ProcessFacts:
    """What is told of process `pid`. Raises ReadError where there is none, or it has ended."""
    folder = root / "proc" / str(pid)
    status = files.fields(folder / "status")
    state = status.get("State", "")[:1]
    refuse(folder, pid, state)
    uid = files.whole((status.get("Uid", "").split() or [""])[0])
    owner = -1 if uid is None else uid
    told = {name: _read(folder / name) for name in ("maps", "environ", "io")}
    numbers = [files.whole(word) for word in status.get("NSpid", "").split()]
    return ProcessFacts(
        pid=pid,
        name=status.get("Name", ""),
        argv=tuple(mask(_words(files.text(folder / "cmdline")))),
        state=state,
        uid=owner,
        threads=files.whole(status.get("Threads", "")) or 0,
        libraries=mapped_code(told["maps"] or ""),
        variables=variables(told["environ"] or ""),
        memory_bytes=files.sized(status.get("VmRSS", "")) or 0,
        memlock_bytes=_memlock(folder),
        namespace_pid=numbers[-1] if len(numbers) > 1 and numbers[-1] != pid else None,
        unread=tuple(
            f"{name}: {_whose(owner)}" for name, content in told.items() if content is None
        ),
    )


def mapped_code(maps: str) -> tuple[str, ...]:
    """Paths of the files that /proc/PID/maps says are mapped as code; of a deleted one the path
    that it had.
    """
    found = set()
    for line_path in _MAPPED_CODE.findall(maps):
        path = line_path.removesuffix(_DELETED)
        if not path.startswith(_NOT_A_FILE):
            found.add(path)
    return tuple(sorted(found))


def variables(environ: str) -> dict[str, str]:
    """Those of VARIABLES in /proc/PID/environ, sorted; of a name that comes twice the first, as
    getenv finds it.
    """
    found: dict[str, str] = {}
    for word in _words(environ):
        name, equals, value = word.partition("=")
        is_wanted = name in VARIABLES or name.startswith(_BEGINNINGS)
        if equals and is_wanted:
            found.setdefault(name, value)
    by_name = sorted(found.items())
    return dict(by_name)


def refuse(folder: Path, pid: int, state: str) -> None:
    """Raise ReadError in words where there is nothing to read of process `pid`: `folder` is that
    of /proc, `state` the letter that it tells, "" where it tells none.
    """
    if state in ("Z", "X"):
        raise ReadError(
            f"process {pid} has ended (its parent has not asked for its status yet). Name one that "
            "runs"
        )
    if state:
        return
    if folder.is_dir():
        raise ReadError(
            f"process {pid} belongs to another user, and /proc hides it (hidepid). Ask as root"
        )
    raise ReadError(
        f"there is no process {pid}. `ps -e` lists those that run; of one in a container use the "
        "number that the host shows"
    )


def _read(path: Path) -> str | None:
    """What the file says; None where it may not be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode("utf-8", "replace")
    except PermissionError:
        return None
    except OSError:  # it ended meanwhile, or is no file of this kernel
        return ""


def _words(text: str) -> list[str]:
    if not text:
        return []
    words = text.rstrip("\0")
    return words.split("\0")


def _memlock(folder: Path) -> int | None:
    limits = files.text(folder / "limits")
    for line in limits.splitlines():
        if line.startswith("Max locked memory"):
            words = line.split()
            values = words[3:]
            return files.whole(values[0]) if values else None
    return None


def _whose(uid: int) -> str:
    try:
        return f"it belongs to user {pwd.getpwuid(uid).pw_name}"
    except (KeyError, OverflowError, TypeError):
        return f"it belongs to user {uid}" if uid >= 0 else "only root may"


def is_32_bit(pid: int, root: Path = Path("/")) -> bool:
    """As the file says that the process runs."""
    try:
        path = root / "proc" / str(pid) / "exe"
        with open(path, "rb") as file:
            head = file.read(_CLASS + 1)
    except OSError:  # another user's
        return False
    is_elf = head[:_CLASS] == b"\x7fELF"
    return is_elf and head[_CLASS] != _ELF64
