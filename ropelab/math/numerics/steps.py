"""How many different angles are stored, by visiting only the positions at which one may step.

A stored angle grows with the position in steps, one at every value midway between two values of the
format. Coarse formats have few such values, so the positions next to them are found by division
and looked at exactly; all others store what the one before them stores.
"""

import math

import numpy as np
from jaxtyping import Float

from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.formats import FloatFormat

COARSE = 11
"""Bits of precision up to which there are few enough values to list them."""
WORTH = 2
"""Candidates are visited where they are fewer than all positions of all pairs over this."""


def count_angles(chain: Chain, offset: int, length: int) -> int | None:
    """The number of different rows of stored angles among `length` positions.

    None where a visit to every position is needed, or quicker.
    """
    fmt, last = chain.plan.angle, offset + length - 1
    if chain.recurrent or chain.plan.position.precision < 53 or fmt.precision > COARSE:
        return None
    turning = chain.inv_freq[chain.inv_freq > 0]
    if not (turning.size and np.isfinite(chain.inv_freq).all()):
        return None
    midway = midway_values(fmt, float(turning.min()), float(turning.max()) * (last + 1))
    if 3 * WORTH * int(np.searchsorted(midway, turning * last).sum()) > length * turning.size:
        return None
    changes = [_steps(chain, pair, midway, offset, last) for pair in range(chain.spectrum.pairs)]
    return 1 + np.unique(np.concatenate(changes)).size


def midway_values(fmt: FloatFormat, smallest: float, largest: float) -> Float[np.ndarray, " n"]:
    """What lies midway between neighbouring values of a format from `smallest` to `largest`.

    Ascending; some beyond either end are among them.
    """
    step = 2.0 ** (1 - fmt.precision)
    fractions = np.arange(2 ** (fmt.precision - 1)) * step + step / 2
    lowest = max(fmt.min_exponent, math.floor(math.log2(smallest)) - 1)
    highest = min(fmt.max_exponent, math.ceil(math.log2(largest)))
    exponents = np.arange(lowest, highest + 1)[:, None]
    normal = np.ldexp(1 + fractions, exponents).ravel()
    if lowest > fmt.min_exponent:
        return normal
    return np.concatenate((np.ldexp(fractions, fmt.min_exponent), normal))


def _steps(
    chain: Chain, pair: int, midway: Float[np.ndarray, " n"], offset: int, last: int
) -> Float[np.ndarray, " k"]:
    """The positions m, offset <= m < last, at which a pair stores another angle than at m + 1."""
    theta = float(chain.inv_freq[pair])
    if theta == 0:
        return np.empty(0)
    low, high = np.searchsorted(midway, [theta * (offset - 1), theta * (last + 1)])
    near = np.floor(midway[low:high] / theta)
    places = np.unique(np.concatenate((near - 1, near, near + 1)))
    places = places[(places >= offset) & (places < last)]
    pairs = slice(pair, pair + 1)
    here, there = (chain.angles(m, pairs)[0].view(np.int64) for m in (places, places + 1))
    return places[here != there]
