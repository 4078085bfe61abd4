#!/usr/bin/env python3
"""Everything a developer or a curious visitor does here, with Python's standard library alone.

    python3 dev.py demo         records an example program and prints where its time went
    python3 dev.py test         runs every test (`test -k name`: what follows goes to pytest)
    python3 dev.py test --torch 2.5.1    tests another PyTorch, in an environment of its own
    python3 dev.py check        lint, format, types and the quick tests: under two minutes
    python3 dev.py bench        runs the benchmarks
    python3 dev.py stress       runs hard programs and tests of others, recorded (`stress --help`)
    python3 dev.py golden       records again what tests replay (tests/golden/recordings)
    python3 dev.py docs         writes the generated pages again (`docs --check`: only looks)
    python3 dev.py native       compiles what runs inside the profiled program, and liblayerscope.so
    python3 dev.py web          builds the page of `layerscope report` from web/ (needs Node)

It runs on any Python from 3.8 on, to be able to say which Python is missing; layerscope itself
needs 3.11. Environments live in .envs/: CONTRIBUTING.md says what each is for.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import beside
import every_test
import native_build
import native_layout
from native_build import Failure, NoCompiler
from pythons import (
    MissingVenv,
    add_libraries,
    find_python,
    install_packages,
    lock,
    python_version,
    say,
)
from web_build import web

ROOT = Path(__file__).resolve().parent
ENVS = ROOT / ".envs"
ONEDNN_HEADER = Path("/usr/include/oneapi/dnnl/dnnl.hpp")
NATIVE_OUT = ROOT / "src" / "layerscope" / "native"

TORCH = "torch==2.13.0"  # never a bare "torch": what is tested is what is installed
TORCH_SIZE = "183 MiB (192 MB) to download for its CPU build on Linux, about 1 GB when installed"

NUMPY_TESTS = ("numpy==2.4.6", "pytest>=9.2", "hypothesis>=6.170")

TRAINERS = ("transformers==5.23.0", "accelerate==1.15.0", "lightning==2.6.6")

SERVERS = ("starlette==1.10.0", "uvicorn==0.54.0", "hypercorn==0.18.0")
JAX = ("jax==0.10.2", "onnxruntime==1.31.1", "onnx==1.23.2", *SERVERS)

# The oldest NumPy with a wheel for each Python; 1.23.5 is the one that old frameworks need.
OLD_NUMPY = {
    (3, 10): "1.23.5",
    (3, 11): "1.23.5",
    (3, 12): "1.26.4",
    (3, 13): "2.1.0",
    (3, 14): "2.3.3",
}


# --- Environments ----------------------------------------------------------------------------


class Environment(NamedTuple):
    """A virtual environment in .envs/: its name, what pip installs into it, and options for pip."""

    name: str
    requirements: tuple[str, ...]
    pip_options: tuple[str, ...] = ()
    also: str = ""  # another environment of the same Python whose libraries it has too

    @property
    def folder(self) -> Path:
        """Where it lives."""
        return ENVS / self.name

    @property
    def python(self) -> str:
        """Its Python."""
        return str(self.folder / "bin" / "python")

    def stamp(self) -> str:
        """Changes when what has to be installed changes; kept in the environment after a complete
        installation.
        """
        wanted = "\n".join((*self.requirements, self.also))
        if any(
            requirement.startswith("-e") or requirement == str(ROOT)
            for requirement in self.requirements
        ):
            # Of pyproject.toml only what pip reads: another lint rule is no reason to install
            # again.
            wanted += (
                (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("\n[tool.ruff]")[0]
            )
        return hashlib.sha256(wanted.encode()).hexdigest()

    def is_ready(self) -> bool:
        """Whether it is there, works, and holds what is wanted."""
        kept = self.folder / "layerscope-stamp"
        return kept.is_file() and kept.read_text(encoding="utf-8") == self.stamp() and self.works()

    def works(self) -> bool:
        """Whether its Python starts and has a pip; after an upgrade of the system's Python it may
        not.
        """
        if not Path(self.python).exists():
            return False
        return not subprocess.run(
            [self.python, "-c", "import pip"], capture_output=True, check=False
        ).returncode


def tool_environment(development: bool) -> Environment:
    """Ours: layerscope from this folder, as an editable installation, with the developers' tools if
    wanted.
    """
    # `demo` is content with the environment of `test`, which holds more.
    everything = Environment("tool", ("-e", f"{ROOT}[dev]"))
    if development or everything.is_ready():
        return everything
    return Environment("tool", ("-e", str(ROOT)))


def program_environment(index_url: str | None = None) -> Environment:
    """The profiled program's: PyTorch and NumPy, and nothing of ours."""
    return Environment("program", (TORCH, "numpy", "greenlet"), index_options(index_url))


