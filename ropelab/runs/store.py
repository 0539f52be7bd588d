"""Run directories: results/<experiment>/<name>/{manifest.json, config.toml, tables/, figures/}.

The name follows from the config alone, so the same config is always found at the same place. The
manifest says what made the numbers; a run whose manifest does not fit any more (another version of
the experiment, another corpus, a damaged table) is not reused.
"""

import json
import math
import os
import platform
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd
import tomli_w

from ropelab.runs.cell import Stored
from ropelab.runs.config import Config, Label
from ropelab.runs.errors import InputError
from ropelab.runs.files import read_regular
from ropelab.runs.folders import fingerprint, replaced
from ropelab.runs.manifest import read_manifest, write_manifest
from ropelab.runs.notices import say_once
from ropelab.runs.tables import DamagedError, Tables, read_tables, unit_of, write_tables

SCHEMA = 1
PACKAGES = ("ropelab", "torch", "numpy", "pandas", "scipy", "matplotlib")


@dataclass(frozen=True)
class Identity:
    """Everything that the tables of a run follow from.

    The hash of the folder's name is all that tells runs apart: the same config is found again under
    whatever name it was first run.

    Attributes:
        label: names the folder; without a name it is called after what differs from the defaults.
    """

    experiment: str
    version: int
    config: Config
    inputs: Mapping[str, str]
    label: Label

    def folder(self, results: Path) -> Path:
        """Return the folder of this run, which need not exist."""
        config = self.config.model_dump(mode="json")
        code = fingerprint({"experiment": self.experiment, "config": config})[:8]
        runs = results / self.experiment
        there = sorted(path for path in runs.glob(f"*-{code}") if not path.name.startswith("."))
        if there:
            return there[0]
        changed = (f"{name}-{_plain(value)}" for name, value in self.config.changed().items())
        name = _readable(self.label.name) or _readable("_.".join(changed)) or "default"
        return runs / f"{name}-{code}"

    def facts(self) -> dict[str, Any]:
        """Return the part of the manifest that must agree for a run to be reused."""
        return {
            "schema": SCHEMA,
            "experiment": self.experiment,
            "version": self.version,
            "config": self.config.model_dump(mode="json"),
            "inputs": dict(self.inputs),
        }


def _readable(text: str, longest: int = 48) -> str:
    """Keep the part of a text that a folder's name can hold everywhere."""
    plain = re.sub(r"[^A-Za-z0-9.+]+", "-", text).replace("-.", "_")
    return plain[:longest].strip("-_.")


def _plain(value: object) -> str:
    if isinstance(value, list):
        return "+".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def check_writable(results: Path) -> None:
    """Refuse a results folder that cannot be written before anything is computed.

    Raises:
        InputError: it is not a folder, or this user may not write there.
    """
    probe = results / f".writable-{secrets.token_hex(8)}"
    try:
        results.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"cannot write to the results folder {results}: {reason}; choose another --results"
        ) from None


def save(
    folder: Path,
    identity: Identity,
    tables: Tables,
    figures: Mapping[str, bytes] | None,
    about: Mapping[str, Any],
) -> None:
    """Write a run, whole or not at all. The caller holds the folder's lock.

    Args:
        figures: files by name; None where nobody asked for them, `add_figures` adds them later.
        about: further manifest entries: question, answer, summary, command, start, seconds,
            measurements.
    """
    with replaced(folder) as fresh:
        hashes = write_tables(tables, fresh / "tables")
        read_tables(fresh / "tables", hashes)
        (fresh / "config.toml").write_text(to_toml(identity), encoding="utf-8")
        numbers = json.dumps(metrics_of(about["summary"]), indent=2, ensure_ascii=False)
        (fresh / "metrics.json").write_text(numbers + "\n", encoding="utf-8")
        manifest = {
            **identity.facts(),
            **about,
            **surroundings(),
            "tables": {
                name: {
                    "rows": len(table),
                    "columns": {str(column): unit_of(str(column)) for column in table.columns},
                    "sha256": hashes[name],
                }
                for name, table in tables.items()
            },
            "figures": None if figures is None else _save_figures(figures, fresh),
        }
        write_manifest(fresh, manifest)


def add_figures(folder: Path, figures: Mapping[str, bytes]) -> None:
    """Put figures into a finished run, in the place of those it has, whole or not at all."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise DamagedError(f"{folder / 'manifest.json'} cannot be read any more")
    with replaced(folder) as fresh:
        for path in sorted(set(folder.rglob("*")) - set((folder / "figures").rglob("*"))):
            if path.is_file():
                copy = fresh / path.relative_to(folder)
                copy.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, copy)
        write_manifest(fresh, {**manifest, "figures": _save_figures(figures, fresh)})


def _save_figures(figures: Mapping[str, bytes], folder: Path) -> list[str]:
    (folder / "figures").mkdir()
    for name, content in figures.items():
        (folder / "figures" / name).write_bytes(content)
    return [f"figures/{name}" for name in figures]


def metrics_of(summary: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Flatten the short table into numbers for experiment trackers: `yarn ×4/copy @4096`.

    A row is named by its words before its first number, or by its first column where that is a
    number. What is missing or infinite has no entry.

    >>> metrics_of([{"method": "pi", "loss": 1.5}, {"method": "yarn", "loss": None}])
    {'pi/loss': 1.5}
    """
    found: dict[str, float] = {}
    for row in summary:
        name = "/".join(takewhile(lambda value: isinstance(value, str), row.values()))
        first, value = next(iter(row.items()))
        for key, number in row.items():
            plain = isinstance(number, int | float) and not isinstance(number, bool)
            if plain and math.isfinite(number) and (name or key != first):
                found[f"{name or f'{first}={value}'}/{key}"] = number
    return found


