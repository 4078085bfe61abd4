"""What enters a Python program: the door parses under every Python, and nobody notices that it
opened.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from layerscope.capture import agent
from tests.differential import PROGRAMS, Differential, environment, program

DOOR = agent.INSIDE / "inject" / "sitecustomize.py"
ASKS = "import sys; print([m for m in sorted(sys.modules) if 'customize' in m or 'layerscope' in m], sys.path, sys.flags)"


def pythons() -> list[str]:
    """Every other Python on this machine that starts: on PATH, or below pyenv's root."""
    names = ["python2.7", *(f"python3.{minor}" for minor in range(4, 16))]
    folders = sorted(Path(os.environ.get("PYENV_ROOT", "/nowhere")).glob("versions/*/bin"))
    found = [shutil.which(name) for name in names]
    found += [
        str(folder / name) for name in names for folder in folders if (folder / name).exists()
    ]
    starts = [python for python in found if python and _starts(python)]
    return list(dict.fromkeys(starts))


def _starts(python: str) -> bool:
    return subprocess.run([python, "-c", "pass"], capture_output=True, check=False).returncode == 0


def test_the_door_parses_under_old_grammars() -> None:
    """Python 2.7's grammar, as far as this Python can say: 3.4's, no print statement or function,
    no newer syntax.
    """
    text = DOOR.read_text()
    tree = ast.parse(text, feature_version=(3, 4))
    forbidden = (
        *(ast.JoinedStr, ast.AnnAssign, ast.AsyncFunctionDef, ast.Await, ast.NamedExpr),
        *(ast.Nonlocal, ast.YieldFrom, ast.Starred, ast.MatMult),
    )

    assert text.isascii()
    for node in ast.walk(tree):
        assert not isinstance(node, forbidden), ast.dump(node)
        if isinstance(node, ast.arguments):
            assert not node.kwonlyargs
            assert not node.posonlyargs
            assert all(argument.annotation is None for argument in node.args)
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None
        if isinstance(node, ast.ClassDef):
            assert not node.keywords
        if isinstance(node, ast.Raise):
            assert node.cause is None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print"
            assert node.func.id != "super" or node.args
    with tokenize.open(DOOR) as file:
        numbers = [
            t.string for t in tokenize.generate_tokens(file.readline) if t.type == tokenize.NUMBER
        ]
    assert not any("_" in number for number in numbers)


def test_what_runs_inside_imports_the_standard_library_alone() -> None:
    known = set(sys.stdlib_module_names) | {"torch", "sitecustomize"}
    for path in agent.INSIDE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= known, path


def test_the_folder_of_the_door_holds_nothing_else(tmp_path: Path) -> None:
    """A file called torch.py there would be torch under python -S."""
    door = agent.make_door(tmp_path / "door", "name", True)

    assert [path.name for path in door.iterdir()] == ["sitecustomize.py"]
    assert [path.name for path in DOOR.parent.glob("*.py")] == ["sitecustomize.py"]


def test_what_differs_in_a_program_is_what_the_page_says(tmp_path: Path) -> None:
    door = agent.make_door(tmp_path / "door", "name", True)
    asks = "import sys; print(*(getattr(finder, '__name__', type(finder).__name__) for finder in sys.meta_path))"
    bare, opened = (
        subprocess.run(
            [sys.executable, "-c", asks], capture_output=True, env=variables, text=True, check=True
        )
        for variables in (environment(), environment(PYTHONPATH=str(door)))
    )
    page = Path(__file__).resolve().parents[2] / "docs" / "recording.md"
    said = " ".join(page.read_text().partition("What differs:")[2].partition("\n- ")[0].split())

    first, *others, last = opened.stdout.split()
    assert (first, others, last) == ("_Finder", bare.stdout.split(), "_Library")
    assert all(
        word in said
        for word in ("two entries of `sys.meta_path`", "the first", "the last", "SIGURG")
    )


@pytest.mark.slow
def test_every_python_here_comes_through_the_door(tmp_path: Path) -> None:
    door = agent.make_door(tmp_path / "door", "name", True)
    found = pythons()
    versions = []
    for python in found:
        for options in ([], ["-S"], ["-E"], ["-s"], ["-W", "error"]):
            command = [python, *options, "-c", ASKS]
            without = subprocess.run(
                command, capture_output=True, env=environment(), cwd=tmp_path, check=False
            )
            variables = environment(PYTHONPATH=str(door))
            with_us = subprocess.run(
                command, capture_output=True, env=variables, cwd=tmp_path, check=False
            )
            # Under -S nobody runs the door, and nobody takes its folder away.
            kept = (
                with_us.stdout.replace(f"{str(door)!r}, ".encode(), b"")
                if "-S" in options
                else with_us.stdout
            )
            assert (with_us.returncode, kept, with_us.stderr) == (
                0,
                without.stdout,
                without.stderr,
            ), command
        versions.append(re.sub(r".*python", "", python))
    print("came through the door:", *versions)
    if "2.7" not in versions:
        pytest.skip("no Python 2.7 here: only its grammar was checked")


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ImportError", "ValueError", "SystemExit"])
def test_a_torch_that_fails_looks_the_same_in_every_python_here(error: str, tmp_path: Path) -> None:
    """The frames of the door are left out of tracebacks and passed over by warnings, from Python
    3.8 on.
    """
    door = agent.make_door(tmp_path / "door", "name", True)
    for python in pythons():
        if re.search(r"python(2\.|3\.[4-7]$)", python):
            continue
        outcomes = []
        for variables in (environment(), environment(PYTHONPATH=str(door))):
            work = tmp_path / "work"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            done = subprocess.run(
                program(python, "broken_torch.py", error),
                capture_output=True,
                env=variables,
                cwd=work,
                check=False,
            )
            outcomes.append((done.returncode, done.stdout, done.stderr))
        assert outcomes[0] == outcomes[1], python


@pytest.mark.slow
def test_a_recorded_recording_runs_too(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    inner, outer = Differential(tmp_path / "inner"), Differential(tmp_path / "outer")
    command = program(program_python, "exit_status.py", "3")

    without = outer.run(command)
    with_us = outer.record([*inner.recorder(), *command])

    assert with_us == without
    assert sorted(inner.recorded().per_process() + outer.recorded().per_process()) == [100]


@pytest.mark.slow
def test_a_lazy_loader_is_no_obstacle(
    tmp_path: Path, program_python: str, native_agent: Path
) -> None:
    """torch imported lazily, by importlib's own recipe."""
    code = f"""
import importlib.util, sys
sys.path.append({str(PROGRAMS)!r})
spec = importlib.util.find_spec("torch")
loader = importlib.util.LazyLoader(spec.loader)
spec.loader = loader
module = importlib.util.module_from_spec(spec)
sys.modules["torch"] = module
loader.exec_module(module)
print(type(module).__name__)
print(module.ones(1).item(), type(module).__name__, type(module.__loader__).__name__)
import facts
facts.work(5)
"""
    differential = Differential(tmp_path)

    differential.same([program_python, "-c", code])

    assert differential.recorded().per_process() == [5]


@pytest.mark.slow
def test_our_own_library_loads_without_what_reads_recordings(program_python: str) -> None:
    """`import layerscope` in the program's environment, where there is no pyarrow."""
    code = "import layerscope, sys; print(*sorted(m for m in sys.modules if m.startswith('layerscope')))"
    variables = environment(PYTHONPATH=str(Path(agent.__file__).parents[2]))
    done = subprocess.run(
        [program_python, "-c", code], capture_output=True, env=variables, check=True
    )

    assert done.stdout == b"layerscope\n"
