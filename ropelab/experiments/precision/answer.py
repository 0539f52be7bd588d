"""The precision experiment: its cells, its tables, the finding in words and the short table."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.encodings import (
    encoding_cell,
    explain_table,
    frequencies_of,
    spectrum_of,
)
from ropelab.experiments.precision.stages import cast_tables, drift_cell, long_cells, stage_cells
from ropelab.math.numerics.casts import STAGES
from ropelab.math.numerics.formats import format_named
from ropelab.runs.cell import Cell, Values
from ropelab.runs.labels import roughly
from ropelab.runs.tables import Tables

TITLES = {
    "single": "One frequency",
    "rope": "Many frequencies",
    "sinusoidal": "The sinusoidal encoding",
}
# The kinds of rows in `casts` that are an implementation.
IMPLEMENTED = ("preset", "cast")
# Whole numbers that are missing in some rows: cells keep these as floats.
WHOLE = ("first_collision_position", "returns_at_position")


def check(config: PrecisionConfig) -> None:
    """Refuse unknown formats, methods and casts, and methods that rotate no pair.

    Raises:
        InputError: with the nearest name.
    """
    spectrum_of(frequencies_of(config, "rope"))
    cells(config)


def cells(config: PrecisionConfig) -> list[Cell]:
    """Return a cell per scheme, per group of cast plans and per further length, and the drift."""
    formats = _formats(config)
    return [
        *(encoding_cell(config, scheme, formats) for scheme in config.schemes),
        *stage_cells(config),
        *long_cells(config),
        drift_cell(config, formats),
    ]


def _formats(config: PrecisionConfig) -> list[str]:
    """Return the names of the formats, float64 first, each once."""
    return [format_named(name).name for name in dict.fromkeys(("float64", *config.formats))]


def tables(config: PrecisionConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Put the tables together; those without rows are left out."""
    formats = _formats(config)
    schemes = [values[encoding_cell(config, scheme, formats)] for scheme in config.schemes]
    found = {}
    for name in ("resolution", "collisions", "pairs", "scores", "signal"):
        if parts := [scheme[name] for scheme in schemes if name in scheme]:
            whole = [column for column in WHOLE if column in parts[0]]
            typed = [part.astype(dict.fromkeys(whole, "Int64")) for part in parts]
            found[name] = pd.concat(typed, ignore_index=True)
    found |= cast_tables(config, values)
    found["drift"] = values[drift_cell(config, formats)]["drift"]
    if config.explain is not None:
        # Arithmetic on a dozen numbers: quicker than a cell.
        rope = spectrum_of(frequencies_of(config, "rope"))
        found["explain"] = explain_table(rope, formats, config.explain, config.explain_pair)
    return found


def answer(tables: Tables) -> str:
    """Say which neighbours stay distinct, what a token changes, and which cast to undo first."""
    sentences: list[str] = []
    if "resolution" in tables:
        sentences += _distinct(tables["resolution"], set(tables["pairs"]["scheme"]))
    if "signal" in tables:
        sentences += _signal(tables["signal"])
    return " ".join((*sentences, *_casts(tables["casts"])))


def summary(tables: Tables) -> pd.DataFrame:
    """Return the collisions per component and format; without encodings, the casts."""
    if "resolution" in tables:
        return _collisions(tables["resolution"])
    casts = tables["casts"]
    plans = casts[casts["kind"].isin(IMPLEMENTED)]
    if plans.empty:
        plans = casts[(casts["kind"] == "stage") & (casts["format"] == "bfloat16")]
    return pd.DataFrame(
        {
            "plan": plans["name"],
            "worst_rad": plans["max_angle_error_rad"],
            "wrong_from": plans["first_bad_position"],
            "score_rms": plans["rms_score_error"],
            "fix_first": pd.Series(
                [_cure(casts, row)[0] for row in plans.to_dict("records")], plans.index, object
            ),
        }
    ).reset_index(drop=True)


def _collisions(resolution: pd.DataFrame) -> pd.DataFrame:
    """Rows: scheme and component; columns: formats; cells: share of neighbours that collide."""
    share = resolution["adjacent_collisions"] / (resolution["positions"] - 1).clip(lower=1)
    cells = resolution.assign(cell=[_percent(value) for value in share])
    formats = [name for name in resolution["format"].unique() if name != "float64"]
    wide = cells.pivot(index=["scheme", "channel"], columns="format", values="cell")[formats]
    order = pd.MultiIndex.from_frame(resolution[["scheme", "channel"]].drop_duplicates())
    return wide.reindex(order).add_prefix("collide in ").rename_axis(columns=None).reset_index()


def _percent(share: float) -> str:
    if share == 0:
        return "none"
    return f"{share:.1%}" if share >= 0.001 else f"{share:.1e}"


