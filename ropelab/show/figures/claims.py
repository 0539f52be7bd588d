"""Figures of the claims: the ledger by verdict, and series that explain single claims.

The ledger is a list of published statements about position encodings, each with a
verdict. The sinusoidal code is the encoding of the first Transformer: a sine and a cosine
of the position for each frequency.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import (
    AMBER,
    BLACK,
    BLUE,
    COLORS,
    FIGURES,
    GREEN,
    GREY,
    LINES,
    ORANGE,
    Look,
    find_look,
    read_looks,
)

WORDS = FIGURES["claims"]
# The looks and labels of the curves of `draw_decay`, and of the two ways to space the
# frequencies of the sinusoidal code.
CURVES = read_looks(WORDS["curves"])
SPACINGS = read_looks(WORDS["spacings"])
# The height of a row of the ledger, in inches.
ROW_INCHES = 0.165
# Rows that the title and the names of the verdicts take above the ids.
HEAD_ROWS = 4
# Two sums of 64 features count as equal if they differ by less than this. Their rounding
# error in float64 is 1e-14.
SUM_TOLERANCE = 1e-6
# Two scores of unit vectors count as equal if they differ by less than this. Their
# rounding error in float64 is 1e-16.
SCORE_TOLERANCE = 1e-9
# The four groups of bars of `draw_resolution`: one frequency or many, and the part of
# their encoding that is stored.
CODES = (
    ("one", "cos"),
    ("one", "cos and sin"),
    ("many", "cos"),
    ("many", "cos and sin"),
)
HATCHES = ("", "//", "..")
# The width of a bar, and the distance between the middles of neighbouring bars of a group.
# Groups are 1 apart.
BAR_WIDTH = 0.24
BAR_DISTANCE = 0.26

Draw = Callable[[pd.DataFrame], Figure]
# The functions that draw tables which explain claims, by the name of the table.
EXPLANATIONS: dict[str, Draw] = {}


def register_explanation(table: str) -> Callable[[Draw], Draw]:
    """Let a function draw the table of this name."""

    def register(draw: Draw) -> Draw:
        if table in EXPLANATIONS:
            raise ValueError(f"the table '{table}' has two figures")
        EXPLANATIONS[table] = draw
        return draw

    return register


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw the ledger if it has several claims, and every table that explains a claim."""
    figures = {}
    if len(tables["claims"]) > 1:
        figures["ledger"] = draw_ledger(tables["claims"])
    for name, draw_series in EXPLANATIONS.items():
        if name in tables:
            figures[name] = draw_series(tables[name])
    return figures


def draw_ledger(claims: pd.DataFrame) -> Figure:
    """Draw the ids of all claims in columns by verdict, a panel per kind of
    evidence.
    """
    groups = {kind: claims[claims["evidence"] == kind] for kind in WORDS["verdicts"]}
    row_counts = [_count_rows(group) for group in groups.values()]
    figure = shapes.make_figure((9.2, 1.4 + ROW_INCHES * (sum(row_counts) + 6)))
    heights = [count + HEAD_ROWS for count in row_counts]
    # There are two kinds of evidence: arithmetic, and below it trained models.
    parts = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)

    panels = zip(parts[:, 0], groups.items(), row_counts, strict=True)
    for panel, (kind, group), row_count in panels:
        _draw_verdicts(panel, kind, group, row_count)
    return figure


def _count_rows(claims: pd.DataFrame) -> int:
    """Return the number of rows of the longest column of ids. It is at least two, unless
    there is no claim.
    """
    if claims.empty:
        return 1
    return max(2, int(claims["verdict"].value_counts().max()))


def _draw_verdicts(
    panel: SubFigure, kind: str, claims: pd.DataFrame, rows: int
) -> None:
    """Draw a column for each verdict on claims of one kind of evidence."""
    verdicts = WORDS["verdicts"][kind]
    # The verdicts are in the order of the columns: the statement holds, holds with a
    # condition, does not hold, or cannot be decided.
    _, _, negative_verdict, _ = verdicts
    negative_count = int((claims["verdict"] == negative_verdict).sum())
    title = WORDS["titles"][kind].format(len(claims), negative_count)
    shapes.set_headline(panel, title)

    axes = panel.subplots(1, 4, sharey=True)
    bold = {"color": "white", "fontweight": "bold", "fontsize": 8.5}
    for ax, (verdict, (color, head)) in zip(axes, verdicts.items(), strict=True):
        ids = claims.loc[claims["verdict"] == verdict, "id"]
        ax.set(xlim=(0, 1), ylim=(rows + 0.5, -1.6))
        ax.axis("off")
        ax.axhspan(-1.5, -0.5, color=COLORS[color])
        ax.text(0.02, -1.0, f"{len(ids)} {head}", va="center", **bold)
        for row, id_ in enumerate(ids):
            ax.text(0.03, row + 0.2, id_, fontsize=7.5, va="center")


