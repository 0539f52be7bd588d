"""What a run of the freqs experiment costs."""

from ropelab.experiments.freqs.config import FreqsConfig
from ropelab.runs.estimate import Estimate

LIBRARIES = 0.2e9
"""Bytes of Python with NumPy, pandas and matplotlib."""
BYTES_PER_PAIR = 750.0
"""A row of the table: five million pairs took 3.5 GB."""
SECONDS_PER_PAIR = 4e-5
"""Computing a row and writing it as text."""


def estimate(config: FreqsConfig) -> Estimate:
    """Everything grows with the pairs of a head."""
    pairs = config.head_dim / 2
    return Estimate(1.0 + pairs * SECONDS_PER_PAIR, LIBRARIES + pairs * BYTES_PER_PAIR)
