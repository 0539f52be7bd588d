"""The precision experiment: its cells, its tables, the finding in words and the short
table.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.against import (
    against_cell,
    shorten_against,
    state_against,
)
from ropelab.experiments.precision.axes import compute_axes, state_axes
from ropelab.experiments.precision.encodings import (
    encoding_cells,
    explain_table,
    spectrum_of,
)
from ropelab.experiments.precision.neighbours import (
    choose_encodings,
    compare_frequencies,
    list_neighbours,
    state_limits,
)
from ropelab.experiments.precision.sines import list_losses, state_losses
from ropelab.experiments.precision.stages import (
    STAGE_FORMATS,
    cast_tables,
    implementations,
    stage_cells,
)
from ropelab.math.numerics.casts import STAGES, parse_cast
from ropelab.math.numerics.formats import FORMATS
from ropelab.math.numerics.keys import parse_keys
from ropelab.runs.cell import Cell, Values
from ropelab.runs.sentences import join_names, sentences_of
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import EXACT, LOST, LOST_FAR, MEASURED, NOTICED, UNNOTICED

WRONG_FROM = "first_position_over_tolerance"
SPREAD = "score_spread"
FLOAT32 = FORMATS["float32"].precision
# Stages, as one says them.
SAID = {"table": "cos and sin", "score": "q, k and score"}
# The formats that models are trained in.
USUAL = ("bfloat16", "float16")
# Whole numbers that are missing in some rows: read back from disk they are floats.
WHOLE = ["first_collision_position", "period_tokens", "worst_position", "worst_pair"]
WHOLE += ["first_position_over_tolerance", "distinct_positions"]
WHOLE += ["resolved_from_tokens", "first_losing_pair"]
# Tables of encodings, then those of casts.
ORDER = (
    *(
        "neighbours",
        "resolution",
        "collisions",
        "pairs",
        "limits",
        "scores",
        "score_margin",
    ),
    *("casts", "against", "spread", "growth", "drift", "reductions", "keys"),
)


def check(config: PrecisionConfig) -> None:
    """Raise InputError for unknown formats, methods, casts, and what does not fit the
    head.
    """
    spectrum_of(config)
    cells(config)
    if config.explain is not None:
        explain_table(config, config.explain, implementations(config))
    for stored in config.cache:
        # The keys are the rotated features alone.
        parse_keys(stored).check(config.rotated)


def cells(config: PrecisionConfig) -> list[Cell]:
    of_plans = stage_cells(config)
    if config.against:
        of_plans.append(against_cell(config))
    return [*encoding_cells(config), *of_plans]


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
    if "resolution" in measured:
        measured["neighbours"] = choose_encodings(measured["resolution"])
    found = {name: measured[name] for name in ORDER if name in measured}

    if config.sections:
        found["axes"] = compute_axes(config)
    if config.explain is not None:
        # Arithmetic on a dozen numbers: quicker than a cell.
        plans = implementations(config)
        found["explain"] = explain_table(config, config.explain, plans)
    return found


def answer(tables: Tables) -> str:
    """Judge implementations; else frequencies, then each stage, then float32 itself."""
    casts = tables["casts"]
    plans, named = _plans(casts)

    if named:
        said = [*_implementations(casts, plans)]
    else:
        said = [
            *compare_frequencies(tables),
            *_precise_enough(plans),
            _float32_alone(casts),
            *state_losses(tables["reductions"]),
            *state_limits(tables),
            _repeating(tables),
        ]
    if "against" in tables:
        said = [*state_against(tables["against"]), *said]
    if "keys" in tables:
        said += _stored_keys(tables["keys"])
    if "axes" in tables:
        said += state_axes(tables["axes"])

    method, quotient = casts[["method", "factor_from"]].iloc[0]
    if isinstance(quotient, str):
        said.append(f"the factor of {method} is {quotient}")
    return sentences_of(said)


def _float32_alone(casts: pd.DataFrame) -> str:
    single = (casts["kind"] == "stage") & (casts["format"] == "float32")
    wrong = casts.loc[single | (casts["kind"] == "long"), WRONG_FROM].min()
    if pd.isna(wrong):
        return ""
    return f"in float32 angles are wrong from position {wrong:.0f} on"


def following(config: PrecisionConfig, tables: Tables) -> str:
    """Return the command that judges real implementations, else the one that tests
    one's own.
    """
    if config.preset or config.cast:
        return "ropelab check mymodule:make_rope --config config.json"
    return config.replace(preset=("all",)).command("precision")


def summary(tables: Tables) -> pd.DataFrame:
    """Return implementations, else equal neighbours, else (no encodings) the stages."""
    casts = tables["casts"]
    plans, named = _plans(casts)
    if not named:
        neighbours = list_neighbours(tables)
        return neighbours if len(neighbours) else _stages(casts)

    shown = {
        "name": "plan",
        SPREAD: "score_spread",
        "max_angle_error_rad": "worst_rad",
        WRONG_FROM: "wrong_from",
    }
    records = plans.to_dict("records")
    cures = [_cure(casts, row)[0] for row in records]
    rows = plans[list(shown)].rename(columns=shown).reset_index(drop=True)

    # A spread is shown with no more digits than its interval supports.
    spreads = [
        float(_write_spread(row)) if pd.notna(row[SPREAD]) else math.nan
        for row in records
    ]
    return rows.assign(score_spread=spreads, fix_first=pd.Series(cures, dtype=object))


def further(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short table of stages, where the first one is about encodings, and the
    one of sines.
    """
    casts = tables["casts"]
    _, named = _plans(casts)
    shown = {}
    if not named and len(list_neighbours(tables)):
        shown["casts"] = _stages(casts)
    shown["reductions"] = list_losses(tables["reductions"])
    if "against" in tables:
        shown["against"] = shorten_against(tables["against"])
    if "axes" in tables:
        shown["axes"] = tables["axes"].drop(columns=["stage", "format"])
    return shown