@register_explanation("permutation")
def draw_permutation(scores: pd.DataFrame) -> Figure:
    """Draw the two printed score matrices side by side."""
    figure, axes = shapes.make_panels(1, 2, (8, 3.9))
    sentences = shapes.split_by(scores, "sentence")
    for ax, (_, cells) in zip(axes[0], sentences, strict=True):
        words = cells.drop_duplicates("row")["query"].tolist()
        quoted = [f"“{word}”" for word in words]
        matrix = cells.pivot(index="row", columns="column", values="score")
        matrix = matrix.set_axis(quoted).set_axis(quoted, axis=1)

        # The shades do not reach the darkest blue, on which black text cannot be read.
        shades = matrix / (1.7 * matrix.to_numpy().max())
        texts = shapes.format_shares(matrix)
        shapes.draw_heat_map(ax, shades, texts, colors="Blues", dark_until=-1, size=12)
        ax.set(xlabel="key", ylabel="query")
        ax.set_title(" ".join(words), fontweight="normal", loc="center")

    title = "Without positions, another order only rearranges rows and columns"
    shapes.set_headline(figure, title)
    return figure


@register_explanation("rotation")
def draw_rotation(vectors: pd.DataFrame) -> Figure:
    """Draw a query and a key as arrows, at two pairs of positions with the same distance.

    There is a panel for each pair of positions.
    """
    figure, axes = shapes.make_panels(1, 2, (8, 3.6))
    scores = []
    cases = shapes.split_by(vectors, "case")
    for ax, (case, pair) in zip(axes[0], cases, strict=True):
        query, key = pair[["x", "y"]].to_numpy()
        score = float(query @ key)
        scores.append(score)
        _draw_query_and_key(ax, pair)
        _draw_angle(ax, query, key)
        title = f"{case}: score {shapes.write_signed(score, '.2f')}"
        ax.set_title(title, fontweight="normal", loc="center")

    if abs(scores[0] - scores[1]) < SCORE_TOLERANCE:
        title = "Equal scores: both vectors rotate, the angle between them stays"
    else:
        title = "Different scores: both vectors rotate, the angle between them changes"
    shapes.set_headline(figure, title)
    figure.supxlabel(_describe_turns(vectors))
    return figure


def _describe_turns(vectors: pd.DataFrame) -> str:
    """Say by how many degrees the vectors turn per token, and how far apart they are
    before they are turned.
    """
    angles = np.degrees(np.arctan2(vectors["y"], vectors["x"]))
    queries = vectors["vector"] == "query"
    first, second = angles[queries]
    positions = vectors["position"].to_numpy()
    later, earlier = positions[queries]
    per_token = (first - second) % 360 / (later - earlier)
    # The key is turned back by its position, and the query by its own.
    unrotated = angles - per_token * positions
    apart = (unrotated[~queries].iloc[0] - unrotated[queries].iloc[0]) % 360
    return (
        f"{per_token:.0f}° per token; the unrotated query and key are"
        f" {min(apart, 360 - apart):.0f}° apart"
    )


def _draw_angle(ax: Axes, query: np.ndarray, key: np.ndarray) -> None:
    """Draw the angle between two unit vectors, in degrees."""
    cosine = np.clip(query @ key / np.linalg.norm(query) / np.linalg.norm(key), -1, 1)
    degrees = np.degrees(np.arccos(cosine))
    _draw_arc(ax, query, key, f"{degrees:.0f}°", shapes.NOTE_COLOR)


def _draw_query_and_key(ax: Axes, pair: pd.DataFrame) -> None:
    looks = {"query": Look(BLUE, ""), "key": Look(ORANGE, "", "--")}
    shapes.draw_unit_circle(
        ax,
        xlim=(-1.9, 1.9),
        ylim=(-1.3, 1.3),
        xticks=[],
        yticks=[],
    )

    for row in shapes.iterate_rows(pair):
        look = looks[row.vector]
        shapes.draw_arrow(ax, row.x, row.y, look)
        ax.text(
            1.42 * row.x,
            1.16 * row.y,
            f"{row.vector} at {row.position}",
            color=look.color,
            ha="center",
            va="center",
        )


