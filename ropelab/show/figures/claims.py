"""Figures of the claims: the ledger by verdict, and series that explain single claims.

Of the sinusoidal code: its waves, their sum, its fall with distance, its rotation.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show import looks
from ropelab.show.figures import shapes
from ropelab.show.looks import (
    AMBER,
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LINES,
    ORANGE,
    Look,
    look,
)

SAID = looks.FIGURES["claims"]
CURVES, SPACINGS = looks.labelled(SAID["curves"]), looks.labelled(SAID["spacings"])
ROW_INCHES = 0.165
# Sums of 64 features that differ by less are the same; their rounding in float64 is
# 1e-14.
SAME = 1e-6


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the ledger if there is more than one claim, then a figure for each series
    there is.
    """
    figures = {"ledger": ledger(tables["claims"])} if len(tables["claims"]) > 1 else {}
    return figures | {
        name: EXPLAINED[name](tables[name]) for name in EXPLAINED if name in tables
    }


def ledger(claims: pd.DataFrame) -> Figure:
    """Draw the ids of all claims in columns by verdict, a panel per kind of
    evidence.
    """
    groups = {kind: claims[claims["evidence"] == kind] for kind in SAID["verdicts"]}
    counts = {kind: group["verdict"].value_counts() for kind, group in groups.items()}
    rows = [max(2, int(count.max())) if len(count) else 1 for count in counts.values()]
    figure = shapes.new_figure((9.2, 1.4 + ROW_INCHES * (sum(rows) + 6)))
    parts = figure.subfigures(
        2, 1, squeeze=False, height_ratios=[count + 4 for count in rows]
    )
    for part, (kind, chosen), count in zip(
        parts[:, 0], groups.items(), rows, strict=True
    ):
        # The third verdict is the negative one.
        negative = counts[kind].get([*SAID["verdicts"][kind]][2], 0)
        shapes.headline(part, SAID["titles"][kind].format(len(chosen), negative))
        axes = part.subplots(1, 4, sharey=True)
        for ax, (verdict, (color, head)) in zip(
            axes, SAID["verdicts"][kind].items(), strict=True
        ):
            ids = chosen.loc[chosen["verdict"] == verdict, "id"]
            ax.set(xlim=(0, 1), ylim=(count + 0.5, -1.6))
            ax.axis("off")
            ax.axhspan(-1.5, -0.5, color=looks.COLORS[color])
            bold = {"color": "white", "fontweight": "bold", "fontsize": 8.5}
            ax.text(0.02, -1.0, f"{len(ids)} {head}", va="center", **bold)
            for row, id_ in enumerate(ids):
                ax.text(0.03, row + 0.2, id_, fontsize=7.5, va="center")
    return figure


def permutation(scores: pd.DataFrame) -> Figure:
    """Draw the two printed score matrices side by side."""
    figure, axes = shapes.panels(1, 2, (8, 3.9))
    for ax, (_, cells) in zip(axes[0], shapes.each(scores, "sentence"), strict=True):
        words = cells.drop_duplicates("row")["query"].tolist()
        quoted = [f"“{word}”" for word in words]
        matrix = cells.pivot(index="row", columns="column", values="score")
        matrix = matrix.set_axis(quoted).set_axis(quoted, axis=1)
        # Shades stop short of the darkest blue: the texts are black in every cell.
        shades, texts = matrix / (1.7 * matrix.to_numpy().max()), shapes.shares(matrix)
        shapes.heat_map(ax, shades, texts, colors="Blues", dark_until=-1, size=12)
        ax.set(xlabel="key", ylabel="query")
        ax.set_title(" ".join(words), fontweight="normal", loc="center")
    shapes.headline(
        figure, "Without positions, another order only rearranges rows and columns"
    )
    return figure


def rotation(vectors: pd.DataFrame) -> Figure:
    """Draw query and key as arrows, at two pairs of positions with the same
    distance.
    """
    figure, axes = shapes.panels(1, 2, (8, 4.2))
    scores = []
    for ax, (case, pair) in zip(axes[0], shapes.each(vectors, "case"), strict=True):
        query, key = pair[["x", "y"]].to_numpy()
        scores.append(float(query @ key))
        shapes.unit_circle(ax, xlim=(-1.9, 1.9), ylim=(-1.3, 1.3), xticks=[], yticks=[])
        for row in shapes.records(pair):
            style = {"query": Look(BLUE, ""), "key": Look(ORANGE, "", "--")}[row.vector]
            shapes.arrow(ax, row.x, row.y, style)
            name, center = (
                f"{row.vector} at {row.position}",
                {"ha": "center", "va": "center"},
            )
            ax.text(1.42 * row.x, 1.16 * row.y, name, color=style.color, **center)
        ax.set_title(
            f"{case}: score {scores[-1]:.2f}", fontweight="normal", loc="center"
        )
    title = "Equal scores: both vectors rotate, the angle between them stays"
    other = "Different scores: both vectors rotate, the angle between them changes"
    # Scores of unit vectors from float64 rotations: equal ones differ by rounding,
    # about 1e-16.
    shapes.headline(figure, title if abs(scores[0] - scores[1]) < 1e-9 else other)
    return figure


