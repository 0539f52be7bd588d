"""One frequency or many: arithmetic beside trained models, and the use of each band."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import BLACK, FIGURES, GREY, Look, labelled

COPY = "copy accuracy"
KEPT = "none"
VECTORS, BANDS = (labelled(FIGURES["spectrum"][part]) for part in ("vectors", "bands"))
# Where a change of nothing is drawn on a logarithmic axis, in nats.
SMALLEST = 1e-12


def draw(tables: Tables) -> dict[str, Figure]:
    learned = tables["learned"][tables["learned"]["metric"] == COPY]
    figures = {}
    if len(learned):
        figures["one_or_many"] = _one_or_many(tables, learned)
        if (learned["removed"] != KEPT).any():
            figures["bands"] = _bands(learned)
    return figures


def _one_or_many(tables: Tables, learned: pd.DataFrame) -> Figure:
    schemes = tables["schemes"]
    # From no frequency to many, slow ones first; without those that lack a band.
    schemes = schemes[~schemes["scheme"].str.startswith("without")].sort_values(
        ["frequencies", "longest_period_tokens"], ascending=[True, False], kind="stable"
    )
    order, trained = list(schemes["scheme"]), int(learned["train_len_tokens"].iloc[0])
    inside = learned[
        (learned["removed"] == KEPT) & (learned["context_tokens"] == trained)
    ]
    size = (10, 2.2 + 0.32 * len(schemes))
    figure, axes = shapes.panels(1, 2, size, sharey=True, width_ratios=(1.25, 1))
    _representable(axes[0, 0], tables["representable"], order)
    _learnable(axes[0, 1], inside, order, trained)
    axes[0, 0].set_ylabel("frequencies of a head")
    shapes.name_rows(axes[0, 0], [called(row) for _, row in schemes.iterrows()])
    bottom, top = axes[0, 0].get_ylim()
    axes[0, 0].set_ylim(bottom, top - 0.7)  # room for the note on softmax
    shapes.headline(figure, _title(tables["representable"], inside, schemes))
    return figure


def called(row: pd.Series) -> str:
    """Name a scheme for a reader: the number of its frequencies, and their spacing."""
    count, name = row["frequencies"], row["scheme"]
    if count == 0:
        return "none"
    if count == 1:
        how = f"period {row['longest_period_tokens']:,.4g}".replace("e+0", "e")
    elif name.startswith("spaced"):
        how = "equal steps" if "uniform" in name else "geometric"
    else:
        how = "RoPE" if name == "unscaled" else name
    rotating = (
        f", in {row['rotating_pairs']} of {row['pairs']} pairs"
        if "pairs=" in name
        else ""
    )
    return f"{count}, {how}{rotating}"


def _representable(ax: Axes, margins: pd.DataFrame, order: list[str]) -> None:
    for vectors, (style, label) in VECTORS.items():
        rows = margins[
            (margins["vectors"] == vectors) & (margins["format"] == "float32")
        ]
        steps = rows.set_index("scheme")["score_step"].reindex(order)
        shapes.dots(
            ax, steps.where(steps > 0, SMALLEST), range(len(order)), style, label
        )
    small = {
        "xycoords": shapes.ABOVE,
        "fontsize": 7,
        "color": shapes.FAINT,
        "ha": "right",
    }
    random = margins[margins["vectors"] == "random"]
    for fmt, rounding in (
        random.groupby("format", sort=False)["rounding"].median().items()
    ):
        ax.axvline(rounding, color=GREY, linewidth=1, linestyle=shapes.DASHED)
        text = f"rounding in {fmt}"
        shapes.note(ax, text, (rounding, 0), (-2, 3), rotation=90, va="bottom", **small)
    ax.axvline(1, color=GREY, linewidth=1, linestyle=":")
    shapes.note(
        ax, "softmax gives\ne times\nthe weight", (1, 1), (-3, -3), va="top", **small
    )
    ax.set(xscale="log", xlabel="change of a score, one token on (nats)")
    ax.set_xlim(SMALLEST / 3, 20)
    ticks = 10.0 ** np.arange(-10, 1, 2)
    ax.set_xticks(
        [SMALLEST, *ticks], ["0", *(f"$10^{{{np.log10(t):.0f}}}$" for t in ticks)]
    )
    ax.set_title("Arithmetic: representable steps", pad=44, fontsize=10)
    shapes.legend_above(ax)


def _learnable(ax: Axes, inside: pd.DataFrame, order: list[str], trained: int) -> None:
    places = np.arange(len(order))
    for distance, shift, marker in (
        (trained // 8, -0.13, "o"),
        (trained // 2, 0.13, "D"),
    ):
        at = (
            inside[inside["distance_tokens"] == distance]
            .set_index("scheme")
            .reindex(order)
        )
        label, interval = f"from {distance} tokens back", (at["ci_low"], at["ci_high"])
        style, look = (
            {"hollow": distance == trained // 2, "markersize": 5},
            Look(BLACK, marker),
        )
        shapes.dots(ax, at["value"], places + shift, look, label, interval, **style)
    seeds = int(inside["seeds"].max())
    how = f"trained at {trained} tokens, {seeds} seed{'s' if seeds > 1 else ''}"
    ax.set(xlim=(-0.03, 1.03), xlabel=f"tokens copied correctly (share)\n{how}")
    ax.set_title("Trained models: learned copying", pad=44, fontsize=10)
    shapes.legend_above(ax)


def _title(margins: pd.DataFrame, inside: pd.DataFrame, schemes: pd.DataFrame) -> str:
    """Say how much is copied with the slowest single frequency that float32 holds, else
    ask.
    """
    slow = schemes[schemes["frequencies"] == 1]
    if slow.empty:
        return "The use of many frequencies"
    slowest = slow.sort_values("longest_period_tokens").iloc[-1]
    about = {"scheme": slowest["scheme"], "format": "float32", "vectors": "random"}
    held = (
        margins.set_index([*about]).loc[tuple(about.values()), "step_to_rounding"] > 1
    )
    half = inside["train_len_tokens"].iloc[0] / 2
    place = min(
        inside["distance_tokens"].unique(), key=lambda distance: abs(distance - half)
    )
    copies = inside[inside["distance_tokens"] == place].set_index("scheme")["value"]
    copies = copies.reindex(schemes["scheme"])
    if held and copies[slowest["scheme"]] < copies.max() / 2:
        period = f"{slowest['longest_period_tokens']:,.0f} tokens"
        copied = f"{copies[slowest['scheme']]:.2f} from {place:.0f} back with it"
        best = f"{copies.max():.2f} with {copies.idxmax()}"
        return f"float32 holds a period of {period}; models copy {copied}, {best}"
    return "One frequency or many: representable and learned"


def _bands(copies: pd.DataFrame) -> Figure:
    trained = int(copies["train_len_tokens"].iloc[0])
    names = copies["scheme"].str.extract(r"^without\(band=(\w+)\)$")[0]
    absent = copies.assign(removed=names)[names.notna() & (copies["removed"] == KEPT)]
    taken = copies[copies["scheme"] == copies["scheme"].iloc[0]]
    never = pd.concat([taken[taken["removed"] == KEPT], absent])
    wanted = [
        (f"{how}, in {context} tokens", rows[rows["context_tokens"] == context])
        for how, rows in (
            ("taken from the trained model", taken),
            ("absent from training", never),
        )
        for context in (trained, copies["context_tokens"].max())
        if rows["removed"].nunique() > 1
    ]
    figure, axes = shapes.panels(
        len(wanted) // 2, 2, (9, 0.8 + 2.7 * len(wanted) / 2), sharey=True
    )
    for ax, (title, rows) in zip(axes.flat, wanted, strict=True):
        for band, (style, label) in BANDS.items():
            own = rows[rows["removed"] == band].sort_values("distance_tokens")
            x, interval = (
                own["distance_tokens"].astype(float),
                (own["ci_low"], own["ci_high"]),
            )
            shapes.line(ax, x, own["value"], style, label, interval)
        shapes.token_axis(ax)
        ax.set(ylim=(-0.03, 1.03))
        ax.set_title(title, fontsize=9, fontweight="normal")
    for ax in axes[-1]:
        ax.set_xlabel("distance of the copied tokens")
    shapes.legend_below(figure, axes[0][:1], 4)
    figure.supylabel("tokens copied correctly (share)")
    # The third that is missed most near by, and the one missed most far off.
    inside = taken[taken["context_tokens"] == trained]
    wide = inside.pivot(index="distance_tokens", columns="removed", values="value")
    lost = wide.drop(columns=KEPT).rsub(wide[KEPT], axis=0).sort_index()
    near, far = lost.iloc[0].idxmax(), lost.iloc[-1].idxmax()
    where = (
        ", near by and far off" if near == far else f" near by, the {far} third far off"
    )
    shapes.headline(
        figure, f"The {near} third of the frequencies is missed most{where}"
    )
    return figure
