"""`LAYERSCOPE_AUTOSTART=1 python train.py` with a real wheel in a real environment, and what
uninstalling leaves.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.differential import Differential, environment
from tests.profiler import library
from tests.profiler.library import NETWORK, SHAPE
from tests.recorded import ROOT, TIMEOUT_S, record

pytestmark = pytest.mark.slow
AUTOSTART = "layerscope_autostart.pth"


def call(*command: str, **more: object) -> str:
    """What `command` prints; it must succeed."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **more
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built without the network."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "native_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    call(sys.executable, "-m", "pip", "wheel", *options, "-w", str(source / "dist"), str(source))
    (built,) = (source / "dist").glob("layerscope-*-py3-none-linux_x86_64.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, program_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with PyTorch and our wheel, and none of the libraries that read
    recordings.
    """
    return installed_beside(program_python, wheel, tmp_path_factory.mktemp("installed"))


def installed_beside(program_python: str, wheel: Path, folder: Path) -> Path:
    """The Python of a new environment, with all that `program_python` has and our wheel."""
    call(program_python, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(call(str(python), "-c", where).strip())
    (packages / "program.pth").write_text(call(program_python, "-c", where).strip() + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    call(*pip, "install", "--no-deps", "--no-index", str(wheel))
    return python


def run(
    python: Path, text: str, cwd: Path, **changes: str | None
) -> subprocess.CompletedProcess[str]:
    """Run `text` with nothing but what is installed."""
    return library.run(str(python), text, cwd, PYTHONPATH=None, **changes)


def test_the_whole_program_is_recorded_as_run_would(
    installed: Path, tmp_path: Path, native_agent: Path, program_python: str
) -> None:
    ours, theirs = tmp_path / "autostart", tmp_path / "run"
    ours.mkdir()
    theirs.mkdir()
    text = NETWORK + "print('the program')\n"

    done = run(installed, text, ours, LAYERSCOPE_AUTOSTART="1")
    recorded = library.recorded(ours / "program.layerscope")

    assert (done.stdout, done.stderr) == ("the program\n", "")
    assert recorded.rows(SHAPE) == record(program_python, text, theirs).rows(SHAPE)
    assert recorded.rows("SELECT * FROM problems") == []
    assert (recorded.run.path / "summary.txt").read_text().startswith("layerscope: program.py")
    assert sorted(os.listdir(ours)) == ["program.layerscope", "program.py"]


def test_programs_that_it_starts_are_in_the_same_recording(
    installed: Path, tmp_path: Path, native_agent: Path
) -> None:
    text = NETWORK
    text += (
        "import subprocess, sys\n"
        "if len(sys.argv) == 1:\n    subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
    )
    run(installed, text, tmp_path, LAYERSCOPE_AUTOSTART="1")

    recorded = library.recorded(tmp_path / "program.layerscope")
    steps = "SELECT process, count(*) AS n FROM steps GROUP BY process ORDER BY process"
    assert recorded.rows(steps) == [{"process": 0, "n": 3}, {"process": 1, "n": 3}]
    assert len(list(tmp_path.glob("*.layerscope"))) == 1


def test_programs_without_torch_and_without_the_variable_are_left_alone(
    installed: Path, tmp_path: Path
) -> None:
    code = "import sys; print([name for name in sys.modules if 'layerscope' in name], len(sys.meta_path))"
    plain = call(str(installed), "-I", "-c", "import sys; print([], len(sys.meta_path))")

    for value in (None, "", "0"):
        assert (
            call(str(installed), "-c", code, env=environment(LAYERSCOPE_AUTOSTART=value)) == plain
        )
    run(installed, "print(1)\n", tmp_path, LAYERSCOPE_AUTOSTART="1")
    assert os.listdir(tmp_path) == ["program.py"]


def test_under_run_it_is_one_recording(installed: Path, tmp_path: Path, native_agent: Path) -> None:
    differential = Differential(tmp_path)
    done = differential.record(
        [str(installed), "-c", NETWORK], env=environment(LAYERSCOPE_AUTOSTART="1")
    )

    assert (done.status, done.stdout, done.stderr, done.files) == (0, b"", b"", {})
    assert differential.recorded().count("Optimizer.step#SGD.step") == 3


def test_the_program_can_stop_and_go_on(
    installed: Path, tmp_path: Path, native_agent: Path
) -> None:
    text = NETWORK + "from layerscope import profiler\n"
    text += "profiler.set_state('stop'); train(5); profiler.set_state('run'); train(1)\n"
    run(installed, text, tmp_path, LAYERSCOPE_AUTOSTART="1")

    recorded = library.recorded(tmp_path / "program.layerscope")
    assert recorded.value("SELECT count(*) FROM spans WHERE name = 'Optimizer.step#SGD.step'") == 4


def test_a_program_that_uses_mxnet_is_recorded(
    wheel: Path, mxnet2_python: str, tmp_path: Path, native_agent: Path
) -> None:
    python = installed_beside(mxnet2_python, wheel, tmp_path / "env")
    text = (
        "import mxnet as mx\n"
        "a = mx.np.ones((50, 50))\n"
        "for _ in range(7):\n    a = mx.np.dot(a, a) / 50\n"
        "print(float(a[0, 0]))\n"
    )
    done = run(python, text, tmp_path, LAYERSCOPE_AUTOSTART="1")

    recorded = library.recorded(tmp_path / "program.layerscope")
    assert done.stdout == "1.0\n"
    assert "layerscope" not in done.stderr  # but MXNet's own warnings
    where = "layer = 'operators' AND name = '_npi_dot'"
    assert recorded.value(f"SELECT count(*) FROM spans WHERE {where}") == 7


def test_uninstalling_removes_it(wheel: Path, tmp_path: Path) -> None:
    call(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env"))
    python = str(tmp_path / "env" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    packages = Path(
        call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )

    call(*pip, "install", "--no-deps", "--no-index", str(wheel))
    assert (packages / AUTOSTART).read_text().startswith("import os;")
    assert len((packages / AUTOSTART).read_text().splitlines()) == 1
    call(*pip, "uninstall", "-y", "layerscope")
    assert list((tmp_path / "env").rglob("*layerscope*")) == []
