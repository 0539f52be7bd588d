"""The precision experiment: its cells, its tables, the finding in words and the short table."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.encodings import encoding_cells, explain_table, spectrum_of
from ropelab.experiments.precision.stages import cast_tables, stage_cells
from ropelab.math.numerics.casts import STAGES
from ropelab.runs.cell import Cell, Values
from ropelab.runs.sentences import sentences_of, typed
from ropelab.runs.tables import Tables

WRONG_FROM = "first_position_over_tolerance"
# Stages, as one says them.
SAID = {"table": "cos and sin", "score": "q, k and score"}
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
    """Judge implementations, else the stages in bfloat16; then frequencies and float32 itself."""
    casts = tables["casts"]
    plans, named = _plans(casts)
    if named:
        found = [*_implementations(casts, plans)]
    else:
        found = [*_precise_enough(casts, plans), _why_many(tables), _repeating(tables)]
    method, quotient = casts[["method", "factor_from"]].iloc[0]
    if method != "unscaled":
        why = f", its factor being {quotient}" if isinstance(quotient, str) else ""
        found.append(f"the frequencies are those of {method}{why}")
    return sentences_of(found)


def following(config: PrecisionConfig, tables: Tables) -> str:
    """Return the command that judges real implementations, else the one that tests one's own."""
    if config.preset or config.cast:
        return "ropelab check mymodule:make_rope --config config.json"
    return config.replace(preset=("all",)).command("precision")


def summary(tables: Tables) -> pd.DataFrame:
    casts = tables["casts"]
    plans, named = _plans(casts)
    if not named:
        return _stages(casts[casts["kind"] == "stage"])
    shown = {
        "name": "plan",
        "max_angle_error_rad": "worst_rad",
        WRONG_FROM: "wrong_from",
        "rms_score_error": "score_rms",
    }
    cures = [_cure(casts, row)[0] for row in plans.to_dict("records")]
    found = plans[list(shown)].rename(columns=shown).reset_index(drop=True)
    return found.assign(fix_first=pd.Series(cures, dtype=object))


def _stages(stages: pd.DataFrame) -> pd.DataFrame:
    """Return a row per stage: the first wrong position, and the error of scores, in 16 bits."""

    def score_error(row: Any) -> str:
        if pd.notna(row.rms_score_error):
            return f"{row.rms_score_error:.1g}"
        return f"nan from {row.worst_position:.0f}"

    rows: dict[str, dict[str, str]]
    rows = {stage: {"only_this_is_rounded": SAID.get(stage, stage)} for stage in STAGES}
    for name in ("bfloat16", "float16"):
        for row in stages[stages["format"] == name].itertuples():
            wrong = getattr(row, WRONG_FROM)
            said = "never" if pd.isna(wrong) else f"{wrong:.0f}"
            rows[str(row.stage)] |= {
                f"{name} wrong_from": said,
                f"{name} score_error": score_error(row),
            }
    table = pd.DataFrame(rows.values())
    return table[sorted(table, key=lambda column: str(column).endswith("error"))]


