"""Runs programs that nobody prepared for layerscope: they use ITT or NVTX, and find the agent by
the environment.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.capture import agent
from tests.native.building import build, build_with_agent
from tests.native.door import Door
from tests.native.driven import Drive, Driven

HERE = Path(__file__).parent
TIMEOUT_S = 240
NAME_LIMIT = 1024  # native/layout.h


def nvtx_header() -> tuple[str, str]:
    """The compiler's option for NVIDIA's header, which comes with a package and is none of ours."""
    package = importlib.util.find_spec("nvidia")
    assert package is not None, (
        "the package nvidia-nvtx-cu12 is missing: python3 dev.py test installs it"
    )
    (folder,) = [Path(place) for place in package.submodule_search_locations or []]
    return "-isystem", str(folder / "nvtx" / "include")


def build_client(folder: Path, name: str) -> Path:
    """The program of `name`.c, which loads the agent by itself."""
    flags = nvtx_header() if name == "nvtx_client" else ()
    return build(folder / name, [HERE / f"{name}.c"], "-O2", "-Wall", "-Wextra", "-Werror", *flags)


def build_client_with_agent(folder: Path, name: str, *flags: str) -> Path:
    """The same with the agent inside, so that all of it is compiled with `flags`."""
    source = HERE / f"{name}.c"
    if name != "nvtx_client":
        return build_with_agent(folder / name, [source], "-DWITH_THE_AGENT", *flags)
    return build_with_agent(folder / name, [source], "-DWITH_THE_AGENT", *nvtx_header(), *flags)


@dataclass
class Clients:
    """Runs one program between the recorder's doors."""

    drive: Drive
    environment: dict[str, str]  # in place of what `layerscope run` would set, if it is not empty

    def __call__(
        self, *command: str | Path, window: list[object] | None = None, **variables: str
    ) -> Driven:
        """What `command` recorded; `window`: only that, `variables` come to the environment."""
        door = Door(self.drive.folder / "raw")
        told, problems = agent.without_python({}, door.name, False, window=window)
        assert not problems
        environment = {**os.environ, **told, **self.environment, **variables}
        process = subprocess.Popen(
            [str(word) for word in command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        return self.drive.finish(door, process.pid, process.returncode, stdout, stderr)


def well(driven: Driven) -> Driven:
    """`driven`, which must have ended without a word and without a loss."""
    assert (driven.status, driven.stderr) == (0, "")
    assert not driven.losses()
    return driven


def told(driven: Driven, pid: int | None = None) -> list[tuple[Any, ...]]:
    """(kind, name, depth, arguments) of every span by start."""
    rows = driven.rows(
        "SELECT s.kind, s.name, depth, json FROM spans s JOIN tracks t USING (track) JOIN processes USING (process) "
        f"LEFT JOIN args USING (args) WHERE pid = {pid or driven.pid} ORDER BY s.start_ns, depth"
    )
    return [tuple(row.values()) for row in rows]
