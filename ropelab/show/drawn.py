"""Figures of a finished run in further formats, and in the style of a printed paper."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropelab.errors import InputError, unknown_name
from ropelab.runs.folders import replaced_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ropelab.lab import Run

FORMATS = ("png", "pdf", "svg")
STYLES = ("screen", "paper")
DOTS_PER_INCH = {"screen": 150, "paper": 600}
# Without dates and random names, so that the same figure is the same file.
DATELESS: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


def read_formats(text: str) -> tuple[str, ...]:
    """`png,pdf` as names of formats.

    Raises:
        InputError: a format that is not one of FORMATS.
    """
    names = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in FORMATS:
            raise unknown_name("figure format", name, FORMATS)
    if not names:
        raise InputError(f"no figure format given; the formats are {', '.join(FORMATS)}")
    return names


def check_style(name: str) -> str:
    """The style of that name; InputError with the nearest one if there is none."""
    if name not in STYLES:
        raise unknown_name("figure style", name, STYLES)
    return name


def is_default(formats: Sequence[str], style: str) -> bool:
    """Whether the figures asked for are those that every run has."""
    return tuple(formats) == ("png",) and style == "screen"


def write_figures(run: "Run", formats: Sequence[str], style: str) -> list[Path]:
    """Draw a stored run's figures again, in every format, beside those it has.

    Files in the style of a paper are called `<figure>-paper.<format>`.
    """
    assert run.folder is not None
    folder = run.folder / "figures"
    folder.mkdir(exist_ok=True)
    ending = "" if style == "screen" else f"-{style}"
    return [
        _write(figure, folder / f"{name}{ending}.{format_}", style)
        for name, figure in run.figures(style).items()
        for format_ in formats
    ]


def _write(figure: "Figure", path: Path, style: str) -> Path:
    from matplotlib import rc_context

    # In memory first: the writer of PDF hides a full disk behind an error of its own.
    kind, drawn = path.suffix[1:], BytesIO()
    with rc_context({"svg.hashsalt": path.stem, "pdf.fonttype": 42}):
        figure.savefig(drawn, format=kind, dpi=DOTS_PER_INCH[style], metadata=DATELESS[kind])
    with replaced_file(path) as fresh:
        fresh.write_bytes(drawn.getvalue())
    return path
