"""Pages whose programs and commands are run by tests."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.recorded import ROOT, TIMEOUT_S


def fences(page: str, language: str) -> list[str]:
    """The texts in the fences of this language on a page of `docs`, in their order."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", text)


class Tutorial:
    """A folder with the programs of a page, which have these names, and its commands one after the
    other. `python`: the one that `python` and `layerscope run` find.
    """

    def __init__(
        self,
        page: str,
        programs: tuple[str, ...],
        folder: Path,
        python: str,
        variables: Mapping[str, str] = {},
    ) -> None:
        self.folder = folder
        for name, text in zip(programs, fences(page, "python"), strict=True):
            (folder / name).write_text(text)
        path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
        self.variables = {
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(ROOT / "src"),
            **variables,
        }
        self.left = [line for fence in fences(page, "sh") for line in fence.splitlines()]

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        """The next command. Words before it such as NAME=value are variables of it."""
        words = shlex.split(self.left.pop(0))
        variables = dict(self.variables)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if words[0] == "layerscope":
            words[:1] = [sys.executable, "-m", "layerscope"]
        return subprocess.run(
            [*words, *more], cwd=self.folder, env=variables, capture_output=True, text=True,
            check=True, timeout=TIMEOUT_S,
        )  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """What the next command finds, as rows by column."""
        answer = json.loads(self.run("--json").stdout)
        names = [column["name"] for column in answer["columns"]]
        return [dict(zip(names, row, strict=True)) for row in answer["rows"]]
