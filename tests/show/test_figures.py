"""What every figure keeps: titles inside, names apart, no line under another, files
that repeat.
"""

import json
import os
import subprocess
import sys
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

import ropelab
from ropelab import experiments
from ropelab.runs.errors import InputError, check_known
from ropelab.runs.store import RUN
from ropelab.show import drawn
from ropelab.show.figures.extrapolate_retrieval import draw_depth_by_length
from ropelab.show.figures.names import label_points, name_line_ends
from ropelab.show.figures.shapes import (
    label_last_panels,
    make_axes,
    make_figure,
    make_panels,
    mark_value,
    put_legend_below,
    set_token_axis,
    write_note,
)
from ropelab.show.figures.style import (
    fit_paper,
    fit_titles,
    list_small_panels,
    use_style,
)
from tests.panels import check_panels
from tests.texts import mentions

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
FOLDERS = [path.parent for path in sorted(REFERENCE.glob("*/*/manifest.json"))]


@pytest.fixture(scope="module")
def base():
    """A run of seconds with several figures."""
    return ropelab.base(context="1k,2k", head_dim=16)


def find_pictured() -> list[Path]:
    """The runs with committed figures, and one of each experiment's defaults."""
    names = {
        "base", "base-published", "base-empirical", "claims", "encodings",
        "encodings-designs", "encodings-named", "smollm2", "extrapolate",
        "extrapolate-casts", "freqs", "precision", "spectrum",
    }  # fmt: skip
    # Whoever makes the reference has pictures of all runs; those that are kept are listed.
    kept = (REFERENCE / ".gitignore").read_text().splitlines()
    pictured = {
        (REFERENCE / line.removeprefix("!/")).parents[1]
        for line in kept
        if line.startswith("!/") and line.endswith(".png")
    }
    for folder in FOLDERS:
        plan = folder.name.rpartition("-")[0]
        if plan in names:
            pictured.add(folder)
    return sorted(pictured)


def list_texts(figure: Figure) -> list[Text]:
    """The texts of a figure that are seen: without ticks outside the axes."""
    unseen = set()
    for ax in figure.axes:
        if not ax.get_visible():
            unseen |= set(ax.findobj(Text))
        if not ax.axison:
            unseen |= {*ax.xaxis.findobj(Text), *ax.yaxis.findobj(Text)}
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low <= tick.get_loc() <= high:
                    unseen |= {tick.label1, tick.label2}
    texts = []
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip() and text not in unseen:
            texts.append(text)
    return texts


def check_texts(figure: Figure) -> None:
    """Fail where texts overlap or leave the picture, or a title is long."""
    drawn.fix_layout(figure, 150)
    figure.draw_without_rendering()
    boxes = []
    for text in list_texts(figure):
        box = Text.get_window_extent(text)  # without lines to points
        assert figure.bbox.x0 - 1 <= box.x0, text
        assert figure.bbox.y0 - 1 <= box.y0, text
        assert box.x1 <= figure.bbox.x1 + 1, text
        assert box.y1 <= figure.bbox.y1 + 1, text
        boxes.append((text.get_text(), box))
    for (one, first), (other, second) in combinations(boxes, 2):
        width = min(first.x1, second.x1) - max(first.x0, second.x0)
        height = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert width <= 1 or height <= 1, (one, other)

    title = figure.get_suptitle() or figure.axes[0].get_title(loc="left")
    assert max(map(len, title.splitlines()), default=0) <= 70


def check_title(figure: Figure) -> None:
    """Fail where a title leaves the picture, once it is laid out, or nothing is drawn."""
    ax = figure.axes[0]
    whole, left = figure._suptitle, ax._left_title  # type: ignore[attr-defined]
    titles = [whole] if figure.get_suptitle() else [left, ax.title]
    assert all(title.get_window_extent().x1 <= figure.bbox.x1 + 1 for title in titles)

    drawn_lines = [line for line in ax.lines if line.get_transform() == ax.transData]
    assert drawn_lines or ax.collections or ax.images or ax.patches


