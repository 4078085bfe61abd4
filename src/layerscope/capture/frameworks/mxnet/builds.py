"""Which builds of MXNet the agent knows, and what version a process has: asked of files, nothing is
run.
"""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

from layerscope.capture import agent
from layerscope.host.frameworks import package_version
from layerscope.host.libraries import build_id
from layerscope.model.events import Problem
from layerscope.rawfile.page import ProcessPage

LIBRARY = "libmxnet.so"
# Pages of processes that have named no library yet, each of which holds a descriptor.
_MOST_SILENT = 3


def is_known(library: Path) -> bool:
    """Whether the agent records the build of MXNet in this file (native/frameworks/mxnet/builds.c).
    Only where there is an agent.
    """
    identity = build_id(library)
    if identity is None:
        return False
    compiled = ctypes.CDLL(str(agent.LIBRARY))
    return bool(compiled.ls_mxnet_knows(identity.encode()))


def version_of(library: Path) -> str:
    """The version of the package that the library is a file of; empty: not known."""
    return package_version(library.parent.parent, "mxnet") or ""


class MxnetProber:
    """Notes the versions of the processes that use MXNet. The agent itself decides whether it knows
    their build, at once.
    """

    is_waited_for = False
    span_costs_ns = (0.0, 0.0)

    def __init__(self, use_tsc: bool) -> None:
        self.problems: list[Problem] = []
        self.versions: dict[str, str] = {}
        self._silent: list[tuple[ProcessPage, int]] = []

    def take(self, fd: int, pid: int) -> None:
        """A process handed its page over in `fd`."""
        self._silent.append((ProcessPage(fd), pid))
        self.publish()

    def publish(self) -> None:
        """Look at the pages of the processes that had named no library."""
        silent = []
        for page, pid in self._silent:
            library = Path(page.text("library").decode("utf-8", "surrogateescape"))
            if not library.name:
                silent.append((page, pid))
            elif library.name == LIBRARY:
                self._note(library, pid)
        self._silent = silent[:_MOST_SILENT]

    def _note(self, library: Path, pid: int) -> None:
        version = version_of(library)
        if version:
            self.versions["mxnet"] = version
        try:
            python = os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return
        found = re.search(r"python(\d+\.\d+)", python)
        if found:
            self.versions["python"] = found[1]

    def finish(self) -> None:
        """The program has ended."""
        self.publish()