def _stages(casts: pd.DataFrame) -> pd.DataFrame:
    """Return a row per stage: the spread of scores, and the first wrong angle."""
    stages = casts[casts["kind"] == "stage"]
    table = pd.DataFrame({"only_this_is_rounded": [SAID.get(n, n) for n in STAGES]})
    by_format = {
        name: stages[stages["format"] == name].set_index("stage").loc[[*STAGES]]
        for name in _shown_formats(stages)
    }
    for name, rows in by_format.items():
        texts = [_write_spread(row) for row in rows.to_dict("records")]
        table[f"{name} score_spread"] = texts
    for name, rows in by_format.items():
        first = rows[WRONG_FROM]
        texts = ["never" if pd.isna(m) else f"{m:.0f}" for m in first.tolist()]
        table[f"{name} wrong_from"] = texts
    return table


def _shown_formats(stages: pd.DataFrame) -> list[str]:
    """Return the formats that were asked for; of all six, the two that are trained in."""
    names = stages["format"].unique().tolist()
    if len(names) < len(STAGE_FORMATS):
        return names
    return [name for name in USUAL if name in names] or names


def _write_spread(row: Mapping[Any, Any]) -> str:
    if pd.isna(row[SPREAD]):
        return f"overflow from {row['worst_position']:.0f}"
    return write_spread(row[SPREAD], row["spread_ci_low"], row["spread_ci_high"])


def write_spread(value: float, low: float, high: float) -> str:
    """Write a spread with the digits that its interval supports, at most two.

    >>> write_spread(0.6002, 0.6002, 0.6002), write_spread(0.0033, 0.0027, 0.0039)
    ('0.60', '0.003')
    """
    if value <= EXACT:
        return "0"
    # Two digits are supported where the interval is within half a step of the second.
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    digits = 1 if high - low > step else 2
    decimals = digits - 1 - math.floor(math.log10(value))
    return f"{value:.{max(decimals, 0)}f}" if value > 1e-4 else f"{value:.{digits}g}"


