"""Frequencies for the tests of number formats."""

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.chain import Spectrum


def rope(rotary_dim: int = 64, base: float = 1e6) -> Spectrum:
    return Spectrum(inverse_frequencies(rotary_dim, base), base, rotary_dim)