@register_explanation("resolution")
def draw_resolution(table: pd.DataFrame) -> Figure:
    """Draw the share of neighbouring positions that are stored alike.

    There is a group of bars for each of CODES, and a bar for each number format.
    """
    shares = table["adjacent_collisions"] / table["neighbours"]
    names = table[["scheme", "component", "format"]]
    shares.index = pd.MultiIndex.from_frame(names)

    figure, ax = shapes.make_axes((8, 4.2))
    for number, fmt in enumerate(table["format"].drop_duplicates()):
        # There are three formats. The bar of the second one is in the middle of its group.
        x_positions = np.arange(len(CODES)) + (number - 1) * BAR_DISTANCE
        values = [shares[scheme, component, fmt] for scheme, component in CODES]
        ax.bar(
            x_positions,
            values,
            BAR_WIDTH,
            label=fmt,
            color=find_look(fmt).color,
            edgecolor="white",
            hatch=HATCHES[number % 3],
        )
        for x, value in zip(x_positions, values, strict=True):
            ax.text(x, value + 0.02, _write_percent(value), ha="center", fontsize=8.5)

    pairs = table.groupby("scheme")["pairs"].first()
    words = {"one": "one frequency", "many": f"{pairs['many']} frequencies"}
    labels = [f"{words[scheme]}\n{component}" for scheme, component in CODES]
    ax.set_xticks(range(len(CODES)), labels)
    ax.set(ylabel="neighbours stored as the same number", ylim=(0, 1.12))
    last = int(table["neighbours"].iloc[0])
    ax.set_xlabel(
        f"positions 0 to {last:,}; {WORDS['one_frequency']}\n"
        "numbers: the share, also of bars too low to be seen"
    )
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.yaxis.set_major_formatter("{x:.0%}")
    ax.grid(axis="x", visible=False)

    share_with_one = _write_percent(shares["one", "cos and sin", "bfloat16"])
    share_with_many = _write_percent(shares["many", "cos and sin", "bfloat16"])
    ax.set_title(
        f"In bfloat16 {share_with_one} of neighbours are stored alike with one slow\n"
        f"frequency, and {share_with_many} with {pairs['many']} frequencies"
    )
    ax.legend(loc="center right")
    return figure


def _write_percent(share: float) -> str:
    if share in (0, 1):
        return f"{share:.0%}"
    return f"{share:.1%}"


@register_explanation("decay")
def draw_decay(curves: pd.DataFrame) -> Figure:
    """Draw scores by distance.

    Thin lines have every point. On the logarithmic axis points at large distances cover
    each other, so thick lines show the means over quarter octaves.
    """
    figure, ax = shapes.make_axes()
    for name, (look, label) in CURVES.items():
        points = curves.loc[curves["curve"] == name, ["distance_tokens", "relative"]]
        x = points["distance_tokens"]
        ax.plot(x, points["relative"], color=look.color, linewidth=0.6, alpha=0.4)

        quarter_octaves = (4 * np.log2(x)).round()
        means = points.groupby(quarter_octaves).mean()
        shapes.draw_line(
            ax,
            means["distance_tokens"],
            means["relative"],
            look,
            label,
            linewidth=2,
        )
    ax.axhline(0, color=BLACK, linewidth=0.8)
    shapes.set_token_axis(ax)

    last = curves.groupby("curve")["relative"].last()
    title = "Change of scores with distance"
    if last["independent q and k"] > 0.9 > last["bound"]:
        title = "RoFormer's bound and equal vectors decay, independent ones do not"
    ax.set(xlabel="distance (tokens)", ylabel="each curve relative to its own start")
    ax.set_title(title)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 0.12))
    return figure


