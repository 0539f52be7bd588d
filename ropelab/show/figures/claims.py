"""Figures of the claims: the ledger by verdict, and what explains single claims."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.claims.record import OUTCOMES, Kind, Verdict
from ropelab.runs.tables import Tables
from ropelab.show.figures import sinusoids
from ropelab.show.figures.style import AMBER, BLACK, BLUE, GREEN, GREY, ORANGE, color_of, token_axis

COLORS = {
    Verdict.HOLDS: GREEN,
    Verdict.CONDITION: BLUE,
    Verdict.WRONG: ORANGE,
    Verdict.REPRODUCED: GREEN,
    Verdict.PARTLY: BLUE,
    Verdict.NOT_REPRODUCED: AMBER,
    Verdict.UNDECIDED: GREY,
}
HEADS = {
    Verdict.HOLDS: "hold",
    Verdict.CONDITION: "hold with a condition",
    Verdict.WRONG: "are wrong",
    Verdict.REPRODUCED: "reproduced here",
    Verdict.PARTLY: "with a condition",
    Verdict.NOT_REPRODUCED: "not reproduced here",
    Verdict.UNDECIDED: "not decidable here",
}
ROW_INCHES = 0.165


def draw(tables: Tables) -> dict[str, Figure]:
    """The ledger if there is more than one claim, then a figure for each series there is."""
    figures = {"ledger": ledger(tables["claims"])} if len(tables["claims"]) > 1 else {}
    for name, make in EXPLAINED.items():
        if name in tables:
            figures[name] = make(tables[name])
    return figures


def ledger(claims: pd.DataFrame) -> Figure:
    """The ids of all claims in columns by verdict: above by arithmetic, below of trained models."""
    groups = {kind: claims[claims["evidence"] == kind] for kind in Kind}
    rows = [
        max(int(g["verdict"].value_counts().max()), 2) if len(g) else 1 for g in groups.values()
    ]
    height = 1.4 + ROW_INCHES * (sum(rows) + 6)
    figure = plt.figure(figsize=(9.2, height))
    panels = figure.subfigures(2, 1, squeeze=False, height_ratios=[count + 4 for count in rows])
    for panel, (kind, chosen), count in zip(panels[:, 0], groups.items(), rows, strict=True):
        panel.suptitle(_title(kind, chosen), x=0.01, ha="left", fontsize=11, fontweight="bold")
        axes = panel.subplots(1, 4, sharey=True)
        for ax, verdict in zip(axes, OUTCOMES[kind], strict=True):
            _column(ax, verdict, chosen[chosen["verdict"] == verdict], count)
    return figure


def _title(kind: Kind, claims: pd.DataFrame) -> str:
    counts = claims["verdict"].value_counts()
    if kind is Kind.ARITHMETIC:
        wrong = counts.get(str(Verdict.WRONG), 0)
        return f"{len(claims)} statements that arithmetic decides: {wrong} are wrong"
    missed = counts.get(str(Verdict.NOT_REPRODUCED), 0)
    return (
        f"{len(claims)} statements about trained models, asked of small ones: {missed} are not "
        "reproduced here"
    )


def _column(ax: Axes, verdict: Verdict, claims: pd.DataFrame, rows: int) -> None:
    """One verdict: a coloured head, and a line per claim."""
    ax.set(xlim=(0, 1), ylim=(rows + 0.5, -1.6))
    ax.axis("off")
    ax.axhspan(-1.5, -0.5, color=COLORS[verdict])
    head = f"{len(claims)} {HEADS[verdict]}"
    ax.text(0.02, -1.0, head, color="white", fontweight="bold", fontsize=8.5, va="center")
    for line, id_ in enumerate(claims["id"]):
        ax.text(0.03, line + 0.2, id_, fontsize=7.5, va="center")


def permutation(scores: pd.DataFrame) -> Figure:
    """The two printed score matrices side by side."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.9))
    for ax, (_, cells) in zip(axes, scores.groupby("sentence", sort=False), strict=True):
        matrix = cells.pivot(index="row", columns="column", values="score").to_numpy()
        words = cells.drop_duplicates("row")["query"].tolist()
        ax.imshow(matrix, cmap="Blues", vmin=0, vmax=1.7 * matrix.max())
        for (row, column), score in np.ndenumerate(matrix):
            ax.text(column, row, f"{score:.2f}", ha="center", va="center", fontsize=12)
        ax.set_xticks(range(len(words)), [f"“{word}”" for word in words])
        ax.set_yticks(range(len(words)), [f"“{word}”" for word in words])
        ax.set(xlabel="key", ylabel="query")
        ax.set_title(" ".join(words), fontweight="normal", loc="center")
        ax.grid(False)
    figure.suptitle(
        "Without positions, another order only rearranges rows and columns",
        x=0.01,
        ha="left",
        fontsize=11,
        fontweight="bold",
    )
    return figure


