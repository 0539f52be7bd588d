"""The configs that come with ropelab."""

from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

from ropelab.runs.errors import InputError
from ropelab.runs.sentences import split_verdict

PACKAGE = Path(__file__).parents[1]


def find_folder() -> Path:
    """Return the folder of the configs: a wheel has it in the package, a checkout
    beside the package.
    """
    in_wheel = PACKAGE / "configs"
    if in_wheel.is_dir():
        return in_wheel
    return PACKAGE.parent / "configs"


def find_config(path: Path) -> Path:
    """Return a path that exists, else the built-in config or folder of that name.

    For example, `precision` names one built-in config, `smoke` names a folder of
    built-in configs, and `configs` names the folder of all.

    InputError: no path and no built-in config has that name.
    """
    if path.exists():
        return path
    name = path.parts
    if name[:1] == ("configs",):
        name = name[1:]
    built_in = find_folder().joinpath(*name)
    built_in_file = built_in.with_name(f"{built_in.name}.toml")
    for option in (built_in, built_in_file):
        if option.exists():
            return option

    files_beside = [str(file) for file in path.parent.glob("*.toml")]
    near = get_close_matches(str(path), [*files_beside, *_find_files()], n=1)
    suggestion = ""
    if near:
        suggestion = f"; did you mean '{near[0]}'?"
    raise InputError(f"no config file at {path}{suggestion}")


def _find_files() -> dict[str, Path]:
    """Return the files of all built-in configs by name; files at the top of the folder
    come first.
    """
    top = find_folder()
    files = sorted(top.rglob("*.toml"), key=lambda file: (len(file.parts), file.parts))

    by_name: dict[str, Path] = {}
    for file in files:
        name = file.relative_to(top).with_suffix("").as_posix()
        by_name[name] = file
    return by_name


def list_configs() -> dict[str, str]:
    """Return the configs by name, folder by folder, with the first sentence of each."""
    sentences = {}
    for name, file in _find_files().items():
        first_sentence, _ = split_verdict(read_comment(file))
        sentences[name] = first_sentence
    return sentences


def read_comment(file: Path) -> str:
    """Return the comment at the head of a config as one paragraph."""
    lines = file.read_text(encoding="utf-8").splitlines()
    comment = takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(line.lstrip("# ") for line in comment)
