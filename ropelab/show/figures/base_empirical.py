"""Figure of the empirical arm: retrieval and text loss by distance beside the predictions."""

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ropelab.claims.trained.base_bound import tally
from ropelab.runs.tables import Tables
from ropelab.show.figures.style import LINES, MARKERS, PALETTE, token_axis


def draw(tables: Tables) -> dict[str, Figure]:
    """One figure, a panel per task: where the bound predicts failure, markers are hollow."""
    panels = [name for name in ("copy_accuracy", "recall_accuracy", "text_nll") if name in tables]
    figure, axes = plt.subplots(1, len(panels), squeeze=False, figsize=(4.3 * len(panels), 4.5))
    looks = _looks(tables[panels[0]])
    for ax, name in zip(axes[0], panels, strict=True):
        (_text if name == "text_nll" else _retrieval)(ax, tables[name], looks, name)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)))
    figure.suptitle(_title(tables), x=0.01, ha="left", weight="bold", size=11)
    return {"retrieval_and_text": figure}


def _looks(table: pd.DataFrame) -> dict[float, tuple[str, str, str]]:
    bases = sorted(table["base"].unique())
    return {base: (PALETTE[i % 8], MARKERS[i % 8], LINES[i % 4]) for i, base in enumerate(bases)}


def _retrieval(
    ax: Axes, table: pd.DataFrame, looks: dict[float, tuple[str, str, str]], name: str
) -> None:
    for base, part in table.groupby("base"):
        color, marker, line = looks[float(str(base))]
        mean = _with_band(part, "distance_tokens", "accuracy")
        ax.plot(mean.index, mean["value"], color=color, linestyle=line, label=f"base {base:g}")
        ax.fill_between(mean.index, mean["low"], mean["high"], color=color, alpha=0.15)
        fails = part.groupby("distance_tokens")["predicted"].first() == "fails"
        for chosen, face in ((fails, "white"), (~fails, color)):
            ax.plot(
                mean.index[chosen],
                mean["value"][chosen],
                color=color,
                marker=marker,
                markersize=7,
                markerfacecolor=face,
                linestyle="none",
            )
    token_axis(ax)
    ax.set(
        xlabel="distance, tokens",
        ylabel=f"{name.split('_')[0]} accuracy (hollow: failure predicted)",
        ylim=(-0.03, 1.03),
    )


def _text(
    ax: Axes, table: pd.DataFrame, looks: dict[float, tuple[str, str, str]], name: str
) -> None:
    for base, part in table.groupby("base"):
        color, marker, line = looks[float(str(base))]
        mean = _with_band(part, "bucket_end_tokens", "nll_nats_per_byte")
        label = f"base {base:g}"
        ax.plot(mean.index, mean["value"], color=color, marker=marker, linestyle=line, label=label)
        if part["seed"].nunique() > 1:  # intervals over documents are wider than all lines together
            ax.fill_between(mean.index, mean["low"], mean["high"], color=color, alpha=0.15)
    token_axis(ax)
    ax.set(xlabel="position up to, tokens", ylabel="text loss, nats per byte")


def _with_band(part: pd.DataFrame, x: str, column: str) -> pd.DataFrame:
    """Mean over seeds; the band is the range of the seeds, for a single one its interval."""
    by_x = part.groupby(x)
    many = part["seed"].nunique() > 1
    low = by_x[column].min() if many else by_x["ci_low"].mean()
    high = by_x[column].max() if many else by_x["ci_high"].mean()
    return pd.DataFrame({"value": by_x[column].mean(), "low": low, "high": high})


def _title(tables: Tables) -> str:
    table = tables["predictions"]
    if table.empty:
        return "Text loss by position under several bases"
    judged = table[table["agrees"].notna()]
    if judged.empty:
        return "Retrieval and text loss under several bases"
    return f"The bound on the base predicts retrieval for {tally(judged)}"
