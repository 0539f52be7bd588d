"""`index.html`: all finished runs on one page that needs no server and no network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from ropelab.runs.stats import CONFIDENCE
from ropelab.show.looks import LOOKS, PALETTE
from ropelab.show.page.columns import for_script
from ropelab.show.page.disagreements import disagreements
from ropelab.show.page.document import write_page
from ropelab.show.page.ledger import ledger_of, notes_of
from ropelab.show.page.pictures import embedded
from ropelab.show.page.shown import Shown

SCRIPTS = (
    "common.js",
    "series.js",
    "plot.js",
    "table.js",
    "explorer.js",
    "compare.js",
    "report.js",
)
QUANTILES = 60


def write_report(runs: Sequence[Shown], path: Path, title: str = "Results") -> Path:
    """Write the page of these runs, whole or not at all, and say where it is."""
    ordered = sorted(runs, key=_by_distance_from_the_defaults)
    ledger = ledger_of(ordered)
    return write_page(
        path,
        "report.html.j2",
        SCRIPTS,
        title=title,
        questions=_by_question(ordered),
        runs=ordered,
        disagreements=disagreements(ordered),
        ledger=ledger,
        notes=notes_of(ledger[0]) if ledger else [],
        pictures=_pictures,
        data={"runs": [_data(run) for run in ordered], **drawing()},
    )


def _by_distance_from_the_defaults(run: Shown) -> tuple[str, int, int, str]:
    return run.manifest["experiment"], len(run.settings), len(run.label), run.label


def drawing() -> dict[str, Any]:
    """What the script needs to draw as the figures are drawn, and to make intervals."""
    looks = {
        name: [PALETTE.index(look.color), look.marker, look.line] for name, look in LOOKS.items()
    }
    degrees = range(1, QUANTILES + 1)
    quantiles = [float(stats.t.ppf((1 + CONFIDENCE) / 2, degree)) for degree in degrees]
    return {"looks": looks, "quantiles": quantiles}


def _by_question(runs: Sequence[Shown]) -> dict[str, list[Shown]]:
    """Every question with the runs that answer it, the oldest question first."""
    groups: dict[str, list[Shown]] = {}
    for run in runs:
        groups.setdefault(run.manifest["question"], []).append(run)
    return groups


def _data(run: Shown) -> dict[str, Any]:
    return {
        "key": run.key,
        "experiment": run.manifest["experiment"],
        "label": run.label,
        "tables": [for_script(name, table) for name, table in run.tables.items()],
    }


def _pictures(run: Shown) -> list[tuple[str, str]]:
    """The run's figures that are there: a name and the picture."""
    paths = (run.folder / figure for figure in run.manifest.get("figures") or ())
    found = ((path.stem.replace("_", " "), embedded(path)) for path in paths)
    return [(name, picture) for name, picture in found if picture]
