"""The cells, tables and answer of the experiment `spectrum`: schemes of frequencies.

A scheme says by which frequencies the pairs of a head rotate. For each scheme some numbers
follow from arithmetic, and a model is trained per seed. The model is then evaluated at
places: a place is a distance and a context, in tokens. A unit is what a value is measured
on, a sequence or a document. The tables are:

schemes
    The frequencies of each scheme, and their periods.
representable
    The change of a score from one token to the next, by scheme, kind of vectors and
    number format.
learned
    Accuracy of copying and of recalling the more recent of a key's two values, by
    distance and context, and the text loss by context. A row per scheme, band removed
    and place, over all seeds.
comparisons
    Every scheme against the first one.
removed
    The first scheme without each band of its frequencies, against the whole scheme.
"""

from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from ropelab.experiments.spectrum import SpectrumConfig
from ropelab.math.frequencies import Geometry, wavelengths
from ropelab.math.numerics.encoding import find_common_period
from ropelab.math.numerics.formats import format_named
from ropelab.math.numerics.scores import measure_score_margins
from ropelab.math.scaling import Scaling, Without
from ropelab.models.encoding.base import Encoding, disable_fused_kernel
from ropelab.models.lm.trained import Training
from ropelab.models.methods.method import PAIRING, Scaled
from ropelab.models.tasks.cells import Evaluation, collect
from ropelab.models.tasks.modes import WithMethod
from ropelab.models.tasks.plans import describe_training, make_task_beyond_training
from ropelab.models.tasks.tables import INTERVAL, PLACE, average_over_seeds, list_units
from ropelab.runs.cell import Values
from ropelab.runs.comparisons import Measure, Pair, compare, describe_significance
from ropelab.runs.labels import write_roughly
from ropelab.runs.own import make_sources_key
from ropelab.runs.sentences import join_names, write_with_interval
from ropelab.runs.tables import Tables

# The version of the trained models. Raise it when a scheme starts or learns differently:
# all models are then trained again.
LEARNING_VERSION = 1
# The value of the column `removed` for a model that is evaluated as it was trained.
NOTHING_REMOVED = "none"
# The values of the column `metric`.
TEXT = "text loss"
COPY = "copy accuracy"
MOST_RECENT = "most_recent accuracy"
# The columns that identify a row of `learned`. `removed` is the band that was removed.
ROW = ["scheme", "removed", "metric", *PLACE]
# The number formats and the seed of random vectors in the table `representable`.
FORMATS = ("float32", "float16", "bfloat16")
SEED = 0


def cells(config: SpectrumConfig) -> list[Evaluation]:
    """Return every task of every model, for every training seed."""
    geometry = config.geometry()
    schemes = list(config.parsed_schemes().values())
    # The scheme that a model is trained with, the band that is removed for the evaluation,
    # and the scheme that the model is evaluated with.
    conditions: list[tuple[Scaling, str, Scaling]] = []
    for scheme in schemes:
        conditions.append((scheme, NOTHING_REMOVED, scheme))
    first_scheme = schemes[0]
    for band in config.bands:
        conditions.append((first_scheme, band, Without(band=band, inner=first_scheme)))

    # Cells go seed by seed, so that an interrupted run has whole seeds.
    tasks = [make_task_beyond_training(config, task) for task in config.tasks]
    cells = []
    for seed, task, condition in product(config.seeds, tasks, conditions):
        scheme, removed, evaluated = condition
        cell = Evaluation(
            subject=make_training(config, scheme, seed),
            task=task,
            mode=WithMethod(Scaled(scaling=evaluated), geometry),
            labels=(("scheme", scheme.label), ("removed", removed), ("seed", seed)),
        )
        cells.append(cell)
    return cells


def make_training(config: SpectrumConfig, scheme: Scaling, seed: int) -> Training:
    """Return the training of a model with a scheme."""
    geometry = config.geometry()
    # The values that identify the trained model. Runs with the same key share it.
    key = {
        "frequencies": scheme.label,
        "base": geometry.base,
        "trained_len": geometry.trained_len,
        "pairing": PAIRING,
        "version": LEARNING_VERSION,
        **make_sources_key(scheme),
    }

    make_encoding_of_scheme = partial(make_encoding, scheme, geometry)
    return describe_training(
        config,
        seed,
        make_encoding_of_scheme,
        key,
        scheme.label,
        config.first_window,
        fused=False,
    )