def old_numpy_environment(index_url: str | None = None) -> tuple[Environment, str]:
    """A profiled program's environment with a NumPy that our own libraries do not import beside;
    and its Python.
    """
    python = find_python(newest_first=False)
    version = python_version(python) or (3, 11)
    numpy = f"numpy=={OLD_NUMPY.get(version, OLD_NUMPY[max(OLD_NUMPY)])}"
    options = index_options(index_url)
    if version == python_version(find_python()):
        return Environment("old-numpy", (numpy,), options, also="program"), python
    return Environment("old-numpy", (TORCH, numpy), options), python


def trainers_environment(index_url: str | None = None) -> Environment:
    """Hugging Face's and Lightning's trainers, with the program's torch."""
    return Environment("trainers", TRAINERS, index_options(index_url), also="program")


def index_options(index_url: str | None) -> tuple[str, ...]:
    """pip's options for another package index."""
    return ("--index-url", index_url) if index_url else ()


def make(
    environment: Environment, python: str | None = None, other: Future[str] | None = None
) -> str:
    """Makes the environment unless it is there, after the `other` one; returns its Python."""
    with lock(environment.folder):
        if other:
            other.result()  # whoever waits for the lock waits for this too
        if environment.is_ready():
            return environment.python
        if not environment.works():
            python = python or find_python()
            say(f"making the environment .envs/{environment.name}")
            options = ["--clear"] if environment.folder.exists() else []
            run_or_fail(
                [python, "-m", "venv", *options, str(environment.folder)],
                f"could not make the environment {environment.folder}",
            )
        if environment.also:
            add_libraries(environment.folder, ENVS / environment.also)
        say(f"installing into .envs/{environment.name}: {' '.join(environment.requirements)}")
        pip = [environment.python, "-m", "pip", "install"]
        pip += ["--no-input", "--disable-pip-version-check"]
        pip += [] if sys.stderr.isatty() else ["--quiet"]  # progress is for people
        run_or_fail(
            [*pip, *environment.pip_options, *environment.requirements],
            f"pip could not install {' '.join(environment.requirements)} into "
            f".envs/{environment.name}. "
            "Remedy: see pip's own words above; behind a proxy or a mirror, set PIP_INDEX_URL",
        )
        (environment.folder / "layerscope-stamp").write_text(environment.stamp(), encoding="utf-8")
    return environment.python


def make_all(environments: list[tuple[Environment, str | None]]) -> list[str]:
    """Makes environments beside each other, after that whose libraries they have: their Pythons."""
    made: dict[str, Future[str]] = {}

    with ThreadPoolExecutor(len(environments)) as at_once:
        for environment, python in environments:
            other = made.get(environment.also)
            made[environment.name] = at_once.submit(make, environment, python, other)
        return [future.result() for future in made.values()]


def run_or_fail(command: list[str], sentence: str) -> None:
    """Runs a step that everything after it needs; its stdout goes to stderr, which is for what we
    say.
    """
    # PYTHONPATH and PYTHONHOME would let another Python's libraries into our environments.
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    if subprocess.run(command, stdout=sys.stderr, env=clean, check=False).returncode:
        raise Failure(sentence)


# --- The native part -------------------------------------------------------------------------


def compile_native(tool_python: str, strict: bool = True) -> None:
    """Compiles agent, probe and the library for programs in C, where a source is newer."""
    cache = ENVS / "zig-cache"
    native_build.compile_native(
        native_build.Build(ROOT / "native", NATIVE_OUT, tool_python, cache, say), strict
    )


# --- The verbs -------------------------------------------------------------------------------


