"""The answer of the precision experiment in sentences, and the command to type next.

The answer judges the implementations that --preset and --cast name. If none is named,
it compares encodings, then says which stage of an implementation may be rounded to a
format. The columns of the table `casts` and the word spread are explained in `summary`.
"""

from collections.abc import Iterator

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.against import state_against
from ropelab.experiments.precision.axes import state_axes
from ropelab.experiments.precision.neighbours import compare_frequencies, state_limits
from ropelab.experiments.precision.shared import write_size
from ropelab.experiments.precision.sines import state_losses
from ropelab.experiments.precision.summary import (
    SPREAD,
    STAGE_WORDS,
    WRONG_FROM,
    choose_formats,
    find_cure,
    list_implementations,
    list_stages,
    names_formats,
    write_spread_of,
)
from ropelab.math.numerics.casts import parse_cast
from ropelab.math.numerics.formats import FORMATS
from ropelab.runs.sentences import join_names, join_sentences
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import (
    EXACT,
    LOST,
    LOST_BY_FREQUENCIES,
    LOST_FAR,
    MEASURED,
    NOTICED,
    UNNOTICED,
)

FLOAT32_BITS = FORMATS["float32"].precision


def answer(tables: Tables) -> str:
    """Return the answer in sentences."""
    casts = tables["casts"]
    # The rows of the implementations that --preset and --cast name; none: neither is
    # given.
    implementations = list_implementations(casts)

    if len(implementations):
        clauses = list(_judge_implementations(casts, implementations))
    else:
        clauses = [
            *compare_frequencies(tables),
            *_judge_stages(tables),
            _state_float32_angles(casts),
            *state_losses(tables["reductions"]),
            *state_limits(tables),
            _state_repetition(tables),
        ]
    if "against" in tables:
        clauses = [*state_against(tables["against"]), *clauses]
    if "keys" in tables:
        clauses.append(_state_key_errors(tables["keys"]))
    if "axes" in tables:
        clauses += state_axes(tables["axes"], choose_formats(tables))

    # All rows have the same method. The column `factor_from` has words, such as
    # "8192 / 4096 tokens", if nobody typed the factor.
    method, factor_in_words = casts[["method", "factor_from"]].iloc[0]
    if isinstance(factor_in_words, str):
        clauses.append(f"the factor of {method} is {factor_in_words}")
    # Empty clauses are left out.
    return join_sentences(clauses)


def suggest_command(config: PrecisionConfig, tables: Tables) -> str:
    """If implementations were judged, return the command that checks the user's own
    code. Otherwise return the command that judges all known implementations.
    """
    if config.preset or config.cast:
        return "ropelab check mymodule:make_rope --config config.json"
    # Where implementations are judged, no single stage is rounded.
    return config.replace(preset=("all",), only_formats=False).command("precision")


# Implementations


def _judge_implementations(
    casts: pd.DataFrame, implementations: pd.DataFrame
) -> Iterator[str]:
    """Name the implementations whose roundings a model would notice, the cure of the
    worst one, and then all other implementations.
    """
    noticed, unnoticed = _split_by_spread(implementations)
    if len(noticed):
        yield (
            "scores depend on the places of their tokens in"
            f" {_list_spreads(noticed, 'name')}; small models notice it from {NOTICED:g} of"
            " their deviation on"
        )
        worst = noticed.iloc[0].to_dict()
        cure = find_cure(casts, worst)
        if cure.clause:
            yield cure.clause
    if len(unnoticed):
        names = join_names(unnoticed["name"].tolist())
        yield f"in {names} {_describe_unnoticed(unnoticed)}"

    # Some implementations that no model would notice rotate by wrong angles, though no
    # score changes with the place. That matters to whoever compares two
    # implementations.
    other_angles = [
        f"{row['name']} (from {row[WRONG_FROM]:.0f})"
        for row in unnoticed.dropna(subset=WRONG_FROM).to_dict("records")
    ]
    if other_angles:
        names = join_names(other_angles)
        yield f"of these, angles are not those of float64 in {names}"
    yield from _state_equal_positions(implementations)


