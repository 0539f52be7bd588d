"""The position codes themselves: what stays distinct when they are stored in each format."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.experiments.precision.config import OF_ONE_FREQUENCY
from ropelab.experiments.precision.plan import Plan
from ropelab.math.numerics.accuracy import sample_positions
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.code import Channel, Code, neighbour_steps
from ropelab.math.numerics.distinct import keys_of
from ropelab.math.numerics.formats import FloatFormat, spacing
from ropelab.math.numerics.resolution import HELD, Census, take_census
from ropelab.math.numerics.scores import draw, score_steps, unchanged
from ropelab.math.numerics.signal import signals
from ropelab.math.numerics.wrap import distinct_positions, first_repeat, whole_period
from ropelab.runs.stats import Interval, proportion_interval

Advance = Callable[[float], object]
FLOAT64 = 53
"""Bits of precision of the format that codes are computed in."""


def codes(spectra: Mapping[str, Spectrum], channels: Sequence[str]) -> list[tuple[str, Code]]:
    """Every scheme and channel to look at.

    `cos`, `sin` and `pair` are taken of one pair: the slowest that turns, which is what compares
    with a single frequency. `vector` is all pairs, `score` the attention score of aligned vectors;
    a single frequency has no vector beside its pair, and its score is its cosine.
    """
    return [
        (scheme, _code(spectrum, cast(Channel, channel)))
        for scheme, spectrum in spectra.items()
        for channel in channels
        if scheme != "single" or channel in OF_ONE_FREQUENCY
    ]


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
        repeating = _repeating(code, planned)
        for fmt, census in zip(formats, counted, strict=True):
            key = {"scheme": scheme, "format": fmt.name, "channel": code.channel}
            resolution.append(key | _resolution(code, fmt, census, sampled, repeating))
            collisions += [key | row for row in _octave_rows(census)]
    return {"resolution": _table(resolution), "collisions": pd.DataFrame(collisions)}


@dataclass(frozen=True)
class Repeating:
    """A code of one pair that comes back: where first, and one position of each different code."""

    first: int
    positions: Float[np.ndarray, "codes"]

    def distinct(self, code: Code, fmt: FloatFormat) -> int:
        """How many different codes are stored, each computed at one position only."""
        keys = keys_of(code.values(self.positions, code.pairs), fmt)
        ordered = keys[:, np.lexsort(keys)]
        return 1 + int((ordered[:, 1:] != ordered[:, :-1]).any(0).sum())


def _repeating(code: Code, planned: Plan) -> Repeating | None:
    """What exact arithmetic says of a code that takes a value twice in the range; None: none."""
    if len(code.pairs) > 1 or code.channel not in ("cos", "sin", "pair"):
        return None
    period = whole_period(float(code.chain.spectrum.inv_freq[code.pairs.start]))
    if period is None or min(period, planned.length) > HELD:
        return None
    if planned.offset + planned.length <= first_repeat(period, code.channel):
        return None
    found = distinct_positions(period, code.channel, planned.offset, planned.length)
    if len(found) == planned.length:
        return None
    return Repeating(first_repeat(period, code.channel), found.astype(np.float64))


def _resolution(
    code: Code,
    fmt: FloatFormat,
    census: Census,
    sampled: Float[np.ndarray, " n"],
    repeating: Repeating | None,
) -> dict[str, object]:
    steps = neighbour_steps(code, fmt, sampled)
    return {
        "pairs": len(code.pairs),
        "positions": census.positions,
        "distinct_codes": repeating.distinct(code, fmt) if repeating else census.distinct,
        "adjacent_collisions": census.adjacent_collisions,
        "first_collision_position": census.first_collision,
        "returns_at_position": repeating.first if repeating else None,
        "median_step_ulp": float(np.median(steps)),
        "min_step_ulp": float(steps.min()),
        "status": _status(fmt, census, repeating),
    }


def _status(fmt: FloatFormat, census: Census, repeating: Repeating | None) -> str:
    """What the counts say; float64 tells codes apart that are the same, by the noise of cos."""
    neighbours = "neighbours collide" if census.adjacent_collisions else ""
    if repeating is None:
        if census.distinct == census.positions:
            return "all distinct"
        return neighbours or "distant positions collide"
    noise = census.distinct - len(repeating.positions) if fmt.precision == FLOAT64 else 0
    told = f"rounding in float64 tells {noise} more apart" if noise > 0 else ""
    return "; ".join(filter(None, ("comes back", told, neighbours)))


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
    returns_at_position: the first position after 0 with the pair's code of 0, apart from rounding;
        missing where there is none.
    """
    rows = []
    last = planned.offset + planned.length - 1
    for scheme, spectrum in planned.spectra.items():
        inv_freq = spectrum.inv_freq
        turning = inv_freq > 0
        returns = [whole_period(theta) for theta in inv_freq.tolist()]
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
                        "returns_at_position": returns[pair],
                        "format": fmt.name,
                        "angle_at_length_rad": theta * last,
                        "angle_step_rad": steps[pair] if fits else None,
                        "exceeds_tolerance": not fits or steps[pair] > planned.tolerance,
                        "token_step_ulp": theta / (fmt.epsilon / 2),
                        "status": _turning(turning[pair], fits),
                    }
                )
    return pd.DataFrame(rows).astype({"returns_at_position": "Int64"})


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


def signal_table(planned: Plan) -> pd.DataFrame:
    """How far one token moves a score, against its rounding in each format and after softmax.

    A row per scheme, vectors and format: the fields of `Signal`, and its status.
    """
    distances = np.append(0, 2.0 ** np.arange(int(planned.length - 1).bit_length()))
    return pd.DataFrame(
        [
            {"scheme": scheme, **asdict(signal), "status": signal.status}
            for scheme, spectrum in planned.spectra.items()
            for signal in signals(
                spectrum.inv_freq, planned.formats, distances, planned.draws, planned.seed
            )
        ]
    )


@cache
def _share(successes: int, trials: int) -> Interval:
    """Most rows share a few counts, and an interval takes longer than all the rest of a row."""
    return proportion_interval(successes, trials)


def _table(rows: list[dict[str, object]]) -> pd.DataFrame:
    table = pd.DataFrame(rows)
    whole = ["first_collision_position", "returns_at_position"]
    return table.astype(dict.fromkeys(whole, "Int64"))
