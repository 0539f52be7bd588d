"""`index.html`: all finished runs on one page that needs no server and no network."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from ropelab.runs.cell import Progress, silent
from ropelab.runs.errors import say
from ropelab.runs.pictures import read_png
from ropelab.runs.stats import CONFIDENCE
from ropelab.runs.student import student_quantile
from ropelab.show.captions import find_caption
from ropelab.show.drawn import draw_figures, encode_figures, find_draw
from ropelab.show.figures.style import list_small_panels, show_alone, take_title
from ropelab.show.looks import list_looks_for_script
from ropelab.show.page import joins, shown
from ropelab.show.page.document import write_page
from ropelab.show.page.shown import ShownRun
from ropelab.show.page.views import describe_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCRIPTS = (
    "common.js",
    "series.js",
    "plot.js",
    "table.js",
    "explorer.js",
    "compare.js",
    "report.js",
)
# The largest number of degrees of freedom for which the script has Student's quantile. No
# run has more seeds than this.
MOST_DEGREES_OF_FREEDOM = 60
# The font of figures, and the fonts that a browser may use. If the first one is not
# installed, the browser uses Verdana, whose letters have the same width.
FONT = "'DejaVu Sans'"
FONTS = "'DejaVu Sans', Verdana, sans-serif"
# The width of pictures on the page, in pixels.
WIDTH = 800
# The errors that may arise when tables of an earlier version, or of an experiment that
# does not exist any more, are drawn.
CANNOT_DRAW = (ImportError, AttributeError, LookupError, TypeError, ValueError)


class Picture(NamedTuple):
    """A figure, or one panel of a figure, on the page."""

    name: str
    # Empty if the title is in the picture itself.
    title: str
    # An SVG, or a data address with an image.
    content: str
    # The name of the whole figure.
    figure: str


def write_report(
    runs: Sequence[ShownRun],
    path: Path,
    title: str = "Results",
    draw: bool = True,
    progress: Progress = silent,
) -> Path:
    """Write the page of some runs, whole or not at all.

    If `draw` is True, figures are drawn from the tables. Otherwise the page has only
    stored figures.
    """
    numbers = {run.key: joins.find_headline(run) for run in runs}
    ordered = sorted(runs, key=lambda run: _rank(run, numbers[run.key] is not None))
    questions: dict[str, list[ShownRun]] = {}
    for run in ordered:
        questions.setdefault(run.manifest["question"], []).append(run)
    newest = max(str(run.manifest.get("start", "")) for run in ordered)
    pictures = _collect_pictures(ordered, draw, progress)

    return write_page(
        path,
        "report.html.j2",
        SCRIPTS,
        title=title,
        questions=questions,
        runs=ordered,
        disagreements=joins.find_disagreements(ordered),
        ledger=joins.find_ledger(ordered),
        pictures=pictures,
        numbers=numbers,
        joins=joins,
        find_caption=find_caption,
        shown=shown,
        newest=shown.write_day(newest),
        data={
            "runs": [_describe_run(run) for run in ordered],
            "pictures": _list_drawings(pictures),
        },
        drawing={"looks": list_looks_for_script(), "quantiles": _list_quantiles()},
    )


def _rank(run: ShownRun, has_number: bool) -> tuple[Any, ...]:
    """Return a rank by which runs are sorted: first by experiment.

    Of the runs of an experiment, runs that README or the findings quote come first, and
    runs without a headline number last. Otherwise runs are ordered by the number of
    settings that are not defaults.
    """
    experiment = run.manifest["experiment"]
    experiment_rank = len(joins.ORDER)
    if experiment in joins.ORDER:
        experiment_rank = joins.ORDER.index(experiment)
    return (
        experiment_rank,
        experiment,
        not joins.is_quoted(run),
        not has_number,
        len(run.settings),
        len(run.label),
        run.label,
    )


def _describe_run(run: ShownRun) -> dict[str, Any]:
    """Return a run with its tables as the script reads them."""
    first_shown = None
    for name in joins.OPENS:
        if name in run.tables:
            first_shown = name
            break
    return {
        "key": run.key,
        "experiment": run.manifest["experiment"],
        "label": run.label,
        "tables": [describe_table(name, table) for name, table in run.tables.items()],
        "opens": first_shown,
    }


def _list_drawings(pictures: Mapping[str, Sequence[Picture]]) -> dict[str, str]:
    drawings = {}
    for key, pictures_of_run in pictures.items():
        for picture in pictures_of_run:
            drawings[f"{key}-{picture.name}"] = picture.content
    return drawings


def _list_quantiles() -> list[float]:
    """Return Student's quantiles for 1, 2, 3 ... degrees of freedom."""
    probability = (1 + CONFIDENCE) / 2
    degrees = range(1, MOST_DEGREES_OF_FREEDOM + 1)
    return [student_quantile(probability, degree) for degree in degrees]


