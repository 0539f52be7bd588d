"""Figures that several threads draw at the same time."""

from concurrent.futures import ThreadPoolExecutor

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.drawn import draw_figures, encode_figures


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw figures with formulas, which matplotlib has one parser for."""
    figures = {}
    for number in range(2):
        figure = Figure(figsize=(2, 2))
        axes = figure.add_subplot()
        axes.plot(tables["points"]["x"])
        axes.set_title(rf"$10^{{-{number}}} \cdot \sqrt{{x_{number}}}$")
        axes.set_yscale("log")
        figures[str(number)] = figure
    return figures


def make_files(_: int) -> dict[str, bytes]:
    tables = {"points": pd.DataFrame({"x": [1.0, 1e4, 1e-4]})}
    return encode_figures(draw_figures(draw, tables), ["svg"])


@pytest.mark.slow
def test_threads_draw_what_one_draws_and_leave_the_settings() -> None:
    before = dict(mpl.rcParams)
    alone = make_files(0)
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(make_files, range(4)))
    assert together == [alone] * 4
    assert dict(mpl.rcParams) == before
