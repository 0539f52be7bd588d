"""The frequencies of rotary position embedding, before any scaling.

Pair ``i`` of ``rotary_dim / 2`` rotates by ``base ** (-2 i / rotary_dim)`` radians per
token (Su et al. 2021, RoFormer, arXiv:2104.09864, section 3.2.2).
"""

import math
from typing import NamedTuple, Self

import numpy as np

from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError

Frequencies = Float[np.ndarray, " pairs"]


def check_rotary_dim(rotary_dim: int) -> None:
    if rotary_dim < 2 or rotary_dim % 2:
        raise InputError(
            f"rotary_dim must be an even number of at least 2, not {rotary_dim}"
        )


def check_base(base: float) -> None:
    # At base 1 all pairs have frequency 1. With a smaller base frequencies would exceed
    # one radian per token.
    if not (math.isfinite(base) and base > 1):
        raise InputError(f"base must be a finite number above 1, not {base:g}")


class GeometryFields(NamedTuple):
    rotary_dim: int  # rotated features of a head, two per pair
    base: float  # rope_theta
    trained_len: int  # tokens; original_max_position_embeddings in configs


class Geometry(GeometryFields):
    """The rotary geometry of a trained model; InputError for impossible numbers."""

    # A geometry is passed to methods that users wrote, and tables describe the model by
    # it, so that no method may change it. A geometry is therefore a tuple, which cannot
    # be changed. A frozen dataclass can be changed, by `object.__setattr__`.
    __slots__ = ()

    def __new__(cls, rotary_dim: int, base: float, trained_len: int) -> Self:
        check_rotary_dim(rotary_dim)
        check_base(base)
        # LongRope divides by ln(trained_len), which is 0 for one token.
        if trained_len < 2:
            raise InputError(
                f"trained_len must be at least 2 tokens, not {trained_len}"
            )
        return super().__new__(cls, rotary_dim, base, trained_len)

    @property
    def pairs(self) -> int:
        return self.rotary_dim // 2

    @property
    def inv_freq(self) -> Float[np.ndarray, "pairs"]:
        """The unscaled frequencies in radians per token."""
        return inverse_frequencies(self.rotary_dim, self.base)


def inverse_frequencies(rotary_dim: int, base: float) -> Frequencies:
    """Return theta_i = base^(-2 i / rotary_dim) in radians per token.

    arXiv:2104.09864, eq. 15.
    """
    check_rotary_dim(rotary_dim)
    check_base(base)
    # Model code computes these powers in float32. Here they are exact to float64, since
    # the rounding to float32 is itself examined (ropelab.math.numerics).
    first_features = np.arange(0, rotary_dim, 2, dtype=np.float64)
    exponent = first_features / rotary_dim
    return np.power(np.float64(base), -exponent)


def wavelengths(inv_freq: Frequencies) -> Frequencies:
    """Return lambda_i = 2 pi / theta_i, tokens per rotation.

    The wavelength is infinite for a pair that does not rotate, and for a pair slower
    than 2 pi / 1e308.
    """
    with np.errstate(divide="ignore", over="ignore"):
        return 2 * math.pi / inv_freq


def rotations(inv_freq: Frequencies, length: float) -> Frequencies:
    """Return r_i = length / lambda_i, the rotations of pairs in ``length`` tokens."""
    return inv_freq * (length / (2 * math.pi))
