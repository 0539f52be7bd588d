"""The precision experiment: its cells, its tables, the finding in words and the short
table.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.encodings import (
    encoding_cells,
    explain_table,
    spectrum_of,
)
from ropelab.experiments.precision.stages import cast_tables, stage_cells
from ropelab.math.numerics.casts import STAGES, parse_cast
from ropelab.math.numerics.formats import FORMATS
from ropelab.math.numerics.keys import parse_keys
from ropelab.runs.cell import Cell, Values
from ropelab.runs.sentences import listed, sentences_of, typed
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import EXACT, LOST, LOST_FAR, MEASURED, NOTICED, UNNOTICED

WRONG_FROM, SPREAD = "first_position_over_tolerance", "score_spread"
FLOAT32 = FORMATS["float32"].precision
# Stages, as one says them.
SAID = {"table": "cos and sin", "score": "q, k and score"}
# Whole numbers that are missing in some rows: read back from disk they are floats.
WHOLE = ["first_collision_position", "period_tokens", "worst_position", "worst_pair"]
WHOLE += ["first_position_over_tolerance", "distinct_positions"]
# Tables of encodings, then those of casts.
ORDER = (
    *("resolution", "collisions", "pairs", "scores", "score_margin"),
    *("casts", "growth", "drift", "keys"),
)


def check(config: PrecisionConfig) -> None:
    """Raise InputError for unknown formats, methods, casts, and what does not fit the
    head.
    """
    spectrum_of(config)
    cells(config)
    for stored in config.cache:
        # The keys are the rotated features alone.
        parse_keys(stored).check(config.rotated)


def cells(config: PrecisionConfig) -> list[Cell]:
    return [*encoding_cells(config), *stage_cells(config)]


def tables(config: PrecisionConfig, values: Values) -> dict[str, pd.DataFrame]:
    parts: dict[str, list[pd.DataFrame]] = {}
    for cell in cells(config):
        for name, table in values[cell].items():
            whole = dict.fromkeys(table.columns.intersection(WHOLE), "Int64")
            parts.setdefault(name, []).append(table.astype(whole))
    measured = {
        name: pd.concat(each, ignore_index=True) for name, each in parts.items()
    }
    measured |= cast_tables(config, measured)
    found = {name: measured[name] for name in ORDER if name in measured}
    if config.explain is not None:
        # Arithmetic on a dozen numbers: quicker than a cell.
        found["explain"] = explain_table(config, config.explain)
    return found


def answer(tables: Tables) -> str:
    """Judge implementations, else the stages in bfloat16; then frequencies and float32
    itself.
    """
    casts = tables["casts"]
    plans, named = _plans(casts)
    if named:
        found = [*_implementations(casts, plans)]
    else:
        single = (casts["kind"] == "stage") & (casts["format"] == "float32")
        wrong = casts.loc[single | (casts["kind"] == "long"), WRONG_FROM].min()
        far = (
            f"in float32 angles are wrong from position {wrong:.0f} on"
            if pd.notna(wrong)
            else ""
        )
        found = [*_precise_enough(plans), far, _why_many(tables), _repeating(tables)]
    found += _stored_keys(tables["keys"]) if "keys" in tables else []
    method, quotient = casts[["method", "factor_from"]].iloc[0]
    if method != "unscaled":
        why = f", its factor being {quotient}" if isinstance(quotient, str) else ""
        found.append(f"the frequencies are those of {method}{why}")
    return sentences_of(found)


def following(config: PrecisionConfig, tables: Tables) -> str:
    """Return the command that judges real implementations, else the one that tests
    one's own.
    """
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
        SPREAD: "score_spread",
        "max_angle_error_rad": "worst_rad",
        WRONG_FROM: "wrong_from",
    }
    cures = [_cure(casts, row)[0] for row in plans.to_dict("records")]
    found = plans[list(shown)].rename(columns=shown).reset_index(drop=True)
    return found.assign(fix_first=pd.Series(cures, dtype=object))


def _stages(stages: pd.DataFrame) -> pd.DataFrame:
    """Return a row per stage: the spread of scores, and the first wrong angle, in 16
    bits.
    """

    def spread(row: Any) -> str:
        if pd.notna(row.score_spread):
            return f"{row.score_spread:.1g}" if row.score_spread > EXACT else "0"
        return f"nan from {row.worst_position:.0f}"

    rows: dict[str, dict[str, str]] = {
        n: {"only_this_is_rounded": SAID.get(n, n)} for n in STAGES
    }
    for name in ("bfloat16", "float16"):
        for row in stages[stages["format"] == name].itertuples():
            wrong = getattr(row, WRONG_FROM)
            said = "never" if pd.isna(wrong) else f"{wrong:.0f}"
            rows[str(row.stage)][f"{name} score_spread"] = spread(row)
            rows[str(row.stage)][f"{name} wrong_from"] = said
    table = pd.DataFrame(rows.values())
    return table[sorted(table, key=lambda column: str(column).endswith("wrong_from"))]


def _plans(casts: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Return the rows of implementations and True, else those of stages in bfloat16 and
    False.
    """
    found = casts[casts["kind"].isin(["preset", "cast"])]
    if len(found):
        return found, True
    # bfloat16 is the format that people train in.
    return casts[(casts["kind"] == "stage") & (casts["format"] == "bfloat16")], False