def demo(options: argparse.Namespace) -> int:
    """Records examples/mnist_cnn.py and lets layerscope print its summary."""
    # First the question, then the minutes of work: nobody should come back to a question.
    program = find_torch()
    if program is None:
        ask_for_torch(options.yes)
    tool = make(tool_environment(development=False))
    if program is None:
        program = make(program_environment(options.index_url))
    try:
        compile_native(tool, strict=False)
    except NoCompiler as failure:
        say(str(failure))
    except Failure as failure:
        say(f"{failure}, so only windows of PyTorch's own profiler are recorded")
    command = [tool, "-m", "layerscope", "run", "--", program, "examples/mnist_cnn.py"]
    say(f"layerscope run examples/mnist_cnn.py, with the program's Python {program}")
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def find_torch() -> str | None:
    """A Python that imports torch and NumPy: of the active environment, of PATH, or the one made
    here before.
    """
    candidates = [
        *(
            Path(os.environ[name]) / "bin" / "python"
            for name in ("VIRTUAL_ENV", "CONDA_PREFIX")
            if os.environ.get(name)
        ),
        shutil.which("python3"),
        sys.executable,
        program_environment().python,
    ]
    for candidate in dict.fromkeys(str(candidate) for candidate in candidates if candidate):
        try:
            done = subprocess.run(
                [candidate, "-c", "import numpy, torch"], capture_output=True, check=False
            )
        except OSError:
            continue
        if not done.returncode:
            return candidate
    return None


def ask_for_torch(yes: bool) -> None:
    """Asks before a large download; without anybody to ask it is a failure that says how to agree
    beforehand.
    """
    say(
        f"the demo needs PyTorch, and no Python here imports it. {TORCH} would go into "
        f".envs/program: {TORCH_SIZE}. "
        "Your package index may serve a larger build with CUDA; --index-url names another index."
    )
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(
            f"nobody to ask whether to download {TORCH}. Remedy: python3 dev.py demo --yes"
        )
    sys.stderr.write("Download it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failure(
            "nothing was downloaded. Any Python that imports torch will do: activate its "
            "environment first"
        )


def setting(index_url: str | None, whole: bool) -> tuple[str, dict[str, str]]:
    """Makes what the quick tests need, or all of them; returns our Python and the tests'
    environment variables.
    """
    wanted = {"LAYERSCOPE_TEST_PYTHON": (program_environment(index_url), None)}
    if whole:
        wanted = profiled_environments(index_url)
        numpy_tests = Environment("numpy-tests", NUMPY_TESTS, index_options(index_url))
        wanted["LAYERSCOPE_TEST_NUMPY_PYTHON"] = (numpy_tests, None)
    tool, *pythons = make_all([(tool_environment(development=True), None), *wanted.values()])
    return tool, compiled(tool, dict(zip(wanted, pythons)))


def profiled_environments(index_url: str | None) -> dict[str, tuple[Environment, str | None]]:
    """Of programs that tests profile, and their Pythons; by the tests' variables."""
    options = index_options(index_url)
    return {
        "LAYERSCOPE_TEST_PYTHON": (program_environment(index_url), None),
        "LAYERSCOPE_TEST_OLD_NUMPY_PYTHON": old_numpy_environment(index_url),
        "LAYERSCOPE_TEST_TRAINERS_PYTHON": (trainers_environment(index_url), None),
        "LAYERSCOPE_TEST_JAX_PYTHON": (Environment("jax", JAX, options), None),
    }


def compiled(tool: str, variables: dict[str, str]) -> dict[str, str]:
    """Compiles what is ours; the environment of the tests, in which these are set."""
    # As pip does for whoever installs it; where PYTHONDONTWRITEBYTECODE is set nobody else would.
    subprocess.run([tool, "-m", "compileall", "-q", "src"], cwd=ROOT, check=False)
    try:
        compile_native(tool)
    except NoCompiler as failure:
        say(str(failure))
        variables = {**variables, "LAYERSCOPE_TEST_NO_AGENT": str(failure)}
    return {**os.environ, **variables}


def test(options: argparse.Namespace) -> int:
    """Runs every test, or those that the arguments name."""
    if options.torch:
        tool, variables = setting(options.index_url, whole=False)
        command = [tool, str(ROOT / "tests" / "every_torch.py"), options.torch, *options.arguments]
        command += ["--index-url", options.index_url] if options.index_url else []
        return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    tool = make(tool_environment(development=True))
    later = profiled_environments(options.index_url)
    old = find_python(newest_first=False)
    for_pip = index_options(options.index_url)
    mxnet = beside.mxnet_for(python_version(old))
    later.update({name: (Environment(*one, for_pip), old) for name, one in mxnet.items()})
    later[beside.SPARK_PYTHON] = (Environment(*beside.SPARK, for_pip, also="tool"), None)
    pythons = {variable: environment.python for variable, (environment, _) in later.items()}
    with beside.made_beside(partial(make_all, [*later.values()])):
        return run_tests(options.arguments, tool, {**pythons, **beside.missing(mxnet)})


