"""A proof, without computing any code, that all codes of a range are different.

If two positions D apart had the same stored cos and sin in every pair, then in every pair the two
points of the circle would lie in one rounding cell, so D * theta_i (theta_i as stored)
would be nearly a number of whole turns: no further off than the diagonal of a cell plus twice what
rounding does to an angle. So each D is tried against one pair after the other until it is excluded.
Where no D is left, no two positions collide, whatever the offset. Where some are left, nothing is
proved.
"""

import math

import numpy as np
from jaxtyping import Float

from ropelab.math.numerics.code import Code
from ropelab.math.numerics.formats import FloatFormat
from ropelab.math.numerics.phase import wrapped
from ropelab.math.numerics.ranges import blocks, span


def proves_distinct(code: Code, fmt: FloatFormat, offset: int, length: int) -> bool:
    """Whether all positions offset .. offset + length - 1 provably have different codes.

    Only codes that store both cos and sin can be judged this way; for others the answer is False.
    """
    if code.channel not in ("pair", "vector"):
        return False
    near = _excluded_beyond(code, fmt, offset + length - 1)
    theta = code.chain.inv_freq[code.pairs.start : code.pairs.stop]
    for start, stop in blocks(1, length):
        left = span(start, stop)
        for frequency, bound in zip(theta, near.tolist(), strict=True):
            left = left[wrapped(left * frequency) <= bound]
            if not left.size:
                break
        if left.size:
            return False
    return True


def _excluded_beyond(code: Code, fmt: FloatFormat, last: int) -> Float[np.ndarray, " pairs"]:
    """For each pair, how far D * theta may be from whole turns if the codes are to be equal."""
    pairs = slice(code.pairs.start, code.pairs.stop)
    errors = code.chain.rounding_bounds(np.array([last], dtype=np.float64))[pairs, 0]
    # Numbers up to 1 that round to the same value are at most one spacing below 1 apart.
    cell = math.sqrt(2) * fmt.epsilon / 2
    diagonal = 2 * math.asin(min(cell / 2, 1.0))
    # What float64 itself leaves uncertain in D * theta, in cos and in sin.
    own = last * code.chain.inv_freq[pairs] * 2.0**-50 + 2.0**-50
    return diagonal + 2 * errors + own
