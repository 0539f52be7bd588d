"""Two shortcuts that tell how many positions are stored differently.

A proof (`can_prove_distinct`): two positions D tokens apart can have the same cos and sin
only if D * theta_i is near a whole number of turns in every pair i, where theta_i is the
frequency of the pair. If for every D some pair is far from whole turns, all positions
differ, whichever is the first.

Steps (`count_angles`): an angle rounded to a coarse format stays the same over many
positions. It changes where it passes the midpoint between two values of the format.
These positions follow from a division of the midpoints by the frequency. This needs
angles that are products of frequency and position.
"""

import math

import numpy as np

from ropelab.math.numerics.angle_errors import wrap_angle
from ropelab.math.numerics.chain import (
    Chain,
    cut_into_blocks,
    list_positions,
)
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import FLOAT64_BITS, FloatFormat, Values

# The most significant bits of a format whose values are few enough to list them.
MOST_LISTED_BITS = 11
# The largest share of the angles of all pairs at all positions that counting by steps
# may compute. With a larger share a visit of every position is as quick.
WORTHWHILE_SHARE = 1 / 2


def can_prove_distinct(
    encoding: PositionEncoding,
    fmt: FloatFormat,
    offset: int,
    length: int,
) -> bool:
    """Return True if the positions offset .. offset + length - 1 provably differ when
    they are stored.

    False proves nothing. It is always the answer for encodings that do not store both
    cos and sin.
    """
    if encoding.component not in ("pair", "vector"):
        return False

    chain = encoding.chain
    last = offset + length - 1
    pairs = slice(encoding.pairs.start, encoding.pairs.stop)
    theta = chain.inv_freq[pairs]
    # Errors of a stored angle grow with the position, so that the errors at the last
    # position bound all errors: [pairs, 1 position].
    bounds = chain.rounding_bounds(np.array([last], dtype=np.float64))
    errors = bounds[pairs, 0]

    # Two numbers up to 1 that round to the same value differ by at most epsilon / 2,
    # the spacing of the format in [0.5, 1). All points (cos, sin) that are stored alike
    # are in a square of that side, and the longest chord between them is its diagonal.
    diagonal = math.sqrt(2) * fmt.epsilon / 2
    half_chord = min(diagonal / 2, 1.0)
    longest_arc = 2 * math.asin(half_chord)
    # The uncertainty of float64 itself in D * theta (relative), and in cos and sin: eight
    # units of 2^-53, which covers the few operations that compute each.
    float64_errors = last * theta * 2.0**-50 + 2.0**-50
    # The largest distance of D * theta from whole turns if two encodings are equal.
    largest_distances = (longest_arc + 2 * errors + float64_errors).tolist()

    for start, stop in cut_into_blocks(1, length):
        # Each pair excludes distances between positions. The next pair gets the
        # distances that remain.
        distances = list_positions(start, stop)
        for frequency, largest in zip(theta, largest_distances, strict=True):
            angles = wrap_angle(distances * frequency)
            distances = distances[angles <= largest]
            if not distances.size:
                break
        if distances.size:
            return False
    return True


def count_angles(chain: Chain, offset: int, length: int) -> int | None:
    """Count the different sets of stored angles at `length` positions from `offset` on.

    None: this shortcut does not apply, or is slower than a visit of every position.
    """
    fmt = chain.plan.angle
    last = offset + length - 1
    inv_freq = chain.inv_freq
    if chain.recurrent or chain.plan.position.precision < FLOAT64_BITS:
        return None
    if fmt.precision > MOST_LISTED_BITS or not np.isfinite(inv_freq).all():
        return None

    midpoints = list_midpoints(fmt)
    rotating_pairs = np.flatnonzero(inv_freq)
    # A pair's angles pass midpoints[low:high], with low and high from its row of `ends`.
    # The range is a position wider on each side, because the rounding of an angle may
    # move it over a midpoint. It begins at position 1 at the earliest: below the angle of
    # position 1 there may be thousands of tiny midpoints. All are passed in the step from
    # position 0 to 1, which is tried below in any case.
    first_and_last = (max(offset - 1, 1), last + 1)
    angles_of_ends = np.outer(inv_freq[rotating_pairs], first_and_last)
    ends = np.searchsorted(midpoints, angles_of_ends)
    # A pair passes a midpoint between the positions below and above the quotient of
    # midpoint and frequency. The quotient may be off by a rounding, so that three
    # positions are tried for each midpoint.
    tried_count = 3 * int(np.diff(ends).sum())
    if tried_count > WORTHWHILE_SHARE * length * rotating_pairs.size:
        return None

    changes = [np.empty(0)]
    for pair, (low, high) in zip(rotating_pairs.tolist(), ends.tolist(), strict=True):
        quotients = np.floor(midpoints[low:high] / inv_freq[pair])
        tried_positions = np.concatenate(
            ([offset], quotients - 1, quotients, quotients + 1)
        )
        positions = np.unique(tried_positions)
        positions = positions[(positions >= offset) & (positions < last)]

        # The bits are compared, because an angle that overflows to nan equals itself
        # only in its bits.
        pair_slice = slice(pair, pair + 1)
        angles = chain.angles(positions, pair_slice)[0]
        next_angles = chain.angles(positions + 1, pair_slice)[0]
        is_changed = angles.view(np.int64) != next_angles.view(np.int64)
        changes.append(positions[is_changed])

    # Angles never fall as positions grow. Once the angle of a pair has changed, the set
    # of angles of a position can therefore never again equal an earlier set: there is
    # one new set at each position where any pair changes.
    return 1 + np.unique(np.concatenate(changes)).size


def list_midpoints(fmt: FloatFormat) -> Values:
    """Return the midpoints of neighbouring values of a coarse format, from 0 on."""
    step = 2.0 ** (1 - fmt.precision)
    count = 2 ** (fmt.precision - 1)
    fractions = np.arange(count) * step + step / 2
    exponents = np.arange(fmt.min_exponent, fmt.max_exponent + 1)

    # With a fraction f, subnormal numbers are f * 2^e for the least exponent e, and
    # normal numbers are (1 + f) * 2^e for every e: [exponents, fractions].
    subnormal = np.ldexp(fractions, fmt.min_exponent)
    normal = np.ldexp(1 + fractions, exponents[:, None])
    return np.concatenate((subnormal, normal.ravel()))
