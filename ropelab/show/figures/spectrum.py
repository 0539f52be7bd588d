"""Figures of the spectrum experiment: does a head need one frequency, or many?

A scheme is a choice of the frequencies of a head's pairs. Models were trained with each
scheme, and have to copy tokens from some distance back. A band is a third of the
frequencies.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.sentences import join_names
from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, FIGURES, GREY, ORANGE, Look, read_looks

COPY = "copy accuracy"
# The word of the column `removed` for a model from which no band was removed.
NO_BAND = "none"
BANDS = read_looks(FIGURES["spectrum"]["bands"])
# Where a change of 0 is drawn on the logarithmic axis, in nats.
ZERO_DRAWN_AT = 1e-12
# The names of several frequencies in a title, by their spacing.
SPACINGS = {
    "RoPE": "{} frequencies of RoPE",
    "equal ratios": "{} frequencies",
    "equal steps": "{} equally spaced frequencies",
}
# The distance between the dots of a scheme, in rows.
DOT_DISTANCE = 0.22
# The looks of the distances, the nearest first, and whether they are hollow. The title is
# about the middle one, so the others are pale.
DISTANCES = (
    (Look(GREY, "v"), True),
    (Look(BLACK, "o"), False),
    (Look(GREY, "D"), True),
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

    figure, ax = shapes.make_axes((8.5, 2.4 + 0.4 * len(schemes)))
    far = int(inside["distance_tokens"].max())
    distances = sorted({trained // 8, half, far})
    for number, distance in enumerate(distances):
        shift = DOT_DISTANCE * (number - (len(distances) - 1) / 2)
        look, is_hollow = DISTANCES[number]
        _draw_copies(ax, inside, names, distance, shift, look, is_hollow)

    compared = _find_compared(inside, schemes, half)
    labels = []
    for _, row in schemes.iterrows():
        label = name_scheme(row)
        if compared is not None and row["scheme"] in compared.index:
            label = f"{label} {shapes.COUNTED}"
        labels.append(label)
    shapes.name_rows(ax, labels)
    _name_groups(ax, schemes)
    seeds = int(inside["seeds"].max())
    how = f"trained and tested at {trained} tokens; {shapes.write_intervals(seeds)}"
    lines = ["recall (share of tokens copied rightly)", how]
    notes = []
    if compared is not None:
        notes.append(f"{shapes.COUNTED} compared in the title")
    if any("equal ratios" in label for label in labels):
        notes.append(_explain_ratios(schemes))
    lines += filter(None, ["; ".join(notes)])
    ax.set(xlim=(-0.03, 1.03), ylabel="frequencies of a head, and their spacing")
    ax.set_xlabel("\n".join(lines))
    ax.set_title(_write_title(compared, half, inside, distances))
    shapes.put_legend_below(figure, [ax], len(distances))
    return figure


def _explain_ratios(schemes: pd.DataFrame) -> str:
    """Say what has equal ratios, and between which periods if all such schemes have the
    same.
    """
    words = "equal ratios: of each period to the one before"
    spacings = schemes["scheme"].map(_name_spacing)
    rows = schemes[spacings == "equal ratios"]
    ends = rows[["shortest_period_tokens", "longest_period_tokens"]].round(6)
    if len(ends.drop_duplicates()) > 1:
        return words
    shortest, longest = (_name_period(tokens) for tokens in ends.iloc[0])
    return f"{words}, {shortest} to {longest} tokens"


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

    The rows are the schemes with one frequency, and the scheme with the most. If no
    scheme has one frequency, all schemes are rows.
    """
    schemes = _order_schemes(tables["schemes"])
    single = schemes[schemes["frequencies"] == 1]
    if len(single):
        most = schemes.tail(1)
        schemes = pd.concat([single, most]).drop_duplicates("scheme")
    margins = tables["representable"]
    figure, ax = shapes.make_axes((8.5, 2.4 + 0.35 * len(schemes)))
    _draw_representable(ax, margins, list(schemes["scheme"]))
    ax.set_ylabel("frequencies of a head")
    shapes.name_rows(ax, [name_scheme(row) for _, row in schemes.iterrows()])
    # The words of the vertical lines are between the panel and the title.
    ax.set_title(_write_title_of_steps(margins, schemes), pad=32)
    return figure