def _plans(casts: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Return the rows of implementations and True, else those of stages in one format
    and False.
    """
    rows = casts[casts["kind"].isin(["preset", "cast"])]
    if len(rows):
        return rows, True
    stages = casts[casts["kind"] == "stage"]
    return stages[stages["format"] == _shown_formats(stages)[0]], False


def _precise_enough(stages: pd.DataFrame) -> Iterator[str]:
    """Name the stages that a format is not precise enough for: those that a model would
    notice.
    """
    places, fine = _by_spread(stages)
    name = stages["format"].iloc[0]
    named = places["stage"].tolist()
    lead = f"{name} is precise enough for RoPE"
    long = any((fine["stage"] == "inv_freq") & (fine["length"] > MEASURED))
    # The claim about long contexts is measured for this format.
    long = long and name == "bfloat16"

    if not named:
        yield f"{lead} at every stage"
    elif len(fine):
        also = ", or inv_freq in long contexts" if long else ""
        yield f"{lead} unless {join_names(named, 'or')} is rounded to it{also}"
    else:
        yield f"{name} is not precise enough for RoPE at any stage"

    overflowing = places[places[SPREAD].isna()]
    if len(overflowing):
        verb = "overflows" if len(overflowing) == 1 else "overflow"
        first = overflowing["worst_position"].min()
        names = join_names(overflowing["stage"].tolist())
        yield f"in {name} {names} {verb} from position {first:.0f} on"
    varying = places.dropna(subset=SPREAD)
    if len(varying):
        yield (
            f"rounding {_spreads(varying, 'stage')} makes a score vary with position, by"
            " that share of its standard deviation"
        )
    if len(fine):
        stages_said = [SAID.get(stage, stage) for stage in fine["stage"]]
        yield (
            f"with only {join_names(stages_said, 'or')} rounded, {_of_distance(fine)}"
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
    said = "scores depend on the distance alone"
    largest = fine[SPREAD].max()
    if largest > EXACT:
        said += f" up to {largest:.1g} of their deviation"
    said += (
        f", and no measured model lost more than {LOST:g} nats per byte in up to"
        f" {MEASURED} tokens"
    )

    formats = [parse_cast(plan).inv_freq for plan in fine["plan"]]
    if any(each.precision < FLOAT32 for each in formats):
        said += (
            f" ({LOST_FAR:g} with rounded inverse frequencies, by YaRN in 32768 tokens)"
        )
    return said


def _spreads(plans: pd.DataFrame, named: str) -> str:
    texts = []
    for row in plans.to_dict("records"):
        size = "overflow"
        if pd.notna(row[SPREAD]):
            size = _write_spread(row)
        texts.append(f"{row[named]} ({size})")
    return join_names(texts)


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
    whole = keys.drop_duplicates(["keys", "offset_deviations"])
    none, offset = sorted(whole["offset_deviations"].unique())
    each = []
    for name, rows in whole.groupby("keys", sort=False):
        sizes = {
            row["offset_deviations"]: write_spread(
                row["score_error"], row["ci_low"], row["ci_high"]
            )
            for row in rows.to_dict("records")
        }
        each.append(f"{name} {sizes[none]} ({sizes[offset]})")

    yield (
        f"stored keys move a score by {join_names(each)}; in brackets where the slowest"
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
        _, cure = _cure(casts, row)
        if cure:
            yield cure
    if len(fine):
        yield f"in {join_names(fine['name'].tolist())} {_of_distance(fine)}"

    # Another rotation, the same at every place: it matters to whoever compares
    # implementations.
    other = fine.dropna(subset=WRONG_FROM)
    named = [
        f"{row['name']} (from {row[WRONG_FROM]:.0f})"
        for row in other.to_dict("records")
    ]
    if named:
        yield f"of these, angles are not those of float64 in {join_names(named)}"

    # A wall is what a rounded position does to every pair, at any base. Walls of rounded
    # angles are not known.
    plan_of = dict(zip(plans["name"], map(parse_cast, plans["plan"]), strict=True))
    walls = [
        name for name, plan in plan_of.items() if plan.position.precision < FLOAT32
    ]

    if not any(plan_of[n].angle.precision < FLOAT32 for n in plan_of.keys() - {*walls}):
        where = join_names(
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
        fixes = " or ".join(cured)
        return fixes, f"fixing {fixes} alone cures {row['name']}"

    best = repairs.sort_values([SPREAD, WRONG_FROM], ascending=[True, False]).iloc[0]
    ends_overflow = pd.isna(row[SPREAD]) and pd.notna(best[SPREAD])
    effect = "although that alone lowers nothing"
    if best[SPREAD] < row[SPREAD] or ends_overflow:
        effect = f"then {_write_spread(best)}"
    return (
        best["stage"],
        f"no single fix cures {row['name']}: fix {best['stage']} first ({effect})",
    )
