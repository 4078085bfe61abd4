"""`python3 dev.py golden`: records the programs beside this file again; their raw files are what tests replay.

The program runs where nothing has a path or a name of this machine: in namespaces of its own, its Python in
/srv/python, its packages in /srv/packages, its folder /srv/work. That needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPTIONS = {
    "train": ["--without", "stacks"],
    "threads": [],
    "mxnet": ["--without", "stacks"],
    "memory": ["--layers=+memory,-stacks"],
}
PYTHONS = {"mxnet": "LAYERSCOPE_TEST_MXNET2_PYTHON"}  # of the others LAYERSCOPE_TEST_PYTHON
# What a reader needs of a recording: the raw files, but not the door into the program or the logs of our processes.
NEEDLESS = ("door", "converter.log", "drainer.log")
SCRIPT = """
set -e
hostname golden
mount -t tmpfs none /srv
mkdir /srv/python /srv/packages /srv/work
mount --bind "$PREFIX" /srv/python
mount --bind "$PACKAGES" /srv/packages
mount --bind "$WORK" /srv/work
cd /srv/work
exec env -i PATH=/srv/python/bin:/usr/bin:/bin HOME=/srv/work LANG=C.UTF-8 PYTHONPATH=/srv/packages \\
    LD_LIBRARY_PATH=/srv/python/lib OPENBLAS_NUM_THREADS=1 \\
    "$@" -- "/srv/python/bin/$NAME" program.py
"""


def ask(python: str, expression: str) -> str:
    """What an expression of Python is in another Python."""
    code = f"import sys, sysconfig; print({expression})"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def record(name: str, python: str) -> None:
    """Records one program and keeps its raw files."""
    target = HERE / name
    tool = [sys.executable, "-m", "layerscope", "run", "-q", "-o", "recording", *OPTIONS[name]]
    with tempfile.TemporaryDirectory() as work:
        shutil.copy(target / "program.py", work)
        variables = {
            "PREFIX": ask(python, "sys.base_prefix"),
            "PACKAGES": ask(python, "sysconfig.get_path('purelib')"),
            "NAME": f"python{ask(python, 'sysconfig.get_python_version()')}",
            "WORK": work,
        }
        command = ["unshare", "--mount", "--uts", "sh", "-c", SCRIPT, "sh", *tool]
        subprocess.run(command, env={**os.environ, **variables}, check=True)
        recording = Path(work) / "recording.layerscope"
        shutil.rmtree(target / "raw", ignore_errors=True)
        shutil.copytree(recording / "raw", target / "raw", ignore=shutil.ignore_patterns(*NEEDLESS))
        info = json.loads((recording / "run.json").read_text(encoding="utf-8"))
    (target / "run.json").write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
    print(f"{name}: {sum(file.stat().st_size for file in target.rglob('*') if file.is_file()) / 1000:.0f} kB")


def main() -> None:
    """Records them all, or those that are named."""
    for name in sys.argv[1:] or OPTIONS:
        record(name, os.environ[PYTHONS.get(name, "LAYERSCOPE_TEST_PYTHON")])


if __name__ == "__main__":
    main()
