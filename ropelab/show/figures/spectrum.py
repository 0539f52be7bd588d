"""One frequency or many: arithmetic beside trained models, and the use of each band."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, FIGURES, GREY, Look, read_looks

COPY = "copy accuracy"
KEPT = "none"
VECTORS = read_looks(FIGURES["spectrum"]["vectors"])
BANDS = read_looks(FIGURES["spectrum"]["bands"])
# Where a change of nothing is drawn on a logarithmic axis, in nats.
SMALLEST = 1e-12
# Rows from the place of a scheme to each of its two dots.
BESIDE = 0.13


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw what is representable beside what is learned, then the bands if any was
    removed.
    """
    learned = tables["learned"][tables["learned"]["metric"] == COPY]
    figures = {}
    if len(learned):
        figures["one_or_many"] = _draw_one_or_many(tables, learned)
        if (learned["removed"] != KEPT).any():
            figures["bands"] = _draw_bands(learned)
    return figures


def _draw_one_or_many(tables: Tables, learned: pd.DataFrame) -> Figure:
    schemes = _order_schemes(tables["schemes"])
    names = list(schemes["scheme"])
    trained = int(learned["train_len_tokens"].iloc[0])
    is_inside = learned["context_tokens"] == trained
    inside = learned[is_inside & (learned["removed"] == KEPT)]

    size = (10, 2.2 + 0.32 * len(schemes))
    figure, axes = shapes.make_panels(1, 2, size, sharey=True, width_ratios=(1.25, 1))
    left, right = axes[0]
    _draw_representable(left, tables["representable"], names)
    _draw_learnable(right, inside, names, trained)
    left.set_ylabel("frequencies of a head")
    shapes.name_rows(left, [name_scheme(row) for _, row in schemes.iterrows()])
    bottom, top = left.get_ylim()
    left.set_ylim(bottom, top - 0.7)  # room for the note on softmax
    title = _write_title(tables["representable"], inside, schemes)
    shapes.set_headline(figure, title)
    return figure


def _order_schemes(schemes: pd.DataFrame) -> pd.DataFrame:
    """Order schemes from no frequency to many, slow ones first; without those that lack
    a band.
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
    places = range(len(schemes))
    single = margins[margins["format"] == "float32"]
    for vectors, (look, label) in VECTORS.items():
        rows = single[single["vectors"] == vectors]
        steps = rows.set_index("scheme")["score_step"].reindex(schemes)
        steps = steps.where(steps > 0, SMALLEST)
        shapes.draw_dots(ax, steps, places, look, label)

    small = {
        "xycoords": shapes.ABOVE,
        "fontsize": 7,
        "color": shapes.FAINT,
        "ha": "right",
    }
    random = margins[margins["vectors"] == "random"]
    roundings = random.groupby("format", sort=False)["rounding"].median()
    for fmt, rounding in roundings.items():
        ax.axvline(rounding, color=GREY, linewidth=1, linestyle=shapes.DASHED)
        text = f"rounding in {fmt}"
        style = {"rotation": 90, "va": "bottom", **small}
        shapes.write_note(ax, text, (rounding, 0), (-2, 3), **style)
    ax.axvline(1, color=GREY, linewidth=1, linestyle=":")
    text = "softmax gives\ne times\nthe weight"
    shapes.write_note(ax, text, (1, 1), (-3, -3), va="top", **small)

    ax.set(xscale="log", xlabel="change of a score, one token on (nats)")
    ax.set_xlim(SMALLEST / 3, 20)
    exponents = range(-10, 1, 2)
    ticks = [10.0**exponent for exponent in exponents]
    labels = [f"$10^{{{exponent}}}$" for exponent in exponents]
    ax.set_xticks([SMALLEST, *ticks], ["0", *labels])
    ax.set_title("Arithmetic: representable steps", pad=44, fontsize=10)
    shapes.put_legend_above(ax)


def _draw_learnable(
    ax: Axes, inside: pd.DataFrame, schemes: list[str], trained: int
) -> None:
    near = trained // 8
    far = trained // 2
    _draw_copies(ax, inside, schemes, near, -BESIDE, Look(BLACK, "o"))
    _draw_copies(ax, inside, schemes, far, BESIDE, Look(BLACK, "D"), hollow=True)

    seeds = int(inside["seeds"].max())
    plural = "s" if seeds > 1 else ""
    how = f"trained at {trained} tokens, {seeds} seed{plural}"
    ax.set(xlim=(-0.03, 1.03), xlabel=f"tokens copied correctly (share)\n{how}")
    ax.set_title("Trained models: learned copying", pad=44, fontsize=10)
    shapes.put_legend_above(ax)


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


def _write_title(
    margins: pd.DataFrame, inside: pd.DataFrame, schemes: pd.DataFrame
) -> str:
    """Say how much is copied with the slowest single frequency that float32 holds, else
    ask.
    """
    single = schemes[schemes["frequencies"] == 1]
    if single.empty:
        return "The use of many frequencies"
    slowest = single.sort_values("longest_period_tokens").iloc[-1]
    name = slowest["scheme"]
    steps = margins.set_index(["scheme", "format", "vectors"])["step_to_rounding"]
    is_held = steps[name, "float32", "random"] > 1

    half = inside["train_len_tokens"].iloc[0] / 2
    distances = inside["distance_tokens"].unique()
    place = min(distances, key=lambda distance: abs(distance - half))
    copies = inside[inside["distance_tokens"] == place].set_index("scheme")["value"]
    copies = copies.reindex(schemes["scheme"])
    if is_held and copies[name] < copies.max() / 2:
        period = f"{slowest['longest_period_tokens']:,.0f} tokens"
        copied = f"{copies[name]:.2f} from {place:.0f} back with it"
        best = f"{copies.max():.2f} with {copies.idxmax()}"
        return f"float32 holds a period of {period}; models copy {copied}, {best}"
    return "One frequency or many: representable and learned"


def _draw_bands(copies: pd.DataFrame) -> Figure:
    trained = int(copies["train_len_tokens"].iloc[0])
    longest = copies["context_tokens"].max()
    taken = copies[copies["scheme"] == copies["scheme"].iloc[0]]
    # Models trained without a band, beside the one that has all of them.
    band = copies["scheme"].str.extract(r"^without\(band=(\w+)\)$")[0]
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
    figure.supylabel("tokens copied correctly (share)")
    inside = taken[taken["context_tokens"] == trained]
    shapes.set_headline(figure, _write_title_of_bands(inside))
    return figure


def _draw_copies_by_band(ax: Axes, rows: pd.DataFrame) -> None:
    for band, (look, label) in BANDS.items():
        own = rows[rows["removed"] == band].sort_values("distance_tokens")
        x = own["distance_tokens"].astype(float)
        interval = (own["ci_low"], own["ci_high"])
        shapes.draw_line(ax, x, own["value"], look, label, interval)
    shapes.set_token_axis(ax)
    ax.set(ylim=(-0.03, 1.03))


def _write_title_of_bands(inside: pd.DataFrame) -> str:
    """Name the third that is missed most near by, and the one missed most far off."""
    copies = inside.pivot(index="distance_tokens", columns="removed", values="value")
    lost = copies.drop(columns=KEPT).rsub(copies[KEPT], axis=0).sort_index()
    near = lost.iloc[0].idxmax()
    far = lost.iloc[-1].idxmax()
    most = f"The {near} third of the frequencies is missed most"
    if near == far:
        return f"{most}, near by and far off"
    return f"{most} near by, the {far} third far off"
