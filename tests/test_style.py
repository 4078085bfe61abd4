"""What CONTRIBUTING.md says about form, where ruff and mypy do not look."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES, FILE_LINES = 80, 500
MEDIAN_NODES, NODES_OF_NINE_IN_TEN, MOST_NODES = 9, 13, 16
# What only one machine has, and where only some may download from.
PRIVATE = re.compile(
    r"(?<![\w.])/(?:home|root|Users|work|mnt)/\w|\b[\w.-]+\.(?:internal|corp|lan|local)\b(?=[:/])|"
    r"https?://(?:[\w-]+\.)*(?:pypi\.\w+|pythonhosted\.org|pytorch\.org|artifactory\.\S+|jfrog\.io|127\.0\.0\.1|localhost)"
)


def tracked() -> list[Path]:
    """Every file that belongs to the repository, those about to be added too."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return sorted(
        ROOT / name
        for name in listed.stdout.decode().split("\0")
        if name and (ROOT / name).is_file()
    )


def sources() -> list[Path]:
    """Files in Python and C that somebody has to read."""
    folders = {
        "src",
        "native",
        "tests",
        "beside.py",
        "dev.py",
        "every_test.py",
        "native_build.py",
        "native_layout.py",
        "native_names.py",
        "pythons.py",
        "web_build.py",
    }
    return [
        file for file in tracked()
        if file.relative_to(ROOT).parts[0] in folders and file.suffix in (".py", ".c", ".h")
    ]  # fmt: skip


def place(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def functions(file: Path) -> Iterator[tuple[str, int]]:
    """(name, number of lines) of the functions of a file."""
    text = file.read_text()
    if file.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1
        return
    yield from c_functions(text.splitlines())


def c_functions(lines: list[str]) -> Iterator[tuple[str, int]]:
    """A definition in C begins in the first column, and so does the brace that ends it."""
    start, name = 0, ""
    for number, line in enumerate(lines):
        plain = re.sub(r"__attribute__\(\(.*?\)\) ?|\(\*.*?\)", "", line)
        if found := re.match(r"[a-zA-Z_][\w \*]*?(\w+)\(", plain):
            start, name = number, found[1]
        if name and (line.startswith("}") or (number == start and line.endswith("}"))):
            yield name, number - start + 1
            name = ""
        elif name and line.endswith(";") and number == start:
            name = ""  # a declaration


def test_no_function_is_longer_than_a_screen() -> None:
    long = [f"{place(file)}: {name} has {lines} lines" for file in sources() for name, lines in functions(file)
            if lines > FUNCTION_LINES]  # fmt: skip
    assert long == []


def densities() -> list[tuple[float, str]]:
    """Nodes of the syntax tree a line, and the place, of every function of ours in Python."""
    found = []
    for file in sources():
        if not file.is_relative_to(ROOT / "src") or file.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                nodes = sum(1 for _ in ast.walk(node))
                found.append((nodes / lines, f"{place(file)}:{node.lineno} {node.name}"))
    return sorted(found, reverse=True)


def test_a_line_holds_one_idea() -> None:
    found = densities()
    dense = [one for one in found if one[0] > MOST_NODES]
    assert dense == []
    assert found[len(found) // 2][0] <= MEDIAN_NODES
    assert found[len(found) // 10][0] <= NODES_OF_NINE_IN_TEN


def test_no_file_is_longer_than_500_lines() -> None:
    assert [
        place(file) for file in sources() if len(file.read_text().splitlines()) > FILE_LINES
    ] == []


def test_no_file_is_named_after_nothing() -> None:
    nothing = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    named = {
        place(file): {part.lower() for part in Path(place(file)).with_suffix("").parts}
        for file in tracked()
    }
    assert [name for name, parts in named.items() if nothing & parts] == []


def test_every_module_says_what_it_is() -> None:
    silent = []
    for file in sources():
        text = file.read_text()
        if place(file).startswith("tests/programs/") or "/inside/" in place(file):
            continue  # programs that a user might have written, and scripts that begin with a comment
        if file.suffix == ".py" and text.strip() and not ast.get_docstring(ast.parse(text)):
            silent += [place(file)] if not text.startswith("#") else []
        if file.suffix != ".py" and not text.startswith("/*"):
            silent.append(place(file))
    assert silent == []


def test_no_tracked_file_holds_a_path_of_one_machine_or_the_address_of_a_registry() -> None:
    found = []
    for file in tracked():
        if file == Path(__file__).resolve():
            continue
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{place(file)}: {match[0]}" for match in PRIVATE.finditer(text)]
    assert found == []


def test_functions_of_both_languages_are_found() -> None:
    names = {name for file in sources() for name, _ in functions(file)}
    assert {
        "ls_thread_enter",
        "ls_cached_text",
        "begin",
        "to_run",
        "test_no_function_is_longer_than_a_screen",
    } <= names
