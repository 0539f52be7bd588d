"""The committed runs: found by their configs, read once, printed as texts print numbers."""

import json
from functools import cache
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"


@cache
def run(experiment: str, *wanted: tuple[str, object]) -> Path:
    """The one committed run whose config has these values.

    Raises:
        LookupError: there is none, or there are several.
    """
    found = [
        path.parent
        for path in sorted((REFERENCE / experiment).glob("*/manifest.json"))
        if config_of(path).items() >= dict(wanted).items()
    ]
    if len(found) != 1:
        raise LookupError(f"{len(found)} committed runs of {experiment} have {dict(wanted)}")
    return found[0]


@cache
def titled(experiment: str, title: str) -> Path:
    """The one committed run with that title.

    Raises:
        LookupError: there is none, or there are several.
    """
    manifests = sorted((REFERENCE / experiment).glob("*/manifest.json"))
    found = [m.parent for m in manifests if json.loads(m.read_text()).get("title") == title]
    if len(found) != 1:
        raise LookupError(f"{len(found)} committed runs of {experiment} are titled {title!r}")
    return found[0]


def config_of(manifest: Path) -> dict[str, object]:
    """The config of a run, lists as tuples."""
    config = json.loads(manifest.read_text())["config"]
    return {key: tuple(v) if isinstance(v, list) else v for key, v in config.items()}


@cache
def table(folder: Path, name: str) -> pd.DataFrame:
    """A table of a run."""
    return pd.read_csv(folder / "tables" / f"{name}.csv")


def scientific(value: float, digits: int = 2) -> str:
    """As in 6.54e7."""
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def only(rows: pd.DataFrame, column: str) -> float:
    """The value of a table's single row."""
    (value,) = rows[column]
    return value


@cache
def newest(experiment: str, name: str) -> Path:
    """Of the committed runs that have this table the one with most training seeds.

    Raises:
        LookupError: there is none.
    """
    runs = [path.parents[1] for path in (REFERENCE / experiment).glob(f"*/tables/{name}.csv")]
    if not runs:
        raise LookupError(f"no committed run of {experiment} has a table {name}")
    return max(sorted(runs), key=_seeds)


def _seeds(folder: Path) -> int:
    """How many training seeds a run has; a model that was given has none."""
    seeds = config_of(folder / "manifest.json").get("seeds", ())
    return len(seeds) if isinstance(seeds, tuple) else 0