def draw_reference(folder: Path, style: str, earlier: bool = True) -> list[Figure]:
    """Draw the figures of a committed run; one of an earlier version only if asked to."""
    manifest = json.loads((folder / "manifest.json").read_text())
    experiment = experiments.load(manifest["experiment"])
    if not earlier and manifest["version"] != experiment.version:
        pytest.skip(f"the reference of {experiment.name} is of an earlier version")
    tables = RUN.tables(folder, manifest)
    figures = drawn.draw_figures(experiment.draw, tables, style)
    return list(figures.values())


PICTURED = find_pictured()


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", sorted({*FOLDERS} - {*PICTURED}), ids=lambda folder: folder.name
)
def test_titles_stay_inside_and_no_figure_is_empty(folder):
    for figure in draw_reference(folder, "screen", earlier=False):
        figure.draw_without_rendering()
        check_title(figure)


@pytest.mark.slow
@pytest.mark.filterwarnings("error:constrained_layout")
@pytest.mark.parametrize("style", drawn.STYLES)
@pytest.mark.parametrize("folder", PICTURED, ids=lambda folder: folder.name)
def test_texts_are_apart_and_inside(folder, style):
    figures = draw_reference(folder, style)
    assert figures
    for figure in figures:
        check_texts(figure)
        check_panels(figure)
        if style == "screen":
            check_title(figure)


def test_a_value_near_the_right_edge_is_named_on_its_left():
    with use_style():
        _, ax = plt.subplots()
        ax.plot([1, 2, 10], [1, 2, 3])
        mark_value(ax, 3, "early", "x")
        mark_value(ax, 9.9, "late", "x")
    early, late = ax.texts
    assert (early.get_horizontalalignment(), late.get_horizontalalignment()) == (
        "left",
        "right",
    )


def test_numbers_that_would_touch_are_left_out_of_a_picture():
    with use_style():
        figure = make_figure((2, 2))
        ax = figure.subplots()
        ax.set_xlim(0, 10)
        ax.set_xticks([0, 5, 5.5, 10], ["zero", "five", "six", "ten"])
    drawn.fix_layout(figure, 150)
    seen = [label.get_text() for label in ax.get_xticklabels() if label.get_visible()]
    assert seen == ["zero", "five", "ten"]


def test_a_long_legend_takes_fewer_columns_in_print():
    with use_style():
        figure = make_figure((9, 3))
        axes = figure.subplots(1, 2)
        for number in range(8):
            axes[0].plot([0, 1], label=f"a design with a long name {number}")
        put_legend_below(figure, list(axes), 4)
        fit_paper(figure)
    check_texts(figure)


def test_the_last_panel_of_each_column_has_numbers_and_a_label():
    with use_style():
        _, axes = make_panels(2, 2, (6, 5), 3, sharex=True)
        label_last_panels(axes, "tokens")
    labels = [ax.get_xlabel() for ax in axes.flat if ax.get_visible()]
    assert labels == ["", "tokens", "tokens"]
    assert axes[0, 1].xaxis.get_tick_params()["labelbottom"]


def test_figures_leave_nothing_open_and_the_backend_alone(base):
    before, backend = plt.get_fignums(), plt.get_backend()
    base.figures()
    assert plt.get_fignums() == before
    assert plt.get_backend() == backend


@pytest.mark.slow
def test_settings_of_the_user_change_no_figure(base):
    drawn_before = drawn.encode_figures(base.figures(), ("png", "svg"))
    settings: Any = {
        "font.size": 30,
        "figure.facecolor": "red",
        "font.sans-serif": ["Nothing"],
        "svg.fonttype": "none",
        "lines.linewidth": 9,
    }
    with rc_context(settings):
        assert drawn.encode_figures(base.figures(), ("png", "svg")) == drawn_before


@pytest.mark.processes
@pytest.mark.parametrize("backend", ["module://no.such.backend", "nonsense", "tkagg"])
def test_the_backend_of_a_notebook_disturbs_no_command(backend):
    command = [sys.executable, "-m", "ropelab", "base", "--context", "1k", "--quiet"]
    done = subprocess.run(command, env={**os.environ, "MPLBACKEND": backend})
    assert done.returncode == 0
    assert list(Path("results").glob("base/*/figures/*.png"))