def make_encoding(scheme: Scaling, geometry: Geometry) -> Encoding:
    encoding = Scaled(scaling=scheme).encoding(geometry, geometry.trained_len)
    # At short windows separate products are faster than the fused kernel.
    return disable_fused_kernel(encoding)


def tables(config: SpectrumConfig, values: Values) -> dict[str, pd.DataFrame]:
    units = _list_units(config, values)
    rows = []
    for row, group in units.groupby(ROW, sort=False):
        rows.append((*row, *average_over_seeds(group)))
    columns = [*ROW, "seeds", "n", "value", *INTERVAL]
    learned = pd.DataFrame(rows, columns=columns)
    learned = _drop_text_distances(learned)

    # Every other scheme is compared with the first, in models evaluated as they were
    # trained. Schemes are labels here.
    first_label, *other_labels = config.parsed_schemes()
    units_as_trained = units[units["removed"] == NOTHING_REMOVED]
    tables = {
        "schemes": make_schemes_table(config),
        "representable": make_representable_table(config),
        "learned": learned.assign(train_len_tokens=config.train_len),
        "comparisons": _compare_values(
            units_as_trained, "scheme", first_label, other_labels
        ),
    }
    if config.bands:
        units_of_first = units[units["scheme"] == first_label]
        tables["removed"] = _compare_values(
            units_of_first, "removed", NOTHING_REMOVED, list(config.bands)
        )
    return tables


def _list_units(config: SpectrumConfig, values: Values) -> pd.DataFrame:
    """Return the value of each unit, for all metrics and seeds."""
    evaluated = collect(cells(config), values)
    columns = [*ROW, "seed", "unit", "trials", "value"]

    parts = []
    for task, metric in (("copy", COPY), ("most_recent", MOST_RECENT)):
        if task in evaluated:
            units = list_units(evaluated[task]["trials"]).assign(metric=metric)
            parts.append(units[columns])

    if "text" in evaluated:
        # A text loss has a context, but no distance: the loss is always measured on the
        # same last tokens. pandas would leave rows without a distance out of groups.
        # The distance is therefore 0 here, and `_drop_text_distances` deletes it in
        # the end.
        text = list_units(evaluated["text"]["last_window"])
        text = text.assign(metric=TEXT, distance_tokens=0)
        parts.append(text[columns])
    return pd.concat(parts, ignore_index=True)


def make_schemes_table(config: SpectrumConfig) -> pd.DataFrame:
    """Return a row per scheme: its numbers of frequencies and pairs, and its periods."""
    rows = []
    for label, scheme in config.parsed_schemes().items():
        inv_freq = scheme.plan(config.geometry(), config.train_len).inv_freq
        rotating_inv_freq = inv_freq[inv_freq > 0]

        # A scheme in which no pair rotates has no periods.
        shortest = None
        longest = None
        if rotating_inv_freq.size:
            periods = wavelengths(rotating_inv_freq)
            shortest = periods.min()
            longest = periods.max()

        row = {
            "scheme": label,
            # Pairs with the same frequency count once.
            "frequencies": np.unique(rotating_inv_freq).size,
            "rotating_pairs": rotating_inv_freq.size,
            "pairs": inv_freq.size,
            "shortest_period_tokens": shortest,
            "longest_period_tokens": longest,
            # The first position whose rotations equal the rotations of position 0 in
            # exact arithmetic.
            "period_tokens": find_common_period(inv_freq.tolist()),
        }
        rows.append(row)
    return pd.DataFrame(rows).astype({"period_tokens": "Int64"})


def make_representable_table(config: SpectrumConfig) -> pd.DataFrame:
    """Return a row per scheme, vectors and format: see `measure_score_margins`."""
    # The distances reach up to the trained length. The vectors have the width of a
    # head.
    distances = np.arange(config.train_len, dtype=np.float64)
    formats = [format_named(name) for name in FORMATS]
    parts = []
    for label, scheme in config.parsed_schemes().items():
        inv_freq = scheme.plan(config.geometry(), config.train_len).inv_freq
        margins = measure_score_margins(
            inv_freq, formats, distances, config.draws, SEED
        )
        margins.insert(0, "scheme", label)
        parts.append(margins)
    return pd.concat(parts, ignore_index=True)


