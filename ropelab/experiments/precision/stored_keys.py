"""The errors of keys that a cache stores in few bits (`--cache`), and of their scores."""

from collections.abc import Sequence

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.shared import (
    ROTARY,
    PrecisionCell,
    make_cell,
    spectrum_of,
)
from ropelab.math.numerics.keys import COUNT, key_errors, parse_keys
from ropelab.runs.cell import Advance
from ropelab.runs.tables import Tables

# Offsets that are added to the slowest pairs of keys, in deviations of a feature: none,
# and one as large as those of some models.
OFFSETS = (0.0, 20.0)


def keys_cell(config: PrecisionConfig) -> PrecisionCell:
    """Return the cell of the table `keys`, for the formats of `cache`."""
    labels = [parse_keys(text).label for text in config.cache]
    # Two spellings of a format are one.
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
        scores=len(labels) * len(OFFSETS) * COUNT * config.rotated / 2,
    )


def measure_keys(
    config: PrecisionConfig, *, stored: Sequence[str], advance: Advance
) -> Tables:
    """Return `keys`: a row per format of `stored`, offset and pair.

    ``key_error`` is that of the pair. ``score_error`` is that of scores of whole keys,
    equal in all rows of a format and offset.
    """
    spectrum = spectrum_of(config)
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