@pytest.mark.processes
def test_settings_that_are_no_text_are_one_line():
    Path("matplotlibrc").write_bytes(b"font.size: \xff")
    command = [sys.executable, "-m", "ropelab", "base", "--context", "1k"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "matplotlibrc" in done.stderr.splitlines()[-1]


def test_names_of_points_do_not_cover_each_other():
    with use_style():
        figure, ax = plt.subplots()
        points = [(0.1 * i, 0.01 * (i % 2), f"a long name {i}") for i in range(6)]
        write_note(ax, "a limit", (0.12, 0.01), (3, 3))
        ax.plot([x for x, _, _ in points], [y for _, y, _ in points], "o")
        label_points(ax, points)
        figure.draw_without_rendering()
        notes = [
            text.get_window_extent()
            for text in ax.texts
            if isinstance(text, Annotation)
        ]
    assert len(notes) == 7
    assert not any(one.overlaps(other) for one, other in combinations(notes, 2))


@pytest.mark.parametrize(
    ("last", "labels"), [(6144, ["4k", "6k"]), (8192, ["4k", "8k"])]
)
def test_the_last_point_of_a_token_axis_has_a_tick(last, labels):
    with use_style():
        figure, ax = plt.subplots()
        ax.plot([512, 1024, 2048, 4096, last], range(5))
        set_token_axis(ax)
        figure.draw_without_rendering()
        low, high = ax.get_xlim()
        shown = [
            tick.label1.get_text()
            for tick in ax.xaxis.get_major_ticks()
            if low <= tick.get_loc() <= high
        ]
    assert shown[-2:] == labels


@pytest.mark.slow
def test_implementations_with_equal_errors_share_a_line():
    run = ropelab.precision(schemes="", preset="all", head_dim=16, length=4096)
    (ax,) = run.figures()["angle_error"].axes
    lines = [line for line in ax.lines if line.get_marker() not in ("None", "")]
    drawn_data = {tuple(line.get_ydata()) for line in lines}
    assert len(drawn_data) == len(lines)
    labels = " ".join(line.get_label() for line in lines)
    names = run.tables["growth"]["name"].unique()
    assert [name for name in names if name not in labels] == ["float64"]


@pytest.fixture(scope="module")
def stages():
    """The tables of a run that rounds one stage at a time."""
    return ropelab.precision(
        schemes="", length=1024, head_dim=8, formats="bfloat16"
    ).tables


def headline(experiment, tables, name):
    """The title of a figure of some tables."""
    figure = drawn.draw_figures(drawn.find_draw(experiment), tables)[name]
    return figure.get_suptitle() or figure.axes[0].get_title(loc="left")


def list_cells(experiment, tables, name):
    """The words in the cells of a figure, in rows from the top left."""
    figure = drawn.draw_figures(drawn.find_draw(experiment), tables)[name]
    return [text.get_text() for text in figure.axes[0].texts]


def test_stages_are_safe_unsafe_or_wrong_in_the_same_way_everywhere(stages):
    casts = stages["casts"]
    cells = list_cells("precision", stages, "per_stage_rounding")
    found = dict(zip(casts["stage"].dropna().unique(), cells, strict=True))
    assert found["position"] == found["angle"] == "unsafe"
    assert found["inv_freq"] == "other angles"
    assert found["table"] == found["score"] == "safe"
    late = casts.assign(
        score_spread=casts["score_spread"].mask(casts["stage"] == "inv_freq", 0.5)
    )
    cells = list_cells("precision", {**stages, "casts": late}, "per_stage_rounding")
    assert cells.count("unsafe") == 3
    # A spread at which models do not agree is neither.
    is_table = casts["stage"] == "table"
    between = casts.assign(score_spread=casts["score_spread"].mask(is_table, 0.03))
    cells = list_cells("precision", {**stages, "casts": between}, "per_stage_rounding")
    assert cells.count("between") == 1


def test_a_format_that_overflows_is_wrong_before(stages):
    casts = stages["casts"]
    is_position = casts["stage"] == "position"
    late = casts.assign(
        score_spread=casts["score_spread"].mask(is_position),
        max_angle_error_rad=casts["max_angle_error_rad"].mask(is_position),
        worst_position=casts["worst_position"].mask(is_position, 65_520),
        first_position_over_tolerance=casts["first_position_over_tolerance"].mask(
            is_position, 2049
        ),
    )
    cells = list_cells("precision", {**stages, "casts": late}, "per_stage_rounding")
    (overflow,) = (cell for cell in cells if "overflows" in cell)
    assert mentions(overflow, "wrong from 2,049", "overflows\nfrom 65,520")

    exact = late.assign(
        first_position_over_tolerance=late["first_position_over_tolerance"].mask(
            is_position
        )
    )
    cells = list_cells("precision", {**stages, "casts": exact}, "per_stage_rounding")
    assert "overflows\nfrom 65,520" in cells


def test_formats_of_16_bits_that_fail_alike_are_named_together():
    tables = ropelab.precision(
        schemes="", length=1024, head_dim=8, formats="bfloat16,float16"
    ).tables
    name = "per_stage_rounding"
    both = tables["casts"]
    spread = both["score_spread"].mask(
        both["stage"].isin(["position", "angle"]), other=0.5
    )
    alike = {**tables, "casts": both.assign(score_spread=spread)}
    assert mentions(headline("precision", alike, name), "float16 or bfloat16")

    is_float16 = both["format"] == "float16"
    unlike = {**tables, "casts": both.assign(score_spread=spread.mask(is_float16, 0.0))}
    title = headline("precision", unlike, name)
    assert mentions(title, "to bfloat16")


def test_values_that_the_drawn_vectors_decide_make_no_difference(stages):
    casts = stages["casts"]
    noise = casts["score_spread"].where(casts["score_spread"] > 0.01, 0.005)
    other = {**stages, "casts": casts.assign(score_spread=noise)}
    name = "per_stage_rounding"
    assert list_cells("precision", other, name) == list_cells("precision", stages, name)


@pytest.mark.parametrize("name", ["per_stage_rounding", "score_spread"])
def test_a_headline_names_the_stages_that_are_never_to_be_rounded(stages, name):
    assert mentions(headline("precision", stages, name), "positions", "angles")

    def keep(table, share):
        return table.assign(score_spread=table["score_spread"] * share)

    fine = dict(stages)
    for table in ("casts", "spread"):
        fine[table] = keep(stages[table], 0.01)
    title = headline("precision", fine, name)
    assert "angle" not in title


def test_a_spread_by_distance_does_not_jump_where_positions_cancel(stages):
    figures = drawn.draw_figures(drawn.find_draw("precision"), stages)
    ax = figures["score_spread"].axes[0]
    lines = [line for line in ax.get_lines() if line.get_label() == "position"]
    distances = [float(x) for x in np.asarray(lines[0].get_xdata())]
    doublings = [later / earlier for earlier, later in pairwise(distances)]
    assert min(doublings) >= 1.5
    assert len(distances) < stages["spread"]["distance_tokens"].nunique()


def test_a_headline_names_the_stages_whose_errors_grow(stages):
    growth = stages["growth"]
    title = headline("precision", stages, "angle_error")
    assert mentions(title, "position, a frequency", "an angle", "grows")
    angle = growth[growth["stage"] == "angle"]
    title = headline("precision", {**stages, "growth": angle}, "angle_error")
    assert mentions(title, "an angle", "grows")
    assert "position" not in title
    constant = growth[growth["stage"].isin(["position", "angle"])].assign(
        max_angle_error_rad=0.01
    )
    title = headline("precision", {**stages, "growth": constant}, "angle_error")
    assert mentions(title, "position or an angle")
    assert "grows" not in title


def test_a_headline_says_that_shifts_hide_a_frequency_only_where_they_do(stages):
    finding = "A shift of query and key finds roundings, but not that of inv_freq"
    assert headline("precision", stages, "score_drift") == finding
    shown = {**stages, "drift": stages["drift"].assign(rms_score_change=0.1)}
    assert headline("precision", shown, "score_drift") != finding


def test_a_headline_says_that_bases_are_not_one_interval_only_where_they_are_not(base):
    windows = base.tables["windows"]
    assert windows["context_tokens"].duplicated().any()
    title = headline("base", base.tables, "windows")
    assert mentions(title, "not one interval")
    one = {
        **base.tables,
        "windows": windows.drop_duplicates("context_tokens", keep="last"),
    }
    assert "interval" not in headline("base", one, "windows")


@pytest.mark.slow
@pytest.mark.parametrize("style", drawn.STYLES)
def test_the_same_figure_is_the_same_file(tmp_path, style, base):
    contents, formats = [], ("pdf", "svg", "png")
    for name in ("one", "two"):
        paths = drawn.write_for_user(
            drawn.encode_figures(base.figures(style), formats, style), tmp_path / name
        )
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]
    ending = "" if style == "screen" else "-paper"
    assert f"theories{ending}.svg" in {path.name for path in paths}


