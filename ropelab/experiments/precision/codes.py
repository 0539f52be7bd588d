"""The position codes themselves: what stays distinct when they are stored in each format."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.experiments.precision.plan import Plan
from ropelab.numerics.accuracy import sample_positions
from ropelab.numerics.casts import CastPlan
from ropelab.numerics.chain import Chain, Spectrum
from ropelab.numerics.code import Channel, Code, neighbour_steps
from ropelab.numerics.formats import FloatFormat, spacing
from ropelab.numerics.resolution import Census, take_census
from ropelab.numerics.scores import draw, score_steps, unchanged
from ropelab.stats import Interval, proportion_interval

Advance = Callable[[float], object]


def codes(spectra: Mapping[str, Spectrum], channels: Sequence[str]) -> list[tuple[str, Code]]:
    """Every scheme and channel to look at.

    `cos`, `sin` and `pair` are taken of one pair: the slowest that turns, which is what compares
    with a single frequency. `vector` is all pairs, `score` the attention score of aligned vectors;
    a single frequency has no vector beside its pair, and its score is its cosine.
    """
    found = []
    for scheme, spectrum in spectra.items():
        for channel in channels:
            if scheme == "single" and channel in ("vector", "score"):
                continue
            found.append((scheme, _code(spectrum, cast(Channel, channel))))
    return found


def _code(spectrum: Spectrum, channel: Channel) -> Code:
    slowest = int(np.flatnonzero(spectrum.inv_freq)[-1])
    whole = channel in ("vector", "score")
    pairs = range(spectrum.pairs) if whole else range(slowest, slowest + 1)
    return Code(Chain(CastPlan(), spectrum), channel, pairs)


def code_tables(
    planned: Plan, found: Sequence[tuple[str, Code]], advance: Advance
) -> dict[str, pd.DataFrame]:
    """The tables `resolution` (one row per code and format) and `collisions` (per octave)."""
    formats = planned.formats
    sampled = sample_positions(planned.offset, max(planned.length - 1, 1), planned.samples)
    resolution, collisions = [], []
    for scheme, code in found:
        counted = take_census(code, formats, planned.offset, planned.length, advance)
        for fmt, census in zip(formats, counted, strict=True):
            key = {"scheme": scheme, "format": fmt.name, "channel": code.channel}
            resolution.append(key | _resolution(code, fmt, census, sampled))
            collisions += [key | row for row in _octave_rows(census)]
    return {"resolution": _table(resolution), "collisions": pd.DataFrame(collisions)}


def _resolution(
    code: Code, fmt: FloatFormat, census: Census, sampled: Float[np.ndarray, "n"]
) -> dict[str, object]:
    steps = neighbour_steps(code, fmt, sampled)
    return {
        "pairs": len(code.pairs),
        "positions": census.positions,
        "distinct_codes": census.distinct,
        "adjacent_collisions": census.adjacent_collisions,
        "first_collision_position": census.first_collision,
        "median_step_ulp": float(np.median(steps)),
        "min_step_ulp": float(steps.min()),
        "status": _status(code, fmt, census, float(sampled[-1]) + 1),
    }


REPEATS = {"pair": 1.0, "cos": 0.5, "sin": 0.25}
"""Share of its period after which a code of one pair comes back to values that it had."""


def _status(code: Code, fmt: FloatFormat, census: Census, last: float) -> str:
    """What the counts say; where a code repeats exactly, float64 tells nothing but noise apart."""
    if fmt.precision == 53 and _repeats(code, last):
        return "repeats exactly; counts are rounding noise"
    if census.distinct == census.positions:
        return "all distinct"
    return "neighbours collide" if census.adjacent_collisions else "distant positions collide"


def _repeats(code: Code, last: float) -> bool:
    """Whether a code of one pair has a whole number of tokens as its period, and comes back."""
    if len(code.pairs) > 1 or code.channel not in REPEATS:
        return False
    period = 2 * math.pi / float(code.chain.spectrum.inv_freq[code.pairs.start])
    whole = abs(period - round(period)) < 1e-9 * period
    return whole and last >= REPEATS[code.channel] * period


def _octave_rows(census: Census) -> Iterator[dict[str, object]]:
    last = census.by_octave[-1][1] - 1
    for start, stop, count in census.by_octave:
        neighbours = min(stop, last) - start
        if neighbours > 0:
            yield {
                "position_start": start,
                "position_end": start + neighbours,
                "neighbours": neighbours,
                "adjacent_collisions": count,
                "fraction": count / neighbours,
            }


def pairs_table(planned: Plan) -> pd.DataFrame:
    """Per pair and format: the step of a stored angle at the last position, and of one token.

    angle_step_rad: spacing of the format at the largest angle: finer differences of position are
        lost if the angle is stored in this format.
    token_step_ulp: how far one token moves the pair, in last places of a table value just below 1:
        below one half, neighbours mostly share their (cos, sin).
    """
    rows = []
    last = planned.offset + planned.length - 1
    for scheme, spectrum in planned.spectra.items():
        inv_freq = spectrum.inv_freq
        turning = inv_freq > 0
        for fmt in planned.formats:
            steps = spacing(inv_freq * last, fmt).tolist()
            for pair, theta in enumerate(inv_freq.tolist()):
                fits = theta * last <= fmt.largest
                rows.append(
                    {
                        "scheme": scheme,
                        "pair": pair,
                        "inv_freq_rad": theta,
                        "wavelength_tokens": 2 * math.pi / theta if turning[pair] else None,
                        "format": fmt.name,
                        "angle_at_length_rad": theta * last,
                        "angle_step_rad": steps[pair] if fits else None,
                        "exceeds_tolerance": not fits or steps[pair] > planned.tolerance,
                        "token_step_ulp": theta / (fmt.epsilon / 2),
                        "status": _turning(turning[pair], fits),
                    }
                )
    return pd.DataFrame(rows)


def _turning(turns: bool, fits: bool) -> str:
    if not turns:
        return "does not turn"
    return "ok" if fits else "angle overflows"


def scores_table(planned: Plan) -> pd.DataFrame:
    """How far an attention score moves when the distance grows by one token.

    In units of the format's last place at that score; `unchanged_fraction` of the draws, with its
    interval, keep the same stored score.
    """
    deltas = 2.0 ** np.arange(int(planned.length - 1).bit_length())
    rows = []
    for scheme, spectrum in planned.spectra.items():
        for alignment in ("random", "aligned"):
            draws = draw(planned.draws, spectrum.pairs, alignment, planned.seed)
            here, there = score_steps(spectrum, draws, deltas)
            for fmt in planned.formats:
                steps = np.median(np.abs(there - here) / spacing(here, fmt), axis=0)
                same = unchanged(here, there, fmt).sum(0).tolist()
                for delta, step, count in zip(deltas.tolist(), steps.tolist(), same, strict=True):
                    share = _share(count, planned.draws)
                    rows.append(
                        {
                            "scheme": scheme,
                            "format": fmt.name,
                            "alignment": alignment,
                            "delta_tokens": int(delta),
                            "draws": planned.draws,
                            "median_step_ulp": step,
                            "unchanged_fraction": share.value,
                            "ci_low": share.low,
                            "ci_high": share.high,
                        }
                    )
    return pd.DataFrame(rows)


@cache
def _share(successes: int, trials: int) -> Interval:
    """Most rows share a few counts, and an interval takes longer than all the rest of a row."""
    return proportion_interval(successes, trials)


def _table(rows: list[dict[str, object]]) -> pd.DataFrame:
    table = pd.DataFrame(rows)
    if "first_collision_position" in table:
        table["first_collision_position"] = table["first_collision_position"].astype("Int64")
    return table
