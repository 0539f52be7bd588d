"""What the tools share: one file of a package, fetched by pip and known by its
sha256.
"""

import hashlib
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory


def pip(*arguments: str) -> None:
    """The pip of this interpreter."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True)


def fetched(requirement: str, file: Path, sha256: str, *options: str) -> Path:
    """The file, downloaded where it is not there yet.

    Args:
        requirement: a package with its version, whose file has that name.
        options: of `pip download`, such as which kind of file is wanted.
    Raises:
        SystemExit: what lies there is not the file that was published.
    """
    if not file.exists():
        with TemporaryDirectory() as folder:
            wanted = Path(folder) / "requirements.txt"
            wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n")
            where = ("--dest", str(file.parent), "--requirement", str(wanted))
            pip("download", "--no-deps", "--require-hashes", *options, *where)
    if hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
        raise SystemExit(
            f"{file} is not the file that was published; delete it and try again"
        )
    return file