def test_a_paper_figure_is_one_column_of_small_letters_without_title(base):
    figure = base.figures("paper")["bound"]
    assert figure.get_figwidth() == 3.3
    assert all(
        ax.get_title(loc=loc) == "" for ax in figure.axes for loc in ("left", "center")
    )
    texts = figure.findobj(lambda artist: hasattr(artist, "get_fontsize"))
    assert max(text.get_fontsize() for text in texts) <= 8


@pytest.mark.slow
def test_a_paper_heat_map_takes_both_columns(stages):
    figure = drawn.draw_figures(drawn.find_draw("precision"), stages, "paper")[
        "per_stage_rounding"
    ]
    assert figure.get_figwidth() == 6.9
    run = ropelab.freqs(base=1e4, head_dim=16, train_len=64, test_len=128)
    assert {figure.get_figwidth() for figure in run.figures("paper").values()} == {3.3}


@pytest.mark.filterwarnings("error")
def test_nothing_on_a_paper_figure_covers_another_word():
    with use_style():
        figure, ax = plt.subplots()
        ends = [2**power for power in range(8, 22)]
        ax.plot(ends, range(14))
        set_token_axis(ax)
        label_points(
            ax, [(2**10 + i, 3 + 0.05 * i, f"a long name {i}") for i in range(4)]
        )
        ax.set(xlabel=f"{'a long label ' * 6}\nabove the scale: some", title="a title")
        fit_paper(figure)
    figure.draw_without_rendering()
    assert figure.get_figwidth() == 3.3
    low, high = ax.get_xlim()
    ticks = [t.label1 for t in ax.xaxis.get_major_ticks() if low <= t.get_loc() <= high]
    labels = [label for label in ticks if label.get_visible() and label.get_text()]
    assert 4 < len(labels) < 14
    words = (*labels, *ax.texts, ax.xaxis.label)
    boxes = [Text.get_window_extent(text) for text in words]  # without lines to points
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert "above the scale: some" in ax.get_xlabel().splitlines()