def _compare_values(
    units: pd.DataFrame, column: str, reference: str, other_values: list[str]
) -> pd.DataFrame:
    """Compare every value of a column in `other_values` with the value `reference`, at
    each place and for each metric.
    """
    pairs = []
    for metric_and_place, group in units.groupby(["metric", *PLACE], sort=False):
        metric, _, _ = metric_and_place
        measure: Measure = "loss" if metric == TEXT else "share"
        trials = int(group["trials"].iloc[0])
        by_unit = group.set_index(["seed", "unit"])
        values_of = dict(list(by_unit.groupby(column)["value"]))

        for other in other_values:
            pair = Pair(
                about=(other, reference, *metric_and_place),
                a=values_of[other],
                b=values_of[reference],
                names=(other, reference),
                measure=measure,
                family=metric_and_place,
                trials=trials,
            )
            pairs.append(pair)

    columns = [f"{column}_a", f"{column}_b", "metric", *PLACE]
    return _drop_text_distances(compare(pairs, columns))


def _drop_text_distances(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose distances are missing in rows of text."""
    distance = table["distance_tokens"].where(table["metric"] != TEXT).astype("Int64")
    return table.assign(distance_tokens=distance)


def answer(tables: Tables) -> str:
    """Say with how many frequencies models copy, how many comparisons are significant,
    and how much one token changes a score.
    """
    sentences = [
        _describe_copying(tables),
        describe_significance(tables["comparisons"]),
        _describe_steps(tables),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _describe_copying(tables: Tables) -> str:
    """Say how well the best scheme copies for growing numbers of frequencies; empty if
    copying was not measured.
    """
    learned = tables["learned"]
    copying = learned[
        (learned["metric"] == COPY)
        & (learned["removed"] == NOTHING_REMOVED)
        & (learned["context_tokens"] == learned["train_len_tokens"])
    ]
    if copying.empty:
        return ""

    # The farthest distance up to half of the trained length is asked about: near by,
    # models without positions copy, too.
    half = copying["train_len_tokens"].iloc[0] // 2
    distances = copying["distance_tokens"]
    up_to_half = distances[distances <= half]
    distance = int(distances.min())
    if len(up_to_half):
        distance = int(up_to_half.max())
    values = copying[distances == distance].merge(tables["schemes"])

    # Of several schemes with the same number of frequencies, the best one is kept.
    best_first = values.sort_values("value", ascending=False)
    best = best_first.drop_duplicates("frequencies")
    parts = []
    largest_number = best["frequencies"].max()
    highest_share = best["value"].max()
    unnamed_count = 0
    # The number of frequencies of the scheme that was named last.
    last_named = 0
    for row in best.sort_values("frequencies").to_dict("records"):
        # The control without any frequency is only in the table. So are numbers that are
        # less than doubled, except for the largest number and that of the best scheme.
        is_control = row["frequencies"] == 0 and len(best) > 1
        is_doubled = row["frequencies"] >= 2 * last_named
        is_largest = row["frequencies"] == largest_number
        is_best = row["value"] == highest_share
        if is_control:
            continue
        if not (is_doubled or is_largest or is_best):
            unnamed_count += 1
            continue
        last_named = row["frequencies"]
        share = write_with_interval(row["value"], row["ci_low"], row["ci_high"], "%")
        count = _write_frequencies(row["frequencies"])
        parts.append(f"{share} with {count} ({row['scheme']})")
    sentence = (
        f"Trained: at {distance} tokens back, inside the trained length, the best models"
        f" copy {join_names(parts)}"
    )
    if unnamed_count:
        numbers = "number between is" if unnamed_count == 1 else "numbers between are"
        sentence += f"; {unnamed_count} {numbers} in the table"
    sentence += "."
    return f"{sentence} {_name_fully_rotated(tables)}".rstrip()


def _write_frequencies(count: int) -> str:
    """Write a number of frequencies.

    >>> _write_frequencies(1), _write_frequencies(8)
    ('one frequency', '8 frequencies')
    """
    return "one frequency" if count == 1 else f"{count} frequencies"


def _describe_steps(tables: Tables) -> str:
    """Say how much one token changes a score of random vectors, under the first scheme
    and under the scheme with the smallest change; empty if nothing rotates.
    """
    representable = tables["representable"]
    rows = representable[
        (representable["vectors"] == "random")
        & (representable["format"] == "float32")
        & (representable["score_step"] > 0)
    ]
    if rows.empty:
        return ""

    first_scheme = rows.iloc[0]["scheme"]
    weakest_scheme = rows.sort_values("score_step").iloc[0]["scheme"]
    steps = []
    # The first scheme may be the weakest one, which is then named once.
    for scheme in dict.fromkeys((first_scheme, weakest_scheme)):
        for row in rows[rows["scheme"] == scheme].to_dict("records"):
            steps.append(
                f"{write_roughly(row['score_step'])} with {scheme},"
                f" {write_roughly(row['step_to_rounding'])} times its rounding in float32"
            )
    return (
        "Arithmetic: one token on, a score of random vectors changes by a root mean"
        f" square of {', and by '.join(steps)}."
    )


def _name_fully_rotated(tables: Tables) -> str:
    """Name the schemes whose pairs all rotate, in a sentence; empty if there are none.

    A pair counts if it completes more than a quarter of a rotation in the trained window.
    A pair that rotates by less marks hardly any position.
    """
    schemes = tables["schemes"]
    trained_len = tables["learned"]["train_len_tokens"].iloc[0]
    all_rotate = schemes["rotating_pairs"] == schemes["pairs"]
    has_frequencies = schemes["frequencies"] > 0
    is_fast = schemes["longest_period_tokens"] < 4 * trained_len
    names = schemes.loc[all_rotate & has_frequencies & is_fast, "scheme"].tolist()
    if not names:
        return ""
    return (
        f"With {join_names(names)} all pairs of a head rotate: none is left that compares"
        " tokens whatever their distance, which may lower recall, too."
    )


def summary(tables: Tables) -> pd.DataFrame:
    """Return the short table: a row per scheme and band removed, with copying near and
    far, recall of the most recent cue, and text.
    """
    learned = tables["learned"]
    trained_len = learned["train_len_tokens"].iloc[0]
    longest = learned["context_tokens"].max()
    frequencies = tables["schemes"].set_index("scheme")["frequencies"]
    rows = learned[["scheme", "removed"]].drop_duplicates()
    short_table = rows.assign(frequencies=rows["scheme"].map(frequencies))

    # The name of each column, its metric, and its distance (None for text) and context.
    columns = [
        ("copy near", COPY, trained_len // 8, trained_len),
        ("copy far", COPY, trained_len // 2, trained_len),
        (f"copy in {longest}", COPY, longest // 2, longest),
        ("most_recent", MOST_RECENT, trained_len // 8, trained_len),
        ("text", TEXT, None, trained_len),
        (f"text at {longest}", TEXT, None, longest),
    ]
    for name, metric, distance, context in columns:
        selected = (learned["metric"] == metric) & (
            learned["context_tokens"] == context
        )
        if distance is not None:
            selected &= learned["distance_tokens"] == distance
        # A run may not have measured this.
        if selected.any():
            values = learned.loc[
                selected, ["scheme", "removed", "value", "ci_low", "ci_high"]
            ]
            ends = {"ci_low": f"{name} ci_low", "ci_high": f"{name} ci_high"}
            values = values.rename(columns={"value": name, **ends})
            short_table = short_table.merge(values, how="left")
    return short_table.reset_index(drop=True)


def explain_columns(tables: Tables) -> dict[str, str]:
    """Say what the columns of the short table are, by the beginnings of their names."""
    learned = tables["learned"]
    trained = int(learned["train_len_tokens"].iloc[0])
    longest = int(learned["context_tokens"].max())
    return {
        "removed": "the third of the frequencies that was taken away after training",
        "copy near": f"share of symbols copied at {trained // 8} tokens back",
        "copy far": f"at {trained // 2} tokens back, both in {trained} tokens",
        f"copy in {longest}": f"at {longest // 2} tokens back",
        "most_recent": f"share of keys whose nearer value, {trained // 8} back, is told",
        "text": "loss of the last tokens of a text, in nats per byte",
    }
