"""Print the lowest versions that pyproject.toml allows, as pins for pip.

    python tools/lowest.py > build/lowest.txt

`make lowest` runs the tests with exactly these. What only the tests need has the version
of requirements.lock.
"""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Extras that users install. Those of the tests may be newer.
EXTRAS = ("train", "parquet")


# Packages of the tests that have no place here: tools, types, and what takes gigabytes.
UNUSED = {"ropelab", "ruff", "mypy", "pandas-stubs", "scipy-stubs", "playwright", "ray"}


def lowest_versions(requirements: Sequence[str]) -> dict[str, str]:
    """Return the lowest version that each requirement allows, by the name of its package.

    Raises:
        ValueError: a requirement has no lowest version.
    """
    versions = {}
    for requirement in requirements:
        parts = re.fullmatch(r"([\w.-]+)>=([\d.]+)", requirement)
        if parts is None:
            raise ValueError(
                f"{requirement!r} has no lowest version: want NAME>=VERSION"
            )
        versions[parts[1]] = parts[2]
    return versions


def locked_versions(lock: str, names: Iterable[str]) -> dict[str, str]:
    """Return the versions of some packages in the text of a requirements.lock."""
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    return {name: locked[name.lower().replace("_", "-")] for name in names}


def main() -> None:
    """Print the pins."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]

    requirements = list(project["dependencies"])
    for extra in EXTRAS:
        requirements += extras[extra]
    versions = lowest_versions(requirements)

    of_tests = [re.split(r"[\[>=]", requirement)[0] for requirement in extras["dev"]]
    others = [name for name in of_tests if name not in UNUSED and name not in versions]
    versions |= locked_versions((ROOT / "requirements.lock").read_text(), others)
    for name, version in versions.items():
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
