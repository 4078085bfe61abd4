"""What pyproject.toml cannot say: one file of the wheel lies beside the package, and the wheel is for one platform."""

import os

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

AUTOSTART = "layerscope_autostart.pth"


class BuildWithAutostart(build_py):
    """Puts the line that looks for $LAYERSCOPE_AUTOSTART where `site` finds it; uninstalling removes it."""

    def run(self) -> None:
        """Build the package, then copy the file."""
        super().run()
        if not self.editable_mode:
            self.copy_file(os.path.join("src", AUTOSTART), os.path.join(self.build_lib, AUTOSTART))

    def get_outputs(self, include_bytecode: bool = True) -> "list[str]":
        """The files of the package, and ours."""
        outputs: list[str] = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, os.path.join(self.build_lib, AUTOSTART)]


class PlatformWheel(bdist_wheel):
    """The agent is compiled for this platform, and for any Python."""

    def finalize_options(self) -> None:
        """Not pure Python."""
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> "tuple[str, str, str]":
        """Any Python 3, this platform."""
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildWithAutostart, "bdist_wheel": PlatformWheel})