def _distinct(resolution: pd.DataFrame, asked: set[str]) -> Iterator[str]:
    """Say in which formats neighbours stay distinct, and where one frequency repeats."""
    coarse = [name for name in resolution["format"].unique() if name != "float64"]
    for scheme, title in TITLES.items():
        rows = resolution[(resolution["scheme"] == scheme) & resolution["format"].isin(coarse)]
        whole = rows[rows["channel"] == ("pair" if scheme == "single" else "vector")]
        if whole.empty:
            continue
        kept = whole.loc[whole["adjacent_collisions"] == 0, "format"].tolist()
        lost = [name for name in coarse if name not in kept]
        found = f"cos and sin together distinguish neighbours in {_list(kept)}"
        if not lost:
            found = f"cos and sin together distinguish all neighbours in {_list(kept)}"
        elif not kept:
            found = f"neighbours collide in {_list(lost)} even with cos and sin together"
        else:
            found += f", but not in {_list(lost)}"
        alone = rows[(rows["channel"] == "cos") & (rows["adjacent_collisions"] > 0)]
        for row in alone.head(1).to_dict("records") if scheme == "single" else ():
            found += (
                f" (cos alone: {row['adjacent_collisions']} pairs of neighbours collide in "
                f"{row['format']}, the first at position {int(row['first_collision_position'])})"
            )
        yield f"{title}: {found}."
    single = resolution[resolution["scheme"] == "single"]
    if "single" in asked and single.empty:
        yield "One frequency has no vector beside its pair: --channels pair shows its encoding."
    repeating = single[(single["channel"] == "pair") & single["returns_at_position"].notna()]
    for row in repeating.head(1).to_dict("records"):
        yield (
            f"Position {int(row['returns_at_position'])} has the encoding of position 0 again, "
            f"apart from any rounding: {row['distinct_codes']} distinct encodings for "
            f"{row['positions']} positions."
        )


def _signal(table: pd.DataFrame) -> Iterator[str]:
    """Say what one token changes in a score, against its rounding and after softmax."""
    coarse = [name for name in table["format"].unique() if name != "float64"][:1]
    for scheme, title in TITLES.items():
        rows = table[(table["scheme"] == scheme) & table["format"].isin(coarse)]
        aligned = rows[rows["vectors"] == "aligned at 0"]
        equal = ""
        if (aligned["unchanged_fraction"] == 1).any():
            equal = f"; where the key is the query, every {coarse[0]} score stays equal"
        for row in rows[rows["vectors"] == "random"].to_dict("records"):
            yield (
                f"{title}: one token on, a score of random vectors changes by "
                f"{roughly(row['score_step'])}, {roughly(row['step_to_rounding'])} times its "
                f"rounding in {row['format']}, and softmax gives one of two neighbours "
                f"{roughly(100 * row['weight_change'])} % more weight{equal}."
            )


def _casts(casts: pd.DataFrame) -> Iterator[str]:
    """Say which implementations, or which stages in bfloat16, go wrong, and the cure."""
    plans = casts[casts["kind"].isin(IMPLEMENTED)]
    fine = plans[plans["first_bad_position"].isna()]
    if not fine.empty:
        worst = fine["max_angle_error_rad"].max()
        yield f"Angles stay right in {_list(fine['name'].tolist())} (within {worst:.2g} rad)."
    for row in plans[plans["first_bad_position"].notna()].to_dict("records"):
        wrong = f"{row['name']}: angles are wrong from position {int(row['first_bad_position'])}"
        yield f"{wrong}; {_cure(casts, row)[1]}."
    if not plans.empty:
        return
    # bfloat16 is the format that people train in.
    stages = casts[(casts["kind"] == "stage") & (casts["format"] == "bfloat16")]
    bad = stages.set_index("stage")["first_bad_position"].dropna().astype(int).sort_values()
    if bad.empty:
        yield "In bfloat16 no stage alone is wrong by more than the tolerance in this range."
        return
    order = ", ".join(f"{stage} (from position {where})" for stage, where in bad.items())
    harmless = _list([stage for stage in STAGES if stage not in bad.index])
    yield (
        f"Casts to bfloat16, worst first: {order}; {harmless} only add noise that does not grow "
        f"with the position. Fix {bad.index[0]} first."
    )


def _cure(casts: pd.DataFrame, row: Mapping[Any, Any]) -> tuple[str | None, str]:
    """Return the stage to fix first, and a clause about the effect."""
    repairs = casts[(casts["kind"] == "repair") & (casts["name"] == row["name"])]
    if pd.isna(row["first_bad_position"]) or repairs.empty:
        return None, ""
    cured = repairs.loc[repairs["first_bad_position"].isna(), "stage"].tolist()
    if cured:  # each of them alone is enough
        return " or ".join(cured), f"fixing {' or '.join(cured)} alone cures it"
    # The repair that delays the error longest; of equals, the one with the best scores.
    order = ["first_bad_position", "rms_score_error"]
    best = repairs.sort_values(order, ascending=[False, True]).iloc[0]
    then = int(best["first_bad_position"])
    delayed = then > row["first_bad_position"]
    effect = f"then from {then}" if delayed else "although that alone delays nothing"
    return best["stage"], f"no single fix cures it, fix {best['stage']} first ({effect})"


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