@pytest.mark.parametrize(
    ("text", "found"), [("png", ("png",)), ("pdf, SVG,pdf", ("pdf", "svg"))]
)
def test_formats_are_read(text, found):
    assert drawn.read_formats(text) == found


@pytest.mark.parametrize("text", ["", "jpg", "png,pfd"])
def test_unknown_formats_are_refused(text):
    with pytest.raises(InputError, match="format"):
        drawn.read_formats(text)


def test_an_unknown_style_names_the_nearest():
    with pytest.raises(InputError, match="paper"):
        check_known("figure style", "papers", drawn.STYLES)


def test_names_at_the_ends_of_lines_stand_apart_inside_the_figure():
    ends = (0.0, 0.01, 0.012, 0.5, 0.99, 1.0, 1.0)
    with use_style():
        figure = make_figure((8, 4.5))
        ax = figure.subplots()
        for number, end in enumerate(ends):
            ax.plot([1, 2], [0.5, end], label=f"method {number}")
        ax.plot([1, 2], [0, 1])
        ax.set_ylim(-0.03, 1.05)
        name_line_ends(ax)
    figure.draw_without_rendering()

    names = {text.get_text(): text for text in ax.texts}
    assert set(names) == {f"method {number}" for number in range(len(ends))}
    boxes = [Text.get_window_extent(names[f"method {n}"]) for n in range(len(ends))]
    heights = [box.y0 for box in boxes]
    assert heights == sorted(heights)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)
    for line in ax.get_lines()[: len(ends)]:
        assert names[str(line.get_label())].get_color() == line.get_color()