@register_explanation("worked_example")
def draw_worked_example(cells: pd.DataFrame) -> Figure:
    """Draw a table that a text prints, and mark the cells that are rounded wrongly."""
    printed = _pivot_cells(cells, "printed")
    exact = _pivot_cells(cells, "rotated")
    is_right = _pivot_cells(cells, "rounded_right").astype(bool)

    texts = shapes.format_shares(printed, ".4f")
    # The exact value shows why the last digit must be another.
    corrections = (
        ("printed " + texts)
        + ("\nexact " + shapes.format_shares(exact, ".10f"))
        + ("\nmust be " + shapes.format_shares(exact, ".4f"))
    )
    texts = texts.where(is_right, corrections)
    # Right cells are white. Wrong cells are pale, so that black text can be read on them.
    shades = (~is_right).astype(float) / 1.6
    figure, ax = shapes.make_axes((8, 4.2))
    shapes.draw_heat_map(ax, shades, texts, colors="Oranges", dark_until=-1, size=10)
    for text, is_cell_right in zip(ax.texts, is_right.to_numpy().flat, strict=True):
        text.set_fontweight("normal" if is_cell_right else "bold")

    wrong_count = int((~is_right).to_numpy().sum())
    verb = "is" if wrong_count == 1 else "are"
    count = f"{wrong_count} of {is_right.size}"
    ax.set_title(f"{count} cells of a printed example {verb} rounded wrongly")
    ax.set_xlabel(
        "each position has a vector of its own; cells: its features after the rotation,"
        "\nto four digits"
    )
    return figure


