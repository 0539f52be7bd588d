"""Figure of trained bases: retrieval and text loss by distance beside the
predictions.
"""

import pandas as pd
from matplotlib.figure import Figure

from ropelab.runs.tables import Tables
from ropelab.show.figures import shapes
from ropelab.show.looks import Look, numbered


def draw(tables: Tables) -> dict[str, Figure]:
    """Draw a panel per task; where the bound predicts failure, markers are hollow."""
    names = ("copy_accuracy", "associative_recall_accuracy", "text_nll")
    shown = [name for name in names if name in tables]
    figure, axes = shapes.panels(1, len(shown), (4.3 * len(shown), 4.5))
    bases = sorted(tables[shown[0]]["base"].unique())
    for ax, name in zip(axes[0], shown, strict=True):
        text = name == "text_nll"
        x = "bucket_end_tokens" if text else "distance_tokens"
        value = "nll_nats_per_byte" if text else "accuracy"
        for base, part in tables[name].groupby("base", sort=False):
            look, mean = numbered(bases.index(base)), shapes.over_seeds(part, x, value)
            # A single model's interval over documents is wider than all lines of text
            # together.
            band = (
                None
                if text and part["seed"].nunique() == 1
                else (mean["low"], mean["high"])
            )
            joined = look if text else Look(look.color, "", look.line)
            shapes.line(ax, mean[x], mean[value], joined, f"base {base:g}", band)
            if not text:
                fails = part.groupby(x)["predicted"].first().to_numpy() == "fails"
                points = Look(look.color, look.marker, "none")
                for chosen, face in ((fails, "white"), (~fails, look.color)):
                    at = mean[chosen]
                    shapes.line(
                        ax, at[x], at[value], points, markersize=7, markerfacecolor=face
                    )
        shapes.token_axis(ax)
        if text:
            ax.set(xlabel="position up to, tokens", ylabel="text loss, nats per byte")
        else:
            how = f"{name.replace('_', ' ')}\n(hollow: failure predicted)"
            ax.set(xlabel="distance, tokens", ylabel=how, ylim=(-0.03, 1.03))
    shapes.legend_below(figure, axes[0][:1], 5)
    shapes.headline(figure, _title(tables["predictions"]))
    return {"retrieval_and_text": figure}


def _title(table: pd.DataFrame) -> str:
    """Give both predictions as multiples of the measured maximum distance."""
    judged = table[table["agrees"].notna() & table["bound_times_measured"].notna()]
    if judged.empty:
        tasks = "Text loss by position" if table.empty else "Retrieval and text loss"
        return f"{tasks} under several bases"
    bound, slowest = (
        f"{values.min():.2f} to {values.max():.2f} times"
        for values in (
            judged["bound_times_measured"],
            judged["quarter_rotation_times_measured"],
        )
    )
    return (
        f"Predicted over measured maximum distance: {bound} by the bound, {slowest} by"
        " a quarter rotation of the slowest pair"
    )