def to_toml(identity: Identity) -> str:
    """Write the resolved config as a file that `--config` reads."""
    values = identity.config.model_dump(mode="json", exclude_none=True)
    return tomli_w.dumps({"experiment": identity.experiment, **values})


def find(folder: Path, identity: Identity) -> tuple[dict[str, Any], dict[str, pd.DataFrame]] | None:
    """Return manifest and tables of a finished run that fits `identity`, None without one.

    Raises:
        DamagedError: there is one, but its tables are not as they were written.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    same = all(manifest.get(key) == value for key, value in identity.facts().items())
    return (manifest, tables_of(folder, manifest)) if same else None


def is_there(folder: Path, identity: Identity) -> bool:
    """Return True if there is a finished, undamaged run that fits `identity`."""
    try:
        return find(folder, identity) is not None
    except DamagedError:
        return False


def tables_of(folder: Path, manifest: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """Read the tables of a finished run, each checked against the manifest.

    Raises:
        DamagedError: one is gone, or is not what was written.
    """
    hashes = {name: table["sha256"] for name, table in manifest["tables"].items()}
    return read_tables(folder / "tables", hashes)


def has_whole_figures(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Return True if all figures of a run are whole; a PNG carries checksums of its own."""
    from PIL import Image

    for name in manifest["figures"]:
        try:
            with Image.open(BytesIO(read_regular(folder / name))) as picture:
                picture.verify()
        except (OSError, SyntaxError, ValueError):
            return False
    return True


def stored_runs(results: Path, experiment: str, version: int) -> list[Stored]:
    """Return all finished runs of an experiment below `results`, by folder name.

    Runs of another version of the experiment are left out: their numbers mean something else. So
    are, with a line that says so, those whose tables are damaged.
    """
    return [
        Stored(experiment, manifest["config"], tables, str(folder))
        for folder, manifest, tables in undamaged(results, {experiment})
        if manifest["version"] == version
    ]


def undamaged(
    results: Path, experiments: Container[str]
) -> Iterator[tuple[Path, dict[str, Any], dict[str, pd.DataFrame]]]:
    """Yield folder, manifest and tables of the finished runs of some experiments."""
    for folder, manifest in finished(results):
        if manifest["experiment"] in experiments:
            try:
                yield folder, manifest, tables_of(folder, manifest)
            except DamagedError as error:
                say_once(f"left out: {error}; the command in its manifest makes it again")


def finished(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield folder and manifest of every finished run below `results`."""
    for path in sorted(results.glob("*/*/manifest.json")):
        if path.parent.name.startswith("."):
            continue
        manifest = read_manifest(path.parent)
        if manifest is not None:
            yield path.parent, manifest


def surroundings() -> dict[str, Any]:
    """Return the rest that numbers may depend on: versions, machine, threads, the code's commit.

    Threads are those of torch; null where it was not used.
    """
    torch = sys.modules.get("torch")
    return {
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch and torch.get_num_threads(),
        **_commit(),
    }


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _commit() -> dict[str, Any]:
    """Find the commit of the checkout that tracks this file, and if it was changed since.

    An installed package may lie inside a checkout of something else, and the environment may name
    another repository (GIT_DIR): neither says where these lines come from.
    """
    here = Path(__file__)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    ask = partial(subprocess.run, cwd=here.parent, env=environment, capture_output=True, text=True)
    try:
        tracked = ask(["git", "ls-files", "--error-unmatch", "--", here.name])
        commit = ask(["git", "rev-parse", "HEAD"])
        changes = ask(["git", "status", "--porcelain", "--", "."])
    except OSError:
        return {"commit": None, "dirty": None}
    if tracked.returncode or commit.returncode:
        return {"commit": None, "dirty": None}
    return {"commit": commit.stdout.strip(), "dirty": bool(changes.stdout.strip())}


def to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows for JSON: a missing value is null, an infinite one the text `inf` or `-inf`."""
    plain = table.astype(object).where(table.notna(), None)
    plain = plain.replace({math.inf: "inf", -math.inf: "-inf"})
    return plain.to_dict(orient="records")  # type: ignore[return-value]


def command_of(identity: Identity) -> str:
    """Return the command that makes this run again, quoted for a shell."""
    words = ["ropelab", identity.experiment]
    for name, value in identity.config.changed().items():
        if name == identity.config.argument:
            words.append(str(value))
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{flag}", text]
    return shlex.join(words)