def _pivot_cells(cells: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a column of the cells as a table: a row per position, a column per
    feature.
    """
    table = cells.pivot(index="position", columns="feature", values=column)
    positions = [f"position {position}" for position in table.index]
    features = [f"feature {int(str(index)) + 1}" for index in table.columns]
    return table.set_axis(positions).set_axis(features, axis=1)


@register_explanation("sinusoid_code")
def draw_sinusoid_code(values: pd.DataFrame) -> Figure:
    """Draw the code as a heat map, and four of its columns as waves."""
    grid = values.pivot(index="feature", columns="position_tokens", values="value")
    figure = shapes.make_figure((9.2, 3.9))
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    image = left.imshow(grid.to_numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    left.set(
        xlabel=f"position (tokens); {WORDS['small_code']}",
        ylabel="feature (sin, cos, sin, cos, ...)",
    )
    left.grid(False)
    figure.colorbar(image, ax=left, ticks=[-1, 0, 1], fraction=0.05, label="value")

    # Four features from the faster half, since slow waves look like straight lines. Even
    # features are sines.
    features = np.linspace(0, len(grid) // 2, 4).astype(int) // 2 * 2
    colors = (BLUE, ORANGE, GREEN, BLACK)
    for feature, color, dash in zip(features, colors, LINES, strict=True):
        look = Look(color, "", dash)
        label = f"feature {feature}"
        shapes.draw_line(right, grid.columns, grid.loc[feature], look, label)
    right.set(xlabel="position (tokens)", ylabel="value", ylim=(-1.1, 1.1))
    shapes.put_legend_outside(right)

    title = "The sinusoidal code: fast waves in the first features, slow ones last"
    shapes.set_headline(figure, title)
    return figure


@register_explanation("sinusoid_shift")
def draw_sinusoid_shift(vectors: pd.DataFrame) -> Figure:
    """Draw one pair (sin, cos) as arrows: at two positions, and rotated by a matrix.

    The three rows of the table are the pair at the first position, the pair at a later
    position, and the pair at the first position after it was rotated by the matrix that a
    text prints for this step.
    """
    figure, ax = shapes.make_axes((7.2, 3.45))
    shapes.draw_unit_circle(ax, xlim=(-2.1, 2.1), ylim=(-0.25, 1.3))
    ax.set(xticks=[], yticks=[])
    ax.set_xlabel(
        "code of x: the point (sin ωx, cos ωx)\n"
        "R(ωδ): the matrix of a rotation by ωδ, counterclockwise"
    )
    for end, name, side in (((1.25, 0), "sin", "left"), ((0, 1.15), "cos", "center")):
        ax.plot([0, end[0]], [0, end[1]], color=shapes.FRAME_COLOR, linewidth=1)
        ax.text(1.03 * end[0], 1.05 * end[1], name, ha=side, va="center")

    looks = (Look(GREY, ""), Look(BLUE, ""), Look(AMBER, "", "--"))
    for row, look in zip(shapes.iterate_rows(vectors), looks, strict=True):
        shapes.draw_arrow(ax, row.x, row.y, look)
        side = "left" if row.x > 0 else "right"
        text_x = 1.1 * row.x
        text_y = 1.1 * row.y + 0.03
        ax.text(text_x, text_y, row.vector, ha=side, va="center", color=look.color)

    first, later, rotated = vectors[["x", "y"]].to_numpy()
    _draw_arc(ax, first, later, "phase\n+ωδ", BLUE)
    if np.abs(later - rotated).max() < SUM_TOLERANCE:
        title = "A standard rotation takes the code where it belongs"
    else:
        title = "The usual rotation matrix moves (sin, cos) back by δ, not forward"
        _draw_arc(ax, first, rotated, "phase\n−ωδ", AMBER)
    ax.set_title(title)
    return figure


def _draw_arc(
    ax: Axes, start: np.ndarray, end: np.ndarray, words: str, color: str
) -> None:
    """Draw an arc with words from one arrow to another, inside the unit circle.

    Of the two arcs between the arrows, the shorter one is drawn.
    """
    start_angle, end_angle = np.arctan2([start[1], end[1]], [start[0], end[0]])
    # The difference of the angles, as an angle from -pi to pi.
    turn = (end_angle - start_angle + np.pi) % (2 * np.pi) - np.pi
    angles = start_angle + np.linspace(0, turn, 50)
    ax.plot(0.45 * np.cos(angles), 0.45 * np.sin(angles), color=color, linewidth=1.2)
    middle = start_angle + turn / 2
    text_x = 0.67 * np.cos(middle)
    text_y = 0.67 * np.sin(middle)
    # A white box hides the axes behind the words.
    white_box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    ax.text(
        text_x, text_y, words, ha="center", va="center", color=color, bbox=white_box
    )


@register_explanation("sinusoid_sum")
def draw_sinusoid_sum(curves: pd.DataFrame) -> Figure:
    """Draw F(t), the sum of all waves, and F(t + p), where p is the period of the slowest
    wave.

    There is a panel for each spacing of the frequencies.
    """
    figure, axes = shapes.make_panels(1, 2, (9.2, 3.6), sharey=True)
    repeats = {}
    spacings = shapes.split_by(curves, "spacing")
    for ax, (spacing, rows) in zip(axes[0], spacings, strict=True):
        sums = rows.pivot(index="position_tokens", columns="start", values="value")
        change = (sums["0"] - sums["period"]).abs().max()
        repeats[spacing] = bool(change < SUM_TOLERANCE)

        look, title = SPACINGS[spacing]
        shapes.draw_line(
            ax, sums.index, sums["0"], Look(GREY, ""), "F(t)", linewidth=3.5
        )
        period = rows["period_tokens"].iloc[0]
        shapes.draw_line(
            ax,
            sums.index,
            sums["period"],
            Look(look.color, "", "--"),
            f"F(t + {period:,.0f})",
        )
        slowest = f"period of the slowest wave: {period:,.0f} tokens"
        ax.set_title(f"{title}\n{slowest}", fontweight="normal", loc="center")
        ax.set(xlabel=f"t (tokens); {WORDS['codes'][spacing]}")
        ax.legend(loc="upper right")

    axes[0, 0].set(ylabel="F: sum of the features, per pair")
    title = "The sum of the waves, and the sum one period of the slowest wave later"
    if repeats["harmonic"] and not repeats["exponential"]:
        title = "A period later even spacing repeats, the Transformer's code does not"
    shapes.set_headline(figure, title)
    return figure


@register_explanation("sinusoid_distance")
def draw_sinusoid_distance(curves: pd.DataFrame) -> Figure:
    """Draw the dot product of the codes of two positions by their distance."""
    figure, ax = shapes.make_axes()
    # The largest product at distances above 100 tokens, by spacing.
    largest_at_distance = {}
    for spacing, rows in shapes.split_by(curves, "spacing"):
        look, label = SPACINGS[spacing]
        shapes.draw_line(ax, rows["distance_tokens"], rows["value"], look, label)
        is_far = rows["distance_tokens"] > 100
        largest_at_distance[spacing] = rows.loc[is_far, "value"].max()
    ax.axhline(0, color=BLACK, linewidth=0.8)
    shapes.set_token_axis(ax)
    codes = [
        f"{SPACINGS[spacing][1]}: {words}" for spacing, words in WORDS["codes"].items()
    ]
    ax.set_xlabel("distance (tokens)\n" + "\n".join(codes))
    ax.set_ylabel("similarity: product of two codes\n(1 at distance 0)")
    ax.legend(loc="upper center", bbox_to_anchor=(0.55, 0.98))

    title = "Similarity of the codes of two positions"
    harmonic_comes_back = largest_at_distance["harmonic"] > 0.9
    exponential_stays_low = largest_at_distance["exponential"] < 0.9
    if harmonic_comes_back and exponential_stays_low:
        title = (
            "Similarity falls with the distance on the whole;\n"
            "with even spacing it comes back"
        )
    ax.set_title(title)
    return figure