def decay(curves: pd.DataFrame) -> Figure:
    """Draw scores by distance: every point thin, means over quarter octaves thick."""
    figure, ax = shapes.new_axes()
    for name, (style, label) in CURVES.items():
        points = curves.loc[curves["curve"] == name, ["distance_tokens", "relative"]]
        # Means over quarter octaves: the far points cover each other on a logarithmic
        # axis.
        smooth = points.groupby((4 * np.log2(points["distance_tokens"])).round()).mean()
        ax.plot(*points.to_numpy().T, color=style.color, linewidth=0.6, alpha=0.4)
        shapes.line(
            ax, smooth["distance_tokens"], smooth["relative"], style, label, linewidth=2
        )
    ax.axhline(0, color=BLACK, linewidth=0.8)
    shapes.token_axis(ax)
    last = curves.groupby("curve")["relative"].last()
    usual = last["independent q and k"] > 0.9 > last["bound"]
    finding = "The bound decays and equal vectors follow; independent vectors do not"
    ax.set(xlabel="distance in tokens", ylabel="relative to distance 0")
    ax.set_title(finding if usual else "Change of scores with distance")
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 0.12))
    return figure


def resolution(table: pd.DataFrame) -> Figure:
    """Draw the share of neighbours with the same code, by scheme, channel and
    format.
    """
    lost = table["adjacent_collisions"] / table["neighbours"]
    of = lost.set_axis(
        pd.MultiIndex.from_frame(table[["scheme", "component", "format"]])
    )
    groups = [
        (scheme, channel)
        for scheme in ("one", "many")
        for channel in ("cos", "cos and sin")
    ]
    figure, ax = shapes.new_axes((8, 4.2))
    for number, fmt in enumerate(dict.fromkeys(table["format"])):
        places = np.arange(len(groups)) + (number - 1) * 0.26
        values = [of[*group, fmt] for group in groups]
        color, hatch = look(fmt).color, ("", "//", "..")[number % 3]
        ax.bar(
            places, values, 0.24, label=fmt, color=color, edgecolor="white", hatch=hatch
        )
        for x, value in zip(places, values, strict=True):
            ax.text(x, value + 0.02, _percent(value), ha="center", fontsize=8.5)
    pairs = table.groupby("scheme")["pairs"].first()
    names = {"one": "one frequency", "many": f"{pairs['many']} frequencies"}
    ax.set_xticks(
        range(len(groups)),
        [f"{names[scheme]}\n{channel}" for scheme, channel in groups],
    )
    ax.set(
        ylabel="neighbours with the same code",
        ylim=(0, 1.12),
        yticks=[0, 0.25, 0.5, 0.75, 1],
    )
    ax.yaxis.set_major_formatter("{x:.0%}")
    ax.grid(axis="x", visible=False)
    full, half = (
        _percent(of["one", "cos and sin", fmt]) for fmt in ("float32", "bfloat16")
    )
    ax.set_title(
        f"One slow frequency: {full} of neighbours lost in float32, {half} in bfloat16"
    )
    ax.legend(loc="upper right")
    return figure


def _percent(share: float) -> str:
    return f"{share:.0%}" if share in (0, 1) else f"{share:.1%}"


def worked_example(cells: pd.DataFrame) -> Figure:
    """Draw the printed table, with the cells marked that are not rounded right."""
    printed, exact, right = (
        cells.pivot(index="position", columns="feature", values=column).rename(
            index="position {}".format, columns=lambda i: f"feature {i + 1}"
        )
        for column in ("printed", "rotated", "rounded_right")
    )
    texts = shapes.shares(printed, ".4f")
    texts = texts.where(right, texts + "\nis " + shapes.shares(exact, ".4f"))
    figure, ax = shapes.new_axes((8, 3.4))
    shades = right.map(lambda is_right: 0.0 if is_right else 1 / 1.6)
    shapes.heat_map(ax, shades, texts, colors="Oranges", dark_until=-1, size=10)
    for text, is_right in zip(ax.texts, right.to_numpy().flat, strict=True):
        text.set_fontweight("normal" if is_right else "bold")
    count = f"{right.to_numpy().sum()} of {right.size} printed cells are rounded right"
    ax.set_title(f"A worked example, d = {printed.shape[1]}: {count}")
    return figure


