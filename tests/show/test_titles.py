"""Titles and labels say what is seen in their figures: counts, names, bars, signs."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from ropelab.runs.store import RUN
from ropelab.show import drawn
from ropelab.show.figures import shapes

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def read_reference(plan: str) -> tuple[str, dict[str, pd.DataFrame]]:
    """The experiment of a committed run and its tables."""
    (folder,) = REFERENCE.glob(f"*/{plan}-????????")
    manifest = json.loads((folder / "manifest.json").read_text())
    return manifest["experiment"], dict(RUN.tables(folder, manifest))


def draw(plan: str, **changes: pd.DataFrame) -> dict[str, Figure]:
    """The figures of a committed run, with some of its tables replaced."""
    experiment, tables = read_reference(plan)
    return drawn.draw_figures(drawn.find_draw(experiment), {**tables, **changes})


def find_title(figure: Figure) -> str:
    return figure.get_suptitle() or figure.axes[0].get_title(loc="left")


def list_rows(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


@pytest.fixture(scope="module", params=["encodings", "encodings-designs"])
def encodings(request):
    """Figures of trained encodings, whose titles count what tests show."""
    return draw(request.param)


def test_a_count_of_encodings_is_the_number_of_marked_rows(encodings):
    for name, figure in encodings.items():
        if not name.startswith("copy_heatmap"):
            continue
        count = re.match(r"(\d+) of", find_title(figure))
        assert count is not None
        marked = [row for row in list_rows(figure) if row.endswith(" *")]
        assert len(marked) == int(count[1])
        assert "* more than RoPE by a paired test" in figure.axes[0].get_xlabel()


def test_a_count_of_lines_is_the_number_of_marked_names(encodings):
    figure = encodings["loss_by_position"]
    count = re.search(r"(\d+) of", find_title(figure))
    assert count is not None
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert len([name for name in names if name.endswith(" *")]) == int(count[1])
    assert "bands: lowest to highest of 5 models" in legend.get_title().get_text()
    # The encoding that the others are compared with is drawn beside all of them.
    for ax in figure.axes:
        assert "RoPE" in [line.get_label() for line in ax.get_lines()]


def test_quality_is_a_sentence_with_a_verb_and_a_number(encodings):
    figure = encodings["cost_and_quality"]
    assert re.search(r"has a loss of \d\.\d, RoPE \d\.\d$", find_title(figure))
    assert "bars: 95 %, 5 models" in figure.axes[0].get_xlabel()


def test_a_panel_whose_rows_are_alike_is_left_out():
    labels = [
        ax.get_xlabel() for ax in draw("encodings-designs")["cost_and_quality"].axes
    ]
    assert not any("matrix products" in label for label in labels)


def test_a_number_has_a_real_minus_sign():
    cells = shapes.format_shares(pd.DataFrame([[-0.5, 0.5]]))
    assert cells.to_numpy().tolist() == [["−0.50", "0.50"]]
