"""What pyproject.toml cannot say: the native part is compiled, one file of the wheel lies beside
the package, and the wheel is for one platform.
"""

import os
import sys
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

import native_build  # noqa: E402  (beside this file, which need not be on the path)

AUTOSTART = "layerscope_autostart.pth"


class BuildAll(build_py):
    """Compiles what runs inside programs, and puts the line that looks for $LAYERSCOPE_AUTOSTART
    where `site` finds it; uninstalling removes it.
    """

    def run(self) -> None:
        """Build the package, then compile into it, then copy the file."""
        super().run()
        self._compile(ROOT / "src" if self.editable_mode else Path(self.build_lib).resolve())
        if not self.editable_mode:
            self.copy_file(os.path.join("src", AUTOSTART), os.path.join(self.build_lib, AUTOSTART))

    def _compile(self, packages: Path) -> None:
        """Without a compiler there is a package all the same: `layerscope doctor` says what it
        lacks.
        """
        with tempfile.TemporaryDirectory() as folder:
            out, cache = packages / "layerscope" / "native", Path(folder) / "cache"
            build = native_build.Build(ROOT / "native", out, sys.executable, cache, self.announce)
            try:
                native_build.compile_native(build, strict=False)
            except native_build.Failure as failure:
                self.warn(str(failure))

    def get_outputs(self, include_bytecode: bool = True) -> "list[str]":
        """The files of the package, and ours."""
        outputs: list[str] = super().get_outputs(include_bytecode)
        return (
            outputs if self.editable_mode else [*outputs, os.path.join(self.build_lib, AUTOSTART)]
        )


class PlatformWheel(bdist_wheel):
    """The agent is compiled for this platform, and for any Python."""

    def finalize_options(self) -> None:
        """Not pure Python."""
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> "tuple[str, str, str]":
        """Any Python 3, this platform."""
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildAll, "bdist_wheel": PlatformWheel})
