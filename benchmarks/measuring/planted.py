"""Programs whose times are known (`programs/truth`): how one is built and run, and what it says.

A program is one file. Its first lines can say, in comments, how it is built (`build: COMMAND`) and
run (`run: COMMAND`), and that it runs in other ways, too (`also: WORDS`): each is a program of its
own, NAME_WORD, and {also} is the word. {source}, {out}, {folder}, {script}, {include}, {site},
{python} and {seconds} stand for the file, the binary, a folder of its own, the text between
`/* python` and `*/`, the folders with Python.h and of site-packages, the program's Python, and how
long it works.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring.runs import PROGRAMS, BenchmarkError, Setting, execute

FOLDER = PROGRAMS / "truth"
SHARED = "planted"  # not a program: what they include
BUILD_TIMEOUT_S = 120
HEADER_LINES = 8
_EMBEDDED = re.compile(r"/\* python\n(.*?)\*/", re.DOTALL)

# Seconds by the name of a function, a line or a wait, by kind of name.
Times = dict[str, dict[str, float]]


@dataclass(frozen=True)
class PlantedTruth:
    """What a program says about one run of itself: seconds."""

    times: Times
    cpu: float
    wall: float
    process_cpu: float = 0.0  # with what was before the truth began

    def whole(self, kind: str) -> float:
        """What a share of this kind is a share of."""
        return self.wall if kind.startswith("wait") else self.cpu


@dataclass(frozen=True)
class PlantedProgram:
    """A program that can be run: its file, its command, and its folder."""

    name: str
    file: str  # of which its functions of Python are
    command: list[str]
    is_python: bool


def names() -> list[str]:
    """Every program."""
    return sorted(name for file in sources() for name in names_of(file))


def sources() -> list[Path]:
    """Every file with a program."""
    files = (file for file in FOLDER.iterdir() if file.suffix in (".py", ".c", ".cpp"))
    return sorted(file for file in files if file.stem != SHARED)


def names_of(source: Path) -> list[str]:
    """The programs of a file: one, and those of its other ways."""
    also = header(source.read_text(encoding="utf-8"), "also")
    return [source.stem, *(f"{source.stem}_{way}" for way in also.split())]


def header(text: str, word: str) -> str:
    """What the line `word: ...` in the first comments says; empty if there is none."""
    lines = (line.lstrip("/# ") for line in text.splitlines()[:HEADER_LINES])
    found = (line.partition(f"{word}: ") for line in lines)
    return next((rest.strip() for before, mark, rest in found if mark and not before), "")


def prepare(setting: Setting, name: str, seconds: float) -> PlantedProgram:
    """Build a program in a folder of its own."""
    source = next(file for file in sources() if name in names_of(file))
    text = source.read_text(encoding="utf-8")
    folder = setting.folder / "truth" / name
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"{name}.py"
    embedded = _EMBEDDED.search(text)
    if embedded:
        script.write_text(embedded[1], encoding="utf-8")
        shutil.copy(FOLDER / f"{SHARED}.py", folder)
    places = {
        "source": str(source),
        "out": str(folder / name),
        "folder": str(folder),
        "script": str(script),
        "python": setting.program,
        "include": path_of(setting, "include"),
        "site": path_of(setting, "purelib"),
        "seconds": f"{seconds:g}",
        "also": name[len(source.stem) + 1 :],
    }
    build = header(text, "build")
    if build:
        compile_it([*filled(build, places), f"-I{FOLDER}"])
    how = "{out} {seconds}" if build else "{python} {source} {seconds} {also}"
    command = filled(header(text, "run") or how, places)
    file = script.name if embedded else source.name
    return PlantedProgram(name, file, command, command[0] == setting.program)


def filled(command: str, places: dict[str, str]) -> list[str]:
    """The words of a command."""
    return [word.format(**places) for word in command.split()]


def path_of(setting: Setting, name: str) -> str:
    """A folder of the program's Python."""
    code = f"import sysconfig; print(sysconfig.get_path({name!r}))"
    return execute(setting, [setting.program, "-c", code])[0].out.strip()


def compile_it(command: list[str]) -> None:
    """Run a compiler; BenchmarkError with its first complaint."""
    try:
        subprocess.run(command, capture_output=True, check=True, timeout=BUILD_TIMEOUT_S, text=True)
    except FileNotFoundError as error:
        raise BenchmarkError(f"{command[0]} is not here") from error
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"{command[0]} took more than {BUILD_TIMEOUT_S} s") from error
    except subprocess.CalledProcessError as error:
        said = [line for line in str(error.stderr).splitlines() if "error" in line]
        raise BenchmarkError(f"not built: {(said or ['no reason given'])[0][-120:]}") from error


def read_truth(output: str) -> PlantedTruth:
    """The sum of what the processes of a program said, whatever else is in `output`."""
    times: Times = {}
    cpu = wall = process_cpu = 0.0
    for line in output.splitlines():
        if not line.startswith('{"truth": '):
            continue
        said: dict[str, Any] = json.loads(line)
        for kind, found in said["truth"].items():
            for name, seconds in found.items():
                names = times.setdefault(kind, {})
                names[name] = names.get(name, 0.0) + seconds
        cpu += said["cpu"]
        process_cpu += said.get("process_cpu", said["cpu"])
        wall = max(wall, said["wall"])
    if not times:
        raise BenchmarkError("the program did not tell its truth")
    return PlantedTruth(times, cpu, wall, process_cpu)
