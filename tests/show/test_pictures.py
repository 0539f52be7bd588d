"""A figure inside the page is the figure on disk, pixel by pixel, as wide as the page
shows it.
"""

import base64
import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from ropelab.show.looks import PALETTE
from ropelab.show.page.report import WIDTH, embed_png


def drawn(path: Path, inches: float) -> Path:
    figure = Figure(figsize=(inches, 3))
    axes = figure.subplots()
    x = np.linspace(0, 1, 50)
    for power, color in enumerate(PALETTE, 1):
        axes.plot(x**power, color=color, label=f"power {power}")
        # As pale as the interval bands of the figures.
        axes.fill_between(
            np.arange(50), x**power - 0.1, x**power + 0.1, color=color, alpha=0.15
        )
    axes.legend(title="a title")
    figure.savefig(path, dpi=150)
    return path


def shown(path: Path) -> Image.Image:
    kind, _, data = embed_png(path.read_bytes()).partition(",")
    assert kind == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def test_no_pixel_is_lost(tmp_path: Path) -> None:
    path = drawn(tmp_path / "figure.png", 5)
    pixels = np.array(Image.open(path).convert("RGB"))
    np.testing.assert_array_equal(np.array(shown(path)), pixels)


def test_a_wide_figure_is_made_as_wide_as_the_page_shows_it_and_keeps_its_pale_bands(
    tmp_path: Path,
) -> None:
    figure = Figure(figsize=(12, 3))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axhspan(0.25, 0.75, color=PALETTE[0], alpha=0.15, linewidth=0)
    axes.set(ylim=(0, 1), xticks=[], yticks=[])
    figure.savefig(tmp_path / "band.png", dpi=150)
    picture = shown(tmp_path / "band.png")
    assert picture.size == (WIDTH, round(450 * WIDTH / 1800))
    middle, above = (picture.getpixel((400, y)) for y in (100, 25))
    # 0.15 of #0072B2 on white.
    assert (middle, above) == ((217, 234, 243), (255, 255, 255))
