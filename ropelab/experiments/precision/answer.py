"""The precision experiment: its cells, its tables, the finding in words and the short table."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.encodings import encoding_cells, explain_table, spectrum_of
from ropelab.experiments.precision.stages import cast_tables, stage_cells
from ropelab.math.numerics.casts import STAGES
from ropelab.runs.cell import Cell, Values
from ropelab.runs.tables import Tables

# Each scheme, and the component that is compared with the others'.
TITLES = {
    "single": ("one frequency", "pair"),
    "rope": ("many frequencies", "vector"),
    "sinusoidal": ("the sinusoidal encoding", "vector"),
}
# Whole numbers that are missing in some rows: read back from disk they are floats.
WHOLE = ["first_collision_position", "period_tokens", "worst_position", "worst_pair"]
WHOLE += ["first_position_over_tolerance", "distinct_positions"]
ORDER = ("resolution", "collisions", "pairs", "scores", "score_margin", "casts", "growth", "drift")


def check(config: PrecisionConfig) -> None:
    """Raise InputError for unknown formats, methods, casts, and methods that rotate no pair."""
    spectrum_of(config)
    cells(config)


def cells(config: PrecisionConfig) -> list[Cell]:
    return [*encoding_cells(config), *stage_cells(config)]


def tables(config: PrecisionConfig, values: Values) -> dict[str, pd.DataFrame]:
    parts: dict[str, list[pd.DataFrame]] = {}
    for cell in cells(config):
        for name, table in values[cell].items():
            whole = dict.fromkeys(table.columns.intersection(WHOLE), "Int64")
            parts.setdefault(name, []).append(table.astype(whole))
    measured = {name: pd.concat(each, ignore_index=True) for name, each in parts.items()}
    measured |= cast_tables(config, measured)
    found = {name: measured[name] for name in ORDER if name in measured}
    if config.explain is not None:
        # Arithmetic on a dozen numbers: quicker than a cell.
        found["explain"] = explain_table(config, config.explain)
    return found


def answer(tables: Tables) -> str:
    """Name the formats in which neighbours stay distinct, and the cast to undo first."""
    found = []
    if "resolution" in tables:
        found.append("; ".join(_distinct(tables["resolution"], set(tables["pairs"]["scheme"]))))
    found.append(_casts(tables["casts"]))
    method, quotient = tables["casts"][["method", "factor_from"]].iloc[0]
    if method != "unscaled":
        why = f", its factor being {quotient}" if isinstance(quotient, str) else ""
        found.append(f"the frequencies are those of {method}{why}")
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in found if text)


def summary(tables: Tables) -> pd.DataFrame:
    if "resolution" in tables:
        return _collisions(tables["resolution"])
    casts = tables["casts"]
    plans, _ = _plans(casts)
    shown = {
        "name": "plan",
        "max_angle_error_rad": "worst_rad",
        "first_position_over_tolerance": "wrong_from",
        "rms_score_error": "score_rms",
    }
    cures = [_cure(casts, row)[0] for row in plans.to_dict("records")]
    found = plans[list(shown)].rename(columns=shown).reset_index(drop=True)
    return found.assign(fix_first=pd.Series(cures, dtype=object))


def _plans(casts: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Return the rows of implementations and True, else those of stages in bfloat16 and False."""
    found = casts[casts["kind"].isin(["preset", "cast"])]
    if len(found):
        return found, True
    # bfloat16 is the format that people train in.
    return casts[(casts["kind"] == "stage") & (casts["format"] == "bfloat16")], False


def _collisions(resolution: pd.DataFrame) -> pd.DataFrame:
    """Return the share of neighbours that collide, with a column per format."""

    def percent(share: float) -> str:
        if share == 0:
            return "none"
        return f"{share:.1%}" if share >= 0.001 else f"{share:.1e}"

    share = resolution["adjacent_collisions"] / (resolution["positions"] - 1).clip(lower=1)
    cells = resolution.assign(cell=share.map(percent))
    formats = [name for name in resolution["format"].unique() if name != "float64"]
    wide = cells.pivot(index=["scheme", "component"], columns="format", values="cell")[formats]
    # A pivot sorts its rows; the order of the config is restored.
    order = pd.MultiIndex.from_frame(resolution[["scheme", "component"]].drop_duplicates())
    return wide.reindex(order).add_prefix("collide in ").rename_axis(columns=None).reset_index()


