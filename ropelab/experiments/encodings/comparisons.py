"""Comparisons of encodings at multiples of the trained length, and the encodings that
learned to copy.

Values are compared unit by unit. A unit is a document or a sequence, read by the model of
one training seed. The metrics are the loss of text and the share of symbols copied.
"""

from collections.abc import Hashable, Sequence
from itertools import product
from typing import NamedTuple

import pandas as pd

from ropelab.experiments.encodings import EncodingsConfig
from ropelab.experiments.encodings.rows import JOINED_BY, list_rows
from ropelab.runs.comparisons import UNLEARNED, Measure, Pair, compare
from ropelab.runs.thresholds import LEARNED

# If this encoding is among the compared encodings, all others are compared with it.
BASELINE = "rope"
# The values of the column `metric`, and the kind of numbers of each metric.
TEXT = "text loss"
COPY = "copy accuracy"
MEASURE: dict[str, Measure] = {TEXT: "loss", COPY: "share"}
# The name of the table of designs against methods of RoPE.
AGAINST_METHODS = "against_methods"
# Pairs of encodings whose text losses at the trained length the literature compares.
PUBLISHED_PAIRS = (
    ("learned", "sinusoidal"),
    ("deberta", "transformer_xl"),
    ("rope_values", "rope"),
)


class MetricPlace(NamedTuple):
    """A metric of an encoding at a multiple of the trained length."""

    metric: str
    # The name of a row: an encoding, or RoPE under a method.
    encoding: str
    times_trained_len: int


# The values of each place: a table with the columns seed, unit, value and trials. A place
# where the encoding is not defined is left out.
ValuesByPlace = dict[MetricPlace, pd.DataFrame]


class PlacePair(NamedTuple):
    """Two places to compare."""

    # The values that identify the comparison, by the columns of its table.
    about: tuple[Hashable, ...]
    first: MetricPlace
    second: MetricPlace
    # The verdict if the first place has the better values, and the verdict if the second
    # place has.
    names: tuple[str, str]


def list_multiples(config: EncodingsConfig) -> list[int]:
    """Return 1, 2, 4, ..., as many times the trained length as are tested."""
    longest = config.test_len // config.train_len
    return [2**power for power in range(longest.bit_length())]


def compare_all_encodings(
    values: ValuesByPlace, config: EncodingsConfig
) -> dict[str, pd.DataFrame]:
    """Compare encodings where both are defined; the verdict names the better one.

    - comparisons: every encoding against the baseline;
    - extrapolation: every encoding against itself at the trained length;
    - pairs: the encodings of PUBLISHED_PAIRS;
    - against_methods: every design against RoPE under each method, if there are methods.
    """
    all_rows = list_rows(config)
    names = [row.name for row in all_rows]
    rope_under_methods = [row.name for row in all_rows if row.method is not None]
    # Metrics keep the order in which they were measured.
    metrics = list(dict.fromkeys(place.metric for place in values))
    multiples = list_multiples(config)
    baseline = config.encodings[0]
    if BASELINE in config.encodings:
        baseline = BASELINE

    against_baseline = _pair_names(metrics, multiples, names, [baseline])
    against_trained = _pair_with_trained_length(metrics, multiples[-1], names)
    published = _pair_published()
    other_designs = [name for name in config.encodings if name != baseline]
    against_methods = _pair_names(metrics, multiples, other_designs, rope_under_methods)

    pair_columns = ["encoding_a", "encoding_b"]
    place_columns = ["metric", "times_trained_len"]
    columns = [*place_columns, *pair_columns]
    tables = {
        "comparisons": _compare_places(values, against_baseline, columns),
        "extrapolation": _compare_places(
            values, against_trained, [*place_columns, "encoding"]
        ),
        "pairs": _compare_places(values, published, pair_columns),
    }
    if rope_under_methods:
        tables[AGAINST_METHODS] = _compare_places(values, against_methods, columns)
    return tables