def sinusoid_code(values: pd.DataFrame) -> Figure:
    """Draw the code as a heat map, and four of its columns as waves."""
    grid = values.pivot(index="feature", columns="position_tokens", values="value")
    figure = shapes.new_figure((9.2, 3.9))
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    image = left.imshow(grid.to_numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    left.set(xlabel="position, tokens", ylabel="feature: sin, cos, sin, cos, ...")
    left.grid(False)
    figure.colorbar(image, ax=left, ticks=[-1, 0, 1], fraction=0.05)
    # Sines of the faster half, evenly taken: the slow half are straight lines.
    features = np.linspace(0, len(grid) // 2, 4).astype(int) // 2 * 2
    for feature, color, dash in zip(
        features, (BLUE, ORANGE, GREEN, BLACK), LINES, strict=True
    ):
        style = Look(color, "", dash)
        shapes.line(right, grid.columns, grid.loc[feature], style, f"feature {feature}")
    right.set(xlabel="position, tokens", ylabel="value", ylim=(-1.1, 1.1))
    shapes.legend_outside(right)
    title = (
        "The sinusoidal code: fast waves in the first features, slow ones in the last"
    )
    shapes.headline(figure, title)
    return figure


def sinusoid_sum(curves: pd.DataFrame) -> Figure:
    """Draw F(t), the sum of all waves, and F one period of the slowest wave later."""
    figure, axes = shapes.panels(1, 2, (9.2, 3.6), sharey=True)
    repeats = {}
    for ax, (spacing, mine) in zip(
        axes[0], shapes.each(curves, "spacing"), strict=True
    ):
        wide = mine.pivot(index="position_tokens", columns="start", values="value")
        repeats[spacing] = bool((wide["0"] - wide["period"]).abs().max() < SAME)
        later = f"F(t + {mine['period_tokens'].iloc[0]:,.0f})"
        shapes.line(ax, wide.index, wide["0"], Look(GREY, ""), "F(t)", linewidth=3.5)
        style, title = SPACINGS[spacing]
        shapes.line(ax, wide.index, wide["period"], Look(style.color, "", "--"), later)
        ax.set_title(title, fontweight="normal", loc="center")
        ax.set(xlabel="t, tokens")
        ax.legend(loc="upper right")
    axes[0, 0].set(ylabel="sum of the features, per pair")
    usual = repeats["harmonic"] and not repeats["exponential"]
    found = (
        "One slowest period later even spacing is back, the Transformer's code is not"
    )
    title = "The sum of the waves, and the sum one period of the slowest wave later"
    shapes.headline(figure, found if usual else title)
    return figure


def sinusoid_distance(curves: pd.DataFrame) -> Figure:
    """Draw the product of two codes against the distance of their positions."""
    figure, ax = shapes.new_axes()
    last = {}
    for spacing, mine in shapes.each(curves, "spacing"):
        shapes.line(ax, mine["distance_tokens"], mine["value"], *SPACINGS[spacing])
        last[spacing] = mine.loc[mine["distance_tokens"] > 100, "value"].max()
    ax.axhline(0, color=BLACK, linewidth=0.8)
    shapes.token_axis(ax)
    ax.set(xlabel="distance in tokens", ylabel="product of two codes, 1 at distance 0")
    ax.legend(loc="upper center", bbox_to_anchor=(0.55, 0.98))
    found = (
        "The Transformer's code falls with the distance; an evenly spaced one comes"
        " back"
    )
    usual = last["harmonic"] > 0.9 > last["exponential"]
    ax.set_title(found if usual else "Similarity of the codes of two positions")
    return figure


def sinusoid_shift(vectors: pd.DataFrame) -> Figure:
    """Draw one pair (sin, cos) as arrows, and the same rotated by the printed
    matrix.
    """
    figure, ax = shapes.new_axes((6.8, 3.7))
    shapes.unit_circle(
        ax, xlim=(-1.9, 1.9), ylim=(-0.2, 1.3), xlabel="sin", ylabel="cos"
    )
    ax.set(xticks=[-1, 0, 1], yticks=[0, 1])
    styles = Look(GREY, ""), Look(BLUE, ""), Look(AMBER, "", "--")
    for row, style in zip(shapes.records(vectors), styles, strict=True):
        shapes.arrow(ax, row.x, row.y, style)
        x, y, side = 1.1 * row.x, 1.1 * row.y + 0.03, "left" if row.x > 0 else "right"
        ax.text(x, y, row.vector, ha=side, va="center", color=style.color)
    later, rotated = vectors[["x", "y"]].to_numpy()[1:]
    found = "(sin, cos) rotates clockwise: a standard rotation takes it back by δ"
    agree = bool(np.abs(later - rotated).max() < SAME)
    ax.set_title(
        "A standard rotation takes the code where it belongs" if agree else found
    )
    return figure


BASICS = (permutation, rotation, resolution, decay, worked_example)
CODE = (sinusoid_code, sinusoid_shift, sinusoid_sum, sinusoid_distance)
# By the name of the table that each draws.
EXPLAINED: dict[str, Callable[[pd.DataFrame], Figure]]
EXPLAINED = {make.__name__: make for make in (*BASICS, *CODE)}
