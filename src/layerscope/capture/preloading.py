"""Programs in C and C++ that are linked with a framework, or may load its library: no import tells
of it there, so a small library is preloaded into them that loads the agent.

It takes itself out of LD_PRELOAD again before the program begins (native/preload/preload.c). It is
never preloaded into Python, nor into a program that cannot bear it (`unreached.closed`).
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping

from layerscope.capture import agent
from layerscope.capture.unreached import closed
from layerscope.host import elf
from layerscope.model.frameworks import matching

VARIABLE = "LD_PRELOAD"
_LIBRARIES = matching(lambda framework: framework.library)
_NAMES = re.compile(_LIBRARIES.pattern.encode())


def preload(command: list[str], environment: MutableMapping[str, str]) -> None:
    """Have the agent loaded into the program of `command`, if that is linked with a framework or
    names its library, and is not Python.
    """
    if agent.SETTINGS not in environment:
        return  # there is nobody to hand anything to
    executable = elf.find(command[0], environment.get("PATH"))
    if executable is None or executable.kind != "elf" or executable.is_python or closed(executable):
        return
    library = str(agent.PRELOAD)
    # The loader takes both of these for the end of a path.
    if re.search(r"[\s:]", library) or not agent.PRELOAD.exists():
        return
    if not any(map(_LIBRARIES.match, executable.needed)) and not executable.names(_NAMES):
        return
    others = environment.get(VARIABLE)
    environment[VARIABLE] = f"{others}:{library}" if others else library
