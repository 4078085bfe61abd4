"""Which process began which, by /proc."""

from __future__ import annotations

from pathlib import Path

from layerscope.host import files

_PARENT = 1


def parents(root: Path = Path("/")) -> dict[int, int]:
    """The parent of each process that there is."""
    found: dict[int, int] = {}
    for name in files.names(root / "proc"):
        if name.isdecimal():
            # The name in parentheses may hold spaces and parentheses itself.
            words = files.text(root / "proc" / name / "stat").rpartition(")")[2].split()
            parent = files.whole(words[_PARENT]) if len(words) > _PARENT else None
            if parent is not None:
                found[int(name)] = parent
    return found


def children(pid: int, known: dict[int, int]) -> list[int]:
    """The processes whose parent `pid` is."""
    found = []
    for one, parent in known.items():
        if parent == pid:
            found.append(one)
    return sorted(found)


def family(pid: int, known: dict[int, int]) -> list[int]:
    """The process, its children, theirs and so on, parents first."""
    found = [pid]
    for one in found:
        for child in children(one, known):
            if child not in found:
                found.append(child)
    return found
