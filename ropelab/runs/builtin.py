"""The configs that come with ropelab: in `configs/` of a checkout, in the package of a
wheel.
"""

from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

from ropelab.runs.errors import InputError
from ropelab.runs.sentences import verdict_and_rest

PACKAGE = Path(__file__).parents[1]


def folder() -> Path:
    inside = PACKAGE / "configs"
    return inside if inside.is_dir() else PACKAGE.parent / "configs"


def resolved(path: Path) -> Path:
    """Return a path that exists, else the config or folder of configs of that name.

    `configs` are all at the top, `precision` is one of them, `smoke` a folder; else
    InputError.
    """
    parts = path.parts
    named = folder().joinpath(*(parts[1:] if parts[:1] == ("configs",) else parts))
    for option in (path, named, named.with_name(f"{named.name}.toml")):
        if option.exists():
            return option
    files = [*map(str, path.parent.glob("*.toml")), *_named_files()]
    near = get_close_matches(str(path), files, n=1)
    guess = f"; did you mean '{near[0]}'?" if near else ""
    raise InputError(f"no config file at {path}{guess}")


def _named_files() -> dict[str, Path]:
    top = folder()
    files = sorted(top.rglob("*.toml"), key=lambda file: (len(file.parts), file.parts))
    return {file.relative_to(top).with_suffix("").as_posix(): file for file in files}


def list_configs() -> dict[str, str]:
    """Return the configs by name, folder by folder, with the first sentence of each."""
    sentences = {}
    for name, file in _named_files().items():
        sentences[name], _ = verdict_and_rest(read_comment(file))
    return sentences


def read_comment(file: Path) -> str:
    """Return the comment at the head of a config as one paragraph."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comment = takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(line.lstrip("# ") for line in comment)
