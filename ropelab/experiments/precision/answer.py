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
    """Say which neighbours stay distinct, and which cast to undo first."""
    return " ".join((*_encodings(tables), *_returns(tables), *_signal(tables), *_casts(tables)))


def summary(tables: Tables) -> pd.DataFrame:
    """Return the collisions per component and format; without encodings, the casts."""
    if "resolution" in tables:
        return _collisions(tables["resolution"])
    return _stage_to_fix(tables["casts"])


def _collisions(resolution: pd.DataFrame) -> pd.DataFrame:
    """Rows: scheme and channel; columns: formats; cells: share of neighbours that collide."""
    share = resolution["adjacent_collisions"] / (resolution["positions"] - 1).clip(lower=1)
    cells = resolution.assign(cell=[_percent(value) for value in share])
    formats = [name for name in resolution["format"].unique() if name != "float64"]
    wide = cells.pivot(index=["scheme", "channel"], columns="format", values="cell")[formats]
    order = pd.MultiIndex.from_frame(resolution[["scheme", "channel"]].drop_duplicates())
    return wide.reindex(order).add_prefix("collide in ").rename_axis(columns=None).reset_index()


def _stage_to_fix(casts: pd.DataFrame) -> pd.DataFrame:
    """Rows: implementations, else stages in bfloat16; with the stage to fix first."""
    plans = _implementations(casts)
    if plans.empty:
        plans = casts[(casts["kind"] == "stage") & (casts["format"] == "bfloat16")]
    fixes = [_first_fix(row, _repairs(casts, row["name"])) for row in plans.to_dict("records")]
    return pd.DataFrame(
        {
            "plan": plans["name"],
            "worst_rad": plans["max_angle_error_rad"],
            "wrong_from": plans["first_bad_position"],
            "score_rms": plans["rms_score_error"],
            "fix_first": pd.Series(fixes, index=plans.index, dtype=object),
        }
    ).reset_index(drop=True)


def _percent(share: float) -> str:
    if share == 0:
        return "none"
    return f"{share:.1%}" if share >= 0.001 else f"{share:.1e}"


def _encodings(tables: Tables) -> Iterator[str]:
    if "resolution" not in tables:
        return
    resolution = tables["resolution"]
    coarse = [name for name in resolution["format"].unique() if name != "float64"]
    for scheme, title in TITLES.items():
        rows = resolution[(resolution["scheme"] == scheme) & resolution["format"].isin(coarse)]
        whole = rows[rows["channel"].isin(["pair"] if scheme == "single" else ["vector"])]
        if whole.empty:
            continue
        kept = whole.loc[whole["adjacent_collisions"] == 0, "format"].tolist()
        lost = [name for name in coarse if name not in kept]
        yield f"{title}: {_verdict(kept, lost)}{_cos_alone(rows)}."
    if _is_asked_in_vain("single", tables):
        yield "One frequency has no vector beside its pair: --channels pair shows its code."


def _is_asked_in_vain(scheme: str, tables: Tables) -> bool:
    """Whether a scheme was asked for, and has none of the channels that were."""
    asked = set(tables["pairs"]["scheme"]) if "pairs" in tables else set()
    return scheme in asked - set(tables["resolution"]["scheme"])


def _verdict(kept: list[str], lost: list[str]) -> str:
    if not lost:
        return f"cos and sin together tell all neighbours apart in {_list(kept)}"
    if not kept:
        return f"neighbours collide in {_list(lost)} even with cos and sin together"
    return f"cos and sin together tell neighbours apart in {_list(kept)}, but not in {_list(lost)}"


def _cos_alone(rows: pd.DataFrame) -> str:
    """What cos alone does in the finest format in which both together suffice."""
    alone = rows[(rows["channel"] == "cos") & (rows["adjacent_collisions"] > 0)]
    if alone.empty or rows["scheme"].iloc[0] != "single":
        return ""
    row = alone.iloc[0]
    return (
        f" (cos alone: {row['adjacent_collisions']} pairs of neighbours collide in "
        f"{row['format']}, the first at position {int(row['first_collision_position'])})"
    )


def _returns(tables: Tables) -> Iterator[str]:
    """Where the code of one frequency comes back, whatever format it is stored in."""
    if "resolution" not in tables:
        return
    table = tables["resolution"]
    rows = table[(table["scheme"] == "single") & (table["channel"] == "pair")]
    for row in rows[rows["returns_at_position"].notna()].head(1).to_dict("records"):
        yield (
            f"Position {int(row['returns_at_position'])} has the code of position 0 again, apart "
            f"from any rounding: {row['distinct_codes']} codes for {row['positions']} positions."
        )