def rotation(vectors: pd.DataFrame) -> Figure:
    """Query and key as arrows, at two pairs of positions with the same distance."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 4.2))
    scores = []
    for ax, (case, pair) in zip(axes, vectors.groupby("case", sort=False), strict=True):
        points = pair[["x", "y"]].to_numpy()
        scores.append(float(points[0] @ points[1]))
        _arrows(ax, pair)
        ax.set_title(f"{case}: score {scores[-1]:.2f}", fontweight="normal", loc="center")
    same = abs(scores[0] - scores[1]) < 1e-9
    figure.suptitle(
        f"{'Equal' if same else 'Different'} scores: both vectors turn, the angle between them "
        f"{'stays' if same else 'changes'}",
        x=0.01,
        ha="left",
        fontsize=11,
        fontweight="bold",
    )
    return figure


def _arrows(ax: Axes, pair: pd.DataFrame) -> None:
    circle = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(circle), np.sin(circle), color="#cccccc", linewidth=1)
    looks = {"query": (BLUE, "-"), "key": (ORANGE, "--")}
    for _, row in pair.iterrows():
        color, line = looks[row["vector"]]
        arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 2, "linestyle": line}
        ax.annotate("", (row["x"], row["y"]), (0, 0), arrowprops={**arrow, "shrinkA": 0})
        label = f"{row['vector']} at {row['position']}"
        ax.text(1.42 * row["x"], 1.16 * row["y"], label, ha="center", va="center", color=color)
    ax.set(xlim=(-1.9, 1.9), ylim=(-1.3, 1.3), aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.grid(False)


def decay(curves: pd.DataFrame) -> Figure:
    """What falls with the distance and what does not: every point thin, means thick."""
    figure, ax = plt.subplots()
    looks = {
        "independent q and k": (GREY, ":", "typical |score| of independent q and k"),
        "bound": (BLUE, "-", "bound of the RoFormer paper"),
        "equal q and k": (ORANGE, "--", "mean score of q = k"),
    }
    for name, (color, line, label) in looks.items():
        curve = curves[curves["curve"] == name]
        xy = curve[["distance_tokens", "relative"]]
        smooth = xy.groupby((4 * np.log2(xy["distance_tokens"])).round()).mean()
        ax.plot(*xy.to_numpy().T, color=color, linewidth=0.6, alpha=0.4)
        ax.plot(*smooth.to_numpy().T, line, color=color, label=label, linewidth=2)
    ax.axhline(0, color=BLACK, linewidth=0.8)
    token_axis(ax)
    ax.set(xlabel="distance in tokens", ylabel="relative to distance 0")
    last = curves.groupby("curve")["relative"].last()
    ax.set_title(
        "The bound decays and equal vectors follow; independent vectors do not"
        if last["independent q and k"] > 0.9 > last["bound"]
        else "How scores change with distance"
    )
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 0.12))
    return figure


def one_or_many(resolution: pd.DataFrame) -> Figure:
    """Share of neighbours with the same code, by scheme, channel and format."""
    shares = (
        resolution.assign(share=resolution["adjacent_collisions"] / resolution["neighbours"])
        .set_index(["scheme", "channel", "format"])["share"]
        .to_dict()
    )
    groups = [(scheme, channel) for scheme in ("one", "many") for channel in ("cos", "cos and sin")]
    formats = list(dict.fromkeys(resolution["format"]))
    figure, ax = plt.subplots(figsize=(8, 4.2))
    hatches = ("", "//", "..")
    for k, fmt in enumerate(formats):
        at = np.arange(len(groups)) + (k - 1) * 0.26
        values = [shares[scheme, channel, fmt] for scheme, channel in groups]
        bars = ax.bar(at, values, 0.24, label=fmt, color=color_of(fmt), edgecolor="white")
        for bar in bars:
            bar.set_hatch(hatches[k % 3])
        for x, value in zip(at, values, strict=True):
            ax.text(x, value + 0.02, _percent(value), ha="center", fontsize=8.5)
    pairs = resolution.groupby("scheme")["pairs"].first()
    names = {"one": "one frequency", "many": f"{pairs['many']} frequencies"}
    ax.set_xticks(range(len(groups)), [f"{names[scheme]}\n{channel}" for scheme, channel in groups])
    ax.set(ylabel="neighbours with the same code", ylim=(0, 1.12), yticks=[0, 0.25, 0.5, 0.75, 1])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.grid(axis="x", visible=False)
    ax.set_title(
        f"One slow frequency: {_percent(shares['one', 'cos and sin', 'float32'])} of neighbours "
        f"lost in float32, {_percent(shares['one', 'cos and sin', 'bfloat16'])} in bfloat16"
    )
    ax.legend(loc="upper right")
    return figure


def _percent(share: float) -> str:
    return f"{share:.0%}" if share in (0, 1) else f"{share:.1%}"


def worked_example(cells: pd.DataFrame) -> Figure:
    """The printed table, with the cells marked that are not rounded right."""
    printed, exact, right = (
        cells.pivot(index="position", columns="feature", values=column).to_numpy()
        for column in ("printed", "rotated", "rounded_right")
    )
    figure, ax = plt.subplots(figsize=(8, 3.4))
    ax.imshow(np.where(right, 0.0, 1.0), cmap="Oranges", vmin=0, vmax=1.6, aspect="auto")
    for (row, column), value in np.ndenumerate(printed):
        wrong = not right[row, column]
        text = f"{value:.4f}" + (f"\nis {exact[row, column]:.4f}" if wrong else "")
        ax.text(column, row, text, ha="center", va="center", fontweight="bold" if wrong else None)
    ax.set_xticks(range(printed.shape[1]), [f"feature {i + 1}" for i in range(printed.shape[1])])
    ax.set_yticks(range(len(printed)), [f"position {m}" for m in range(len(printed))])
    ax.grid(False)
    ax.set_title(
        f"A worked example, d = {printed.shape[1]}: {int(right.sum())} of {right.size} printed "
        "cells are rounded right"
    )
    return figure


EXPLAINED: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "permutation": permutation,
    "rotation": rotation,
    "resolution": one_or_many,
    "decay": decay,
    "worked_example": worked_example,
    "sinusoid_code": sinusoids.code,
    "sinusoid_shift": sinusoids.shift,
    "sinusoid_sum": sinusoids.summed,
    "sinusoid_distance": sinusoids.by_distance,
}
