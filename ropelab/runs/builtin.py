"""The configs that come with ropelab: in `configs/` of a checkout, in the package of a wheel."""

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from textwrap import shorten

PACKAGE = Path(__file__).parents[1]


def folder() -> Path:
    inside = PACKAGE / "configs"
    return inside if inside.is_dir() else PACKAGE.parent / "configs"


def resolved(path: Path) -> Path:
    """Return a path that exists, else the config or folder of configs of that name.

    `configs` are all at the top, `precision` is one of them, `smoke` a folder.
    """
    if path.exists():
        return path
    parts = path.with_suffix("").parts
    named = folder().joinpath(*(parts[1:] if parts[:1] == ("configs",) else parts))
    options = (named, named.with_suffix(".toml"))
    return next((option for option in options if option.exists()), path)


def lines() -> Iterator[str]:
    """Yield a line for each config, with its first comment, folder by folder."""
    top = folder()
    files = sorted(top.rglob("*.toml"), key=lambda file: (len(file.parts), file.parts))
    names = [file.relative_to(top).with_suffix("").as_posix() for file in files]
    width = max(map(len, names), default=0)
    yield "Configs that come with ropelab; `ropelab run NAME` runs one, or a folder of them:"
    for name, file in zip(names, files, strict=True):
        yield f"  {name:<{width}}  {_about(file)}".rstrip()
    yield "`ropelab run PATH` runs your own; `ropelab run configs` all that are in no folder."


def _about(file: Path) -> str:
    # The comment at the head of a config, shortened to a line.
    lines = file.read_text(encoding="utf-8").splitlines()
    comment = takewhile(lambda line: line.startswith("#"), lines)
    return shorten(" ".join(line.lstrip("# ") for line in comment), 90, placeholder=" ...")