def _pair_names(
    metrics: Sequence[str],
    multiples: Sequence[int],
    first_names: Sequence[str],
    second_names: Sequence[str],
) -> list[PlacePair]:
    """Pair each of the first names with each of the second, at all places."""
    pairs = []
    for metric, times in product(metrics, multiples):
        for first, second in product(first_names, second_names):
            if first == second:
                continue
            pair = PlacePair(
                about=(metric, times, first, second),
                first=MetricPlace(metric, first, times),
                second=MetricPlace(metric, second, times),
                names=(first, second),
            )
            pairs.append(pair)
    return pairs


def _pair_with_trained_length(
    metrics: Sequence[str], longest: int, names: Sequence[str]
) -> list[PlacePair]:
    """Pair each name at the longest multiple with itself at the trained length."""
    # At the trained length itself there is nothing to compare.
    if longest == 1:
        return []
    pairs = []
    for metric, name in product(metrics, names):
        pair = PlacePair(
            about=(metric, longest, name),
            first=MetricPlace(metric, name, longest),
            second=MetricPlace(metric, name, 1),
            names=("better", "worse"),
        )
        pairs.append(pair)
    return pairs


def _pair_published() -> list[PlacePair]:
    """Return PUBLISHED_PAIRS by their text losses at the trained length."""
    pairs = []
    for first, second in PUBLISHED_PAIRS:
        pair = PlacePair(
            about=(first, second),
            first=MetricPlace(TEXT, first, 1),
            second=MetricPlace(TEXT, second, 1),
            names=(first, second),
        )
        pairs.append(pair)
    return pairs


def _compare_places(
    values: ValuesByPlace, comparisons: Sequence[PlacePair], columns: Sequence[str]
) -> pd.DataFrame:
    """Return a row per comparison whose two places have values.

    `columns` are the names of the columns that identify a comparison.
    """
    pairs = []
    for comparison in comparisons:
        first = comparison.first
        second = comparison.second
        if first not in values or second not in values:
            continue

        first_values = values[first].set_index(["seed", "unit"])
        second_values = values[second].set_index(["seed", "unit"])
        pair = Pair(
            about=comparison.about,
            a=first_values["value"],
            b=second_values["value"],
            names=comparison.names,
            measure=MEASURE[first.metric],
            # A metric at a multiple of the trained length is a separate question.
            family=(first.metric, first.times_trained_len),
            trials=int(first_values["trials"].iloc[0]),
        )
        pairs.append(pair)
    return compare(pairs, columns)


def find_trained_encoding(name: str) -> str:
    """Return the encoding that was trained for a row that may be under a method.

    >>> find_trained_encoding("rope + yarn ×4"), find_trained_encoding("alibi")
    ('rope', 'alibi')
    """
    encoding, _, _ = name.partition(JOINED_BY)
    return encoding


def find_learners(quality: pd.DataFrame) -> set[str]:
    """Return the rows whose models copy from half of the trained length back, with every
    seed. `quality` is the table of that name.
    """
    is_copy = quality["metric"] == COPY
    at_trained_len = quality[is_copy & (quality["times_trained_len"] == 1)]
    copies = at_trained_len["worst_seed_value"] >= LEARNED
    learned = set(at_trained_len.loc[copies, "encoding"])
    if BASELINE in learned:
        # The models of RoPE under a method are the same models. They have learned the
        # task, whatever the method does to them.
        for name in quality["encoding"].unique():
            if find_trained_encoding(name) == BASELINE:
                learned.add(name)
    return learned


def mark_unlearned(table: pd.DataFrame, quality: pd.DataFrame) -> pd.DataFrame:
    """Set the status UNLEARNED in comparisons of copying beyond the trained length, if
    either encoding did not learn to copy.
    """
    is_beyond = (table["metric"] == COPY) & (table["times_trained_len"] > 1)
    # One column of names, or two: encoding, or encoding_a and encoding_b.
    names = table.filter(like="encoding")
    all_learned = names.isin(find_learners(quality)).all(axis=1)
    status = table["status"].mask(is_beyond & ~all_learned, UNLEARNED)
    return table.assign(status=status)