def _precise_enough(stages: pd.DataFrame) -> Iterator[str]:
    """Name the stages that bfloat16 is not precise enough for: those that a model would
    notice.
    """
    places, fine = _by_spread(stages)
    named, lead = places["stage"].tolist(), "bfloat16 is precise enough for RoPE"
    long = any((fine["stage"] == "inv_freq") & (fine["length"] > MEASURED))
    if not named:
        yield f"{lead} at every stage"
    elif len(fine):
        also = ", or inv_freq in long contexts" if long else ""
        yield f"{lead} unless {listed(named, 'or')} is rounded to it{also}"
    else:
        yield "bfloat16 is not precise enough for RoPE at any stage"
    if named:
        yield (
            f"rounding {_spreads(places, 'stage')} makes a score vary with position, by"
            " that share of its standard deviation"
        )
    if len(fine):
        yield (
            f"with only {listed(fine['stage'].tolist(), 'or')} rounded"
            f" {_of_distance(fine)}"
        )


def _by_spread(plans: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return plans under which scores depend on the place, the worst first, and all
    others.
    """
    fine = plans[SPREAD] <= UNNOTICED  # nan: overflow
    return (
        plans[~fine].sort_values(SPREAD, ascending=False, na_position="first"),
        plans[fine],
    )


def _of_distance(fine: pd.DataFrame) -> str:
    within = (
        f" up to {most:.1g} of their deviation"
        if (most := fine[SPREAD].max()) > EXACT
        else ""
    )
    lost = (
        f"no measured model lost more than {LOST:g} nats per byte in up to"
        f" {MEASURED} tokens"
    )
    rounded = any(
        parse_cast(plan).inv_freq.precision < FLOAT32 for plan in fine["plan"]
    )
    far = (
        f" (rounded inverse frequencies {LOST_FAR:g} in 32768 under YaRN)"
        if rounded
        else ""
    )
    return f"scores depend on the distance alone{within}, and {lost}{far}"


def _spreads(plans: pd.DataFrame, named: str) -> str:
    values = zip(plans[named], plans[SPREAD], strict=True)
    return listed(
        [f"{n} ({'overflow' if pd.isna(s) else format(s, '.2g')})" for n, s in values]
    )


def _why_many(tables: Tables) -> str:
    """Compare the next token's effect on a score with one frequency and with many."""
    if "score_margin" not in tables or "resolution" not in tables:
        return ""
    margin = tables["score_margin"].query("vectors == 'random' and format == 'float32'")
    margin = margin.set_index("scheme")
    if not {"single", "rope"} <= set(margin.index):
        return ""
    float32 = "scheme == 'single' and component == 'pair' and format == 'float32'"
    own = tables["resolution"].query(float32)
    if own.empty or (own["distinct_codes"] < own["positions"]).any():
        return ""
    period = tables["pairs"].query("scheme == 'single'")["wavelength_tokens"].iloc[0]
    step, weight = margin["score_step"], 100 * margin["weight_change"]
    return (
        f"Why many frequencies? One pair of period {typed(period)} has a code of its"
        " own at every position in float32, but the next token moves a score by"
        f" {step['single']:.2g} (RoPE: {step['rope']:.2g}): softmax sees"
        f" {weight['single']:.1g} % instead of {weight['rope']:.2g} %"
    )


def _repeating(tables: Tables) -> str:
    """Say where one frequency repeats, or that it was asked for components that it has
    not.
    """
    if "resolution" not in tables:
        return ""
    single = tables["resolution"].query("scheme == 'single'")
    if "single" in set(tables["pairs"]["scheme"]) and single.empty:
        return (
            "one frequency has no vector beside its pair: --components pair shows its"
            " encoding"
        )
    repeating = single[
        (single["component"] == "pair") & single["period_tokens"].notna()
    ]
    for row in repeating.head(1).to_dict("records"):
        return (
            f"position {int(row['period_tokens'])} has the encoding of position 0"
            f" again, apart from any rounding: {row['distinct_codes']} distinct"
            f" encodings for {row['positions']} positions"
        )
    return ""


def _stored_keys(keys: pd.DataFrame) -> Iterator[str]:
    """Give the error of a score by format, without offsets in slow pairs and with
    them.
    """
    wide = keys.drop_duplicates(["keys", "offset_deviations"])
    wide = wide.pivot(index="keys", columns="offset_deviations", values="score_error")
    none, offset = wide.columns
    each = [
        f"{name} {row[none]:.2g} ({row[offset]:.2g})" for name, row in wide.iterrows()
    ]
    yield (
        f"stored keys move a score by {listed(each)}; in brackets where the slowest"
        f" pairs have offsets of {offset:g} deviations"
    )


def _implementations(casts: pd.DataFrame, plans: pd.DataFrame) -> Iterator[str]:
    """Name the implementations that a model would notice, the cure of the worst, and
    the others.
    """
    places, fine = _by_spread(plans)
    if len(places):
        yield (
            "scores depend on the places of their tokens in"
            f" {_spreads(places, 'name')}; small models notice it from {NOTICED:g} of"
            " their deviation on"
        )
        row = places.iloc[0].to_dict()
        yield f"{cure} in {row['name']}" if (cure := _cure(casts, row)[1]) else ""
    if len(fine):
        yield f"in {listed(fine['name'].tolist())} {_of_distance(fine)}"
    # Another rotation, the same at every place: it matters to whoever compares
    # implementations.
    other = fine.dropna(subset=WRONG_FROM)
    named = [
        f"{row['name']} (from {row[WRONG_FROM]:.0f})"
        for row in other.to_dict("records")
    ]
    if named:
        yield f"of these, angles are not those of float64 in {listed(named)}"
    # What a rounded position does to every pair, at any base; of rounded angles it is
    # not known.
    plan_of = dict(zip(plans["name"], map(parse_cast, plans["plan"]), strict=True))
    walls = [
        name for name, plan in plan_of.items() if plan.position.precision < FLOAT32
    ]
    if not any(plan_of[n].angle.precision < FLOAT32 for n in plan_of.keys() - {*walls}):
        where = listed(
            [f"{n} (from {2 ** plan_of[n].position.precision})" for n in walls]
        )
        yield (
            "neighbouring positions are one in every pair, at any base, in"
            f" {where or 'none'}"
        )


def _cure(casts: pd.DataFrame, row: Mapping[Any, Any]) -> tuple[str | None, str]:
    """Return the stage to fix first, and a clause about the effect."""
    repairs = casts[(casts["kind"] == "repair") & (casts["name"] == row["name"])]
    if row[SPREAD] <= UNNOTICED or repairs.empty:
        return None, ""
    cured = repairs.loc[repairs[SPREAD] <= UNNOTICED, "stage"].tolist()
    if cured:  # each of them alone is enough
        return " or ".join(cured), f"fixing {' or '.join(cured)} alone cures it"
    best = repairs.sort_values([SPREAD, WRONG_FROM], ascending=[True, False]).iloc[0]
    helps = best[SPREAD] < row[SPREAD] or pd.notna(best[SPREAD]) > pd.notna(row[SPREAD])
    effect = (
        f"then {best[SPREAD]:.2g}" if helps else "although that alone lowers nothing"
    )
    return (
        best["stage"],
        f"no single fix cures it, fix {best['stage']} first ({effect})",
    )