def run_tests(arguments: list[str], tool: str, told: dict[str, str]) -> int:
    """Every test, or those that the arguments name, with these variables of theirs."""
    variables = compiled(tool, told)
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        # The browser tests fail without a browser and say so; whoever cannot install one still gets
        # the others.
        install_packages("chromium", "chromium-driver")
    if not ONEDNN_HEADER.exists():
        install_packages("g++", "libdnnl-dev")  # for the examples in C++
    pytest = [tool, "-m", "pytest", *arguments]
    if arguments:
        return subprocess.run(pytest, cwd=ROOT, env=variables, check=False).returncode
    return every_test.run(pytest, ROOT, variables, say)


def check(options: argparse.Namespace) -> int:
    """What to run before a commit; goes on after a failure, so that one run shows everything."""
    tool, variables = setting(options.index_url, whole=False)
    commands = [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy", "--strict"],
        ["pytest", "-q", *every_test.IN_PARALLEL, "-m", "not slow and not alone"],
    ]
    failed = []
    for module, *arguments in commands:
        if subprocess.run(
            [tool, "-m", module, *arguments], cwd=ROOT, env=variables, check=False
        ).returncode:
            failed.append(" ".join([module, *arguments]))
    say(f"failed: {'; '.join(failed)}" if failed else "all good")
    return 1 if failed else 0


def bench(options: argparse.Namespace) -> int:
    """Runs benchmarks/run.py with our Python; the programs it measures run with theirs."""
    return run_script("benchmarks/run.py", options, *setting(options.index_url, whole=False))


def stress(options: argparse.Namespace) -> int:
    """Runs hard programs bare and recorded, and the repetitions that `test` leaves out."""
    return run_script("tests/stress/run.py", options, *setting(options.index_url, whole=True))


def golden(options: argparse.Namespace) -> int:
    """Records the programs of tests/golden/recordings again."""
    made = setting(options.index_url, whole=False)
    return run_script("tests/golden/recordings/make.py", options, *made)


def run_script(
    script: str, options: argparse.Namespace, tool: str, variables: dict[str, str] | None = None
) -> int:
    """Runs a file of the repository with our Python."""
    command = [tool, str(ROOT / script), *options.arguments]
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode


def docs(options: argparse.Namespace) -> int:
    """Writes the pages that are generated from the code."""
    return run_script("docs/generate.py", options, make(tool_environment(development=False)))


def native(options: argparse.Namespace) -> int:
    """Compiles the agent, the probe, the library for programs in C, and the examples that use
    it.
    """
    native_layout.main()
    tool = make(tool_environment(development=False))
    subprocess.run([tool, str(ROOT / "native_names.py")], check=True)
    compile_native(tool)
    # Whoever lacks oneDNN's headers is told so, and has all the rest.
    subprocess.run([tool, str(ROOT / "examples" / "native" / "build.py")], check=False)
    return 0


VERBS = {
    "demo": demo,
    "test": test,
    "check": check,
    "bench": bench,
    "stress": stress,
    "golden": golden,
    "docs": docs,
    "native": native,
    "web": web,
}
PASSES_ARGUMENTS_ON = ("test", "bench", "stress", "golden", "docs")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="dev.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = result.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, function in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=(function.__doc__ or name).splitlines()[0],
            add_help=name not in PASSES_ARGUMENTS_ON,
            allow_abbrev=False,
        )
        if name not in ("docs", "native", "web"):
            verb.add_argument(
                "--index-url", metavar="URL", help=f"package index for {TORCH}, passed on to pip"
            )
        if name == "test":
            verb.add_argument(
                "--torch", metavar="VERSION", help="only what holds for another PyTorch, by hand"
            )
        if name == "demo":
            verb.add_argument("--yes", action="store_true", help=f"download {TORCH} without asking")
    return result


def main(arguments: list[str] | None = None) -> int:
    """Runs one verb; a failure is one sentence and exit status 2."""
    options, rest = parser().parse_known_args(arguments)
    options.arguments = rest
    if rest and options.verb not in PASSES_ARGUMENTS_ON:
        parser().error(f"unknown arguments: {' '.join(rest)}")
    try:
        try:
            return VERBS[options.verb](options)
        except MissingVenv:
            if options.verb != "test" or not install_packages("python3-venv"):
                raise
            return VERBS[options.verb](options)
    except Failure as failure:
        say(str(failure))
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
