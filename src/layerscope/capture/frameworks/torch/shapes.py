"""The part of the agent that reads the inputs of operators: compiled for the program's own build of
torch, and kept.

Where a tensor keeps its sizes differs from build to build, so the C++ file beside the agent
(native/shapes) is compiled against the headers of that torch, before the program starts and once
for each build-id. What the compiler made is used only after a throw-away process
(`inside/probe_shapes.py`) has compared what it says with known tensors.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from layerscope import __version__
from layerscope.capture import agent
from layerscope.capture.adapter import CannotRead, Shapes
from layerscope.capture.frameworks.torch.probe import INSIDE
from layerscope.capture.shapes import python_of
from layerscope.host.libraries import build_id
from layerscope.model import cache
from layerscope.model.stored_json import decoded

SOURCE = agent.LIBRARY.with_name("shapes.cpp")
_COMPILERS = ("g++", "c++", "clang++")
_STANDARDS = ("c++20", "c++17")
_FLAGS = ("-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG", "-w")
# The constructor that every libc10 has, as a compiler names it where std::string is the old one.
_OLD_STRING = b"_ZN3c105ErrorC2ENS_14SourceLocationESs"
_FIND_TORCH = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')"
_FIND_S, _COMPILE_S, _CHECK_S = 30, 300, 120
# The check must neither be recorded nor find modules of the program.
_AUTOSTART = "LAYERSCOPE_AUTOSTART"
_NOT_FOR_THE_CHECK = ("PYTHONPATH", _AUTOSTART)


def prepare(command: list[str], say: Callable[[str], None] | None) -> Shapes:
    """What reads shapes in the program that `command` starts, compiled now if need be. CannotRead
    says why not.
    """
    python = python_of(command, os.environ)
    return build(python, find_library(python), say)


def find_library(python: str) -> Path:
    """The libtorch_cpu.so that `python` would load, with links followed; torch is not imported for
    it.
    """
    try:
        done = subprocess.run(
            [python, "-c", _FIND_TORCH],
            capture_output=True,
            text=True,
            timeout=_FIND_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != _AUTOSTART},
        )
        origin = done.stdout.strip().rpartition("\n")[2]
    except (OSError, subprocess.TimeoutExpired, ValueError):
        origin = ""
    library = Path(os.path.realpath(Path(origin).parent / "lib" / "libtorch_cpu.so"))
    if not origin or not library.exists():
        raise CannotRead(
            f"{python} has no PyTorch whose inputs could be read",
            "name the Python that has it: layerscope run --shapes -- /path/to/python train.py",
        )
    return library


def build(python: str, library: Path, say: Callable[[str], None] | None = None) -> Shapes:
    """What reads shapes with `library`: the kept one, else compiled, checked and kept. CannotRead
    when it fails.
    """
    if not SOURCE.exists() or not agent.LIBRARY.exists():
        remedy = f"install a C compiler (for example gcc), then: {agent.BUILD_AGAIN}"
        raise CannotRead("the native part of layerscope is missing", remedy)
    with _folder_for(library) as folder:
        kept = _kept(folder, library)
        if kept is not None:
            return kept
        with tempfile.TemporaryDirectory(dir=folder, prefix="unfinished-") as unfinished:
            made = Path(unfinished) / "shapes.so"
            if say is not None:
                say(
                    "layerscope: compiling what reads the shapes of inputs, once for this PyTorch, "
                    "some 10 s\n"
                )
            compile_for(library, made)
            cost_ns = check(python, library, made)
            costs = made.with_suffix(".json")
            costs.write_text(json.dumps({"cost_ns": cost_ns}))
            os.replace(costs, folder / "shapes.json")
            os.replace(made, folder / "shapes.so")
        cache.remember(folder, library)
        return Shapes(str(library), str(folder / "shapes.so"), cost_ns)


@contextlib.contextmanager
def _folder_for(library: Path) -> Iterator[Path]:
    """The folder of the cache for `library`, locked: of many ranks that start at once, one
    compiles.
    """
    facts = library.stat()
    identity = build_id(library) or f"{facts.st_size}-{facts.st_mtime_ns}"
    version = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    for base in cache.caches(cache.SHAPES):
        folder = base / f"{identity}-{__version__}-{version}"
        with contextlib.ExitStack() as stack:
            try:
                cache.make(folder)
                lock = stack.enter_context((folder / ".lock").open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:
                continue
            yield folder
            return
    raise CannotRead(
        "there is no place to keep what is compiled", "set XDG_CACHE_HOME to a folder of yours"
    )


def _kept(folder: Path, library: Path) -> Shapes | None:
    """What was compiled before."""
    path = folder / "shapes.so"
    try:
        facts = path.lstat()
        if facts.st_uid != os.getuid() or path.is_symlink():
            return None
        cost_ns = decoded((folder / "shapes.json").read_bytes(), dict[str, float])["cost_ns"]
    except (OSError, ValueError, KeyError):
        return None
    cache.remember(folder, library)
    return Shapes(str(library), str(path), cost_ns)


def compile_for(library: Path, target: Path) -> None:
    """Compile into `target` against the headers beside `library`; CannotRead in the compiler's own
    words.
    """
    headers = library.parent.parent / "include"
    if not (headers / "ATen" / "record_function.h").exists():
        raise CannotRead(
            f"the PyTorch in {library.parent.parent} has no headers",
            "install PyTorch from its wheel",
        )
    compilers = [
        found
        for name in (os.environ.get("CXX", ""), *_COMPILERS)
        if name and (found := shutil.which(name))
    ]
    if not compilers:
        raise CannotRead(f"there is no C++ compiler (tried {', '.join(_COMPILERS)})", "install g++")
    words = ""
    for compiler in dict.fromkeys(compilers):
        for standard in _STANDARDS:
            words = _compile([compiler, f"-std={standard}", *_FLAGS], headers, library, target)
            if not words:
                return
    raise CannotRead(
        f"{Path(compiler).name} does not compile against this PyTorch: {words}", "install g++"
    )


def _compile(command: list[str], headers: Path, library: Path, target: Path) -> str:
    """Run one compiler; empty when it did, else its first complaint."""
    abi = int(_OLD_STRING not in (library.parent / "libc10.so").read_bytes())
    command = [
        *command,
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        "-isystem",
        str(headers),
        "-o",
        str(target),
        str(SOURCE),
    ]
    try:
        done = subprocess.run(
            [*command, f"-L{library.parent}", "-lc10", "-ltorch_cpu"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    complaint = re.search(r"error: (.+)", done.stderr)
    return (complaint[1] if complaint else f"it ended with status {done.returncode}")[:200]


def check(python: str, library: Path, made: Path) -> float:
    """Try `made` out under the program's own Python; what it adds to one operator in ns.
    CannotRead when it errs.
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in _NOT_FOR_THE_CHECK
    }
    package = library.parent.parent.parent
    script = INSIDE / "probe_shapes.py"
    command = [python, "-s", str(script), str(agent.LIBRARY), str(library), str(package), str(made)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_CHECK_S,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        reply = json.loads(done.stdout)
        why, cost_ns = str(reply["why"]), float(reply["cost_ns"])
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        why, cost_ns = "the process that tried it out did not answer", 0.0
    if why:
        raise CannotRead(
            f"what was compiled for this PyTorch does not read its inputs rightly: {why}",
            "use another g++ ($CXX)",
        )
    return cost_ns