def _plans(casts: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Return the rows of implementations and True, else those of stages in bfloat16 and False."""
    found = casts[casts["kind"].isin(["preset", "cast"])]
    if len(found):
        return found, True
    # bfloat16 is the format that people train in.
    return casts[(casts["kind"] == "stage") & (casts["format"] == "bfloat16")], False


def _precise_enough(casts: pd.DataFrame, plans: pd.DataFrame) -> Iterator[str]:
    """Say under which condition bfloat16 is precise enough, and from where on float32 is not."""
    single = (casts["kind"] == "stage") & (casts["format"] == "float32")
    wrong = casts.loc[single | (casts["kind"] == "long"), WRONG_FROM].dropna()
    limit = float(wrong.min()) if len(wrong) else math.inf
    if limit < (casts["offset"] + casts["length"])[single].max():
        yield (
            "neither bfloat16 nor float32 is precise enough for the angles of RoPE: in float32 "
            f"they are wrong from position {limit:.0f} on"
        )
        return
    if plans[WRONG_FROM].isna().all():
        yield "bfloat16 is precise enough for RoPE at every stage"
    else:
        yield (
            "bfloat16 is precise enough for RoPE if angles are computed in float32 and only what "
            "comes after the cosine is cast"
        )
    if limit < math.inf:
        yield f"beyond, angles in float32 are wrong too, from position {limit:.0f}"


def _why_many(tables: Tables) -> str:
    """Compare the next token's effect on a score with one frequency and with many."""
    if "score_margin" not in tables or "resolution" not in tables:
        return ""
    margin = tables["score_margin"].query("vectors == 'random' and format == 'float32'")
    margin = margin.set_index("scheme")
    if not {"single", "rope"} <= set(margin.index):
        return ""
    own = tables["resolution"].query(
        "scheme == 'single' and component == 'pair' and format == 'float32'"
    )
    if own.empty or (own["distinct_codes"] < own["positions"]).any():
        return ""
    period = tables["pairs"].query("scheme == 'single'")["wavelength_tokens"].iloc[0]
    step, weight = margin["score_step"], 100 * margin["weight_change"]
    return (
        f"Why many frequencies? One pair of period {typed(period)} has a code of its own at every "
        f"position in float32, but the next token moves a score by {step['single']:.2g} (RoPE: "
        f"{step['rope']:.2g}): softmax sees {weight['single']:.1g} % instead of "
        f"{weight['rope']:.2g} %"
    )


def _repeating(tables: Tables) -> str:
    """Say where one frequency repeats, or that it was asked for components that it has not."""
    if "resolution" not in tables:
        return ""
    single = tables["resolution"].query("scheme == 'single'")
    if "single" in set(tables["pairs"]["scheme"]) and single.empty:
        return "one frequency has no vector beside its pair: --components pair shows its encoding"
    repeating = single[(single["component"] == "pair") & single["period_tokens"].notna()]
    for row in repeating.head(1).to_dict("records"):
        return (
            f"position {int(row['period_tokens'])} has the encoding of position 0 again, "
            f"apart from any rounding: {row['distinct_codes']} distinct encodings for "
            f"{row['positions']} positions"
        )
    return ""


def _implementations(casts: pd.DataFrame, plans: pd.DataFrame) -> Iterator[str]:
    """Name the implementations that go wrong, the cure of the first, and those that stay right."""
    wrong = plans.dropna(subset=WRONG_FROM).sort_values(WRONG_FROM)
    fine = plans[plans[WRONG_FROM].isna()]
    for row in wrong.head(1).to_dict("records"):
        then = f", then in {_list(wrong['name'].tolist()[1:])}" if len(wrong) > 1 else ""
        yield f"angles go wrong in {row['name']} from position {int(row[WRONG_FROM])}{then}"
        yield f"{cure} in {row['name']}" if (cure := _cure(casts, row)[1]) else ""
    if len(fine):
        within = f"(within {fine['max_angle_error_rad'].max():.2g} rad)"
        yield f"angles stay right in {_list(fine['name'].tolist())} {within}"


def _cure(casts: pd.DataFrame, row: Mapping[Any, Any]) -> tuple[str | None, str]:
    """Return the stage to fix first, and a clause about the effect."""
    repairs = casts[(casts["kind"] == "repair") & (casts["name"] == row["name"])]
    if pd.isna(row[WRONG_FROM]) or repairs.empty:
        return None, ""
    cured = repairs.loc[repairs[WRONG_FROM].isna(), "stage"].tolist()
    if cured:  # each of them alone is enough
        return " or ".join(cured), f"fixing {' or '.join(cured)} alone cures it"
    # The repair that delays the error longest; of equals, the one with the best scores.
    order = [WRONG_FROM, "rms_score_error"]
    best = repairs.sort_values(order, ascending=[False, True]).iloc[0]
    then = int(best[WRONG_FROM])
    delayed = then > row[WRONG_FROM]
    effect = f"then from {then}" if delayed else "although that alone delays nothing"
    return best["stage"], f"no single fix cures it, fix {best['stage']} first ({effect})"


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
