"""Ways in which layerscope, or the program's Python, may be set up, or half set up."""

from __future__ import annotations

import shutil
import zipapp
from pathlib import Path

import pytest

from layerscope.capture.agent import LIBRARY
from tests.differential import PROGRAMS, SOURCE, environment
from tests.hostile.case import STEPS, Case

pytestmark = pytest.mark.slow


@pytest.fixture
def copied(case: Case, tmp_path: Path) -> Path:
    """The folder of another installation of layerscope, which `case` uses."""
    folder = tmp_path / "copied" / "layerscope"
    shutil.copytree(SOURCE / "layerscope", folder, ignore=shutil.ignore_patterns("__pycache__"))
    script = Path(case.layerscope[-1])
    script.write_text(script.read_text().replace(repr(str(SOURCE)), repr(str(folder.parent))))
    return folder


def test_a_package_without_its_agent_and_no_compiler(
    case: Case, copied: Path, tmp_path: Path
) -> None:
    shutil.rmtree(copied / "native")
    (tmp_path / "bin").mkdir()

    outcome = case.both(env=environment(PATH=str(tmp_path / "bin")))

    case.trained(outcome)
    case.told("agent_not_built", "was not compiled", "install a C compiler")
    assert not (copied / "native").exists()


@pytest.mark.stress
def test_an_agent_of_another_machine(case: Case, copied: Path) -> None:
    library = copied / "native" / LIBRARY.name
    data = bytearray(library.read_bytes())
    data[18] = 183  # e_machine: AArch64
    library.write_bytes(bytes(data))

    outcome = case.both()

    case.trained(outcome)
    case.told("agent_does_not_load", "does not load here", "compile it again on this machine")


@pytest.mark.stress
def test_an_agent_that_was_cut_off(case: Case, copied: Path) -> None:
    library = copied / "native" / LIBRARY.name
    library.write_bytes(library.read_bytes()[:1000])

    case.trained(case.both())

    case.told("agent_does_not_load", "does not load here", "compile it again on this machine")


def test_files_of_ours_that_the_program_may_not_read(case: Case, copied: Path) -> None:
    """As where an administrator installed for one user only."""
    (copied / "capture" / "frameworks" / "torch" / "inside" / "hook.py").unlink()

    case.trained(case.both())

    case.told("refused", "could not load the files of layerscope", "make that folder readable")


@pytest.mark.stress
def test_variables_of_python_that_change_how_it_starts(case: Case) -> None:
    names = (
        "PYTHONSAFEPATH",
        "PYTHONOPTIMIZE",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONNOUSERSITE",
        "PYTHONUNBUFFERED",
    )
    variables = environment(
        **dict.fromkeys(names, "1"), PYTHONHASHSEED="7", PYTHONWARNINGS="ignore"
    )
    variables["PYTHONOPTIMIZE"] = "2"

    case.complete(case.both(env=variables))


def test_a_program_in_one_file(case: Case, tmp_path: Path) -> None:
    """A zipapp: its modules come from inside of a zip file."""
    (tmp_path / "app").mkdir()
    shutil.copy(PROGRAMS / "trains.py", tmp_path / "app" / "__main__.py")
    shutil.copy(PROGRAMS / "quick_torch.py", tmp_path / "app")
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")

    case.complete(case.both(command=[case.python, str(tmp_path / "app.pyz"), str(STEPS)]))


@pytest.mark.stress
def test_a_frozen_program(case: Case) -> None:
    """What frozen programs do: an interpreter of their own in isolated mode, torch beside it."""
    trains = str(PROGRAMS / "trains.py")
    script = f"import runpy, sys; sys.path.append({str(PROGRAMS)!r}); runpy.run_path({trains!r}, {{}}, '__main__')"

    outcome = case.both(command=[case.python, "-I", "-c", script, str(STEPS)])

    case.trained(outcome)
    assert case.recorded().per_process() == []
    case.told(
        "no_framework", "by a Python that reads PYTHONPATH", "-I, -E and -S keep layerscope out"
    )


@pytest.mark.stress
def test_temporary_folders_that_make_no_sense(case: Case) -> None:
    case.complete(
        case.both(env=environment(TMPDIR="\n//\\0", TEMP="/dev/null", TMP="relative/nowhere"))
    )
