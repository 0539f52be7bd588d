"""What a run of the precision experiment costs."""

from math import log2

from ropelab.experiments.precision.config import PrecisionConfig
from ropelab.math.numerics.casts import STAGES
from ropelab.math.numerics.phase import STRETCH
from ropelab.math.numerics.presets import PRESETS
from ropelab.math.numerics.resolution import HELD
from ropelab.runs.estimate import Estimate

LIBRARIES = 0.3e9
"""Bytes of Python with NumPy, SciPy, pandas and matplotlib."""
SECONDS_PER_ANGLE = 1e-7
"""The whole ladder of stages and the codes, per position and pair: 2^24 positions of 32 pairs took
52 s."""
SECONDS_PER_PLAN = 1.3e-8
"""A cast plan of an implementation, and each of its repairs, per position and pair."""
SECONDS_PER_BOUND = 1e-8
"""One stretch of a long range, per pair."""
BYTES_PER_STRETCH = 130.0
"""Where the stretches of an octave begin and end is listed; and 24 bytes of bounds per pair."""
BYTES_PER_SCORE = 200.0
"""A drawn pair at one shift: rotated at three distances, with what that takes on the way."""
SECONDS_PER_SCORE = 1e-7


def estimate(config: PrecisionConfig) -> Estimate:
    """Time grows with positions times pairs; memory with what is held of each position."""
    pairs = (config.rotary_dim or config.head_dim) / 2
    wide = max(pairs, config.model_dim / 2 if "sinusoidal" in config.schemes else 0)
    named = len(PRESETS) if "all" in config.preset else len(config.preset)
    plans = (named + bool(config.cast)) * (1 + len(STAGES))
    angles = config.length * wide
    stretches = (config.length + sum(config.long_lengths)) / STRETCH
    scores = config.draws * wide * log2(config.length)
    seconds = (
        1.0
        + angles * (SECONDS_PER_ANGLE if config.schemes or not plans else 0)
        + angles * plans * SECONDS_PER_PLAN
        + stretches * pairs * SECONDS_PER_BOUND
        + scores * SECONDS_PER_SCORE
    )
    held = 8 * min(config.length, HELD) * 2 * (1 + len(config.formats))
    longest = max(config.length, *config.long_lengths, 0)
    memory = (
        held
        + longest / STRETCH * (BYTES_PER_STRETCH + 24 * pairs)
        + config.samples * wide * 64
        + scores * BYTES_PER_SCORE
    )
    return Estimate(seconds, LIBRARIES + memory)
