"""speedscope (https://github.com/jlfwong/speedscope), fetched when it is measured: a pinned package
of npm, in an ignored folder. Nothing of it belongs to the repository.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

VERSION = "1.25.0"
FOLDER = Path(__file__).resolve().parents[2] / ".envs" / f"speedscope-{VERSION}"
_PAGE = Path("package") / "dist" / "release"
_FETCH_S = 120


class NotToBeHad(Exception):
    """Why a viewer is not there."""


def interface() -> Path:
    """The folder with its page; fetched first where it is not there yet."""
    if not FOLDER.is_dir():
        npm = shutil.which("npm")
        if npm is None:
            raise NotToBeHad("speedscope comes with npm, which is not there: install Node")
        _fetch(npm)
    return FOLDER / _PAGE


def _fetch(npm: str) -> None:
    """Unpack the package beside its place, and put it there when it is whole."""
    draft = FOLDER.with_name(f"{FOLDER.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    command = [npm, "pack", f"speedscope@{VERSION}", "--pack-destination", str(draft)]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=_FETCH_S)
        [package] = draft.glob("*.tgz")
        with tarfile.open(package) as archive:
            archive.extractall(draft, filter="data")
        package.unlink()
        draft.rename(FOLDER)
    except subprocess.TimeoutExpired as error:
        raise NotToBeHad(f"npm did not bring speedscope within {_FETCH_S} s") from error
    except subprocess.CalledProcessError as error:
        told = error.stderr.strip().splitlines() or [f"it ended with status {error.returncode}"]
        why = told[0].removeprefix("npm error code ")
        raise NotToBeHad(f"npm could not bring speedscope: {why}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
