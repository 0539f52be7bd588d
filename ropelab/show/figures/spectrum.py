"""Figures of the spectrum experiment: does a head need one frequency, or many?

A scheme is a choice of the frequencies of a head's pairs. Models were trained with each
scheme, and have to copy tokens from some distance back. A band is a third of the
frequencies.
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.sentences import join_names
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, FIGURES, GREY, ORANGE, SKY, Look, read_looks

COPY = "copy accuracy"
# The word of the column `removed` for a model from which no band was removed.
NO_BAND = "none"
VECTORS = read_looks(FIGURES["spectrum"]["vectors"])
BANDS = read_looks(FIGURES["spectrum"]["bands"])
# Where a change of 0 is drawn on the logarithmic axis, in nats.
ZERO_DRAWN_AT = 1e-12
# The distance between the dots of a scheme, in rows.
DOT_DISTANCE = 0.22
# The looks of the distances, the nearest first, and whether they are hollow.
DISTANCES = (
    (Look(SKY, "v"), False),
    (Look(BLACK, "o"), False),
    (Look(ORANGE, "D"), True),
)


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw what models learned, what frequencies can represent, and, if a band was
    removed, the bands.
    """
    learned = tables["learned"][tables["learned"]["metric"] == COPY]
    figures = {}
    if len(learned):
        figures["one_or_many"] = _draw_one_or_many(tables, learned)
        figures["representable"] = _draw_steps(tables)
        if (learned["removed"] != NO_BAND).any():
            figures["bands"] = _draw_bands(learned)
    return figures


