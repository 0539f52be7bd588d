"""Figures of the spectrum experiment: does a head need one frequency, or many?

A scheme is a choice of the frequencies of a head's pairs. Models were trained with each
scheme and copy tokens from some distance back. A band is a third of the frequencies.
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
# The name of no band: nothing was removed from a model.
KEPT = "none"
VECTORS = read_looks(FIGURES["spectrum"]["vectors"])
BANDS = read_looks(FIGURES["spectrum"]["bands"])
# A change of 0 is drawn here on a logarithmic axis, in nats.
SMALLEST = 1e-12
# The distance between the dots of a scheme, in rows.
BESIDE = 0.22
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
        if (learned["removed"] != KEPT).any():
            figures["bands"] = _draw_bands(learned)
    return figures


def _select_inside(learned: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return the copies within the trained length of models without a removed band, and
    the trained length.
    """
    trained = int(learned["train_len_tokens"].iloc[0])
    is_inside = learned["context_tokens"] == trained
    return learned[is_inside & (learned["removed"] == KEPT)], trained


def _draw_one_or_many(tables: Tables, learned: pd.DataFrame) -> Figure:
    """Draw how much each scheme copies from three distances, one frequency first.

    Schemes whose pairs all rotate are drawn apart if the remaining schemes have pairs
    that do not rotate.
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
        shift = BESIDE * (number - (len(distances) - 1) / 2)
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
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "top"}
    shapes.write_note(ax, text, (0.99, -0.5), (0, -3), ha="right", **place)
    if len(partial) < len(schemes):
        edge = len(partial) - 0.5
        ax.axhline(edge, color=GREY, linewidth=1)
        shapes.write_note(
            ax, "all pairs rotate", (0.99, edge), (0, -3), ha="right", **place
        )


def _find_half(inside: pd.DataFrame, trained: int) -> int:
    """Return the distance nearest to half of the trained length."""
    distances = inside["distance_tokens"].unique().tolist()
    return int(min(distances, key=lambda distance: abs(distance - trained / 2)))


def _select_distance(inside: pd.DataFrame, distance: int) -> pd.DataFrame:
    return inside[inside["distance_tokens"] == distance].set_index("scheme")


def _draw_steps(tables: Tables) -> Figure:
    """Draw the change of a score from one token to the next beside the roundings."""
    schemes = _order_schemes(tables["schemes"])
    margins = tables["representable"]
    figure, ax = shapes.make_axes((8.5, 2.4 + 0.3 * len(schemes)))
    _draw_representable(ax, margins, list(schemes["scheme"]))
    ax.set_ylabel("frequencies of a head")
    shapes.name_rows(ax, [name_scheme(row) for _, row in schemes.iterrows()])
    shapes.put_legend_below(figure, [ax], len(VECTORS))
    # The words of the vertical lines stand between the panel and the title.
    ax.set_title(_write_title_of_steps(margins, schemes), pad=32)
    return figure


def _write_title_of_steps(margins: pd.DataFrame, schemes: pd.DataFrame) -> str:
    """Say in which formats one token changes a score of the slowest single frequency by
    more than its rounding.
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

    held = [str(name) for name in ratios.index[ratios > 1]]
    lost = [str(name) for name in ratios.index[ratios <= 1]]
    if not held or not lost:
        return "How far does one token move a score?"

    period = f"{slowest['longest_period_tokens']:,.4g}".replace("e+0", "e")
    holds = f"{join_names(held)} {'holds' if len(held) == 1 else 'hold'} it"
    lose = f"{join_names(lost)} {'does' if len(lost) == 1 else 'do'} not"
    return f"A period of {period} tokens: {holds}, {lose}"


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
            # One radian a token, the frequency of RoPE's first pair.
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
    places = range(len(schemes))
    single = margins[margins["format"] == "float32"]
    for vectors, (look, label) in VECTORS.items():
        rows = single[single["vectors"] == vectors]
        steps = rows.set_index("scheme")["score_step"].reindex(schemes)
        steps = steps.where(steps > 0, SMALLEST)
        shapes.draw_dots(ax, steps, places, look, label)

    above: dict[str, Any] = {
        "xycoords": shapes.DATA_AND_HEIGHT,
        "color": shapes.NOTE_COLOR,
        "va": "bottom",
    }
    random = margins[margins["vectors"] == "random"]
    roundings = random.groupby("format", sort=False)["rounding"].median()
    for fmt, rounding in roundings.items():
        ax.axvline(rounding, color=GREY, linewidth=1, linestyle=shapes.DASHED)
        # The lines of the two 16-bit formats are close together. The finer one is named on
        # its left.
        side = "right" if fmt == "float16" else "left"
        text = f"rounding\nin {fmt}"
        shapes.write_note(ax, text, (rounding, 1), (0, 2), ha=side, **above)
    ax.axvline(1, color=GREY, linewidth=1, linestyle=":")
    text = "softmax: e times\nthe weight"
    shapes.write_note(ax, text, (1, 1), (0, 2), ha="left", **above)

    ax.set(xscale="log", xlabel="change of a score, one token on (nats)")
    ax.set_xlim(SMALLEST / 3, 20)
    exponents = range(-10, 1, 2)
    ticks = [10.0**exponent for exponent in exponents]
    labels = [f"$10^{{{exponent}}}$" for exponent in exponents]
    ax.set_xticks([SMALLEST, *ticks], ["0", *labels])


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
    places = np.arange(len(schemes)) + shift
    shapes.draw_dots(
        ax,
        rows["value"],
        places,
        look,
        f"from {distance} tokens back",
        (rows["ci_low"], rows["ci_high"]),
        hollow=hollow,
        markersize=5,
    )


