"""A figure inside the page is the figure on disk, narrower and in few colours."""

import base64
import io

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from ropelab.show.page.report import COLORS, WIDTH, embedded


def drawn(path, inches):
    figure = Figure(figsize=(inches, 3))
    axes = figure.subplots()
    for power in range(1, 5):
        axes.plot(np.linspace(0, 1, 50) ** power, label=f"power {power}")
    axes.legend(title="a title")
    figure.savefig(path, dpi=150)
    return path


def shown(address):
    kind, _, data = address.partition(",")
    assert kind == "data:image/webp;base64"
    return base64.b64decode(data)


def test_no_pixel_is_lost_beside_colours_and_it_is_smaller_than_a_png(tmp_path):
    path = drawn(tmp_path / "figure.png", 5)
    found = shown(embedded(path.read_bytes(), path))
    few = Image.open(path).convert("RGB").quantize(COLORS, Image.Quantize.FASTOCTREE)
    pixels = np.array(Image.open(io.BytesIO(found)).convert("RGB"))
    np.testing.assert_array_equal(pixels, np.array(few.convert("RGB")))
    png = io.BytesIO()
    few.save(png, format="PNG", optimize=True)
    assert len(found) < len(png.getvalue()) < path.stat().st_size


def test_a_wide_figure_is_made_as_wide_as_the_page_shows_it(tmp_path):
    path = drawn(tmp_path / "figure.png", 12)
    found = shown(embedded(path.read_bytes(), path))
    assert Image.open(io.BytesIO(found)).size == (WIDTH, round(450 * WIDTH / 1800))
