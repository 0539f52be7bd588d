"""One position, format by format: what is stored instead, and what that does to its angle."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ropelab.math.numerics.chain import Spectrum
from ropelab.math.numerics.formats import FloatFormat, round_to, spacing


def explain_table(
    spectrum: Spectrum, formats: Sequence[FloatFormat], position: int, pair: int
) -> pd.DataFrame:
    """Rows per format: the position asked for, the one stored, and the stored one's neighbours.

    The angle and cosine beside each are those that this position would really have, so the rows
    show how far apart in angle the values lie between which the format can choose.
    """
    theta = float(spectrum.inv_freq[pair])
    rows = []
    for fmt in formats:
        for what, value in _candidates(fmt, position):
            known = math.isfinite(value)
            rows.append(
                {
                    "format": fmt.name,
                    "what": what,
                    "position": value if known else None,
                    "step_tokens": _step(fmt, position) if known else None,
                    "pair": pair,
                    "angle_rad": value * theta if known else None,
                    "cos": math.cos(value * theta) if known else None,
                    "status": "ok" if known else "overflow",
                }
            )
    return pd.DataFrame(rows)


def _candidates(fmt: FloatFormat, position: int) -> list[tuple[str, float]]:
    """The position as asked and as stored, and the stored values below and above."""
    asked = float(position)
    stored = _stored(fmt, asked)
    below = _stored(fmt, stored - _step(fmt, stored) / 2) if stored else stored
    if below == stored:
        below = _stored(fmt, stored - _step(fmt, stored))
    above = _stored(fmt, stored + _step(fmt, stored))
    return [("asked", asked), ("stored", stored), ("below", below), ("above", above)]


def _stored(fmt: FloatFormat, value: float) -> float:
    return float(round_to(np.array(value, dtype=np.float64), fmt))


def _step(fmt: FloatFormat, value: float) -> float:
    return float(spacing(np.array(value, dtype=np.float64), fmt))
