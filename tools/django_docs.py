"""Django's documentation as a folder of text: `python tools/django_docs.py FOLDER`.

English prose with some code, in reStructuredText, 640 files: a text for `--corpus` that
is not Python source. It is part of Django's source distribution (BSD licence), which
pip fetches from PyPI into build/ and checks by its hash. Where the text is from is
written beside it, in `.source`, which the manifests of runs on it repeat.
"""

import sys
import tarfile
from pathlib import Path, PurePosixPath

from packages import fetched

NAME = "django-5.2.8.tar.gz"
SHA256 = "23254866a5bb9a2cfa6004e8b809ec6246eba4b58a7589bc2772f1bcc8456c7f"
SOURCE = (
    f"Django 5.2.8, documentation, from {NAME} on PyPI, sha256 {SHA256}, BSD-3-Clause"
)
INSIDE = PurePosixPath("django-5.2.8/docs")


def unpack(archive: Path, folder: Path) -> None:
    """Write the text files of the documentation below `folder`, and where they are
    from.
    """
    with tarfile.open(archive) as packed:
        for member in packed:
            path = PurePosixPath(member.name)
            if not (
                member.isfile()
                and path.is_relative_to(INSIDE)
                and path.suffix == ".txt"
            ):
                continue
            if ".." in path.parts:
                raise SystemExit(f"{archive} holds {path}, which lies outside of it")
            file, content = (
                folder / path.relative_to(INSIDE),
                packed.extractfile(member),
            )
            assert content is not None
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.read())
    (folder / ".source").write_text(f"{SOURCE}\n")


def main(folder: Path) -> None:
    """Fetch and unpack, unless the folder is there."""
    if (folder / ".source").exists():
        return
    build = Path(__file__).parents[1] / "build"
    unpack(
        fetched("Django==5.2.8", build / NAME, SHA256, "--no-binary", "Django"), folder
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/django-docs"))
