"""The arithmetic side: the frequencies of a scheme, and the change of a score from one token on."""

from dataclasses import asdict

import numpy as np
import pandas as pd

from ropelab.experiments.spectrum import SpectrumConfig
from ropelab.math.frequencies import wavelengths
from ropelab.math.numerics.encoding import returns_after
from ropelab.math.numerics.formats import format_named
from ropelab.math.numerics.scores import signals

FORMATS = ("float32", "float16", "bfloat16")
SEED = 0


def schemes_table(config: SpectrumConfig) -> pd.DataFrame:
    """Return a row per scheme: its frequencies, and their periods."""
    rows = []
    for label, scheme in config.parsed_schemes().items():
        inv_freq = scheme.plan(config.geometry(), config.train_len).inv_freq
        rotating = inv_freq[inv_freq > 0]
        periods = wavelengths(rotating)
        rows.append(
            {
                "scheme": label,
                # Different ones: pairs of one frequency count once.
                "frequencies": np.unique(rotating).size,
                "rotating_pairs": rotating.size,
                "pairs": inv_freq.size,
                "shortest_period_tokens": periods.min() if rotating.size else None,
                "longest_period_tokens": periods.max() if rotating.size else None,
                # The first position that has the code of position 0 in exact arithmetic.
                "period_tokens": returns_after(inv_freq.tolist()),
            }
        )
    return pd.DataFrame(rows).astype({"period_tokens": "Int64"})


def representable(config: SpectrumConfig) -> pd.DataFrame:
    """Return a row per scheme, vectors and format: the fields of `Signal`, and its status."""
    # Those of a trained window, for the width of one head.
    distances = np.arange(config.train_len, dtype=np.float64)
    formats = [format_named(name) for name in FORMATS]
    return pd.DataFrame(
        {"scheme": label, **asdict(signal), "status": signal.status}
        for label, scheme in config.parsed_schemes().items()
        for signal in signals(
            scheme.plan(config.geometry(), config.train_len).inv_freq,
            formats,
            distances,
            config.draws,
            SEED,
        )
    )
