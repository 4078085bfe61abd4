"""A process of its own that demangles names: run by `demangling`, by its path.

Names come from files that may be damaged, and there are short ones that stand for gigabytes of text
or for a depth that no stack has; LLVM's demangler, like all others, then ends its process. Standard
library and pycxxfilt only.

On stdin and stdout: the number of bytes that follow (4 bytes, little endian), then lines of UTF-8.
"""

from __future__ import annotations

import resource
import sys

_MEMORY = 1 << 28
_OUTPUT_MOST = 1 << 16  # of one name; the longest seen has 5 KiB


def main() -> None:
    """Answer each list of names with as many lines; an empty one is no name of C++ or Rust."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.path += sys.argv[1:]
    from pycxxfilt import demangle

    def line(name: str) -> str:
        try:
            found = demangle(name) or ""
        except ValueError:
            return ""
        if len(found) > _OUTPUT_MOST or "\n" in found:
            return ""
        return found

    while size := sys.stdin.buffer.read(4):
        asked = sys.stdin.buffer.read(int.from_bytes(size, "little"))
        names = asked.decode().split("\n")
        answer = "\n".join(map(line, names)).encode()
        head = len(answer).to_bytes(4, "little")
        sys.stdout.buffer.write(head + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
