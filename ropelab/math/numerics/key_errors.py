"""Effects of a format of stored keys on random keys: by frequency pair, and on scores.

Features are standard normal, those of pair i at i and i + d/2. Keys of real models have offsets, a
mean far from 0 in a few features, mostly of slow pairs (arXiv:2503.01832): here in the first
feature of the slowest eighth of the pairs, the same in every key.
"""

from typing import NamedTuple

import numpy as np

from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.keys import KeyFormat
from ropelab.runs.arrays import Float

# Keys at drawn positions.
COUNT = 512


class KeyErrors(NamedTuple):
    by_pair: Float[np.ndarray, " pairs"]  # root mean square, over the deviation of the features
    score: float  # root mean square; scores of features without an offset have deviation 1


def key_errors(
    fmt: KeyFormat, spectrum: Spectrum, length: int, seed: int, offset: float = 0.0
) -> KeyErrors:
    """Return the errors of keys at `length` positions; `offset` in deviations of a feature."""
    random, pairs = np.random.default_rng(seed), spectrum.pairs
    key, query = random.standard_normal((2, COUNT, 2, pairs))
    key[:, 0, pairs - max(1, pairs // 8) :] += offset
    positions = np.floor(random.random(COUNT) * length)
    cos, sin = (part.T for part in Chain(CastPlan(), spectrum).table(positions))

    def rotated(x: Float[np.ndarray, "n 2 pairs"]) -> Float[np.ndarray, "n 2 pairs"]:
        one, two = x[:, 0], x[:, 1]
        return np.stack((one * cos - two * sin, one * sin + two * cos), axis=1)

    def stored(x: Float[np.ndarray, "n 2 pairs"]) -> Float[np.ndarray, "n 2 pairs"]:
        return fmt.stored(x.reshape(1, COUNT, 2 * pairs)).reshape(x.shape)

    exact = rotated(key)
    error = (rotated(stored(key)) if fmt.before else stored(exact)) - exact
    # Queries of random directions: their own rotation changes nothing.
    score = (query * error).sum((1, 2)) / np.sqrt(2 * pairs)
    return KeyErrors(np.sqrt((error**2).mean((0, 1))), float(np.sqrt((score**2).mean())))