def _write_title_of_steps(margins: pd.DataFrame, schemes: pd.DataFrame) -> str:
    """Say in which formats the slowest single frequency cannot tell neighbouring tokens
    apart: the change of a score over one token is not larger than its rounding.
    """
    single = schemes[schemes["frequencies"] == 1]
    if single.empty:
        return "The change of a score over one token, and its rounding"

    slowest = single.sort_values("longest_period_tokens").iloc[-1]
    is_random = margins["vectors"] == "random"
    rows = margins[is_random & (margins["scheme"] == slowest["scheme"])]
    ratios = rows.set_index("format")["step_to_rounding"].drop(
        "float64", errors="ignore"
    )

    coarse_formats = [str(name) for name in ratios.index[ratios <= 1]]
    if not coarse_formats:
        return "The change of a score over one token, and its rounding"

    period = _write_period(slowest["longest_period_tokens"])
    lose = "loses" if len(coarse_formats) == 1 else "lose"
    return f"{join_names(coarse_formats)} {lose} one token's step at period {period}"


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
    """Name a scheme for a reader: the number of its frequencies, and their spacing.

    How many pairs rotate is left out: `_name_groups` writes it beside the rows.
    """
    count = row["frequencies"]
    if count == 0:
        return "none"
    if count == 1:
        spacing = f"period {_name_period(row['longest_period_tokens'])}"
    else:
        spacing = _name_spacing(row["scheme"])
    return f"{count}, {spacing}"


def _name_period(tokens: float) -> str:
    """Write a period, as a multiple of π if the frequency is one radian per token, as
    that of RoPE's first pair.
    """
    if math.isclose(tokens, 2 * math.pi, rel_tol=1e-4):
        return "2π"
    return _write_period(tokens)


def _write_period(tokens: float) -> str:
    """Write a period with four digits, or as a whole number if it is long.

    >>> _write_period(1e6), _write_period(256.0)
    ('1,000,000', '256')
    """
    return f"{tokens:,.0f}" if tokens >= 10_000 else f"{tokens:,.4g}"


def _name_spacing(scheme: str) -> str:
    """Name the spacing of the frequencies of a scheme that has several."""
    if scheme.startswith("spaced"):
        return "equal steps" if "uniform" in scheme else "equal ratios"
    if scheme == "unscaled":
        return "RoPE"
    return scheme


def _name_many(scheme: str, count: int) -> str:
    spacing = _name_spacing(scheme)
    return SPACINGS.get(spacing, "{} frequencies").format(count)


def _draw_representable(ax: Axes, margins: pd.DataFrame, schemes: list[str]) -> None:
    """Draw the change of a score of random vectors over one token, for each scheme.

    To the left of a format's line the rounding of a score is larger than the change.
    """
    # The change of a score is the same in the rows of all formats.
    random = margins[margins["vectors"] == "random"]
    rows = random[random["format"] == "float32"]
    steps = rows.set_index("scheme")["score_step"].reindex(schemes)
    steps = steps.where(steps > 0, ZERO_DRAWN_AT)
    shapes.draw_dots(ax, steps, range(len(schemes)), Look(BLACK, "o"))

    style: dict[str, Any] = {
        "xycoords": shapes.DATA_AND_HEIGHT,
        "color": shapes.NOTE_COLOR,
        "va": "bottom",
    }
    roundings = random.groupby("format", sort=False)["rounding"].median()
    low = min(steps.min(), roundings.min()) / 10
    for fmt, rounding in roundings.items():
        ax.axvspan(low, rounding, color=ORANGE, alpha=0.12, linewidth=0)
        ax.axvline(rounding, color=GREY, linewidth=1, linestyle=shapes.DASHED)
        # The lines of the two 16-bit formats are close together, so the line of bfloat16
        # is named on its right.
        side = "left" if fmt == "bfloat16" else "right"
        text = f"lost in\n{fmt}"
        shapes.write_note(ax, text, (rounding, 1), (0, 2), ha=side, **style)

    ax.set(xscale="log", xlim=(low, 20))
    ax.set_xlabel("change of a score over one token (nats)")


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
        f"at {distance} tokens back",
        (rows["ci_low"], rows["ci_high"]),
        hollow=hollow,
        markersize=5,
    )


