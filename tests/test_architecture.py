"""The arrows between the packages, as ARCHITECTURE.md states them, hold for every import."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from layerscope.model.frameworks import frameworks
from tests.native.building import compiled, compiler, run

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "layerscope"
# The version stands in the package itself, which imports nothing.
FOR_ALL = {"__version__"}
NOTHING, ALL = "nothing of ours", "all"


def stated_arrows(text: str) -> dict[str, set[str] | None]:
    """Per package what it may import, from the table with the header `package | does | may import`;
    None: all.
    """
    lines = text.splitlines()
    header = re.compile(r"\|\s*package\s*\|\s*does\s*\|\s*may import\s*\|")
    start = next(i for i, line in enumerate(lines) if header.match(line))
    arrows: dict[str, set[str] | None] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        package, _, may_import = [cell.strip() for cell in line.strip().strip("|").split("|")]
        assert may_import in (NOTHING, ALL) or re.fullmatch(r"`\w+`(, `\w+`)*", may_import), line
        arrows[package.strip("`")] = (
            None if may_import == ALL else set(re.findall(r"`(\w+)`", may_import))
        )
    return arrows


@pytest.fixture(scope="module")
def arrows() -> dict[str, set[str] | None]:
    return stated_arrows((ROOT / "ARCHITECTURE.md").read_text())


def imported(file: Path) -> Iterator[tuple[int, str]]:
    """Every import of a file, wherever it stands: (line, full name)."""
    package = ("layerscope", *file.relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def ours(name: str) -> str:
    """The package of ours that an imported name belongs to; empty for foreign ones."""
    first, _, rest = name.partition(".")
    return rest.partition(".")[0] if first == "layerscope" else ""


def wrong_imports(arrows: dict[str, set[str] | None]) -> Iterator[str]:
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE).parts
        allowed = arrows.get(place[0], set()) if len(place) > 1 else None
        if allowed is None:
            continue
        for line, name in imported(file):
            if ours(name) and ours(name) not in {*allowed, *FOR_ALL, place[0]}:
                yield f"{file.relative_to(ROOT)}:{line} imports {name}"


def test_no_import_points_back(arrows: dict[str, set[str] | None]) -> None:
    assert list(wrong_imports(arrows)) == []


def modules() -> dict[str, Path]:
    """Every module of ours by its full name, but for the scripts that run in the program's Python."""
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = ("layerscope", *file.relative_to(SOURCE).with_suffix("").parts)
        if "inside" not in parts:
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imported_at_start(file: Path) -> Iterator[str]:
    """What a module imports when it is imported itself: not in functions, not for types alone."""
    statements: list[ast.stmt] = [*ast.parse(file.read_text()).body]
    while statements:
        node = statements.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            statements += [*node.body, *node.orelse]
        elif isinstance(node, ast.Try):
            statements += node.body


def without_circle(imports: Callable[[Path], Iterator[str]]) -> None:
    """Fails where a module imports itself through others."""
    known = modules()
    left: dict[str, set[str]] = {}
    for name, file in known.items():
        wanted = {full if full in known else full.rpartition(".")[0] for full in imports(file)}
        left[name] = (wanted & set(known)) - {name}
    while left:
        free = [name for name, wanted in left.items() if not wanted & set(left)]
        assert free, f"a circle among {sorted(left)}"
        for name in free:
            del left[name]


def test_no_module_imports_itself_in_a_circle() -> None:
    without_circle(imported_at_start)


