"""What pyproject.toml cannot say: the configs of this checkout travel inside the
package.
"""

from pathlib import Path
from shutil import copytree, ignore_patterns

from setuptools import setup
from setuptools.command.build_py import build_py


class WithConfigs(build_py):
    """The package, and in it the folder `configs`, which `ropelab run` offers."""

    def run(self) -> None:
        """Copy the configs, unless the package is editable and finds them where they
        are.
        """
        super().run()
        if not self.editable_mode:
            inside = Path(self.build_lib) / "ropelab" / "configs"
            copytree(
                "configs", inside, dirs_exist_ok=True, ignore=ignore_patterns("[!a-z]*")
            )


setup(cmdclass={"build_py": WithConfigs})
