"""Figures from tables to files: drawn in one style, encoded and written in one
place.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropelab.runs.errors import InputError, known
from ropelab.runs.folders import check_own, record_files, replace_file, try_to_write

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
    formats = []
    for part in text.split(","):
        name = part.strip().lower()
        if name:
            formats.append(known("figure format", name, FORMATS))
    if not formats:
        raise InputError(
            f"no figure format given; the formats are {', '.join(FORMATS)}"
        )
    # One that is given twice is written once.
    return tuple(dict.fromkeys(formats))


def load_matplotlib() -> None:
    """Import the library that draws; InputError where a file of the user's stops it."""
    try:
        import_module("matplotlib")
    except UnicodeDecodeError:
        raise InputError(
            "matplotlib cannot be imported: it reads a matplotlibrc, here or in your"
            " home, that is not UTF-8; rename that file, or use --no-figures"
        ) from None


def find_draw(experiment: str) -> "Draw":
    """Return the function that draws an experiment's tables; ImportError if there is
    none.
    """
    name = SAME.get(experiment, experiment).replace("-", "_")
    return import_module(f"ropelab.show.figures.{name}").draw


def draw_figures(
    draw: "Draw", tables: "Tables", style: str = "screen"
) -> "dict[str, Figure]":
    """Draw the figures of some tables, with titles that fit, for a screen or a printed
    column.
    """
    load_matplotlib()
    from ropelab.show.figures.style import fit_paper, fit_titles, use_style

    with use_style():
        figures = draw(tables)
        for figure in figures.values():
            if style == "paper":
                fit_paper(figure)
            else:
                fit_titles(figure)
    return figures


def encode_figures(
    figures: "Mapping[str, Figure]",
    formats: Sequence[str] = ("png",),
    style: str = "screen",
    letters: bool = False,
) -> dict[str, bytes]:
    """Encode figures; in the style of a paper a file is called
    `<figure>-paper.<format>`.

    Args:
        figures: by name.
        formats: of `FORMATS`.
        style: of `STYLES`.
        letters: keep letters as text in SVG, which needs the font where it is shown.
    """
    from matplotlib import rc_context

    from ropelab.show.figures.style import use_style

    dpi = DOTS_PER_INCH[style]
    ending = "" if style == "screen" else f"-{style}"
    settings: dict[Any, Any] = {
        "pdf.fonttype": 42,  # fonts as TrueType, which can be searched
        "svg.fonttype": "none" if letters else "path",
    }
    files = {}
    for name, figure in figures.items():
        find_room(figure, dpi)
        settings["svg.hashsalt"] = f"{name}{ending}"
        for kind in formats:
            with use_style(), rc_context(settings):
                files[f"{name}{ending}.{kind}"] = _encode_figure(figure, kind, dpi)
    return files


def find_room(figure: "Figure", dpi: int) -> None:
    """Find room for labels once, and leave out numbers below the axes that would touch.

    `savefig` would find the room twice more, and draw once in vain.
    """
    from ropelab.show.figures.style import thin_ticks, use_style

    figure.set_dpi(dpi)
    engine = figure.get_layout_engine()
    if figure.axes and engine:
        with use_style():
            engine.execute(figure)
            thin_ticks(figure)
        figure.set_layout_engine("none")


def _encode_figure(figure: "Figure", kind: str, dpi: int) -> bytes:
    from matplotlib.backend_bases import get_registered_canvas_class

    canvas = get_registered_canvas_class(kind)(figure)
    # The canvas of SVG leaves its own behind.
    figure.set_dpi(dpi)
    # In memory first: the writer of PDF hides a full disk behind an error of its own.
    content = BytesIO()
    write = getattr(canvas, f"print_{kind}")
    write(content, metadata=DATELESS[kind])
    return content.getvalue()


def check_place(path: Path, mark: str = "") -> None:
    """Raise InputError where a file of ours cannot be written, before it is made.

    `mark` is as for `write`.
    """
    check_own(path, mark)
    if path.is_dir():
        raise InputError(f"cannot write {path}: Is a directory")
    try:
        try_to_write(path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write {path}: {reason}") from None


def write(files: Mapping[str, bytes], folder: Path, mark: str = "") -> list[Path]:
    """Write files into a folder of the user's; InputError where one would replace a
    file that ropelab did not write.

    `mark` is a text that all files of this kind have; without one the folder keeps a
    record of them.
    """
    for name in files:
        check_own(folder / name, mark)
    if mark:
        return write_own(files, folder)
    with record_files(folder, files):
        return write_own(files, folder)


def write_own(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write encoded files into a folder of ours, each whole or not at all; InputError
    if one cannot be.
    """
    paths = []
    for name, content in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as fresh:
                fresh.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None
        paths.append(path)
    return paths
