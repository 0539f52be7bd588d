"""One frequency or many: arithmetic beside trained models, and what each band is for."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures.style import AMBER, BLACK, BLUE, GREY, ORANGE, SKY, token_axis

COPY = "copy accuracy"
KEPT = "none"
VECTORS = {
    "aligned at 0": (SKY, "v", "key = query, distance 0 to 1"),
    "random": (BLACK, "o", "random query and key"),
    "largest": (BLUE, "^", "the most that is possible"),
}
BANDS = {KEPT: (BLACK, "o"), "fast": (ORANGE, "^"), "middle": (AMBER, "s"), "slow": (BLUE, "v")}
SMALLEST = 1e-12
"""Where a change of nothing is drawn on a logarithmic axis, in nats."""


def draw(tables: Tables) -> dict[str, Figure]:
    """The figures of one run; those whose rows it has."""
    figures = {}
    learned = tables["learned"]
    if (learned["metric"] == COPY).any():
        figures["one_or_many"] = one_or_many(tables)
        if (learned["removed"] != KEPT).any():
            figures["bands"] = bands(learned)
    return figures


def one_or_many(tables: Tables) -> Figure:
    """A row per scheme: how far a token moves a score, and what was copied after training."""
    schemes = in_order(tables["schemes"])
    figure, (left, right) = plt.subplots(
        1, 2, sharey=True, figsize=(10, 2.2 + 0.32 * len(schemes)), width_ratios=(1.25, 1)
    )
    _representable(left, tables["representable"], list(schemes["scheme"]))
    _learnable(right, tables["learned"], list(schemes["scheme"]))
    left.set_yticks(range(len(schemes)), [called(row) for _, row in schemes.iterrows()])
    left.set_ylabel("frequencies of a head")
    left.invert_yaxis()
    figure.suptitle(
        _title(tables["representable"], tables["learned"], schemes),
        x=0.01, ha="left", fontweight="bold", fontsize=11,
    )  # fmt: skip
    return figure


def in_order(schemes: pd.DataFrame) -> pd.DataFrame:
    """From no frequency to many, slow ones first; without those that lack a band."""
    shown = schemes[~schemes["scheme"].str.startswith("without")]
    return shown.sort_values(
        ["frequencies", "longest_period_tokens"], ascending=[True, False], kind="stable"
    )


def called(row: pd.Series) -> str:
    """A scheme as a reader calls it: how many frequencies, and how they are spread."""
    if row["frequencies"] == 0:
        return "none"
    if row["frequencies"] == 1:
        return f"1, period {row['longest_period_tokens']:,.4g}".replace("e+0", "e")
    if row["scheme"].startswith("spaced"):
        spread = "equal steps" if "uniform" in row["scheme"] else "geometric"
        return f"{row['frequencies']}, {spread}"
    name = "RoPE" if row["scheme"] == "unscaled" else row["scheme"]
    return f"{row['frequencies']}, {name}"


def _representable(ax: Axes, signals: pd.DataFrame, order: list[str]) -> None:
    for vectors, (color, marker, label) in VECTORS.items():
        rows = signals[(signals["vectors"] == vectors) & (signals["format"] == "float32")]
        steps = rows.set_index("scheme")["score_step"].reindex(order)
        seen = steps.where(steps > 0, SMALLEST)
        ax.plot(seen, range(len(order)), marker, color=color, label=label, markersize=6)
    random = signals[signals["vectors"] == "random"]
    for fmt, rounding in random.groupby("format", sort=False)["rounding"].median().items():
        ax.axvline(rounding, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        ax.annotate(
            f"rounding in\n{fmt}", (rounding, 0), xycoords=("data", "axes fraction"),
            xytext=(-2, 3), textcoords="offset points", fontsize=7, color="#555555", rotation=90,
            ha="right", va="bottom",
        )  # fmt: skip
    ax.axvline(1, color=GREY, linewidth=1, linestyle=":")
    ax.annotate(
        "softmax gives\ne times\nthe weight", (1, 1), xycoords=("data", "axes fraction"),
        xytext=(-3, -3), textcoords="offset points", fontsize=7, color="#555555", ha="right",
        va="top",
    )  # fmt: skip
    ax.set(xscale="log", xlabel="change of a score, one token on (nats)")
    ax.set_xlim(SMALLEST / 3, 20)
    ticks = 10.0 ** np.arange(-10, 1, 2)
    ax.set_xticks([SMALLEST, *ticks], ["0", *(f"$10^{{{np.log10(t):.0f}}}$" for t in ticks)])
    ax.set_title("Arithmetic: what can be represented", pad=44, fontsize=10)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=8, handletextpad=0.1)


def _learnable(ax: Axes, learned: pd.DataFrame, order: list[str]) -> None:
    """Copying inside the trained length, from near and from far, with intervals over seeds."""
    trained = int(learned["train_len_tokens"].iloc[0])
    rows = learned[
        (learned["metric"] == COPY)
        & (learned["removed"] == KEPT)
        & (learned["context_tokens"] == trained)
    ]
    y = np.arange(len(order))
    for distance, marker, face, shift in ((trained // 8, "o", BLACK, -0.13), (
        trained // 2, "D", "white", 0.13
    )):  # fmt: skip
        at = rows[rows["distance_tokens"] == distance].set_index("scheme").reindex(order)
        ax.hlines(y + shift, at["ci_low"], at["ci_high"], color=GREY, linewidth=3, alpha=0.45)
        ax.plot(
            at["value"], y + shift, marker, color=BLACK, markerfacecolor=face, markersize=5,
            label=f"from {distance} tokens back",
        )  # fmt: skip
    seeds = int(rows["seeds"].max())
    how = f"trained at {trained} tokens, {seeds} seed{'s' if seeds > 1 else ''}"
    ax.set(xlim=(-0.03, 1.03), xlabel=f"tokens copied correctly (share)\n{how}")
    ax.set_title("Trained models: what is learned", pad=44, fontsize=10)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=8, handletextpad=0.1)


def _title(signals: pd.DataFrame, learned: pd.DataFrame, schemes: pd.DataFrame) -> str:
    """The finding, where one slow frequency is representable and not learned; else the question."""
    slow = schemes[schemes["frequencies"] == 1]
    if slow.empty:
        return "What many frequencies are for"
    scheme = slow.sort_values("longest_period_tokens").iloc[-1]
    signal = signals[(signals["scheme"] == scheme["scheme"]) & (signals["format"] == "float32")]
    held = signal.loc[signal["vectors"] == "random", "step_to_rounding"].item() > 1
    trained = learned["train_len_tokens"].iloc[0]
    copies = learned[
        (learned["metric"] == COPY)
        & (learned["context_tokens"] == trained)
        & (learned["removed"] == KEPT)
    ]
    means = copies.groupby("scheme")["value"].mean()
    if held and means[scheme["scheme"]] < means.max() / 2:
        return "float32 holds the steps of one slow frequency; a model still does not learn with it"
    return "One frequency or many: what is represented, and what is learned"


def bands(learned: pd.DataFrame) -> Figure:
    """Copying by distance: a band absent from training, and one taken from a trained model."""
    trained = int(learned["train_len_tokens"].iloc[0])
    copies = learned[learned["metric"] == COPY]
    first = copies["scheme"].iloc[0]
    absent = copies[copies["scheme"].str.fullmatch(r"without\(band=\w+\)") & (
        copies["removed"] == KEPT
    )]  # fmt: skip
    names = absent["scheme"].str.extract(r"band=(\w+)")[0]
    whole = copies[(copies["scheme"] == first) & (copies["removed"] == KEPT)]
    never = pd.concat([whole, absent.assign(removed=names)])
    taken = copies[copies["scheme"] == first]
    longest = copies["context_tokens"].max()
    panels = [
        ("taken from the trained model", taken, trained),
        ("taken from the trained model", taken, longest),
        ("never there in training", never, trained),
        ("never there in training", never, longest),
    ]
    wanted = [p for p in panels if p[1]["removed"].nunique() > 1]
    figure, axes = plt.subplots(
        len(wanted) // 2, 2, sharey=True, squeeze=False, figsize=(9, 0.8 + 2.7 * len(wanted) / 2)
    )
    for ax, (title, rows, context) in zip(axes.flat, wanted, strict=True):
        _by_distance(ax, rows[rows["context_tokens"] == context])
        ax.set_title(f"{title}, in {context} tokens", fontsize=9, fontweight="normal")
    for ax in axes[-1]:
        ax.set_xlabel("distance of what is copied (tokens)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    figure.supylabel("tokens copied correctly (share)", fontsize=10)
    figure.suptitle(
        _bands_title(taken[taken["context_tokens"] == trained]),
        x=0.01, ha="left", fontweight="bold", fontsize=11,
    )  # fmt: skip
    return figure


def _by_distance(ax: Axes, rows: pd.DataFrame) -> None:
    for band, (color, marker) in BANDS.items():
        line = rows[rows["removed"] == band].sort_values("distance_tokens")
        distance = line["distance_tokens"].astype(float)
        label = "all frequencies" if band == KEPT else f"without the {band} third"
        ax.plot(distance, line["value"], color=color, marker=marker, label=label)
        ax.fill_between(distance, line["ci_low"], line["ci_high"], color=color, alpha=0.15, lw=0)
    token_axis(ax)
    ax.set(ylim=(-0.03, 1.03))


def _bands_title(rows: pd.DataFrame) -> str:
    """Which third is missed most near by, and which far off; the notes promise fast and slow."""
    wide = rows.pivot(index="distance_tokens", columns="removed", values="value")
    lost = wide.drop(columns=KEPT).rsub(wide[KEPT], axis=0).sort_index()
    near, far = lost.iloc[0].idxmax(), lost.iloc[-1].idxmax()
    if near == far:
        return f"The {near} third of the frequencies is missed most, near by and far off"
    return f"The {near} third of the frequencies is missed most near by, the {far} third far off"