def _select_inside(learned: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return the rows of models from which no band was removed, in contexts of the
    trained length; and the trained length.
    """
    trained = int(learned["train_len_tokens"].iloc[0])
    is_inside = learned["context_tokens"] == trained
    return learned[is_inside & (learned["removed"] == NO_BAND)], trained


def _draw_one_or_many(tables: Tables, learned: pd.DataFrame) -> Figure:
    """Draw how much each scheme copies from three distances, one frequency first.

    Schemes in which all pairs rotate are separated from schemes in which some pairs do
    not rotate.
    """
    inside, trained = _select_inside(learned)
    half = _find_half(inside, trained)
    schemes = _order_schemes(tables["schemes"])
    all_rotate = schemes["rotating_pairs"] == schemes["pairs"]
    schemes = schemes.assign(rotates=all_rotate)
    # A stable sort keeps the order within the two groups.
    schemes = schemes.sort_values("rotates", kind="stable")
    names = list(schemes["scheme"])

    figure, ax = shapes.make_axes((8.5, 2.0 + 0.4 * len(schemes)))
    far = int(inside["distance_tokens"].max())
    distances = sorted({trained // 8, half, far})
    for number, distance in enumerate(distances):
        shift = DOT_DISTANCE * (number - (len(distances) - 1) / 2)
        look, is_hollow = DISTANCES[number]
        _draw_copies(ax, inside, names, distance, shift, look, is_hollow)

    labels = [name_scheme(row) for _, row in schemes.iterrows()]
    shapes.name_rows(ax, [label.partition(", in ")[0] for label in labels])
    _name_groups(ax, schemes)
    seeds = int(inside["seeds"].max())
    plural = "s" if seeds > 1 else ""
    how = f"trained at {trained} tokens, {seeds} seed{plural}; bars: intervals of 95 %"
    ax.set(xlim=(-0.03, 1.03), ylabel="frequencies of a head")
    ax.set_xlabel(f"recall (share of tokens copied rightly)\n{how}")
    ax.set_title(_write_title(inside, schemes, half))
    shapes.put_legend_below(figure, [ax], len(distances))
    return figure


def _name_groups(ax: Axes, schemes: pd.DataFrame) -> None:
    """Separate the schemes in which some pairs do not rotate from the schemes in which
    all rotate.
    """
    partial = schemes[~schemes["rotates"]]
    if partial.empty:
        return
    counts = [str(count) for count in sorted(partial["rotating_pairs"].unique())]
    text = f"{join_names(counts, 'or')} of {partial['pairs'].iloc[0]} pairs rotate"
    style: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"),
        "ha": "right",
        "va": "top",
    }
    shapes.write_note(ax, text, (0.99, -0.5), (0, -3), **style)
    if len(partial) < len(schemes):
        edge = len(partial) - 0.5
        ax.axhline(edge, color=GREY, linewidth=1)
        shapes.write_note(ax, "all pairs rotate", (0.99, edge), (0, -3), **style)


def _find_half(inside: pd.DataFrame, trained: int) -> int:
    """Return the distance nearest to half of the trained length."""
    distances = inside["distance_tokens"].unique().tolist()
    return int(min(distances, key=lambda distance: abs(distance - trained / 2)))


def _select_distance(inside: pd.DataFrame, distance: int) -> pd.DataFrame:
    return inside[inside["distance_tokens"] == distance].set_index("scheme")


def _draw_steps(tables: Tables) -> Figure:
    """Draw the change of a score from one token to the next, and the rounding of a score
    in each number format.
    """
    schemes = _order_schemes(tables["schemes"])
    margins = tables["representable"]
    figure, ax = shapes.make_axes((8.5, 2.4 + 0.3 * len(schemes)))
    _draw_representable(ax, margins, list(schemes["scheme"]))
    ax.set_ylabel("frequencies of a head")
    shapes.name_rows(ax, [name_scheme(row) for _, row in schemes.iterrows()])
    shapes.put_legend_below(figure, [ax], len(VECTORS))
    # The words of the vertical lines are between the panel and the title.
    ax.set_title(_write_title_of_steps(margins, schemes), pad=32)
    return figure


def _write_title_of_steps(margins: pd.DataFrame, schemes: pd.DataFrame) -> str:
    """Say in which formats the slowest single frequency can tell neighbouring tokens
    apart: the change of a score over one token is larger than the rounding of the score.
    """
    single = schemes[schemes["frequencies"] == 1]
    if single.empty:
        return "How far does one token move a score?"

    slowest = single.sort_values("longest_period_tokens").iloc[-1]
    is_random = margins["vectors"] == "random"
    rows = margins[is_random & (margins["scheme"] == slowest["scheme"])]
    ratios = rows.set_index("format")["step_to_rounding"].drop(
        "float64", errors="ignore"
    )

    fine_formats = [str(name) for name in ratios.index[ratios > 1]]
    coarse_formats = [str(name) for name in ratios.index[ratios <= 1]]
    if not fine_formats or not coarse_formats:
        return "How far does one token move a score?"

    period = f"{slowest['longest_period_tokens']:,.4g}".replace("e+0", "e")
    hold = "holds" if len(fine_formats) == 1 else "hold"
    do_not = "does not" if len(coarse_formats) == 1 else "do not"
    return (
        f"A period of {period} tokens: {join_names(fine_formats)} {hold} it,"
        f" {join_names(coarse_formats)} {do_not}"
    )


def _order_schemes(schemes: pd.DataFrame) -> pd.DataFrame:
    """Order schemes by the number of frequencies, then by the longest period.

    Schemes that lack a band are left out.
    """
    lacks_band = schemes["scheme"].str.startswith("without")
    return schemes[~lacks_band].sort_values(
        ["frequencies", "longest_period_tokens"],
        ascending=[True, False],
        kind="stable",
    )


def name_scheme(row: pd.Series) -> str:
    """Name a scheme for a reader: the number of its frequencies, and their spacing."""
    count = row["frequencies"]
    name = row["scheme"]
    if count == 0:
        return "none"
    if count == 1:
        period = f"{row['longest_period_tokens']:,.4g}".replace("e+0", "e")
        if math.isclose(row["longest_period_tokens"], 2 * math.pi, rel_tol=1e-4):
            # The frequency is one radian per token, as that of RoPE's first pair.
            period = "2π"
        spacing = f"period {period}"
    elif name.startswith("spaced"):
        spacing = "equal steps" if "uniform" in name else "geometric"
    elif name == "unscaled":
        spacing = "RoPE"
    else:
        spacing = name

    if "pairs=" in name:
        return f"{count}, {spacing}, in {row['rotating_pairs']} of {row['pairs']} pairs"
    return f"{count}, {spacing}"


def _draw_representable(ax: Axes, margins: pd.DataFrame, schemes: list[str]) -> None:
    """Draw the change of a score over one token for each scheme and kind of vectors."""
    y_positions = range(len(schemes))
    # The change of a score is the same in the rows of all formats.
    one_format = margins[margins["format"] == "float32"]
    for vectors, (look, label) in VECTORS.items():
        rows = one_format[one_format["vectors"] == vectors]
        steps = rows.set_index("scheme")["score_step"].reindex(schemes)
        steps = steps.where(steps > 0, ZERO_DRAWN_AT)
        shapes.draw_dots(ax, steps, y_positions, look, label)

    style: dict[str, Any] = {
        "xycoords": shapes.DATA_AND_HEIGHT,
        "color": shapes.NOTE_COLOR,
        "va": "bottom",
    }
    random = margins[margins["vectors"] == "random"]
    roundings = random.groupby("format", sort=False)["rounding"].median()
    for fmt, rounding in roundings.items():
        ax.axvline(rounding, color=GREY, linewidth=1, linestyle=shapes.DASHED)
        # The lines of the two 16-bit formats are close together, so the line of float16 is
        # named on its left.
        side = "right" if fmt == "float16" else "left"
        text = f"rounding\nin {fmt}"
        shapes.write_note(ax, text, (rounding, 1), (0, 2), ha=side, **style)
    ax.axvline(1, color=GREY, linewidth=1, linestyle=":")
    text = "softmax: e times\nthe weight"
    shapes.write_note(ax, text, (1, 1), (0, 2), ha="left", **style)

    ax.set(xscale="log", xlabel="change of a score, one token on (nats)")
    ax.set_xlim(ZERO_DRAWN_AT / 3, 20)
    exponents = range(-10, 1, 2)
    ticks = [10.0**exponent for exponent in exponents]
    labels = [f"$10^{{{exponent}}}$" for exponent in exponents]
    ax.set_xticks([ZERO_DRAWN_AT, *ticks], ["0", *labels])


def _draw_copies(
    ax: Axes,
    inside: pd.DataFrame,
    schemes: list[str],
    distance: int,
    shift: float,
    look: Look,
    hollow: bool = False,
) -> None:
    """Draw the share that each scheme copies from one distance."""
    rows = inside[inside["distance_tokens"] == distance]
    rows = rows.set_index("scheme").reindex(schemes)
    y_positions = np.arange(len(schemes)) + shift
    shapes.draw_dots(
        ax,
        rows["value"],
        y_positions,
        look,
        f"from {distance} tokens back",
        (rows["ci_low"], rows["ci_high"]),
        hollow=hollow,
        markersize=5,
    )


def _write_title(inside: pd.DataFrame, schemes: pd.DataFrame, distance: int) -> str:
    """Compare the best scheme with many frequencies with the best scheme with one.

    Both rotate the same number of pairs. The title compares them if the intervals of
    their shares do not overlap, and the share with many frequencies is more than twice
    the share with one.
    """
    rows = _select_distance(inside, distance)
    rows = rows.reindex(schemes["scheme"]).assign(
        frequencies=schemes["frequencies"].to_numpy(),
        rotating=schemes["rotating_pairs"].to_numpy(),
    )
    rows = rows.dropna(subset="value")

    single = rows[rows["frequencies"] == 1]
    if len(single):
        same_pair_count = rows[rows["rotating"] == single["rotating"].iloc[0]]
        most = same_pair_count["frequencies"].max()
        many = same_pair_count[same_pair_count["frequencies"] == most]
        best_many = many.sort_values("value").iloc[-1]
        best_single = single.sort_values("value").iloc[-1]
        is_apart = best_many["ci_low"] > best_single["ci_high"]
        if is_apart and best_single["value"] < best_many["value"] / 2:
            share_with_many = f"{best_many['value']:.0%} with {most:.0f} frequencies"
            share_with_one = f"{best_single['value']:.0%} with one"
            return (
                f"From {distance} back models recall {share_with_many},"
                f" {share_with_one}"
            )
    return f"Copying from {distance} tokens back by the number of frequencies"


def _draw_bands(copies: pd.DataFrame) -> Figure:
    """Draw what models copy without a band, which was either removed after training or
    already left out in training.
    """
    trained = int(copies["train_len_tokens"].iloc[0])
    longest = copies["context_tokens"].max()
    # One model, complete and after each of its bands was removed.
    after_training = copies[copies["scheme"] == copies["scheme"].iloc[0]]
    # Models that were trained without a band, and the complete model.
    band = copies["scheme"].str.extract(r"^without\(band=(\w+)\)$", expand=False)
    is_trained_without = band.notna() & (copies["removed"] == NO_BAND)
    trained_without = copies.assign(removed=band)[is_trained_without]
    complete = after_training[after_training["removed"] == NO_BAND]
    in_training = pd.concat([complete, trained_without])

    panels = []
    for how, rows in (
        ("taken from the trained model", after_training),
        ("absent from training", in_training),
    ):
        if rows["removed"].nunique() > 1:
            for context in (trained, longest):
                in_context = rows[rows["context_tokens"] == context]
                panels.append((f"{how}, in {context} tokens", in_context))

    panel_rows = len(panels) // 2
    size = (9, 0.8 + 2.7 * panel_rows)
    figure, axes = shapes.make_panels(panel_rows, 2, size, sharey=True)
    for ax, (title, rows) in zip(axes.flat, panels, strict=True):
        _draw_copies_by_band(ax, rows)
        ax.set_title(title, fontsize=9, fontweight="normal")
    for ax in axes[-1]:
        ax.set_xlabel("distance of the copied tokens")
    shapes.put_legend_below(figure, axes[0][:1], 4)
    figure.supylabel("recall (share of tokens copied rightly)")
    inside = after_training[after_training["context_tokens"] == trained]
    shapes.set_headline(figure, _write_title_of_bands(inside))
    return figure


def _draw_copies_by_band(ax: Axes, rows: pd.DataFrame) -> None:
    for band, (look, label) in BANDS.items():
        rows_of_band = rows[rows["removed"] == band].sort_values("distance_tokens")
        x = rows_of_band["distance_tokens"].astype(float)
        interval = (rows_of_band["ci_low"], rows_of_band["ci_high"])
        shapes.draw_line(ax, x, rows_of_band["value"], look, label, interval)
    shapes.set_token_axis(ax)
    ax.set(ylim=(-0.03, 1.03))


def _write_title_of_bands(inside: pd.DataFrame) -> str:
    """Name the third of the frequencies that is missed most at the nearest distance, and
    the third that is missed most at the farthest distance.
    """
    copies = inside.pivot(index="distance_tokens", columns="removed", values="value")
    without_band = copies.drop(columns=NO_BAND)
    # For each distance and band: the share copied with all bands, minus the share without
    # the band.
    lost = without_band.rsub(copies[NO_BAND], axis=0).sort_index()
    near = lost.iloc[0].idxmax()
    far = lost.iloc[-1].idxmax()
    most = f"The {near} third of the frequencies is missed most"
    if near == far:
        return f"{most}, near by and far off"
    return f"{most} near by, the {far} third far off"