def imported_anywhere(file: Path) -> Iterator[str]:
    """What a module imports, in its functions too; not for types alone, and not the version."""
    tree = ast.parse(file.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = (alias.name for alias in node.names if alias.name not in FOR_ALL)
            yield from (f"{node.module}.{name}" for name in names)


def test_no_module_needs_itself_when_it_runs() -> None:
    without_circle(imported_anywhere)


def test_private_files_are_used_in_their_own_folder_alone() -> None:
    for name, file in modules().items():
        folder = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for _, full in imported(file):
            parts = full.split(".")
            private = [
                i for i, part in enumerate(parts) if part.startswith("_") and "__" not in part
            ]
            if (
                parts[0] == "layerscope"
                and private
                and ".".join(parts[: private[0] + 1]) in modules()
            ):
                assert ".".join(parts[: private[0]]) == folder, f"{name} imports {full}"


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(file.relative_to(SOURCE).as_posix())
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_every_package_is_in_the_table(arrows: dict[str, set[str] | None]) -> None:
    packages = {file.parent.name for file in SOURCE.glob("*/*.py")}
    assert packages == set(arrows)


def test_the_arrows_have_no_circle(arrows: dict[str, set[str] | None]) -> None:
    left = {
        package: set(arrows) - {package} if may is None else set(may)
        for package, may in arrows.items()
    }
    while left:
        free = [package for package, may in left.items() if not may & set(left)]
        assert free, f"a circle among {sorted(left)}"
        for package in free:
            del left[package]


def test_records_are_cheap_to_define() -> None:
    """Each command imports a hundred of them, and to define a dataclass takes 0.6 ms."""
    for file in sorted(SOURCE.rglob("*.py")):
        modules = {name for _, name in imported(file)}
        assert not {name for name in modules if name.startswith("dataclasses")}, file


def test_what_runs_inside_the_program_imports_the_standard_library_only() -> None:
    names = set(sys.stdlib_module_names) | {"sitecustomize"}
    inside = [file for file in (SOURCE / "capture").rglob("*.py") if "inside" in file.parts]
    assert len(inside) > 5
    for file in sorted(inside):
        foreign = {name.partition(".")[0] for _, name in imported(file)} - names
        # The throw-away Python of a probe has the framework, which it is there to try out.
        framework = {file.parent.parent.name} if file.name.startswith("probe") else set()
        assert foreign <= framework, f"{file.name} imports {foreign}"
    scripts = sorted((SOURCE / "checks" / "inside").rglob("*.py"))
    for file in scripts:
        foreign = (
            {name.partition(".")[0] for _, name in imported(file)}
            - names
            - {other.stem for other in scripts}
        )
        assert foreign <= {"numpy", "scipy"}, f"{file.name} imports {foreign}"


def test_the_door_parses_as_python_2() -> None:
    """No grammar of Python 2 is at hand: what only Python 3 can parse is looked for by name."""
    text = (SOURCE / "capture" / "inside" / "inject" / "sitecustomize.py").read_text()
    tree = ast.parse(text, feature_version=(3, 4))
    assert text.isascii()
    for node in ast.walk(tree):
        assert not isinstance(
            node,
            (
                ast.JoinedStr,
                ast.AnnAssign,
                ast.Nonlocal,
                ast.YieldFrom,
                ast.AsyncFunctionDef,
                ast.NamedExpr,
            ),
        )
        if isinstance(node, ast.FunctionDef):
            assert not node.args.kwonlyargs
            assert node.returns is None
            assert all(argument.annotation is None for argument in node.args.args)
        if isinstance(node, ast.Raise):
            assert node.cause is None


def test_parquet_is_known_to_those_who_read_and_write_it_alone() -> None:
    known = {
        "recording/writer.py",
        "recording/reader.py",
        "recording/redacted.py",
        "ingest/parts.py",
        "show/exports/parquet.py",
    }
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE).as_posix()
        names = {name for _, name in imported(file)}
        assert place in known or not any(name.startswith("pyarrow.parquet") for name in names), (
            place
        )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("| `a` | x | nothing of ours |", {"a": set()}),
        ("| `a` | x | `b`, `c` |", {"a": {"b", "c"}}),
        ("| `a` | x | all |", {"a": None}),
    ],
)
def test_the_table_is_understood(row: str, expected: dict[str, set[str] | None]) -> None:
    assert (
        stated_arrows(f"# x\n| package | does | may import |\n|---|---|---|\n{row}\n\nmore")
        == expected
    )


# Whatever lies in a folder or a file of this name is about one framework.
ADAPTERS = "frameworks"
# Others that name one, and why.
NAMES_A_FRAMEWORK = {
    "src/layerscope/sources/kineto.py": "the format of a framework's own traces",
    "src/layerscope/sources/kineto_memory.py": "the memory in such traces",
    "src/layerscope/sources/kineto_meaning.py": "what the names in such traces mean",
    "src/layerscope/sources/kineto_window.py": "reads such traces where nothing is compiled",
    "src/layerscope/sources/nsys_ranges.py": "what a framework writes into ranges of NVTX",
    "src/layerscope/sources/refused.py": "what frameworks write that is not read",
    "src/layerscope/sources/onnxruntime.py": "the format of a framework's own profiles",
    "src/layerscope/sources/chrome.py": "which traces have a reader of their own",
    "src/layerscope/sources/chrome_content.py": "whose readers use it",
    "src/layerscope/sources/xplane.py": "the format of frameworks' own traces",
    "src/layerscope/sources/xplane_scopes.py": "how a framework names scopes in such traces",
    "src/layerscope/sources/memory_timeline.py": "the format of a framework's own timelines",
    "src/layerscope/sources/torch_snapshot.py": "the format of a framework's own snapshots",
    "src/layerscope/sources/snapshot_records.py": "what such snapshots hold",
    "src/layerscope/sources/mxnet_trace.py": "the format of a framework's own traces",
    "src/layerscope/sources/mxnet_trace_problems.py": "says what such traces lack",
    "src/layerscope/sources/raw/stock_windows.py": "reads such traces beside our raw files",
    "src/layerscope/rawfile/log_files.py": "names such files",
    "src/layerscope/analyse/tables/nodes.py": "what the profiler of one framework tells",
    "src/layerscope/analyse/diff/conditions.py": "an example of what a user types",
    "src/layerscope/tune/choices/inter_op.py": "which variable a framework reads",
    "src/layerscope/tune/choices/threads.py": "which variable a framework reads",
    "src/layerscope/tune/libraries.py": "libraries that read variables of OpenMP",
    "native/interface/facts.c": "which variables a recording of a program in C keeps",
    "src/layerscope/tune/what_if.py": "changes of the program's text that it asks for",
    "src/layerscope/model/measured.py": "names of libraries that checks measure",
    "src/layerscope/__init__.py": "says whose interface the library has",
    "src/layerscope/profiler/statistics.py": "says whose tables it makes",
    "src/layerscope/profiler/__init__.py": "says whose interface it has, and over what",
}
MEASURES = "src/layerscope/checks/"  # what the machine does with the libraries that are installed
HELP = "src/layerscope/cli/"  # examples of what a user types
REMEDIES = "src/layerscope/analyse/findings/rules/"  # what to write instead


