"""What kind of file system a path lies on, from the kernel's table of mounts."""

from __future__ import annotations

import os
import re
from pathlib import Path

# Served by another machine, or by a process of a user: writing there may take a while, or fail
# later.
_REMOTE = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|afs|ceph|glusterfs|lustre|gpfs|beegfs\w*|panfs|wekafs|pvfs2|orangefs|dvs|quobyte|virtiofs|fuse(\..*)?"
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def kind(path: Path, root: Path = Path("/")) -> str:
    """The type of the file system that `path` lies on, as the kernel calls it; empty where it does
    not tell.
    """
    try:
        mounts = root / "proc/self/mountinfo"
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    found = ""
    longest = -1
    wanted = os.path.realpath(path)
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        types = after.split()
        if len(fields) < 5 or not types:
            continue
        mount = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        # Of two mounts in one place the later one is on top.
        if (wanted + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= longest:
            found = types[0]
            longest = len(mount)
    return found


def is_remote(path: Path, root: Path = Path("/")) -> bool:
    """Whether `path` lies on a network or FUSE file system."""
    return bool(_REMOTE.fullmatch(kind(path, root)))
