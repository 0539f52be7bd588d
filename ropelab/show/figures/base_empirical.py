"""Figure of trained bases: retrieval and text loss by distance beside the
predictions.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import Look, pick_look

TEXT = "text_nll"
TASKS = ("copy_accuracy", "associative_recall_accuracy")


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw a panel per task; where the bound predicts failure, markers are hollow."""
    shown = [name for name in (*TASKS, TEXT) if name in tables]
    figure, axes = shapes.make_panels(1, len(shown), (4.3 * len(shown), 4.5))
    bases = sorted(tables[shown[0]]["base"].unique())
    for ax, name in zip(axes[0], shown, strict=True):
        for base, rows in tables[name].groupby("base", sort=False):
            look = pick_look(bases.index(base))
            if name == TEXT:
                _draw_loss(ax, rows, look, f"base {base:g}")
            else:
                _draw_accuracy(ax, rows, look, f"base {base:g}")

        shapes.set_token_axis(ax)
        if name == TEXT:
            ax.set(xlabel="position up to, tokens", ylabel="text loss, nats per byte")
        else:
            ylabel = f"{name.replace('_', ' ')}\n(hollow: failure predicted)"
            ax.set(xlabel="distance, tokens", ylabel=ylabel, ylim=(-0.03, 1.03))

    shapes.put_legend_below(figure, axes[0][:1], 5)
    shapes.set_headline(figure, _write_title(tables["predictions"]))
    return {"retrieval_and_text": figure}


def _draw_loss(ax: Axes, rows: pd.DataFrame, look: Look, label: str) -> None:
    x = "bucket_end_tokens"
    value = "nll_nats_per_byte"
    means = shapes.average_over_seeds(rows, x, value)
    # A single model's interval over documents is wider than all lines of text together.
    band = None
    if rows["seed"].nunique() > 1:
        band = (means["low"], means["high"])
    shapes.draw_line(ax, means[x], means[value], look, label, band)


def _draw_accuracy(ax: Axes, rows: pd.DataFrame, look: Look, label: str) -> None:
    x = "distance_tokens"
    means = shapes.average_over_seeds(rows, x, "accuracy")
    band = (means["low"], means["high"])
    line = Look(look.color, "", look.line)
    shapes.draw_line(ax, means[x], means["accuracy"], line, label, band)

    points = Look(look.color, look.marker, "none")
    fails = rows.groupby(x)["predicted"].first().to_numpy() == "fails"
    for chosen, face in ((fails, "white"), (~fails, look.color)):
        part = means[chosen]
        shapes.draw_line(
            ax,
            part[x],
            part["accuracy"],
            points,
            markersize=7,
            markerfacecolor=face,
        )


def _write_title(table: pd.DataFrame) -> str:
    """Give both predictions as multiples of the measured maximum distance."""
    judged = table[table["agrees"].notna() & table["bound_times_measured"].notna()]
    if table.empty:
        return "Text loss by position under several bases"
    if judged.empty:
        return "Retrieval and text loss under several bases"

    bound = _write_range(judged["bound_times_measured"])
    slowest = _write_range(judged["quarter_rotation_times_measured"])
    return (
        f"Predicted over measured maximum distance: {bound} by the bound, {slowest} by"
        " a quarter rotation of the slowest pair"
    )


def _write_range(values: pd.Series) -> str:
    return f"{values.min():.2f} to {values.max():.2f} times"
