"""Check that a tag may be released, and print its part of CHANGELOG.md.

    python tools/release.py v0.1.0

The tag has to be the version of the package and of CITATION.cff, and the changelog has to
say on which day the version is released.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def find_version(text: str, pattern: str) -> str:
    """Return what a file says is the version, by a pattern with one group."""
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise ValueError(f"no version found by {pattern!r}")
    return found[1]


def find_section(changelog: str, version: str) -> str:
    """Return the part of a changelog about a version, without its heading.

    Raises:
        ValueError: there is no such part, or its heading has no day.
    """
    heading = rf"^## {re.escape(version)}\b(.*)\n((?:(?!## ).*\n?)*)"
    found = re.search(heading, changelog, re.MULTILINE)
    if found is None:
        raise ValueError(f"CHANGELOG.md has no part '## {version}, YYYY-MM-DD'")
    day, section = found.groups()
    if re.fullmatch(r", \d{4}-\d\d-\d\d", day) is None:
        raise ValueError(
            f"CHANGELOG.md says '{version}{day}': want '## {version}, YYYY-MM-DD'"
        )
    return section.strip()


def check_release(tag: str, root: Path) -> str:
    """Return the part of the changelog in a checkout about the version of a tag.

    Raises:
        ValueError: the tag is another version, or the changelog does not know it.
    """
    package = (root / "ropelab" / "__init__.py").read_text(encoding="utf-8")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    version = tag.removeprefix("v")
    named = {
        "ropelab/__init__.py": find_version(package, r'^__version__ = "(.+)"$'),
        "CITATION.cff": find_version(citation, r"^version: (.+)$"),
    }
    for file, other in named.items():
        if tag != f"v{other}":
            raise ValueError(f"the tag is {tag}, and {file} has version {other}")
    return find_section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def main() -> None:
    """Check the tag that is given, and print its part of the changelog."""
    if len(sys.argv) != 2:
        sys.exit("type: python tools/release.py TAG")
    try:
        print(check_release(sys.argv[1], ROOT))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