def names_of_frameworks() -> re.Pattern[str]:
    """What only a file about a framework says: its name, its title, how its spans begin."""
    words = [r"pytorch", r"PYTORCH"]
    for framework in frameworks():
        words += [rf"\b{framework.name}\b", rf"\b{framework.title}\b", rf"\blib{framework.name}"]
        words += [framework.step_prefix, *framework.backward_prefixes, framework.backends.prefix]
    return re.compile("|".join(filter(None, words)))


def test_no_file_outside_of_the_adapters_names_a_framework() -> None:
    pattern = names_of_frameworks()
    wrong = []
    for folder, endings in ((SOURCE, (".py",)), (ROOT / "native", (".c", ".h"))):
        for file in sorted(folder.rglob("*")):
            place = str(file.relative_to(ROOT))
            if file.suffix not in endings or ADAPTERS in place or place in NAMES_A_FRAMEWORK:
                continue
            if place.startswith((MEASURES, HELP, REMEDIES)):
                continue
            for number, line in enumerate(file.read_text().splitlines(), 1):
                if pattern.search(line):
                    wrong.append(f"{place}:{number}: {line.strip()[:90]}")
    assert wrong == []


def test_a_file_that_may_name_a_framework_does() -> None:
    pattern = names_of_frameworks()
    silent = [name for name in NAMES_A_FRAMEWORK if not pattern.search((ROOT / name).read_text())]
    assert silent == []


def cycles(files: list[Path]) -> list[set[str]]:
    """The sets of C files that need each other in a circle, by what their objects define and use."""
    defined: dict[str, str] = {}
    used: dict[str, set[str]] = {}
    command = [compiler(), "-std=gnu11", "-O0", "-fPIC", "-I", str(ROOT / "native")]
    with ThreadPoolExecutor(2) as at_once:
        objects = list(at_once.map(lambda file: compiled(file, command), files))
    for file, made in zip(files, objects, strict=True):
        name = f"{file.parent.name}/{file.stem}"
        used[name] = set()
        for line in run(["nm", str(made)]).decode().splitlines():
            *_, kind, symbol = line.split()
            if kind == "U":
                used[name].add(symbol)
            elif kind.isupper():
                defined[symbol] = name
    needs = {name: {defined[one] for one in some if one in defined} for name, some in used.items()}
    return circles(needs)


def circles(needs: dict[str, set[str]]) -> list[set[str]]:
    """The largest sets in which everything is reached from everything."""
    reached = {}
    for name in needs:
        found, waiting = set(), [name]
        while waiting:
            new = needs[waiting.pop()] - found
            found |= new
            waiting += new
        reached[name] = found
    of_each = {name: frozenset(o for o in reached[name] if name in reached[o]) for name in needs}
    return [set(one) for one in set(of_each.values()) if len(one) > 1]


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


PARTS = {
    "agent": ["agent", "frameworks", "frameworks/mxnet", "frameworks/torch"],
    "stacks": ["stacks"],
    "sampler": ["sampler"],
}


def files_of(part: str, pattern: str) -> list[Path]:
    """The files of a part of native/ in C."""
    folders = [ROOT / "native" / place for place in PARTS[part]]
    files = [file for folder in folders for file in sorted(folder.glob(pattern))]
    assert len(files) > 5
    return files


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_no_file_in_c_needs_itself_through_others(part: str) -> None:
    assert cycles(files_of(part, "*.c")) == []


@pytest.mark.parametrize("part", ["stacks", "sampler"])
def test_no_file_in_c_includes_itself_through_others(part: str) -> None:
    """A file in C and its header count as one: structures lead in no circle either."""
    needs: dict[str, set[str]] = {}
    for file in files_of(part, "*.[ch]"):
        included = re.findall(r'#include "(\w+)\.h"', file.read_text())
        needs.setdefault(file.stem, set()).update(set(included) - {file.stem})
    assert circles(needs) == []


@pytest.mark.parametrize("part", ["stacks", "sampler"])
def test_each_file_in_c_has_its_header(part: str) -> None:
    tops = {"main", "unwind"}  # what nobody in the folder needs
    sources = {file.stem for file in files_of(part, "*.c")} - tops
    headers = {file.stem for file in files_of(part, "*.h")}
    assert sources <= headers