def _signal(tables: Tables) -> Iterator[str]:
    """What one token changes in a score, against its rounding and after softmax."""
    if "signal" not in tables:
        return
    table = tables["signal"]
    coarse = [name for name in table["format"].unique() if name != "float64"][:1]
    for scheme, title in TITLES.items():
        rows = table[(table["scheme"] == scheme) & table["format"].isin(coarse)]
        for row in rows[rows["vectors"] == "random"].to_dict("records"):
            yield (
                f"{title}: one token on, a score of random vectors changes by "
                f"{roughly(row['score_step'])}, {roughly(row['step_to_rounding'])} times its "
                f"rounding in {row['format']}, and softmax gives one of two neighbours "
                f"{roughly(100 * row['weight_change'])} % more weight{_equal(rows)}."
            )


def _equal(rows: pd.DataFrame) -> str:
    """Whether no score changes at all where the key is the query."""
    aligned = rows[rows["vectors"] == "aligned at 0"].iloc[0]
    if aligned["unchanged_fraction"] < 1:
        return ""
    return f"; where the key is the query, every {aligned['format']} score stays equal"


def _casts(tables: Tables) -> Iterator[str]:
    casts = tables["casts"]
    plans = _implementations(casts)
    if plans.empty:
        yield from _stages(casts[casts["kind"] == "stage"])
        return
    fine = plans[plans["first_bad_position"].isna()]
    if not fine.empty:
        worst = fine["max_angle_error_rad"].max()
        names = _list(fine["name"].tolist())
        yield f"Angles stay right in {names} (within {worst:.2g} rad)."
    for row in plans[plans["first_bad_position"].notna()].to_dict("records"):
        wrong = f"{row['name']}: angles are wrong from position {int(row['first_bad_position'])}"
        yield f"{wrong}; {_cure(row, _repairs(casts, row['name']))}."


def _implementations(casts: pd.DataFrame) -> pd.DataFrame:
    return casts[casts["kind"].isin(["preset", "cast"])]


def _repairs(casts: pd.DataFrame, name: str) -> pd.DataFrame:
    return casts[(casts["kind"] == "repair") & (casts["name"] == name)]


def _stages(stages: pd.DataFrame) -> Iterator[str]:
    """Which stage goes wrong first in the format people train in, and which never does."""
    rows = stages[stages["format"] == "bfloat16"].set_index("stage").loc[list(STAGES)]
    bad = rows["first_bad_position"].dropna().astype(int).sort_values()
    if bad.empty:
        yield "In bfloat16 no stage alone is wrong by more than the tolerance in this range."
        return
    order = ", ".join(f"{stage} (from position {where})" for stage, where in bad.items())
    harmless = _list([stage for stage in STAGES if stage not in bad.index])
    yield (
        f"Casts to bfloat16, worst first: {order}; {harmless} only add noise that does not grow "
        f"with the position. Fix {bad.index[0]} first."
    )


def _cure(row: Mapping[Any, Any], repairs: pd.DataFrame) -> str:
    """The stages of which each alone, made exact, would do; else the one that helps most."""
    if cured := _cured(repairs):
        return f"fixing {' or '.join(cured)} alone cures it"
    best = _best(repairs)
    then = int(best["first_bad_position"])
    delayed = then > row["first_bad_position"]
    effect = f"then from {then}" if delayed else "although that alone delays nothing"
    return f"no single fix cures it, fix {best['stage']} first ({effect})"


def _first_fix(row: Mapping[Any, Any], repairs: pd.DataFrame) -> str | None:
    """The stage to fix first, in one word or two."""
    if pd.isna(row["first_bad_position"]) or repairs.empty:
        return None
    return " or ".join(_cured(repairs)) or str(_best(repairs)["stage"])


def _cured(repairs: pd.DataFrame) -> list[str]:
    return repairs[repairs["first_bad_position"].isna()]["stage"].tolist()


def _best(repairs: pd.DataFrame) -> pd.Series:
    """The repair that delays the trouble longest; of equals, the one with the best scores."""
    order = ["first_bad_position", "rms_score_error"]
    return repairs.sort_values(order, ascending=[False, True]).iloc[0]


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
