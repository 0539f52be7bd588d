"""One position explained (`--explain`): how the position is stored in each format, or
what each cast plan makes of it. A cast plan says to which format each stage of an
implementation is rounded.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.shared import list_formats, make_spectrum
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import format_named, round_to, spacing
from ropelab.runs.errors import InputError


def make_explain_table(
    config: PrecisionConfig, position: int, plans: Mapping[str, CastPlan]
) -> pd.DataFrame:
    """Return what becomes of a position: under each cast plan, or, if there are no
    plans, in each format.

    InputError: the pair of `explain_pair` does not exist.
    """
    # RoPE is explained unless only other schemes are asked for.
    scheme = "rope"
    if config.schemes and "rope" not in config.schemes:
        scheme = config.schemes[0]
    spectrum = make_spectrum(config, scheme)

    pair = config.explain_pair
    if pair >= spectrum.pairs:
        raise InputError(
            f"explain_pair is {pair}, not below {spectrum.pairs}, the number of pairs"
        )
    if plans:
        table = _explain_plans(spectrum, position, pair, plans)
    else:
        theta = float(spectrum.inv_freq[pair])
        table = _explain_formats(list_formats(config), position, pair, theta)
    table.insert(0, "scheme", scheme)
    return table


def _explain_plans(
    spectrum: Spectrum, position: int, pair: int, plans: Mapping[str, CastPlan]
) -> pd.DataFrame:
    """Return a row per plan: the position, angle and cosine as they are stored."""
    positions = np.array([float(position)])
    # A slice of one pair keeps the axis of pairs: angles and tables are [1 pair, 1
    # position].
    chosen = slice(pair, pair + 1)
    # An empty cast plan rounds nothing: all stages are in float64.
    exact_plan = CastPlan()
    exact_chain = Chain(exact_plan, spectrum)
    exact_angle = float(exact_chain.angles(positions, chosen).item())

    rows = []
    for name, plan in {"float64": exact_plan, **plans}.items():
        chain = Chain(plan, spectrum)
        angle = float(chain.angles(positions, chosen).item())
        cos, _ = chain.table(positions, chosen)
        row = {
            "cast": name,
            "position": float(chain.positions(positions).item()),
            "pair": pair,
            "angle_rad": angle,
            "angle_error_rad": angle - exact_angle,
            "cos": float(cos.item()),
            "status": "ok" if math.isfinite(angle) else "overflow",
        }
        rows.append(row)
    return pd.DataFrame(rows).replace([math.inf, -math.inf], math.nan)


def _explain_formats(
    formats: list[str], position: int, pair: int, theta: float
) -> pd.DataFrame:
    """Return four rows per format: a position as given and as stored, and the two numbers
    of the format next to the stored one.

    Angles and cosines are computed in float64 from each of the four positions, so that
    they differ only by the rounding of the position. `theta` is the frequency of the pair,
    in radians per token.
    """
    exact_position = np.array(float(position))
    rows = []
    for fmt in map(format_named, formats):
        stored = round_to(exact_position, fmt)
        # Just below a power of two, the numbers of a format are half as far apart as just
        # above it. The spacing below is therefore the spacing at a slightly smaller number.
        spacing_below = spacing(np.nextafter(stored, 0.0), fmt)
        below = stored - spacing_below
        # The sum may exceed the largest number of the format. Rounding then makes it inf.
        above = round_to(stored + spacing(stored, fmt), fmt)
        candidates = {
            "asked": exact_position,
            "stored": stored,
            "below": below,
            "above": above,
        }
        spacing_at_position = float(spacing(exact_position, fmt))

        for what, candidate in candidates.items():
            value = math.nan
            step = math.nan
            status = "overflow"
            if np.isfinite(candidate):
                value = float(candidate)
                step = spacing_at_position
                status = "ok"

            row = {
                "format": fmt.name,
                "what": what,
                "position": value,
                "step_tokens": step,
                "pair": pair,
                "angle_rad": value * theta,
                "cos": math.cos(value * theta),
                "status": status,
            }
            rows.append(row)
    return pd.DataFrame(rows)
