"""Titles and labels say what is seen in their figures: counts, names, bars, signs."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from ropelab.runs.store import RUN
from ropelab.show import drawn
from ropelab.show.figures import shapes

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def read_reference(plan: str) -> tuple[str, dict[str, pd.DataFrame]]:
    """The experiment of a committed run and its tables."""
    folder = min(
        path
        for path in REFERENCE.glob(f"[!.]*/{plan}-*")
        if path.name.rpartition("-")[0] == plan
    )
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


def test_a_baseline_that_is_best_is_not_compared_with_itself():
    figures = draw("encodings-whole-windows")
    # Every comparison is decided, so no bar or band is said to overlap.
    title = find_title(figures["cost_and_quality"])
    assert title == "At 4x the trained length none is shown better than RoPE"
    title = find_title(figures["loss_by_position"])
    assert title.endswith("no encoding is shown to have a lower loss than RoPE")


def test_a_panel_whose_rows_are_alike_is_left_out():
    figure = draw("encodings-whole-windows")["cost_and_quality"]
    labels = [ax.get_xlabel() for ax in figure.axes]
    assert not any("matrix products" in label for label in labels)


def test_a_number_has_a_real_minus_sign():
    cells = shapes.format_shares(pd.DataFrame([[-0.5, 0.5]]))
    assert cells.to_numpy().tolist() == [["−0.50", "0.50"]]


@pytest.fixture(scope="module")
def methods():
    """Figures of methods with five models."""
    return draw("extrapolate")


@pytest.fixture(scope="module")
def released():
    """Figures of methods with one released model, which tests hardly tell apart."""
    return draw("smollm2")


def list_names(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_methods_that_are_all_worse_than_a_window_are_said_to_be(methods):
    assert "every method has a higher loss" in find_title(methods["loss_by_position"])
    assert "Every method reads worse" in find_title(methods["loss_by_kind"])


def test_the_best_method_is_not_praised_where_a_window_is_better(methods):
    title = find_title(methods["tax_and_gain"])
    assert "yarn ×4 reads best of the methods, a sliding window better" in title
    # Which method costs least in short contexts is decided by their own comparisons.
    assert "at 2k dynamic_ntk costs least" in title
    assert "sliding_window" in list_names(methods["tax_and_gain"])


def test_a_title_that_names_no_best_method_has_its_reason_in_the_picture(released):
    figure = released["tax_and_gain"]
    assert "bars overlap" in find_title(figure)
    # A vertical and a horizontal bar for each of four methods.
    assert len(figure.axes[0].collections) == 8
    assert "bars: 95 %, one model" in figure.axes[0].get_xlabel()
    assert "5 of 7 bands reach 0" in find_title(released["loss_by_position"])


def test_gains_of_a_longer_context_are_counted_and_no_method_is_praised(released):
    title = find_title(released["loss_by_context"])
    assert "lowers the loss of 4 methods" in title
    assert "unscaled: +1.90" in title


def test_lines_under_each_other_are_named_together_at_their_end(methods, released):
    assert "ntk ×4 = dynamic_ntk" in list_names(methods["copy_by_distance_all"])
    assert "unmodified = unscaled" in list_names(released["loss_by_context"])


def test_bands_are_named_in_the_same_words(methods):
    label = "bands: lowest to highest of 5 models"
    (ax,) = methods["copy_by_distance"].axes
    assert label in ax.get_xlabel()
    # Every drawn distance has a number, and guessing a line.
    assert ax.get_xticks().tolist() == [256, 512, 1024, 1536, 2048, 3072, 4096, 6144]
    names = list_names(methods["copy_by_distance"])
    assert "guessing: 1.6%" in names
    assert "sliding_window of 2k" in names
    title = find_title(methods["copy_by_distance"])
    # One distance is meant, and where its questions stand says what a window holds.
    assert title.startswith("At 4k back in 8k tokens")
    assert (
        "asked for at the end, where sliding_window holds nearly 2k tokens"
        in ax.get_xlabel()
    )
    assert "best up to 1k back: sliding_window of 2k, 99%" in title
    assert "bands: 95 %, 5 models" in methods["loss_by_position"].axes[0].get_xlabel()
    assert "bars: 95 %, 5 models" in methods["loss_by_kind"].axes[0].get_xlabel()


@pytest.mark.parametrize("plan", ["extrapolate", "smollm2", "encodings", "precision"])
def test_no_label_ends_in_the_same_unit_twice(plan):
    for figure in draw(plan).values():
        for ax in figure.axes:
            for label in (ax.get_xlabel(), ax.get_ylabel()):
                assert "(tokens) (tokens)" not in label
                assert "end of bucket" not in label


@pytest.fixture(scope="module")
def precision():
    """Figures of roundings of RoPE."""
    return draw("precision")


def test_spreads_at_which_models_do_not_agree_are_neither_safe_nor_unsafe(precision):
    (ax,) = precision["score_spread"].axes
    assert "between: of two roundings one costs something" in list_names(
        precision["score_spread"]
    )
    # What the picture is about, what a point and a line are, and what has no line.
    label = ax.get_xlabel()
    assert "a point: mean from there to the next" in label
    assert "lines: what is rounded to bfloat16" in label
    assert "base 1e6, 64 rotated features of a head, positions 0 to 131,071" in label
    assert "inverse frequency has no line" in label
    assert "in float16 positions and angles overflow from 65,520 on" in label


def test_a_claim_about_all_pairs_is_not_made_where_a_score_differs(precision):
    title = find_title(precision["resolution"])
    assert re.search(
        r"In bfloat16 .* \d+\.\d% of neighbours alike,\nRoPE's pairs none", title
    )
    # The tiny shares of one score are written as what they are.
    cells = [text.get_text() for text in precision["resolution"].axes[0].texts]
    assert not any("e-" in cell for cell in cells)


def test_the_format_that_survives_is_named(precision):
    title = find_title(precision["angle_error"])
    assert title == "Only float32 keeps every angle error below 0.01 rad"


def test_a_shift_is_drawn_with_the_level_that_hurts(precision):
    ax = precision["score_drift"].axes[0]
    names = list_names(precision["score_drift"])
    assert "unsafe from here on" in names
    assert "all float16 (then overflows)" in names
    # A change that is only float64's rounding would take half of the axis.
    assert re.search(r"below the scale: inv_freq=bfloat16 \(\de−16\)", ax.get_xlabel())
    assert ax.get_ylim()[0] > 1e-9


def test_a_cost_of_casts_says_where_it_holds_and_what_spreads_do_not_predict():
    figure = draw("extrapolate-casts")["cost_of_casts"]
    assert "up to a score spread of 0.0052" in find_title(figure)
    (ax,) = figure.axes
    assert "score spread" in ax.get_ylabel()
    label = " ".join(ax.get_xlabel().split())
    assert "score spread at 2048 tokens; 1 is that of scores of random" in label
    assert "inv_freq: another rotation, whose cost its score spread does not" in label


@pytest.mark.parametrize("plan", ["spectrum", "spectrum-controls"])
def test_the_two_rows_that_a_title_compares_are_marked(plan):
    figures = draw(plan)
    figure = figures["one_or_many"]
    title = find_title(figure)
    assert title.endswith("(*)")
    marked = [row for row in list_rows(figure) if row.endswith(" *")]
    single, many = sorted(marked, key=lambda row: not row.startswith("1, "))
    assert single.startswith("1, period")
    assert f"{many.partition(',')[0]} " in title
    assert "bars: 95 %, 5 models" in figure.axes[0].get_xlabel()
    assert "* compared in the title" in figure.axes[0].get_xlabel()
    # The order is not the same at every distance, and the title hides none of them.
    overlap = "at 96 back bars overlap"
    assert (overlap in title) == (plan == "spectrum-controls")
    assert "more at 16" in title
    assert "2π to 1,000,000 tokens" in figure.axes[0].get_xlabel()
    for distance in (16, 64, 96):
        assert re.search(rf"\b{distance}\b", title)


@pytest.mark.parametrize("plan", ["spectrum", "spectrum-controls"])
def test_a_format_loses_what_lies_in_its_shade(plan):
    figure = draw(plan)["representable"]
    title = find_title(figure)
    (ax,) = figure.axes
    points, *lines = [np.asarray(line.get_xdata(), float) for line in ax.get_lines()]
    names = [name.removeprefix("lost in\n") for name in list_names(figure)]
    limits = {name: x[0] for name, x in zip(names, lines, strict=True)}
    rows = list_rows(figure)
    (slowest,) = [
        step for row, step in zip(rows, points, strict=True) if "1,000,000" in row
    ]
    lost = {name for name, limit in limits.items() if slowest < limit}
    assert {name for name in limits if name in title} == lost
    # Rows with one frequency, and one for comparison.
    assert [row for row in rows if not row.startswith("1, ")] == rows[-1:]


@pytest.fixture(scope="module")
def bases():
    """Figures of bases for many contexts."""
    return draw("base-published")


def test_a_printed_base_has_a_source_and_a_criterion(bases):
    (ax,) = bases["bound"].axes
    assert find_title(bases["bound"]).endswith(
        "printed by Men et al. fail inside their context"
    )
    assert "fails if its sum of cosines turns negative" in ax.get_xlabel()
    assert "for bases that fail in its last 5%\nor lie within 5%" in ax.get_xlabel()
    # Where those bases fail that hardly fail, and why a line is flat at its end.
    names = list_names(bases["bound"])
    shares = [name for name in names if name.endswith("%")]
    assert shares == ["99.6%", "84.5%", "98.4%", "97.5%"]
    assert any("8M and 16M" in name for name in names)
    (shade,) = ax.collections
    assert shade.get_label() == "some bases between hold, some fail"
    assert ax.get_ylabel() == "RoPE base (head size 128)"


def test_exponents_have_as_many_digits_in_the_legend_as_in_the_title(bases):
    legend = bases["growth"].axes[0].get_legend()
    assert legend is not None
    names = " ".join(text.get_text() for text in legend.get_texts())
    exponents = re.findall(r"L\^[\d.]+", find_title(bases["growth"]))
    assert len(exponents) == 2
    assert set(re.findall(r"L\^[\d.]+", names)) == set(exponents)


def test_theories_have_plain_names_or_authors(bases):
    rows = list_rows(bases["theories"])
    insider = ("T_extra", "1/eps", "2T/pi", "DC stability", "asymptote")
    assert not [row for row in rows if any(word in row for word in insider)]
    assert "limit for wide heads (Su 2024)" in rows
    assert any(
        "the sum of cosines stays" in name for name in list_names(bases["theories"])
    )


def test_bands_of_bases_are_explained_and_a_prediction_is_called_one():
    for figure in draw("base-empirical").values():
        assert "sum of cosines predicts" in find_title(figure)
        for ax in figure.axes:
            assert "bands: lowest to highest of 5 models" in ax.get_xlabel()
            assert not any("bound" in text.get_text() for text in ax.texts)


def test_a_prediction_that_fails_near_by_is_not_praised_for_the_far():
    figures = draw("base-empirical")
    recall, text = figures["retrieval_and_text"].axes
    title = find_title(figures["retrieval_and_text"])
    assert title.endswith("neither where recall ends\nnor that it fails near by")
    assert "trained at 256" in recall.get_xlabel()
    assert "base 10000: the sum does not turn negative" in recall.get_xlabel()
    marks = [text.get_text() for text in recall.texts]
    assert marks == [f"sum turns\nnegative:\nbase {base}" for base in (30, 300)]
    assert "at 256: tokens 128 to 256" in text.get_xlabel()
    assert "(base 30 begins better)" in text.get_title()


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        (
            ["kept"] * 2 + ["ramp"] + ["interpolated"] * 3,
            "keeps 2 fast pairs, stretches 3",
        ),
        (["kept"] * 4, "keeps all 4 pairs"),
        (["interpolated"] * 4, "stretches all 4 pairs by 4"),
        (["ramp"] * 4, "treats pairs unlike: 4 ramp"),
    ],
)
def test_a_method_is_said_to_keep_and_stretch_pairs(roles, said):
    experiment, tables = read_reference("freqs")
    pairs = tables["pairs"].iloc[: len(roles)].assign(role=roles)
    figures = drawn.draw_figures(
        drawn.find_draw(experiment), {**tables, "pairs": pairs}
    )
    assert said in find_title(figures["wavelengths"])


def test_figures_of_claims_have_a_minus_sign_and_count_what_is_marked():
    figures = draw("claims")
    headings = [ax.get_title() for ax in figures["rotation"].axes]
    assert all("score −0.60" in heading for heading in headings)
    example = figures["worked_example"]
    wrong = [text for text in list_names(example) if "must be" in text]
    assert find_title(example).startswith(f"{len(wrong)} of 20 cells")
    names = list_names(figures["sinusoid_shift"])
    assert {"phase\n+ωδ", "phase\n−ωδ"} <= set(names)
    words = figures["rotation"].get_supxlabel()
    assert words == "30° per token; the unrotated query and key are 37° apart"
    assert any("exact 0.9999500004\nmust be 1.0000" in text for text in wrong)
    assert "each position has a vector of its own" in example.axes[0].get_xlabel()
    assert "alike with one slow" in find_title(figures["resolution"])
    assert "positions 0 to 131,071" in figures["resolution"].axes[0].get_xlabel()
    titles = [ax.get_title() for ax in figures["sinusoid_sum"].axes]
    assert "slowest wave: 512 tokens" in titles[0]
    assert "slowest wave: 60,611 tokens" in titles[1]


def test_captions_are_of_figures_and_name_claims_and_their_numbers():
    from ropelab.claims import periods, sinusoids
    from ropelab.claims.ledger import find_claim
    from ropelab.models.lm.corpus import ALPHABET
    from ropelab.models.tasks import geometry
    from ropelab.show.captions import CAPTIONS
    from ropelab.show.looks import FIGURES

    words = FIGURES["claims"]
    captions = CAPTIONS["claims"]
    assert set(captions) == set(draw("claims")) - {"ledger", "decay"}
    for caption in captions.values():
        id_ = re.match(r"Claim ([\w-]+): ", caption)
        assert id_ is not None
        assert find_claim(id_[1]).id == id_[1]
    # The numbers that no table has are those that the claims are computed with.
    assert f"{periods.PERIOD:,.0f} tokens" in words["one_frequency"]
    for spacing, (width, length) in sinusoids.SPACINGS.items():
        assert f"{width} features" in words["codes"][spacing]
        if spacing == "harmonic":
            assert f"1/{length}" in words["codes"][spacing]
        else:
            assert f"base {sinusoids.BASE:g}" in words["codes"][spacing]
    assert set(FIGURES["extrapolate"]["symbols"].values()) == {len(ALPHABET)}
    question = FIGURES["extrapolate"]["question"]
    assert question["most_symbols"] == geometry.LONGEST_STRETCH