def _collect_pictures(
    runs: Sequence[ShownRun], draw: bool, progress: Progress
) -> dict[str, list[Picture]]:
    """Return the figures of each run by its key."""
    paths = [path for run in runs for path in _list_paths(run)]
    missing = sum(not path.is_file() for path in paths)
    if missing and not draw:
        say(f"left out: {missing} figures that are not stored")

    pictures = {}
    about = f"drawing {len(paths)} figures for the page"
    with progress(about, len(runs)) as advance:
        for run in runs:
            pictures_of_run = _draw_pictures(run) if draw else None
            if pictures_of_run is None:
                pictures_of_run = _read_pictures(run)
            pictures[run.key] = pictures_of_run
            advance()
    return pictures


def _list_paths(run: ShownRun) -> list[Path]:
    figures = run.manifest.get("figures") or ()
    return [run.folder / figure for figure in figures]


def _draw_pictures(run: ShownRun) -> list[Picture] | None:
    """Draw the figures of a run from its tables, without their titles.

    None: the run has no figures, or they cannot be drawn.
    """
    if not _list_paths(run):
        return None
    try:
        figures = draw_figures(find_draw(run.manifest["experiment"]), run.stored_tables)
        pictures = []
        for name, figure in figures.items():
            pictures += _draw_panels(name, figure)
    except CANNOT_DRAW as error:
        say(
            f"left out: figures of {run.folder}: cannot be drawn from its tables"
            f" ({error})"
        )
        return None
    return pictures


def _draw_panels(name: str, figure: "Figure") -> list[Picture]:
    """Return a figure as one picture. If its panels would be too small beside each other,
    return a picture of each panel.
    """
    title = take_title(figure)
    panels = list_small_panels(figure)
    if not panels:
        return [Picture(name, title, _encode_svg(name, figure), name)]

    pictures = []
    for number, panel in enumerate(panels):
        show_alone(panel, panels)
        title_of_panel = panel.get_title(loc="left") or panel.get_title()
        words_of_panel = " ".join(title_of_panel.split())
        if not words_of_panel:
            words_of_panel = panel.get_xlabel().replace("\n", " ")
        whole_title = ": ".join(filter(None, (title, words_of_panel)))

        # The first panel keeps the name of the figure, by which cards and links find it.
        name_of_panel = name
        if number > 0:
            name_of_panel = f"{name}-{number + 1}"
        svg = _encode_svg(name_of_panel, figure)
        pictures.append(Picture(name_of_panel, whole_title, svg, name))
    return pictures


def _encode_svg(name: str, figure: "Figure") -> str:
    # An SVG with letters as text has a tenth of the size of a PNG, and is sharp at any
    # size.
    (svg,) = encode_figures({name: figure}, ["svg"], letters=True).values()
    return svg.decode().replace(FONT, FONTS)


def _read_pictures(run: ShownRun) -> list[Picture]:
    """Read a run's stored figures. A figure that cannot be read is left out."""
    pictures = []
    for path in _list_paths(run):
        try:
            content = embed_png(read_png(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            say(f"left out: {path}: {error.strerror}")
            continue
        pictures.append(Picture(path.stem, "", content, path.stem))
    return pictures


def embed_png(content: bytes) -> str:
    """Return a PNG as a data address. The picture is made no wider than WIDTH, and then
    compressed without loss.
    """
    with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
        image = picture.convert("RGB")
    if image.width > WIDTH:
        height = round(image.height * WIDTH / image.width)
        image = image.resize((WIDTH, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    # The image keeps all its colours. With fewer colours it would take a quarter of the
    # bytes, but pale bands would vanish.
    image.save(buffer, format="WEBP", lossless=True)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
