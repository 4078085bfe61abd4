"""Machines in text files, unpacked into a folder that is read as the root of one: tests/golden/machines/NAME.txt.

A line `== PATH` begins a file, which goes on up to the next such line; `== PATH -> TARGET` is a symbolic link and
`== PATH/` a folder. `== PATH ESCAPED` has a file of bytes, written as in Python (`\\x00`). `== PATH {0-3,8}` stands for
one file a number: `<N>` in path and content is the number, `<N+4>`, `<N/56%2>` what is made of it from left to right
(`/` without remainder); files of one path are put one after the other. Lines before the first file: `# ...`, and
`pid 7` where a process is asked for.

NAME.json is what layerscope.host.machine makes of it: `python -m tests.host.machines` writes all anew. Look at the
difference before you keep it.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from layerscope.host import files, machine

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "machines"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.txt"))
_TITLE = re.compile(r"^== (\S+)(?: (ESCAPED|->|\{[\d,-]+\})(?: ?(\S+))?)?\n", re.MULTILINE)
_NUMBER = re.compile(r"<N((?:[-+*/%]\d+)*)>")


def unpack(name: str, folder: Path) -> tuple[Path, int | None]:
    """The root of the machine called `name`, made in `folder`, and the process to ask for."""
    text = (GOLDEN / f"{name}.txt").read_text()
    titles = list(_TITLE.finditer(text))
    ends = [title.start() for title in titles[1:]] + [len(text)]
    for title, end in zip(titles, ends, strict=True):
        path, how, target = title.groups()
        content = text[title.end() : end].removesuffix("\n") + "\n" if end > title.end() else ""
        if how == "->":
            _place(folder, path).symlink_to(target)
        elif how == "ESCAPED":
            _place(folder, path).write_bytes(
                content.rstrip("\n").encode().decode("unicode_escape").encode("latin-1")
            )
        elif path.endswith("/"):
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            for number in files.listed(how.strip("{}")) if how else (None,):
                with _place(folder, _counted(path, number)).open("a") as file:
                    file.write(_counted(content, number))
    asked = re.search(r"^pid (\d+)$", text[: titles[0].start()], re.MULTILINE)
    return folder, int(asked[1]) if asked else None


def expected(name: str) -> dict[str, Any]:
    """What was made of it when somebody looked."""
    found: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


def written(facts: machine.Machine) -> str:
    """As a file: each fact a line."""
    lines = []
    for section, told in json.loads(json.dumps(machine.as_json(facts))).items():
        inner = (
            [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in told.items()]
            if isinstance(told, dict)
            else []
        )
        value = "{\n" + ",\n".join(inner) + "\n }" if inner else json.dumps(told)
        lines.append(f" {json.dumps(section)}: {value}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _place(folder: Path, path: str) -> Path:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    return folder / path


def _counted(text: str, number: int | None) -> str:
    if number is None:
        return text

    def value(found: re.Match[str]) -> str:
        result: int = number
        for operator, operand in re.findall(r"([-+*/%])(\d+)", found[1]):
            other = int(operand)
            result = {
                "+": result + other, "-": result - other, "*": result * other, "/": result // max(1, other),
                "%": result % max(1, other),
            }[operator]  # fmt: skip
        return str(result)

    return _NUMBER.sub(value, text)


if __name__ == "__main__":
    for each in NAMES:
        with tempfile.TemporaryDirectory() as made:
            root, process = unpack(each, Path(made))
            (GOLDEN / f"{each}.json").write_text(written(machine.facts(root, process)))
