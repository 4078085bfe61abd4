"""What kind of program an executable file is, as far as it decides what of ours can run inside:
read from the file, without running it.

The numbers are those of elf(5), with the generic part in the System V ABI; names of sanitizers'
entry points are those of compiler-rt and of GCC's libsanitizer.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from layerscope.model.frameworks import frameworks

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 1, 5, 10
_HEADERS_BYTES = 1 << 16  # of one table of an ELF file, at most: whole ones have some kilobytes
_NAMES_BYTES = (
    1 << 24
)  # of the names of dynamic symbols, at most: those of frameworks have some megabytes
# Of a program that is searched for names of libraries, at most: some milliseconds.
_SEARCHED_BYTES = 1 << 24
_LINKS = 4  # scripts whose interpreter is a script, and so on; Linux allows as many
_SHEBANG_BYTES = 256

_MACHINES = {
    3: "x86",
    8: "mips",
    20: "powerpc",
    21: "powerpc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv",
    258: "loongarch",
}
# Programs of these cannot bear a stranger's code; undefined behaviour alone is checked without a
# memory of its own.
_SANITIZERS = {
    b"__asan_init": "AddressSanitizer",
    b"__hwasan_init": "HWAddressSanitizer",
    b"__tsan_init": "ThreadSanitizer",
    b"__msan_init": "MemorySanitizer",
    b"__lsan_init": "LeakSanitizer",
}
_SANITIZER_LIBRARIES = {
    "libasan": "AddressSanitizer",
    "libclang_rt.asan": "AddressSanitizer",
    "libhwasan": "HWAddressSanitizer",
    "libtsan": "ThreadSanitizer",
    "libclang_rt.tsan": "ThreadSanitizer",
    "liblsan": "LeakSanitizer",
}
_PYTHON_SYMBOLS = (b"Py_BytesMain", b"Py_RunMain", b"Py_Initialize")
# What tells of a door: libraries that a program is linked with, and words in the program itself.
_LIBRARIES = {
    "libpython": "Python",
    "libdnnl": "oneDNN",
    "libmkldnn": "oneDNN",
    "libnvToolsExt": "NVTX",
    "libittnotify": "ITT",
    "libtbb": "ITT",
    "liblayerscope": "layerscope.h",
}
_WORDS = {
    b"NVTX_INJECTION64_PATH": "NVTX",
    b"INTEL_LIBITTNOTIFY64": "ITT",
    b"dnnl_primitive_execute": "oneDNN",
}


class Executable(Struct, frozen=True):
    """What a file says about the program in it. `kind`: elf, script, or other for what is neither.

    `bits`, `machine`: of an ELF file, 0 and "" of others. `interpreter`: the program that runs a
    script, or the loader of an ELF file; "" where there is none. `needed`: names of the libraries
    that it is linked with. `privilege`: setuid, setgid or capabilities, if it gets rights that its
    caller has not. `sanitizer`: the one it was built with.
    """

    path: Path
    kind: str = "other"
    bits: int = 0
    machine: str = ""
    dynamic: bool = False
    interpreter: str = ""
    needed: tuple[str, ...] = ()
    privilege: str = ""
    sanitizer: str = ""
    is_python: bool = False

    def links(self, library: str) -> bool:
        """Whether it is linked with a library of this name, such as libdnnl, of whatever
        version.
        """
        return any(_stem(name) == library for name in self.needed)

    def doors(self) -> set[str]:
        """What in it could let us in: Python, a framework, oneDNN, NVTX, ITT, layerscope.h. Reads
        the whole file.
        """
        found = {
            door
            for name in self.needed
            for library, door in _LIBRARIES.items()
            if name.startswith(library)
        }
        for framework in frameworks():
            if framework.library and any(re.match(framework.library, one) for one in self.needed):
                found.add(framework.title)
        if self.is_python:
            found.add("Python")
        if self.kind == "elf":
            found |= {door for word, door in _WORDS.items() if _contains(self.path, word)}
        return found

    def names(self, library: re.Pattern[bytes]) -> bool:
        """Whether the name of such a library stands in it, as of one that it may load. Reads the
        whole file; not one of more than some megabytes.
        """
        return self.kind == "elf" and _holds(self.path, library)


def find(command: str, search_path: str | None = None) -> Executable | None:
    """The file that runs as `command`; of a script, its interpreter. None where there is none.

    `search_path`: where commands are looked for, as in the variable PATH; None: there.
    """
    found = shutil.which(command, path=search_path)
    for _ in range(_LINKS):
        if found is None:
            return None
        executable = facts(Path(found))
        if executable.kind != "script":
            return executable
        found = shutil.which(executable.interpreter, path=search_path)
    return None


def facts(path: Path) -> Executable:
    """What the file at `path` says; of one that cannot be read, or is damaged, as much as can be
    known.
    """
    result = Executable(path)
    try:
        with path.open("rb") as file:
            head = file.read(_SHEBANG_BYTES)
            result = replace(result, privilege=_privilege(file.fileno()))
            if head[:2] == b"#!":
                return replace(result, kind="script", interpreter=_interpreter(head))
            if (
                head[:4] != b"\x7fELF"
                or len(head) < 20
                or head[4] not in (1, 2)
                or head[5] not in (1, 2)
            ):
                return result
            (machine,) = struct.unpack_from("<H" if head[5] == 1 else ">H", head, 18)
            result = replace(
                result,
                kind="elf",
                bits=32 * head[4],
                machine=_MACHINES.get(machine, f"machine {machine}"),
            )
            if head[4:6] == b"\x02\x01" and os.fstat(file.fileno()).st_size:
                with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
                    return _linked(result, content)
    except (OSError, OverflowError, ValueError, struct.error):
        pass
    return result


def _linked(executable: Executable, content: mmap.mmap) -> Executable:
    """`executable` with what the segments of its file say: how it is loaded, and with what."""
    segments = list(_segments(content))
    interpreter = next(
        (_text(content, at) for kind, at, _, _ in segments if kind == _PT_INTERP), ""
    )
    dynamic = [
        entry
        for kind, at, _, length in segments
        if kind == _PT_DYNAMIC
        for entry in _entries(content, at, length)
    ]
    tags = dict(dynamic)
    names_at = next(
        (
            tags[_DT_STRTAB] - address + at
            for kind, at, address, length in segments
            if kind == _PT_LOAD
            and _DT_STRTAB in tags
            and address <= tags[_DT_STRTAB] < address + length
        ),
        0,
    )
    names = (
        content[names_at : names_at + min(tags.get(_DT_STRSZ, 0), _NAMES_BYTES)]
        if names_at
        else b""
    )
    needed = tuple(_text(names, value) for tag, value in dynamic if tag == _DT_NEEDED)
    sanitizer = next(
        (
            said
            for library, said in _SANITIZER_LIBRARIES.items()
            for name in needed
            if name.startswith(library)
        ),
        "",
    )
    sanitizer = sanitizer or next(
        (said for symbol, said in _SANITIZERS.items() if symbol in names), ""
    )
    return replace(
        executable,
        # A program that relocates itself has dynamic entries, and yet nobody who loads libraries
        # for it.
        dynamic=bool(interpreter or needed),
        interpreter=interpreter,
        needed=needed,
        sanitizer=sanitizer,
        is_python=any(symbol in names for symbol in _PYTHON_SYMBOLS),
    )


def _segments(content: mmap.mmap) -> Iterator[tuple[int, int, int, int]]:
    """(type, place in the file, address, bytes in the file) of every segment."""
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    length_of_headers = size * count
    if size < 56 or length_of_headers > _HEADERS_BYTES:
        return
    for place in range(offset, offset + length_of_headers, size):
        header = struct.unpack_from("<IIQQQQ", content, place)
        kind, _, at, address, _, length = header
        yield kind, at, address, length


def _entries(content: mmap.mmap, at: int, length: int) -> Iterator[tuple[int, int]]:
    """(tag, value) of every entry of the dynamic segment."""
    for place in range(at, at + min(length, _HEADERS_BYTES), 16):
        tag, value = struct.unpack_from("<qQ", content, place)
        if tag == 0:
            return
        yield tag, value


def _text(content: mmap.mmap | bytes, at: int) -> str:
    """The text that begins at `at` and ends with a zero; "" where there is none."""
    if not 0 <= at < len(content):
        return ""
    end = content.find(b"\0", at)
    length = end - at
    if end < 0 or length > 4096:
        return ""
    text = content[at:end]
    return text.decode("utf-8", "replace")


def _interpreter(head: bytes) -> str:
    """The program that the first line of a script names; behind `env` it is the first word that is
    no option.
    """
    words = head.splitlines()[0][2:].decode("utf-8", "surrogateescape").split()
    if words and Path(words[0]).name == "env":
        rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return rest[0] if rest else words[0]
    return words[0] if words else ""


def _privilege(descriptor: int) -> str:
    """setuid, setgid or capabilities; "" where the program gets no rights but its caller's."""
    status = os.fstat(descriptor)
    if status.st_mode & stat.S_ISUID:
        return "setuid"
    if status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP:
        return "setgid"
    try:
        return "capabilities" if os.getxattr(descriptor, "security.capability") else ""
    except OSError:  # it has none, or its file system has none
        return ""


def _contains(path: Path, word: bytes) -> bool:
    """Whether the bytes of a file hold `word`."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            return content.find(word) >= 0
    except (OSError, ValueError):
        return False


def _holds(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """Whether the bytes of a file, which is not too large to be read, fit `pattern`."""
    try:
        with path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if not 0 < size_bytes <= _SEARCHED_BYTES:
                return False
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
                return pattern.search(content) is not None
    except (OSError, ValueError):
        return False


def _stem(library: str) -> str:
    """The name of a library without its version: libdnnl of libdnnl.so.2."""
    return library.partition(".so")[0]