def make_copies(methods: list[tuple[str, float]]) -> dict[str, pd.DataFrame]:
    """Tables of copying by methods with five seeds, none better than another."""
    rows = []
    for (number, (method, factor)), seed, distance in product(
        enumerate(methods), range(5), (512, 4096)
    ):
        rows.append(
            {
                "method": method,
                "factor": factor,
                "arm": "zero_shot",
                "seed": seed,
                "distance_tokens": distance,
                "context_tokens": 8192,
                # Equal methods would share a line.
                "accuracy": 0.5 + 0.01 * seed + 0.001 * number,
                "train_len_tokens": 2048,
            }
        )
    comparison = {
        "metric": "copy_accuracy",
        "at_tokens": 4096,
        "context_tokens": 8192,
        "method_a": "unscaled",
        "method_b": "sliding_window",
        "status": "ok",
        "verdict": "~",
    }
    return {
        "copy_accuracy": pd.DataFrame(rows),
        "comparisons": pd.DataFrame([comparison]),
    }


def list_names(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_of_many_methods_one_figure_shows_those_asked_first_and_another_all():
    methods = [
        ("unscaled", 1.0),
        ("pi", 4.0),
        ("ntk", 4.0),
        ("ntk", 8.0),
        ("dynamic_ntk", 1.0),
        ("llama3", 4.0),
        ("yarn", 4.0),
        ("Mine", 4.0),
        ("sliding_window", 1.0),
    ]
    figures = drawn.draw_figures(drawn.find_draw("extrapolate"), make_copies(methods))
    few = list_names(figures["copy_by_distance"])
    every = list_names(figures["copy_by_distance_all"])
    assert {"unscaled", "pi ×4", "ntk ×4", "yarn ×4", "Mine ×4"} < set(few)
    assert not {"ntk ×8", "dynamic_ntk", "llama3 ×4"} & set(few)
    assert len(set(every) - set(few)) == 3


def test_of_few_methods_there_is_one_figure():
    copies = make_copies([("unscaled", 1.0), ("llama3", 4.0), ("sliding_window", 1.0)])
    figures = drawn.draw_figures(drawn.find_draw("extrapolate"), copies)
    assert "llama3 ×4" in list_names(figures["copy_by_distance"])
    assert "copy_by_distance_all" not in figures


def test_a_scale_of_colours_is_no_panel_and_a_list_of_words_stays_whole():
    with use_style():
        figure = make_figure((9, 3))
        left, _ = figure.subplots(1, 2)
        figure.colorbar(left.imshow(np.eye(2)), ax=left)
    assert list_small_panels(figure) == []
    lists = make_figure((9, 3))
    for ax in lists.subplots(1, 3):
        ax.axis("off")
    assert list_small_panels(lists) == []
    charts = make_figure((9, 3))
    panels = list(charts.subplots(1, 3))
    assert list_small_panels(charts) == panels


def test_a_title_above_its_figure_is_not_broken_into_words():
    figure, ax = make_axes((8.5, 3.0))
    ax.set_title("A title of several words fits the width", pad=60)
    fit_titles(figure)
    drawn.fix_layout(figure, 100)
    (line,) = (text for text in ax.get_children() if "several" in str(text))
    assert line.get_window_extent().height < 30
    plt.close(figure)


def test_rows_of_panels_are_as_high_in_a_figure_of_many_methods_as_of_few():
    def draw(methods: int) -> Figure:
        rows = [
            {
                "method": f"method_{number}",
                "factor": 4.0,
                "arm": "zero_shot",
                "depth_percent": depth,
                "context_tokens": context,
                "accuracy": 0.5,
            }
            for number in range(methods)
            for depth in (0, 50, 100)
            for context in (1024, 2048)
        ]
        with use_style():
            return draw_depth_by_length(pd.DataFrame(rows), "the pass key")

    few, many = draw(2), draw(9)
    many.draw_without_rendering()
    check_panels(many)
    heights = [
        figure.axes[0].get_window_extent().height / figure.dpi for figure in (few, many)
    ]
    assert heights[1] == pytest.approx(heights[0], rel=0.25)
