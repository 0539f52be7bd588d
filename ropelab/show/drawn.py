"""Figures are drawn from tables in one style, encoded, and written to files.

matplotlib is imported when a figure is drawn, since many commands draw no figure.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from ropelab.runs.errors import InputError, check_known
from ropelab.runs.folders import (
    check_own,
    lock_users_folder,
    record_files,
    replace_file,
    try_to_write,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ropelab.runs.tables import Tables

    Draw = Callable[[Tables], dict[str, Figure]]

FORMATS = ("png", "pdf", "svg")
DOTS_PER_INCH = {"screen": 150, "paper": 600}
STYLES = tuple(DOTS_PER_INCH)
# The lock that is held while a figure is drawn. Settings and the parser of formulas in
# matplotlib belong to the whole process, and several threads may ask for runs.
DRAWING_LOCK = RLock()
# Experiments whose tables are drawn by the functions of another experiment.
DRAWN_AS = {"evaluate": "extrapolate"}
# The metadata of each format, without dates and names of programs, so that the same
# figure always gives the same file.
METADATA: dict[str, dict[str, Any]] = {
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
            formats.append(check_known("figure format", name, FORMATS))
    if not formats:
        raise InputError(
            f"no figure format given; the formats are {', '.join(FORMATS)}"
        )
    # A format that is given twice is written once.
    return tuple(dict.fromkeys(formats))


def load_matplotlib() -> None:
    """Import matplotlib; InputError if a file of the user stops the import."""
    try:
        import_module("matplotlib")
    except UnicodeDecodeError:
        raise InputError(
            "matplotlib cannot be imported: it reads a matplotlibrc, here or in your"
            " home, that is not UTF-8; rename that file, or use --no-figures"
        ) from None


def find_draw(experiment: str) -> "Draw":
    """Return the function that draws the tables of an experiment.

    ImportError: there is none for this experiment.
    """
    name = DRAWN_AS.get(experiment, experiment).replace("-", "_")
    return import_module(f"ropelab.show.figures.{name}").draw


def draw_figures(
    draw: "Draw", tables: "Tables", style: str = "screen"
) -> "dict[str, Figure]":
    """Draw the figures of some tables in a style, `screen` or `paper`. Titles are broken
    into lines that fit the width of the figure.
    """
    load_matplotlib()
    from ropelab.show.figures.style import fit_paper, fit_titles, use_style

    with DRAWING_LOCK, use_style():
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
    """Return the content of a file for each figure and format, by the name of the file.

    In the style of a paper a file is called `<figure>-paper.<format>`.

    Args:
        figures: the figures by name.
        formats: some of `FORMATS`.
        style: one of `STYLES`.
        letters: True keeps letters as text in SVG. The program that shows the figure then
            needs the font. False draws the letters as lines.
    """
    from matplotlib import rc_context

    from ropelab.show.figures.style import use_style

    dpi = DOTS_PER_INCH[style]
    ending = "" if style == "screen" else f"-{style}"
    settings: dict[Any, Any] = {
        # 42 is TrueType. Texts in these fonts can be searched in a PDF file.
        "pdf.fonttype": 42,
        "svg.fonttype": "none" if letters else "path",
    }
    files = {}
    for name, figure in figures.items():
        # The identifiers in an SVG are random unless they are made from a fixed text.
        settings["svg.hashsalt"] = f"{name}{ending}"
        with DRAWING_LOCK:
            fix_layout(figure, dpi)
            for file_format in formats:
                with use_style(), rc_context(settings):
                    content = _encode_figure(figure, file_format, dpi)
                files[f"{name}{ending}.{file_format}"] = content
    return files


def fix_layout(figure: "Figure", dpi: int) -> None:
    """Compute the layout of a figure once, place the names at the ends of its lines, and
    leave out numbers below the axes that would touch each other.

    matplotlib's `savefig` would otherwise compute the layout twice for each format, and
    draw the figure once in vain.
    """
    from ropelab.show.figures.names import place_line_ends
    from ropelab.show.figures.style import thin_ticks, use_style

    figure.set_dpi(dpi)
    engine = figure.get_layout_engine()
    if figure.axes and engine:
        with use_style():
            engine.execute(figure)
            for ax in figure.axes:
                place_line_ends(ax)
            thin_ticks(figure)
        figure.set_layout_engine("none")


def _encode_figure(figure: "Figure", file_format: str, dpi: int) -> bytes:
    from matplotlib.backend_bases import get_registered_canvas_class

    canvas = get_registered_canvas_class(file_format)(figure)
    # The canvas of SVG has set another resolution, which would be used for all later
    # formats.
    figure.set_dpi(dpi)
    # The file is made in memory. If the disk were full, matplotlib's writer of PDF would
    # raise an error that does not say so.
    content = BytesIO()
    print_figure = getattr(canvas, f"print_{file_format}")
    print_figure(content, metadata=METADATA[file_format])
    return content.getvalue()


def check_output_path(path: Path, mark: str = "") -> None:
    """Raise InputError if a file cannot be written, before its content is made.

    `mark` has the same meaning as in `write_for_user`.
    """
    check_own(path, mark)
    if path.is_dir():
        raise InputError(f"cannot write {path}: Is a directory")
    try:
        try_to_write(path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"cannot write {path}: {reason}") from None


def write_for_user(
    files: Mapping[str, bytes], folder: Path, mark: str = ""
) -> list[Path]:
    """Write files into a folder of the user; InputError if one of them would replace a
    file that ropelab did not write.

    `mark` is a text by which a file of ropelab is recognised: all files of this kind
    contain it. If it is empty, a record in the folder has the names of ropelab's files.
    """
    for name in files:
        check_own(folder / name, mark)
    if mark:
        return write_files(files, folder)

    try:
        with lock_users_folder(folder):
            # While this process waited for the lock, another one may have written files.
            for name in files:
                check_own(folder / name)
            with record_files(folder, files):
                return write_files(files, folder)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None


def write_files(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write files into a folder, each whole or not at all. They replace files of the same
    names, so this is for folders in which only ropelab has files.

    InputError: a file cannot be written.
    """
    paths = []
    for name, content in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as new_file:
                new_file.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None
        paths.append(path)
    return paths