def _distinct(resolution: pd.DataFrame, asked: set[str]) -> Iterator[str]:
    """Say in which formats neighbours stay distinct, and where one frequency repeats."""
    coarse = [name for name in resolution["format"].unique() if name != "float64"]
    stay = []
    for scheme, (title, component) in TITLES.items():
        of = (resolution["scheme"] == scheme) & (resolution["component"] == component)
        rows = resolution[of & resolution["format"].isin(coarse)]
        if len(rows):
            kept = rows.loc[rows["adjacent_collisions"] == 0, "format"].tolist()
            lost = [name for name in coarse if name not in kept]
            but = f" (not in {_list(lost)})" if lost else ""
            stay.append(f"with {title} in {_list(kept) or 'no format'}{but}")
    if stay:
        yield f"neighbouring positions stay distinct {', '.join(stay)}"
    single = resolution[resolution["scheme"] == "single"]
    if "single" in asked and single.empty:
        yield "one frequency has no vector beside its pair: --components pair shows its encoding"
    repeating = single[(single["component"] == "pair") & single["period_tokens"].notna()]
    for row in repeating.head(1).to_dict("records"):
        yield (
            f"position {int(row['period_tokens'])} has the encoding of position 0 again, "
            f"apart from any rounding: {row['distinct_codes']} distinct encodings for "
            f"{row['positions']} positions"
        )


def _casts(casts: pd.DataFrame) -> str:
    """Name the implementations, or stages in bfloat16, that go wrong, and the cure."""
    (plans, named), wrong_from = _plans(casts), "first_position_over_tolerance"
    if not named:
        bad = plans.set_index("stage")[wrong_from].dropna().astype(int).sort_values()
        if bad.empty:
            return "in bfloat16 no stage alone is wrong by more than the tolerance in this range"
        order = ", ".join(f"{stage} (from position {where})" for stage, where in bad.items())
        harmless = _list([stage for stage in STAGES if stage not in bad.index])
        return (
            f"fix {bad.index[0]} first: cast to bfloat16, the worst are {order}, while {harmless} "
            "only add noise that does not grow with the position"
        )
    found = []
    wrong = plans.dropna(subset=wrong_from).sort_values(wrong_from)
    for row in wrong.head(1).to_dict("records"):
        found.append(f"angles go wrong in {row['name']} from position {int(row[wrong_from])}")
        found.append(_cure(casts, row)[1])
    if len(wrong) > 1:
        found.append(f"then in {_list(wrong['name'].tolist()[1:])}")
    fine = plans[plans[wrong_from].isna()]
    if len(fine):
        within = f"(within {fine['max_angle_error_rad'].max():.2g} rad)"
        found.append(f"angles stay right in {_list(fine['name'].tolist())} {within}")
    return "; ".join(found)


def _cure(casts: pd.DataFrame, row: Mapping[Any, Any]) -> tuple[str | None, str]:
    """Return the stage to fix first, and a clause about the effect."""
    repairs = casts[(casts["kind"] == "repair") & (casts["name"] == row["name"])]
    if pd.isna(row["first_position_over_tolerance"]) or repairs.empty:
        return None, ""
    cured = repairs.loc[repairs["first_position_over_tolerance"].isna(), "stage"].tolist()
    if cured:  # each of them alone is enough
        return " or ".join(cured), f"fixing {' or '.join(cured)} alone cures it"
    # The repair that delays the error longest; of equals, the one with the best scores.
    order = ["first_position_over_tolerance", "rms_score_error"]
    best = repairs.sort_values(order, ascending=[False, True]).iloc[0]
    then = int(best["first_position_over_tolerance"])
    delayed = then > row["first_position_over_tolerance"]
    effect = f"then from {then}" if delayed else "although that alone delays nothing"
    return best["stage"], f"no single fix cures it, fix {best['stage']} first ({effect})"


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