def _state_equal_positions(implementations: pd.DataFrame) -> Iterator[str]:
    """Say in which implementations two neighbouring positions become one number."""
    implementations_and_starts = []
    rounds_angle = False
    labels = zip(implementations["name"], implementations["plan"], strict=True)
    for name, label in labels:
        plan = parse_cast(label)
        if plan.position.precision < FLOAT32_BITS:
            # A format of n bits has no odd numbers above 2^n.
            first_equal = 2**plan.position.precision
            implementations_and_starts.append(f"{name} (from {first_equal})")
        elif plan.angle.precision < FLOAT32_BITS:
            rounds_angle = True

    # A rounded position is the same for every pair, at any base. If angles are rounded, the
    # tables do not tell from which position on neighbours are equal in every pair, and
    # nothing is said.
    if not rounds_angle:
        where = join_names(implementations_and_starts)
        one_number = "neighbouring positions are one in every pair, at any base, in"
        yield f"{one_number} {where or 'none of the implementations'}"


# Stages


def _judge_stages(tables: Tables) -> Iterator[str]:
    """Say for which stages each format that the user names is precise enough. If the user
    names none, only the first of the formats that models are trained in is judged.
    """
    formats = choose_formats(tables)
    if not names_formats(tables):
        formats = formats[:1]
    # The finest format comes first, in whatever order they were typed.
    formats.sort(key=lambda name: (-FORMATS[name].precision, name))
    # Of several formats, each clause says which one it is about.
    to_formats = [f" to {name}" for name in formats] if len(formats) > 1 else [""]

    stages = list_stages(tables["casts"])
    for fmt, to_format in zip(formats, to_formats, strict=True):
        yield from _judge_format(stages[stages["format"] == fmt], fmt, to_format)


def _judge_format(stages: pd.DataFrame, fmt: str, to_format: str) -> Iterator[str]:
    """Say for which stages a format is precise enough: no model would notice that the
    stage is rounded to it.

    `stages` are the rows of the format. `to_format` is the format after the word
    "rounding", empty if only one is judged.
    """
    noticed, unnoticed = _split_by_spread(stages)
    # Inverse frequencies of fewer bits than those of bfloat16 are another rotation, and
    # no model was measured with them.
    is_unmeasured = FORMATS[fmt].precision < FORMATS["bfloat16"].precision
    is_inv_freq = unnoticed["stage"] == "inv_freq"
    has_unmeasured = is_unmeasured and is_inv_freq.any()

    noticed_stages = noticed["stage"].tolist()
    if has_unmeasured:
        unnoticed = unnoticed[~is_inv_freq]
        noticed_stages.append("inv_freq")
    lead = f"{fmt} is precise enough for RoPE"
    if not noticed_stages:
        yield f"{lead} at every stage"
    elif len(unnoticed):
        # In long contexts rounded inverse frequencies raise the loss, which was
        # measured only for bfloat16.
        is_long = (unnoticed["stage"] == "inv_freq") & (unnoticed["length"] > MEASURED)
        long_contexts = ""
        if is_long.any() and fmt == "bfloat16":
            long_contexts = ", or inv_freq in long contexts"
        names = join_names(noticed_stages, "or")
        yield f"{lead} unless {names} is rounded to it{long_contexts}"
    else:
        yield f"{fmt} is not precise enough for RoPE at any stage"

    if has_unmeasured:
        yield f"{fmt} of inv_freq is another rotation, with which no model was measured"
    overflowing = noticed[noticed[SPREAD].isna()]
    if len(overflowing):
        verb = "overflows" if len(overflowing) == 1 else "overflow"
        first_position = overflowing["worst_position"].min()
        overflowing_names = join_names(overflowing["stage"].tolist())
        yield (
            f"in {fmt} {overflowing_names} {verb} from position {first_position:.0f} on"
        )
    varying = noticed.dropna(subset=SPREAD)
    if len(varying):
        yield (
            f"rounding {_list_spreads(varying, 'stage')}{to_format} makes a score vary"
            " with position, by that share of its standard deviation"
        )
    if len(unnoticed):
        words = [STAGE_WORDS.get(stage, stage) for stage in unnoticed["stage"]]
        yield (
            f"with only {join_names(words, 'or')} rounded{to_format},"
            f" {_describe_unnoticed(unnoticed)}"
        )