def _find_compared(
    inside: pd.DataFrame, schemes: pd.DataFrame, distance: int
) -> pd.DataFrame | None:
    """Return the rows of the best scheme with many frequencies and of the best scheme
    with one.

    Both rotate the same number of pairs. None if the intervals of their shares overlap,
    or if the share with many frequencies is not more than twice the share with one.
    """
    rows = _select_distance(inside, distance)
    rows = rows.reindex(schemes["scheme"]).assign(
        frequencies=schemes["frequencies"].to_numpy(),
        rotating=schemes["rotating_pairs"].to_numpy(),
    )
    rows = rows.dropna(subset="value")

    single = rows[rows["frequencies"] == 1]
    if single.empty:
        return None
    same_pair_count = rows[rows["rotating"] == single["rotating"].iloc[0]]
    most = same_pair_count["frequencies"].max()
    many = same_pair_count[same_pair_count["frequencies"] == most]
    best_many = many.sort_values("value").iloc[-1]
    best_single = single.sort_values("value").iloc[-1]
    is_apart = best_many["ci_low"] > best_single["ci_high"]
    if not is_apart or best_single["value"] >= best_many["value"] / 2:
        return None
    return rows.loc[[best_many.name, best_single.name]]


def _write_title(
    compared: pd.DataFrame | None,
    distance: int,
    inside: pd.DataFrame,
    distances: Sequence[int],
) -> str:
    """Compare the best scheme with many frequencies with the best scheme with one, as
    `_find_compared` returns them. The names of their rows have the sign COUNTED.

    The same two schemes are compared at the other drawn distances, too, since their order
    may be another there.
    """
    if compared is None:
        return f"Recall at {distance} tokens back by the number of frequencies"
    many, single = (row for _, row in compared.iterrows())
    spacing = _name_many(str(many.name), int(many["frequencies"]))
    shares = f"{many['value']:.0%}, the best single one {single['value']:.0%}"
    more, fewer, overlapping = [], [], []
    for other in distances:
        if other == distance:
            continue
        rows = _select_distance(inside, other)
        values = rows["value"].to_dict()
        lower_ends = rows.loc[[many.name, single.name], "ci_low"]
        upper_ends = rows.loc[[many.name, single.name], "ci_high"]
        if lower_ends.max() <= upper_ends.min():
            overlapping.append(str(other))
        elif values[many.name] > values[single.name]:
            more.append(str(other))
        else:
            fewer.append(str(other))

    elsewhere = []
    if more:
        elsewhere.append(f"more at {join_names(more)} back, too")
    if fewer:
        elsewhere.append(f"fewer at {join_names(fewer)} back")
    if overlapping:
        elsewhere.append(f"at {join_names(overlapping)} back bars overlap")
    first_line = f"At {distance} back {spacing} recall {shares}"
    if not elsewhere:
        return f"{first_line} ({shapes.COUNTED})"
    return f"{first_line};\n{'; '.join(elsewhere)} ({shapes.COUNTED})"


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
        ("removed after training", after_training),
        ("removed before training", in_training),
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
        ax.set_xlabel("how far back (tokens)")
    bands = shapes.write_intervals(int(copies["seeds"].max()), marks="bands")
    shapes.put_legend_below(figure, axes[0][:1], 4, bands)
    figure.supylabel("recall (share of tokens copied rightly)")
    inside = after_training[after_training["context_tokens"] == trained]
    shapes.set_headline(figure, _write_title_of_bands(inside))
    return figure


def _draw_copies_by_band(ax: Axes, rows: pd.DataFrame) -> None:
    for band, (look, label) in BANDS.items():
        rows_of_band = rows[rows["removed"] == band].sort_values("distance_tokens")
        x = rows_of_band["distance_tokens"].astype(float)
        interval = (rows_of_band["ci_low"], rows_of_band["ci_high"])
        # The line of all frequencies is drawn thin and last, since another line may be
        # under it.
        is_complete = band == NO_BAND
        width = 1.2 if is_complete else 2.4
        order = 3 if is_complete else 2
        style = {"linewidth": width, "zorder": order}
        shapes.draw_line(ax, x, rows_of_band["value"], look, label, interval, **style)
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
    near = str(lost.iloc[0].idxmax())
    far = str(lost.iloc[-1].idxmax())
    with_all = copies[NO_BAND].sort_index()
    nearest = lost.index[0]
    fall = f"{with_all.iloc[0]:.0%} to {copies.loc[nearest, near]:.0%}"
    distance = int(nearest)
    if near == far:
        return f"Without the {near} third recall at {distance} back falls from {fall}"
    return (
        f"Recall falls from {fall} without the {near} third near by;"
        f"\nfarther off, the {far} third costs most"
    )
