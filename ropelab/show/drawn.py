"""Figures from tables to files: drawn in one style, encoded and written in one place."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropelab.runs.errors import InputError, known
from ropelab.runs.folders import replaced_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ropelab.runs.tables import Tables

    Draw = Callable[[Tables], dict[str, Figure]]

FORMATS = ("png", "pdf", "svg")
DOTS_PER_INCH = {"screen": 150, "paper": 600}
STYLES = tuple(DOTS_PER_INCH)
# Experiments with the figures of another one.
SAME = {"evaluate": "extrapolate"}
# Without dates and random names, so that the same figure is the same file.
DATELESS: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


def read_formats(text: str) -> tuple[str, ...]:
    """Read the names of formats in a text such as `png,pdf`."""
    names = [part.strip().lower() for part in text.split(",") if part.strip()]
    if not names:
        raise InputError(f"no figure format given; the formats are {', '.join(FORMATS)}")
    return tuple(dict.fromkeys(known("figure format", name, FORMATS) for name in names))


def draw_of(experiment: str) -> "Draw":
    """Return the function that draws an experiment's tables; ImportError if there is none."""
    name = SAME.get(experiment, experiment).replace("-", "_")
    return import_module(f"ropelab.show.figures.{name}").draw


def finished(draw: "Draw", tables: "Tables", style: str = "screen") -> "dict[str, Figure]":
    """Draw the figures of some tables, with titles that fit, for a screen or a printed column."""
    from ropelab.show.figures.style import fit_titles, for_paper, use_style

    with use_style():
        figures = draw(tables)
        for figure in figures.values():
            (for_paper if style == "paper" else fit_titles)(figure)
    return figures


def as_files(
    figures: "Mapping[str, Figure]", formats: Sequence[str] = ("png",), style: str = "screen"
) -> dict[str, bytes]:
    """Encode figures; in the style of a paper a file is called `<figure>-paper.<format>`."""
    from matplotlib import rc_context

    dpi, ending = DOTS_PER_INCH[style], "" if style == "screen" else f"-{style}"
    files = {}
    for name, figure in figures.items():
        # Find room for labels once, at the resolution of the file; saving would do it twice more.
        engine = figure.get_layout_engine()
        if engine is not None and figure.axes:
            figure.set_dpi(dpi)
            engine.execute(figure)
            figure.set_layout_engine("none")
        for kind in formats:
            # In memory first: the writer of PDF hides a full disk behind an error of its own.
            content = BytesIO()
            with rc_context({"svg.hashsalt": f"{name}{ending}", "pdf.fonttype": 42}):
                figure.savefig(content, format=kind, dpi=dpi, metadata=DATELESS[kind])
            files[f"{name}{ending}.{kind}"] = content.getvalue()
    return files


def write(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write encoded files into a folder, each whole or not at all; InputError if one cannot be."""
    for name, content in files.items():
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with replaced_file(folder / name) as fresh:
                fresh.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise InputError(f"cannot write {folder / name}: {error.strerror}") from None
    return [folder / name for name in files]