def _state_float32_angles(casts: pd.DataFrame) -> str:
    """Say from which position on float32 angles are wrong; an empty text if they never
    are.
    """
    is_float32_stage = (casts["kind"] == "stage") & (casts["format"] == "float32")
    is_float32 = is_float32_stage | (casts["kind"] == "long")
    wrong_from = casts.loc[is_float32, WRONG_FROM].min()
    if pd.isna(wrong_from):
        return ""
    return f"in float32 angles are wrong from position {wrong_from:.0f} on"


# Plans of both kinds, implementations and stages


def _split_by_spread(plans: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the plans whose roundings a model would notice, the worst first, and all
    other plans.
    """
    # The spread of a plan that overflows is nan, and the comparison False. Such a plan is
    # noticed, and is the worst.
    is_unnoticed = plans[SPREAD] <= UNNOTICED
    noticed = plans[~is_unnoticed].sort_values(
        SPREAD, ascending=False, na_position="first"
    )
    return noticed, plans[is_unnoticed]


def _describe_unnoticed(plans: pd.DataFrame) -> str:
    """Say how much scores vary at most under plans that no model notices."""
    text = "scores depend on the distance alone"
    largest = plans[SPREAD].max()
    if largest > EXACT:
        text += f" up to {largest:.1g} of their deviation"
    text += (
        f", and the models that were measured lost at most {LOST:g} nats per byte on"
        f" average in up to {MEASURED} tokens"
    )

    formats = [parse_cast(plan).inv_freq for plan in plans["plan"]]
    if any(fmt.precision < FLOAT32_BITS for fmt in formats):
        text += (
            f" (with rounded inverse frequencies {LOST_BY_FREQUENCIES:g}, and {LOST_FAR:g}"
            " by YaRN in 32768 tokens)"
        )
    return text


def _list_spreads(plans: pd.DataFrame, name_column: str) -> str:
    """Write the name of each plan with its spread, or with the word overflow."""
    texts = []
    for row in plans.to_dict("records"):
        spread = "overflow"
        if pd.notna(row[SPREAD]):
            spread = write_spread_of(row)
        texts.append(f"{row[name_column]} ({spread})")
    return join_names(texts)


# One frequency, and stored keys


def _state_repetition(tables: Tables) -> str:
    """Say at which position the encoding by one frequency repeats.

    An empty text: it does not repeat, or no encoding of one frequency was asked for.
    """
    if "resolution" not in tables:
        return ""

    # The components vector and score do not exist for one frequency.
    single = tables["resolution"].query("scheme == 'single'")
    asks_for_single = "single" in set(tables["pairs"]["scheme"])
    if asks_for_single and single.empty:
        return (
            "one frequency has no vector beside its pair: --components pair shows its"
            " encoding"
        )

    is_repeating = (single["component"] == "pair") & single["period_tokens"].notna()
    repeating = single[is_repeating]
    if repeating.empty:
        return ""
    # There is a row per format, and float64 is the first.
    row = repeating.to_dict("records")[0]
    return (
        f"position {int(row['period_tokens'])} has the encoding of position 0"
        f" again, apart from any rounding: {row['distinct_codes']} distinct"
        f" encodings for {row['positions']} positions"
    )


def _state_key_errors(keys: pd.DataFrame) -> str:
    """Give the error of a score for each format of stored keys, without offsets in slow
    pairs and with them.
    """
    # The rows of one format and offset are its pairs, and have the same score error.
    errors = keys.drop_duplicates(["keys", "offset_deviations"])
    without_offset, with_offset = sorted(errors["offset_deviations"].unique())
    texts = []
    for name, rows in errors.groupby("keys", sort=False):
        sizes = {}
        for row in rows.to_dict("records"):
            size = write_size(row["score_error"], row["ci_low"], row["ci_high"])
            sizes[row["offset_deviations"]] = size
        texts.append(f"{name} {sizes[without_offset]} ({sizes[with_offset]})")

    return (
        f"stored keys move a score by {join_names(texts)}; in brackets where the slowest"
        f" pairs have offsets of {with_offset:g} deviations"
    )
