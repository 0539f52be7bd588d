"""The errors of keys that a cache stores in few bits (`--cache`), and of their scores.

Keys are the vectors of attention here. A format of keys is one of
`ropelab.math.numerics.keys`, such as `fp8_e4m3` or `int4(channel)`.
"""

from collections.abc import Sequence

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.shared import (
    ROTARY,
    PrecisionCell,
    make_cell,
    make_spectrum,
)
from ropelab.math.numerics.keys import RANDOM_KEYS, key_errors, parse_keys
from ropelab.runs.cell import Advance
from ropelab.runs.tables import Tables

# Offsets that are added to the slowest pairs of random keys, in standard deviations of a
# feature: no offset, and an offset that keys of some models have.
OFFSETS = (0.0, 20.0)


def make_keys_cell(config: PrecisionConfig) -> PrecisionCell:
    """Return the cell of the table `keys`, for the formats of `cache`."""
    labels = [parse_keys(text).label for text in config.cache]
    # A format that is given in two spellings has one label, and is measured once.
    labels = list(dict.fromkeys(labels))
    return make_cell(
        config,
        (*ROTARY, "seed"),
        kind="precision-keys",
        version=3,
        title="stored keys",
        function=measure_keys,
        inputs={"stored": labels},
        seconds=0.0,
        scores=len(labels) * len(OFFSETS) * RANDOM_KEYS * config.head_dim / 2,
    )


def measure_keys(
    config: PrecisionConfig, *, stored: Sequence[str], advance: Advance
) -> Tables:
    """Return the table `keys`: a row per format, offset and pair of features.

    The column ``keys`` has the format, ``key_error`` the error of the pair.
    ``score_error`` is the error of the scores of whole keys, and therefore the same in
    all rows of a format and offset.

    Args:
        config: the head and the range of positions.
        stored: the labels of the formats.
        advance: is called with the share of the work that was done.
    """
    spectrum = make_spectrum(config)
    # Keys are at random positions below this position.
    end = config.offset + config.length

    rows = []
    for label in stored:
        key_format = parse_keys(label)
        for offset in OFFSETS:
            errors = key_errors(key_format, spectrum, end, config.seed, offset)
            for pair, key_error in enumerate(errors.by_pair.tolist()):
                row = {
                    "keys": label,
                    "offset_deviations": offset,
                    "pair": pair,
                    "key_error": key_error,
                    "score_error": errors.score,
                    "ci_low": errors.score_low,
                    "ci_high": errors.score_high,
                }
                rows.append(row)
        advance(1 / len(stored))
    return {"keys": pd.DataFrame(rows)}
