"""The arithmetic side: what a scheme of frequencies is, and how far a token moves a score."""

from dataclasses import asdict

import numpy as np
import pandas as pd

from ropelab.experiments.frequencies.config import FrequenciesConfig
from ropelab.math.frequencies import wavelengths
from ropelab.math.numerics.formats import format_named
from ropelab.math.numerics.signal import signals
from ropelab.math.numerics.wrap import returns_after
from ropelab.math.scaling import Scaling

FORMATS = ("float32", "float16", "bfloat16")
SEED = 0


def schemes_table(config: FrequenciesConfig) -> pd.DataFrame:
    """scheme, frequencies, turning_pairs, shortest and longest period, returns_at_position.

    frequencies: how many different ones turn; returns_at_position: the first position that has the
    code of position 0 in exact arithmetic, missing where none has.
    """
    records = [_scheme(config, scheme) for scheme in config.parsed_schemes().values()]
    table = pd.DataFrame(records)
    return table.assign(returns_at_position=table["returns_at_position"].astype("Int64"))


def _scheme(config: FrequenciesConfig, scheme: Scaling) -> dict[str, object]:
    inv_freq = scheme.plan(config.geometry(), config.train_len).inv_freq
    turning = inv_freq[inv_freq > 0]
    periods = wavelengths(turning)
    return {
        "scheme": scheme.label,
        "frequencies": np.unique(turning).size,
        "turning_pairs": turning.size,
        "pairs": inv_freq.size,
        "shortest_period_tokens": periods.min() if turning.size else None,
        "longest_period_tokens": periods.max() if turning.size else None,
        "returns_at_position": returns_after(inv_freq.tolist()),
    }


def representable(config: FrequenciesConfig) -> pd.DataFrame:
    """A row per scheme, vectors and format: the fields of `Signal`, and its status.

    At the distances of a trained window, 0 .. train_len - 1, for the width of one head.
    """
    distances = np.arange(config.train_len, dtype=np.float64)
    formats = [format_named(name) for name in FORMATS]
    return pd.DataFrame(
        [
            {"scheme": label, **asdict(signal), "status": signal.status}
            for label, scheme in config.parsed_schemes().items()
            for signal in signals(
                scheme.plan(config.geometry(), config.train_len).inv_freq,
                formats,
                distances,
                config.draws,
                SEED,
            )
        ]
    )
