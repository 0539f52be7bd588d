"""Build the wheel, install it into an empty environment, and use it outside any
checkout.

    python tests/installed/try_wheel.py [PYTHON ...]

Without a PYTHON the one that runs this is used, and lends its packages, so that nothing
but the build tool is downloaded. Any other one gets packages of its own, by pip; where
torch cannot be had for it, what needs no torch is tried. `test_light.py` tries an
installation without torch.
"""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
LIGHT = ("freqs", "precision", "base", "claims")
SMOKE = (*LIGHT, "base-empirical", "encodings", "extrapolate", "spectrum")


def elsewhere() -> dict[str, str]:
    """Return an environment in which nothing points at this checkout."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GIT_"))}


def run(*command: object, cwd: Path, **environment: str) -> str:
    """What a command prints; the script ends with its output where it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**elsewhere(), **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def wheel(into: Path) -> Path:
    """Return the built wheel."""
    lean = ("--no-deps", "--quiet", "--disable-pip-version-check")
    # Of a copy: a build leaves files in its sources, and two at once in each other's
    # way.
    source = into / "source"
    copytree(
        ROOT, source, ignore=ignore_patterns(".*", "build", "results", "*.egg-info")
    )
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        *lean,
        "--wheel-dir",
        into,
        source,
        cwd=into,
    )
    (built,) = into.glob("*.whl")
    return built


def environment(python: str, built: Path, at: Path) -> tuple[Path, bool]:
    """Where the commands of a new environment with the wheel lie, and whether it has
    torch.
    """
    run(python, "-m", "venv", at, cwd=at.parent)
    pip = (
        at / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    )
    if python == sys.executable:
        site = sysconfig.get_path("purelib")
        (own,) = at.glob("lib/python*/site-packages")
        (own / "lent.pth").write_text(f"{site}\n")
        run(*pip, "--no-deps", "--no-index", built, cwd=at)
        return at / "bin", True
    constraint = ("--constraint", ROOT / "requirements.lock")
    run(*pip, *constraint, built, cwd=at)
    with_torch = [*map(str, pip), *map(str, constraint), f"{built}[train]"]
    tried = subprocess.run(with_torch, capture_output=True)
    return at / "bin", tried.returncode == 0


def try_it(commands: Path, work: Path, smoke: tuple[str, ...]) -> None:
    """Everything a new user types first, in an empty folder inside a repository of
    someone else.
    """
    run("git", "init", "--quiet", work, cwd=work.parent)
    run("git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "--allow-empty",
        "--message", "theirs", cwd=work)  # fmt: skip
    ropelab = commands / "ropelab"
    print(run(ropelab, "--version", cwd=work).strip())
    listed = run(ropelab, "run", cwd=work)
    assert "smoke/precision" in listed, listed
    run(ropelab, "run", *(f"smoke/{name}" for name in smoke), cwd=work)
    manifests = [json.loads(path.read_text()) for path in work.rglob("manifest.json")]
    assert len(manifests) >= len(smoke)
    assert {manifest["commit"] for manifest in manifests} == {None}, "a foreign commit"
    assert (work / "results" / "index.html").stat().st_size > 100_000
    code = (
        "import ropelab; print(len(ropelab.precision(length=100,"
        " long_lengths=[]).tables))"
    )
    print(
        f"{len(manifests)} runs,"
        f" {run(commands / 'python', '-c', code, cwd=work).strip()} tables"
    )


def main() -> None:
    """Try every Python that is named."""
    for python in sys.argv[1:] or [sys.executable]:
        with TemporaryDirectory() as folder:
            at = Path(folder)
            work = at / "empty"
            work.mkdir()
            commands, torch = environment(python, wheel(at), at / "environment")
            print(run(commands / "python", "--version", cwd=at).strip(), end=", ")
            print("with torch" if torch else "without torch", end=", ")
            try_it(commands, work, SMOKE if torch else LIGHT)


if __name__ == "__main__":
    main()
