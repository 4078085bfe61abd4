#!/usr/bin/env python3
"""Compiles the examples in C and C++, with Python's standard library alone.

    python3 examples/native/build.py            into build/native
    python3 examples/native/build.py FOLDER     into FOLDER

They need g++ (or another C++ compiler, named in the variable CXX) and oneDNN with its headers:
libdnnl-dev on Debian and Ubuntu. `mlp` needs layerscope's C interface, which `python3 dev.py
native` makes; `mlp_nvtx` the headers of NVTX, which come from the package index unless the variable
NVTX_INCLUDE names a folder that has them. `mxnet_mlp` is compiled where the variable MXNET names
the folder of an installed package of MXNet, or this Python has one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "src" / "layerscope" / "native"
INTERFACE = ROOT / "native" / "include"
NVTX_WHEEL = "nvidia-nvtx-cu12==12.9.79"  # headers alone, 85 kB
PACKAGES = ("g++", "libdnnl-dev")  # of Debian and Ubuntu
FLAGS = ["-O3", "-Wall", "-Wextra", "-Werror"]


class Missing(Exception):
    """Something that is needed is not here; the sentence names the remedy."""


class Skipped(Exception):
    """An example is not asked for: what it is about is not installed."""


def compiler() -> str:
    """The C++ compiler."""
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        if found := name and shutil.which(name):
            return found
    raise Missing("there is no C++ compiler. Remedy on Debian and Ubuntu: apt-get install g++")


def c_compiler() -> str:
    """The C compiler."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if found := name and shutil.which(name):
            return found
    raise Missing("there is no C compiler. Remedy on Debian and Ubuntu: apt-get install gcc")


def mxnet_package() -> Path:
    """The folder of the installed package of MXNet, which has the library and its headers."""
    if given := os.environ.get("MXNET"):
        return Path(given).absolute()
    found = importlib.util.find_spec("mxnet")
    if found is None or found.origin is None:
        raise Skipped(
            "mxnet_mlp is left out: this Python has no MXNet, and the variable MXNET does not name "
            "the folder of its package"
        )
    return Path(found.origin).parent


def nvtx_headers(folder: Path) -> Path:
    """The folder with nvtx3/; fetched into `folder` the first time."""
    if given := os.environ.get("NVTX_INCLUDE"):
        return Path(given)
    headers = folder / "nvtx" / "nvidia" / "nvtx" / "include"
    if not (headers / "nvtx3" / "nvtx3.hpp").exists():
        with tempfile.TemporaryDirectory() as temporary:
            pip = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
            ]
            options = [
                "--no-deps",
                "--only-binary",
                ":all:",
                "--platform",
                "manylinux1_x86_64",
                "--dest",
                temporary,
            ]
            if subprocess.run(
                [*pip, *options, NVTX_WHEEL], stdout=sys.stderr, check=False
            ).returncode:
                raise Missing(
                    f"pip could not fetch {NVTX_WHEEL}. Remedy: NVTX_INCLUDE names a folder with "
                    "nvtx3/"
                )
            for wheel in Path(temporary).glob("*.whl"):
                zipfile.ZipFile(wheel).extractall(folder / "nvtx")
    return headers


def build_mlp(folder: Path) -> Path:
    """The example with layerscope's C interface; it finds the library where it lies now."""
    if not (NATIVE / "liblayerscope.so").exists():
        raise Missing(
            f"{NATIVE / 'liblayerscope.so'} was not compiled. Remedy: python3 dev.py native"
        )
    options = ["-I", str(INTERFACE), "-L", str(NATIVE), f"-Wl,-rpath,{NATIVE}", "-llayerscope"]
    return _compile(folder / "mlp", HERE / "mlp.cpp", options)


def build_mlp_nvtx(folder: Path) -> Path:
    """The example with NVTX, which is headers only and finds a profiler by itself."""
    return _compile(
        folder / "mlp_nvtx", HERE / "mlp_nvtx.cpp", ["-isystem", str(nvtx_headers(folder)), "-ldl"]
    )


def build_mxnet_mlp(folder: Path) -> Path:
    """The example with MXNet's C interface, which differs between its versions; it finds MXNet's
    library where it lies now.
    """
    package = mxnet_package()
    try:
        text = (package / "include" / "mxnet" / "base.h").read_text(encoding="utf-8")
    except OSError as error:
        raise Missing(f"{package} has no headers of MXNet ({error.strerror})") from error
    major = re.search(r"#define MXNET_MAJOR (\d+)", text)
    if major is None:
        raise Missing(f"the headers of MXNet in {package} do not say their version")
    source, target = HERE / "mxnet_mlp.c", folder / "mxnet_mlp"
    options = ["-std=c11", f"-DMXNET_MAJOR={major[1]}", "-isystem", str(package / "include")]
    libraries = [f"-L{package}", "-lmxnet", "-lm", f"-Wl,-rpath,{package}"]
    command = [c_compiler(), *FLAGS, *options, "-o", str(target), str(source), *libraries]
    _run(command, source)
    return target


def _compile(target: Path, source: Path, options: list[str]) -> Path:
    """Compile `source` unless `target` is newer than all that it is made of."""
    needed = [source, *HERE.glob("*.hpp"), *INTERFACE.glob("*.h*")]
    if target.exists() and all(file.stat().st_mtime <= target.stat().st_mtime for file in needed):
        return target
    flags = ["-std=c++17", *FLAGS]
    _run([compiler(), *flags, "-o", str(target), str(source), *options, "-ldnnl"], source)
    return target


def _run(command: list[str], source: Path) -> None:
    """Run a compiler; Missing with its words where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "dnnl.hpp" in done.stderr:
        raise Missing(
            "oneDNN's headers are not here. Remedy on Debian and Ubuntu: apt-get install "
            "libdnnl-dev"
        )
    if done.returncode:
        raise Missing(f"{source.name} does not compile:\n{done.stderr}")


def main() -> int:
    """Compile all; what cannot be is said, and the status is 1."""
    folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "build" / "native"
    folder.mkdir(parents=True, exist_ok=True)
    status = 0
    for build in (build_mlp, build_mlp_nvtx, build_mxnet_mlp):
        try:
            print(build(folder))
        except Skipped as skipped:
            print(f"{Path(__file__).name}: {skipped}", file=sys.stderr)
        except Missing as missing:
            print(f"{Path(__file__).name}: {missing}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
