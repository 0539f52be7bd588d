"""A finished run as the page tells it: its question, how it was asked, its answer, its tables."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ropelab.errors import InputError
from ropelab.runs import store
from ropelab.runs.config import split_list
from ropelab.runs.manifest import read_manifest
from ropelab.runs.notices import say
from ropelab.runs.tables import DamagedError
from ropelab.show.terminal import format_value

PACKAGES = "packages"


@dataclass(frozen=True)
class Shown:
    """One finished run; `folder` is where it lies, `manifest` what made it."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A name for links: `precision-8fe969aa`."""
        code = re.sub(r"[^A-Za-z0-9]+", "-", self.folder.name).rsplit("-", 1)[-1]
        return f"{self.manifest['experiment']}-{code}"

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables that have rows, in the order of the manifest."""
        found = store.tables_of(self.folder, self.manifest)
        return {name: found[name] for name in self.manifest["tables"] if len(found[name])}

    @property
    def settings(self) -> list[tuple[str, str]]:
        """What was asked beside the defaults: the flags of the command as words and values.

        >>> Shown(Path("x"), {"command": "ropelab base --context 32768"}).settings
        [('context', '32768')]
        """
        return list(_flags(shlex.split(self.manifest["command"])[2:]))

    @property
    def label(self) -> str:
        """What the run is called: the title of its config file, else its settings in one line."""
        return (
            self.manifest.get("title")
            or ", ".join(f"{name} {value}".strip() for name, value in self.settings)
            or "defaults"
        )

    @property
    def provenance(self) -> list[tuple[str, str]]:
        """What the numbers may depend on, as pairs of a word and a value."""
        told = {
            "started": "start",
            "seconds": "seconds",
            "Python": "python",
            "machine": "machine",
            "threads": "threads",
            "commit": "commit",
            "changed since the commit": "dirty",
        }
        pairs = [(word, format_value(self.manifest.get(key))) for word, key in told.items()]
        versions = self.manifest.get(PACKAGES, {})
        pairs.append(("packages", ", ".join(f"{name} {v}" for name, v in versions.items() if v)))
        config = self.manifest.get("config", {})
        pairs += [
            (word, format_value(config[key])) for key, word in _FIXED.items() if key in config
        ]
        return [("folder", self.folder.as_posix()), *pairs]


_FIXED = {"seeds": "seeds", "seed": "seed", "device": "device"}


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`--flag value` pairs; a flag without a value is said as yes or no."""
    for at, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name = word[2:].replace("-", " ")
        following = words[at + 1] if at + 1 < len(words) else "--"
        if not following.startswith("--"):
            yield name, ", ".join(split_list(following))
        else:
            yield (name.removeprefix("no "), "no") if name.startswith("no ") else (name, "yes")


def find_runs(paths: Sequence[Path]) -> list[Shown]:
    """The finished runs in `paths`, each a run's folder or a folder of results.

    Raises:
        InputError: a path holds no finished run.
    """
    runs: list[Shown] = []
    for path in paths:
        found = list(_runs_in(path))
        if not found:
            raise InputError(f"no finished run in {path}; give a run's folder or a results folder")
        runs += found
    return list({run.folder.resolve(): run for run in runs}.values())


def _runs_in(path: Path) -> Iterator[Shown]:
    own = read_manifest(path)
    folders = [(path, own)] if own is not None else store.finished(path)
    for folder, manifest in folders:
        run = Shown(folder, manifest)
        wrong = _what_is_wrong(run)
        if wrong:
            say(f"left out: {folder}: {wrong}")
        else:
            yield run


def _what_is_wrong(run: Shown) -> str:
    """Why a run cannot be shown; empty if it can."""
    try:
        return "" if run.tables and run.label else "it has no table with rows"
    except (DamagedError, ValueError) as error:
        return " ".join(str(error).split())