def _write_title(inside: pd.DataFrame, schemes: pd.DataFrame, distance: int) -> str:
    """Compare many frequencies with one.

    They are named if they copy more than twice as much in the same number of pairs, and
    the two intervals do not overlap.
    """
    rows = _select_distance(inside, distance)
    rows = rows.reindex(schemes["scheme"]).assign(
        frequencies=schemes["frequencies"].to_numpy(),
        rotating=schemes["rotating_pairs"].to_numpy(),
    )
    rows = rows.dropna(subset="value")

    single = rows[rows["frequencies"] == 1]
    if len(single):
        as_many_pairs = rows[rows["rotating"] == single["rotating"].iloc[0]]
        most = as_many_pairs["frequencies"].max()
        several = as_many_pairs[as_many_pairs["frequencies"] == most]
        best = several.sort_values("value").iloc[-1]
        best_single = single.sort_values("value").iloc[-1]
        is_apart = best["ci_low"] > best_single["ci_high"]
        if is_apart and best_single["value"] < best["value"] / 2:
            many = f"{best['value']:.0%} with {most:.0f} frequencies"
            one = f"{best_single['value']:.0%} with one"
            return f"From {distance} back models recall {many}, {one}"
    return f"Copying from {distance} tokens back by the number of frequencies"


def _draw_bands(copies: pd.DataFrame) -> Figure:
    """Draw what models copy without a band: removed after training, or never there."""
    trained = int(copies["train_len_tokens"].iloc[0])
    longest = copies["context_tokens"].max()
    taken = copies[copies["scheme"] == copies["scheme"].iloc[0]]
    # Models that were trained without a band, and the model that has all bands.
    band = copies["scheme"].str.extract(r"^without\(band=(\w+)\)$", expand=False)
    absent = copies.assign(removed=band)[band.notna() & (copies["removed"] == KEPT)]
    never = pd.concat([taken[taken["removed"] == KEPT], absent])

    panels = []
    for how, rows in (
        ("taken from the trained model", taken),
        ("absent from training", never),
    ):
        if rows["removed"].nunique() > 1:
            for context in (trained, longest):
                in_context = rows[rows["context_tokens"] == context]
                panels.append((f"{how}, in {context} tokens", in_context))

    lines = len(panels) // 2
    figure, axes = shapes.make_panels(lines, 2, (9, 0.8 + 2.7 * lines), sharey=True)
    for ax, (title, rows) in zip(axes.flat, panels, strict=True):
        _draw_copies_by_band(ax, rows)
        ax.set_title(title, fontsize=9, fontweight="normal")
    for ax in axes[-1]:
        ax.set_xlabel("distance of the copied tokens")
    shapes.put_legend_below(figure, axes[0][:1], 4)
    figure.supylabel("recall (share of tokens copied rightly)")
    inside = taken[taken["context_tokens"] == trained]
    shapes.set_headline(figure, _write_title_of_bands(inside))
    return figure


def _draw_copies_by_band(ax: Axes, rows: pd.DataFrame) -> None:
    for band, (look, label) in BANDS.items():
        of_band = rows[rows["removed"] == band].sort_values("distance_tokens")
        x = of_band["distance_tokens"].astype(float)
        interval = (of_band["ci_low"], of_band["ci_high"])
        shapes.draw_line(ax, x, of_band["value"], look, label, interval)
    shapes.set_token_axis(ax)
    ax.set(ylim=(-0.03, 1.03))


def _write_title_of_bands(inside: pd.DataFrame) -> str:
    """Name the third that is missed most at the nearest distance, and at the farthest."""
    copies = inside.pivot(index="distance_tokens", columns="removed", values="value")
    without_band = copies.drop(columns=KEPT)
    # copies[KEPT] - without_band, by rows
    lost = without_band.rsub(copies[KEPT], axis=0).sort_index()
    near = lost.iloc[0].idxmax()
    far = lost.iloc[-1].idxmax()
    most = f"The {near} third of the frequencies is missed most"
    if near == far:
        return f"{most}, near by and far off"
    return f"{most} near by, the {far} third far off"
