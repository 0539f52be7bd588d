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
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import tomli_w

from ropelab.config import Config, Label
from ropelab.context import Stored
from ropelab.errors import InputError
from ropelab.folders import fingerprint, replaced
from ropelab.tables import Tables, read_tables, sha256_of, unit_of, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1
DOTS_PER_INCH = 150
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
        """Where this run is, or else belongs."""
        config = self.config.model_dump(mode="json")
        code = fingerprint({"experiment": self.experiment, "config": config})[:8]
        runs = results / self.experiment
        there = sorted(path for path in runs.glob(f"*-{code}") if not path.name.startswith("."))
        name = _readable(self.label.name) or _slug(self.config.changed())
        return there[0] if there else runs / f"{name}-{code}"

    def facts(self) -> dict[str, Any]:
        """The part of the manifest that must agree for a run to be reused."""
        return {
            "schema": SCHEMA,
            "experiment": self.experiment,
            "version": self.version,
            "config": self.config.model_dump(mode="json"),
            "inputs": dict(self.inputs),
        }


def _slug(changed: Mapping[str, Any], longest: int = 48) -> str:
    """A readable name for a config: `base-500000_head-dim-128`; `default` if nothing differs."""
    parts = (f"{name}-{_plain(value)}" for name, value in changed.items())
    return _readable("_.".join(parts), longest) or "default"


def _readable(text: str, longest: int = 48) -> str:
    """The part of a text that a folder's name can hold everywhere."""
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
    probe = results / f".writable-{os.getpid()}"
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
    figures: "Mapping[str, Figure] | None",
    about: Mapping[str, Any],
) -> None:
    """Write a run, whole or not at all. The caller holds the folder's lock.

    Args:
        figures: None where nobody asked for them; `add_figures` can put them in later.
        about: further manifest entries: question, answer, summary, command, start, seconds,
            measurements.
    """
    with replaced(folder) as fresh:
        write_tables(tables, fresh / "tables")
        (fresh / "config.toml").write_text(to_toml(identity), encoding="utf-8")
        numbers = json.dumps(metrics_of(about["summary"]), indent=2, ensure_ascii=False)
        (fresh / "metrics.json").write_text(numbers + "\n", encoding="utf-8")
        manifest = {
            **identity.facts(),
            **about,
            **surroundings(),
            "tables": _describe_tables(tables, fresh / "tables"),
            "figures": None if figures is None else _save_figures(figures, fresh),
        }
        _write_manifest(fresh, manifest)


def add_figures(folder: Path, figures: "Mapping[str, Figure]") -> None:
    """Put figures into a finished run, in the place of those it has, whole or not at all."""
    manifest = read_manifest(folder)
    assert manifest is not None
    with replaced(folder) as fresh:
        shutil.copytree(folder, fresh, dirs_exist_ok=True, ignore=shutil.ignore_patterns("figures"))
        _write_manifest(fresh, {**manifest, "figures": _save_figures(figures, fresh)})


def _save_figures(figures: "Mapping[str, Figure]", folder: Path) -> list[str]:
    """Write figures as PNG without a date, so that the same figure is the same file."""
    from matplotlib import pyplot as plt

    (folder / "figures").mkdir()
    names = {f"figures/{name}.png": figure for name, figure in figures.items()}
    for name, figure in names.items():
        _lay_out(figure)
        figure.savefig(folder / name, dpi=DOTS_PER_INCH, metadata={"Software": None})
        plt.close(figure)
    return list(names)


def _lay_out(figure: "Figure") -> None:
    """Find room for labels once, at the resolution of the file; saving would do it twice more."""
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.set_dpi(DOTS_PER_INCH)
        engine.execute(figure)
        figure.set_layout_engine("none")


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / "manifest.json").write_text(text + "\n", encoding="utf-8")


def metrics_of(summary: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The short table as flat numbers for experiment trackers: `yarn ×4/copy @4096`.

    A row is named by its words before its first number, or by its first column where that is a
    number. What is missing or infinite has no entry.

    >>> metrics_of([{"method": "pi", "loss": 1.5}, {"method": "yarn", "loss": None}])
    {'pi/loss': 1.5}
    """
    found: dict[str, float] = {}
    for row in summary:
        name = "/".join(takewhile(lambda value: isinstance(value, str), row.values()))
        first, value = next(iter(row.items()))
        named = name or f"{first}={value}"
        numbers = {key: number for key, number in row.items() if _is_number(number)}
        found |= {
            f"{named}/{key}": number for key, number in numbers.items() if name or key != first
        }
    return found


def _is_number(value: object) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and math.isfinite(value)  # type: ignore[arg-type]


def to_toml(identity: Identity) -> str:
    """The resolved config as a file that `--config` reads."""
    values = identity.config.model_dump(mode="json", exclude_none=True)
    return tomli_w.dumps({"experiment": identity.experiment, **values})


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a finished run, None where there is none that can be read."""
    try:
        return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def find(folder: Path, identity: Identity) -> dict[str, Any] | None:
    """The manifest of a finished run that still answers `identity`, None where there is none."""
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    same = all(manifest.get(key) == value for key, value in identity.facts().items())
    return manifest if same and _undamaged(folder, manifest) else None


def _undamaged(folder: Path, manifest: Mapping[str, Any]) -> bool:
    paths = {
        folder / "tables" / f"{name}.csv": t["sha256"] for name, t in manifest["tables"].items()
    }
    return all(path.exists() and sha256_of(path) == code for path, code in paths.items())


def stored_runs(results: Path, experiment: str, version: int) -> list[Stored]:
    """All finished runs of an experiment below `results`, by folder name.

    Runs of another version of the experiment are left out: their numbers mean something else.
    """
    return [
        Stored(experiment, manifest["config"], read_tables(folder / "tables"), str(folder))
        for folder, manifest in finished(results)
        if (manifest["experiment"], manifest["version"]) == (experiment, version)
    ]


def finished(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every finished run below `results`: its folder and its manifest."""
    for path in sorted(results.glob("*/*/manifest.json")):
        manifest = read_manifest(path.parent)
        if manifest is not None and not path.parent.name.startswith("."):
            yield path.parent, manifest


def _describe_tables(tables: Tables, folder: Path) -> dict[str, Any]:
    return {
        name: {
            "rows": len(table),
            "columns": {str(column): unit_of(str(column)) for column in table.columns},
            "sha256": sha256_of(folder / f"{name}.csv"),
        }
        for name, table in tables.items()
    }


def surroundings() -> dict[str, Any]:
    """What else the numbers may depend on: versions, machine, threads, the code's commit.

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
    """The commit of the checkout that holds this package, and whether it was changed since."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        changes = subprocess.run(
            [*git, "status", "--porcelain", "--", "."], capture_output=True, text=True
        )
    except OSError:
        return {"commit": None, "dirty": None}
    if commit.returncode:
        return {"commit": None, "dirty": None}
    return {"commit": commit.stdout.strip(), "dirty": bool(changes.stdout.strip())}


def to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON: a missing value is null, an infinite one the text `inf` or `-inf`."""
    plain = table.astype(object).where(table.notna(), None)
    plain = plain.replace({math.inf: "inf", -math.inf: "-inf"})
    return plain.to_dict(orient="records")  # type: ignore[return-value]


def command_of(identity: Identity) -> str:
    """What to type to make this run again."""
    flags = []
    for name, value in identity.config.changed().items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            flags.append(f"--{flag} {_quoted(text)}")
    return " ".join(["ropelab", identity.experiment, *flags])


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w.,=+/@:-]+", text) else f"'{text}'"
