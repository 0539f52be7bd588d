"""`index.html`: all finished runs on one page that needs no server and no network."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from ropelab.runs import store
from ropelab.runs.cell import Progress, silent
from ropelab.runs.errors import say
from ropelab.runs.stats import CONFIDENCE, student_quantile
from ropelab.show.drawn import as_files, draw_of, finished
from ropelab.show.figures.style import take_title
from ropelab.show.looks import looks_for_script
from ropelab.show.page import joins, shown
from ropelab.show.page.document import write_page
from ropelab.show.page.shown import Shown
from ropelab.show.page.views import for_script

SCRIPTS = [
    f"{name}.js"
    for name in ["common", "series", "plot", "table", "explorer", "compare", "report"]
]
# Degrees of freedom for which the script has Student's quantiles: seeds are fewer.
QUANTILES = 60
# Where the figures' own font is not installed, one as wide.
FONT, FONTS = "'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif"
# Pixels across that the page shows of a picture.
WIDTH = 800


class Picture(NamedTuple):
    """A figure: its title, empty if it is in the picture, and an SVG or an address."""

    name: str
    title: str
    content: str


def write_report(
    runs: Sequence[Shown],
    path: Path,
    title: str = "Results",
    draw: bool = True,
    progress: Progress = silent,
) -> Path:
    """Write the page of these runs, whole or not at all; without `draw` only stored
    figures.
    """
    # By the distance from the defaults: the plain run of an experiment comes first.
    ordered = sorted(
        runs,
        key=lambda run: (
            run.manifest["experiment"],
            len(run.settings),
            len(run.label),
            run.label,
        ),
    )
    questions: dict[str, list[Shown]] = {}
    for run in ordered:
        questions.setdefault(run.manifest["question"], []).append(run)
    figures = [path for run in ordered for path in _paths(run)]
    missing = sum(not path.is_file() for path in figures)
    if missing and not draw:
        say(f"left out: {missing} figures that are not stored")
    pictures: dict[str, list[Picture]] = {}
    about = f"drawing {len(figures)} figures for the page"
    with progress(about, len(ordered)) as advance:
        for run in ordered:
            pictures[run.key] = _pictures(run, draw)
            advance()
    drawings = {
        f"{key}-{one.name}": one.content
        for key, many in pictures.items()
        for one in many
    }
    data = [
        {
            "key": run.key,
            "experiment": run.manifest["experiment"],
            "label": run.label,
            "tables": [for_script(name, table) for name, table in run.tables.items()],
            "opens": next((name for name in joins.OPENS if name in run.tables), None),
        }
        for run in ordered
    ]
    degrees = range(1, QUANTILES + 1)
    quantiles = [student_quantile((1 + CONFIDENCE) / 2, degree) for degree in degrees]
    return write_page(
        path,
        "report.html.j2",
        SCRIPTS,
        title=title,
        questions=questions,
        runs=ordered,
        disagreements=joins.disagreements(ordered),
        ledger=joins.ledger_of(ordered),
        pictures=pictures,
        numbers={run.key: joins.headline_of(run) for run in ordered},
        joins=joins,
        shown=shown,
        newest=shown.day(max(str(run.manifest.get("start", "")) for run in ordered)),
        data={"runs": data, "pictures": drawings},
        drawing={"looks": looks_for_script(), "quantiles": quantiles},
    )


def _paths(run: Shown) -> list[Path]:
    return [run.folder / figure for figure in run.manifest.get("figures") or ()]


def _pictures(run: Shown, draw: bool) -> list[Picture]:
    """Return a run's figures: drawn from its tables without their titles, else those
    stored.
    """
    stored, found = _paths(run), []
    if draw and stored:
        try:
            figures = finished(draw_of(run.manifest["experiment"]), run.stored)
            titles = [take_title(figure) for figure in figures.values()]
            # Letters stay letters: a picture of lines is a tenth of one of pixels, and
            # sharp.
            files = as_files(figures, ["svg"], letters=True).values()
            return [
                Picture(name, title, svg.decode().replace(FONT, FONTS))
                for name, title, svg in zip(figures, titles, files, strict=True)
            ]
        # An experiment that this version does not have, or tables of an earlier version
        # of one.
        except (
            ImportError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            say(
                f"left out: figures of {run.folder}: cannot be drawn from its tables"
                f" ({error})"
            )
    for path in stored:
        try:
            found.append(Picture(path.stem, "", embedded(store.read_png(path))))
        except FileNotFoundError:
            continue
        except OSError as error:
            say(f"left out: {path}: {error.strerror}")
    return found


def embedded(content: bytes) -> str:
    """Return a PNG as a data address, lossless but as narrow as the page shows it."""
    with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
        plain = picture.convert("RGB")
    if plain.width > WIDTH:
        height = round(plain.height * WIDTH / plain.width)
        plain = plain.resize((WIDTH, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    # In few colours a picture would be a quarter as large, but without its pale bands.
    plain.save(buffer, format="WEBP", lossless=True)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
