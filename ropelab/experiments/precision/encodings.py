"""Position encodings: which positions stay distinct when they are stored in each format."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import log2
from typing import Any

import numpy as np
import pandas as pd

from ropelab.errors import InputError
from ropelab.experiments.precision import OF_ONE_FREQUENCY, PrecisionConfig
from ropelab.math.frequencies import Geometry, inverse_frequencies
from ropelab.math.methods import parse_scaling
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.distinct import distinct_among
from ropelab.math.numerics.encoding import (
    PositionEncoding,
    distinct_positions,
    first_repeat,
    neighbour_steps,
    whole_period,
)
from ropelab.math.numerics.formats import FORMATS, FloatFormat, format_named, round_to, spacing
from ropelab.math.numerics.resolution import HELD, Census, take_census
from ropelab.math.numerics.scores import draw, sample_positions, score_steps, signals, unchanged
from ropelab.runs.cell import Computation, Context, Needs
from ropelab.runs.stats import Interval, proportion_interval

Advance = Callable[[float], object]
Row = dict[str, object]

# Python with NumPy, SciPy, pandas and matplotlib.
LIBRARIES_BYTES = 0.3e9
# All components in four formats: 2^20 positions took 0.3 s, with 32 pairs 0.6 s. Longer ranges,
# whose hashes do not fit into a cache, take two to three times as long per position.
SECONDS_PER_POSITION = 1e-6
SECONDS_PER_ANGLE = 2e-8
# A drawn pair of vectors at one distance, with the intermediate results of three rotations.
SECONDS_PER_SCORE = 1e-7
BYTES_PER_SCORE = 200.0


@dataclass(frozen=True, kw_only=True)
class Advancing(Computation):
    """A computation long enough to report its progress: its function takes `advance`."""

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        """Apply the function."""
        with context.progress(self.title, 1) as advance:
            return self.function(**self.inputs, advance=advance)


def frequencies_of(config: PrecisionConfig, scheme: str) -> dict[str, Any]:
    """Describe the frequencies of a scheme in values that JSON knows, as `spectrum_of` reads it."""
    if scheme == "single":
        return {"period": config.period}
    if scheme == "sinusoidal":
        return {"model_dim": config.model_dim}
    return {
        "base": config.base,
        "rotary_dim": config.rotated,
        "method": config.method,
        "train_len": config.train_len,
        # Some methods depend on the length of the sequence.
        "tokens": config.offset + config.length,
    }


def spectrum_of(frequencies: Mapping[str, Any]) -> Spectrum:
    """Return the frequencies of a description.

    Raises:
        InputError: the method is unknown, or rotates no pair.
    """
    if "period" in frequencies:
        return Spectrum(np.array([2 * math.pi / frequencies["period"]]))
    if "model_dim" in frequencies:
        width = frequencies["model_dim"]
        return Spectrum(inverse_frequencies(width, 1e4), 1e4, width)
    base, rotary_dim, method = (frequencies[name] for name in ("base", "rotary_dim", "method"))
    geometry = Geometry(rotary_dim, base, frequencies["train_len"])
    scaled = parse_scaling(method).plan(geometry, frequencies["tokens"])
    if not scaled.inv_freq.any():
        raise InputError(f"no pair of {rotary_dim} features rotates under {method}")
    return Spectrum(scaled.inv_freq, base, rotary_dim)


def encoding_cell(config: PrecisionConfig, scheme: str, formats: Sequence[str]) -> Advancing:
    """Return the cell of one scheme, in all formats: they share its cosines."""
    rotary = config.rotated if scheme == "rope" else config.model_dim
    pairs = 1 if scheme == "single" else rotary // 2
    drawn = config.draws * pairs * log2(config.length)
    seconds = config.length * (SECONDS_PER_POSITION + pairs * SECONDS_PER_ANGLE)
    held = 8 * min(config.length, HELD) * 2 * len(formats)
    memory = held + config.samples * pairs * 64 + drawn * BYTES_PER_SCORE
    channels = [c for c in config.channels if scheme != "single" or c in OF_ONE_FREQUENCY]
    return Advancing(
        kind="precision-encoding",
        version=1,
        title=f"which positions collide, {scheme}",
        function=encoding_tables,
        inputs={
            "scheme": scheme,
            "frequencies": frequencies_of(config, scheme),
            "channels": channels,
            "formats": list(formats),
            "offset": config.offset,
            "length": config.length,
            "tolerance": config.tolerance,
            "samples": config.samples,
            "draws": config.draws,
            "seed": config.seed,
        },
        needs=Needs(
            seconds=seconds + drawn * SECONDS_PER_SCORE,
            memory_bytes=int(LIBRARIES_BYTES + memory),
        ),
    )


def encoding_tables(
    *,
    scheme: str,
    frequencies: Mapping[str, Any],
    channels: Sequence[str],
    formats: Sequence[str],
    offset: int,
    length: int,
    tolerance: float,
    samples: int,
    draws: int,
    seed: int,
    advance: Advance,
) -> dict[str, pd.DataFrame]:
    """Return the tables of one scheme.

    resolution: per component and format, how many positions collide.
    collisions: the same by octaves of positions.
    pairs, scores, signal: see `_pairs`, `_scores`, and the fields of `Signal`.
    """
    spectrum = spectrum_of(frequencies)
    stored = [FORMATS[name] for name in formats]
    # Without the last position, whose neighbour is not in the range.
    sampled = sample_positions(offset, max(length - 1, 1), samples)
    resolution, collisions = [], []
    for channel in channels:
        encoding = _encoding(spectrum, channel)
        counted = take_census(
            encoding, stored, offset, length, lambda part: advance(part / len(channels))
        )
        repeating = _repeating(encoding, offset, length)
        for fmt, census in zip(stored, counted, strict=True):
            key: Row = {"scheme": scheme, "format": fmt.name, "channel": channel}
            steps = neighbour_steps(encoding, fmt, sampled)
            distinct, first = census.distinct, None
            if repeating:
                first, each = repeating
                distinct = distinct_among(encoding, fmt, each)
            resolution.append(
                {
                    **key,
                    "pairs": len(encoding.pairs),
                    "positions": census.positions,
                    "distinct_codes": distinct,
                    "adjacent_collisions": census.adjacent_collisions,
                    "first_collision_position": census.first_collision,
                    "returns_at_position": first,
                    "median_step_ulp": float(np.median(steps)),
                    "min_step_ulp": float(steps.min()),
                    "status": _status(fmt, census, len(each) if repeating else None),
                }
            )
            collisions += [key | row for row in _by_octave(census)]
    tables = {
        "pairs": _pairs(scheme, spectrum, stored, offset + length - 1, tolerance),
        "scores": _scores(scheme, spectrum, stored, length, draws, seed),
    }
    distances = np.append(0, 2.0 ** np.arange(int(length - 1).bit_length()))
    found = signals(spectrum.inv_freq, stored, distances, draws, seed)
    tables["signal"] = pd.DataFrame(
        [{"scheme": scheme, **asdict(signal), "status": signal.status} for signal in found]
    )
    if channels:
        tables |= {"resolution": pd.DataFrame(resolution), "collisions": pd.DataFrame(collisions)}
    return tables


def _encoding(spectrum: Spectrum, channel: str) -> PositionEncoding:
    """Return one component of an encoding.

    `cos`, `sin` and `pair` are taken of one pair: the slowest that rotates, which is comparable to
    a single frequency. `vector` is all pairs, `score` the attention score of aligned vectors.
    """
    slowest = int(np.flatnonzero(spectrum.inv_freq)[-1])
    whole = channel in ("vector", "score")
    pairs = range(spectrum.pairs) if whole else range(slowest, slowest + 1)
    return PositionEncoding(Chain(CastPlan(), spectrum), channel, pairs)


def _repeating(
    encoding: PositionEncoding, offset: int, length: int
) -> tuple[int, np.ndarray] | None:
    """Return the first repetition within a range, and one position per distinct value.

    By exact arithmetic; None where nothing repeats.
    """
    if len(encoding.pairs) > 1 or encoding.component not in OF_ONE_FREQUENCY:
        return None
    period = whole_period(float(encoding.chain.spectrum.inv_freq[encoding.pairs.start]))
    if period is None or min(period, length) > HELD:  # too many to list
        return None
    first = first_repeat(period, encoding.component)
    if offset + length <= first:
        return None
    found = distinct_positions(period, encoding.component, offset, length)
    return None if len(found) == length else (first, found.astype(np.float64))


def _status(fmt: FloatFormat, census: Census, repeating: int | None) -> str:
    """Return the counts in words; `repeating`: the distinct values of an encoding that repeats."""
    neighbours = "neighbours collide" if census.adjacent_collisions else ""
    if repeating is None:
        if census.distinct == census.positions:
            return "all distinct"
        return neighbours or "distant positions collide"
    # float64 distinguishes values that are equal in exact arithmetic, by the noise of its cosine.
    noise = census.distinct - repeating if fmt.name == "float64" else 0
    rounding = f"rounding in float64 tells {noise} more apart" if noise > 0 else ""
    return "; ".join(filter(None, ("comes back", rounding, neighbours)))


def _by_octave(census: Census) -> Iterator[Row]:
    last = census.by_octave[-1][1] - 1
    for start, stop, count in census.by_octave:
        # The last position of the range has no neighbour in it.
        neighbours = min(stop, last) - start
        if neighbours > 0:
            yield {
                "position_start": start,
                "position_end": start + neighbours,
                "neighbours": neighbours,
                "adjacent_collisions": count,
                "fraction": count / neighbours,
            }


def _pairs(
    scheme: str, spectrum: Spectrum, formats: Sequence[FloatFormat], last: int, tolerance: float
) -> pd.DataFrame:
    """Return the spacing of stored angles per pair and format.

    angle_step_rad: spacing of the format at the largest angle: finer differences of position are
        lost if the angle is stored in this format.
    token_step_ulp: how far one token moves the pair, in last places of a table value just below 1:
        below one half, neighbours mostly share their (cos, sin).
    returns_at_position: the first position after 0 with the pair's encoding of 0, apart from
        rounding; missing where there is none.
    """
    theta = spectrum.inv_freq
    angle = theta * last
    rotates = theta > 0
    returns = pd.array([whole_period(each) for each in theta.tolist()], dtype="Int64")
    tables = []
    for fmt in formats:
        fits = angle <= fmt.largest
        step = np.where(fits, spacing(angle, fmt), np.nan)
        table = {
            "scheme": scheme,
            "pair": range(spectrum.pairs),
            "inv_freq_rad": theta,
            "wavelength_tokens": 2 * math.pi / np.where(rotates, theta, np.nan),
            "returns_at_position": returns,
            "format": fmt.name,
            "angle_at_length_rad": angle,
            "angle_step_rad": step,
            "exceeds_tolerance": ~(step <= tolerance),
            "token_step_ulp": theta / (fmt.epsilon / 2),
            "status": np.where(rotates, np.where(fits, "ok", "angle overflows"), "does not turn"),
        }
        tables.append(pd.DataFrame(table))
    return pd.concat(tables)


def _scores(
    scheme: str,
    spectrum: Spectrum,
    formats: Sequence[FloatFormat],
    length: int,
    draws: int,
    seed: int,
) -> pd.DataFrame:
    """Return how far an attention score moves when the distance grows by one token.

    In units of the format's last place at that score; `unchanged_fraction` of the draws, with its
    interval, keep the same stored score.
    """
    deltas = 2.0 ** np.arange(int(length - 1).bit_length())
    tables = []
    for alignment in ("random", "aligned"):
        drawn = draw(draws, spectrum.pairs, alignment, seed)
        here, there = score_steps(spectrum, drawn, deltas)
        for fmt in formats:
            shares = [_share(n, draws) for n in unchanged(here, there, fmt).sum(0).tolist()]
            table = {
                "scheme": scheme,
                "format": fmt.name,
                "alignment": alignment,
                "delta_tokens": deltas.astype(int),
                "draws": draws,
                "median_step_ulp": np.median(np.abs(there - here) / spacing(here, fmt), axis=0),
                "unchanged_fraction": [share.value for share in shares],
                "ci_low": [share.low for share in shares],
                "ci_high": [share.high for share in shares],
            }
            tables.append(pd.DataFrame(table))
    return pd.concat(tables)


@cache  # most rows share a few counts, and an interval takes longer than all the rest of a row
def _share(successes: int, trials: int) -> Interval:
    return proportion_interval(successes, trials)


def explain_table(
    spectrum: Spectrum, formats: Sequence[str], position: int, pair: int
) -> pd.DataFrame:
    """Return per format the position asked for, the one stored, and the neighbours of that.

    The angle and cosine beside each are those that this position would really have, so the rows
    show how far apart in angle the values are between which the format can choose.
    """
    theta = float(spectrum.inv_freq[pair])
    rows = []
    for fmt in map(format_named, formats):
        for what, value in _candidates(fmt, float(position)):
            known = math.isfinite(value)
            rows.append(
                {
                    "format": fmt.name,
                    "what": what,
                    "position": value if known else None,
                    "step_tokens": _step(fmt, float(position)) if known else None,
                    "pair": pair,
                    "angle_rad": value * theta if known else None,
                    "cos": math.cos(value * theta) if known else None,
                    "status": "ok" if known else "overflow",
                }
            )
    return pd.DataFrame(rows)


def _candidates(fmt: FloatFormat, asked: float) -> list[tuple[str, float]]:
    """Return a position as asked and as stored, and the stored values below and above."""
    stored = _stored(fmt, asked)
    below = _stored(fmt, stored - _step(fmt, stored) / 2) if stored else stored
    if below == stored:  # below a power of two values are half as far apart, above it they are not
        below = _stored(fmt, stored - _step(fmt, stored))
    above = _stored(fmt, stored + _step(fmt, stored))
    return [("asked", asked), ("stored", stored), ("below", below), ("above", above)]


def _stored(fmt: FloatFormat, value: float) -> float:
    return float(round_to(np.array(value), fmt))


def _step(fmt: FloatFormat, value: float) -> float:
    return float(spacing(np.array(value), fmt))
