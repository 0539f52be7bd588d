"""Position encodings: which positions stay distinct when they are stored in each
format.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from ropelab.experiments.precision import OF_ONE_FREQUENCY, PrecisionConfig
from ropelab.math.frequencies import Geometry, inverse_frequencies
from ropelab.math.methods import scaling_for
from ropelab.math.numerics import encoding, neighbours, scores
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import (
    FORMATS,
    FloatFormat,
    format_named,
    round_to,
    spacing,
)
from ropelab.math.numerics.resolution import HELD, Census, distinct_among, take_census
from ropelab.runs.cell import Advance, Computation, Context, Resources
from ropelab.runs.errors import InputError
from ropelab.runs.stats import proportion_interval
from ropelab.runs.tables import Tables

# Fields of the config: those of the rotary frequencies (some methods depend on the
# length of the sequence), and those that decide the frequencies of each scheme.
ROTARY = ("base", "head_dim", "rotary_dim", "method", "train_len", "offset", "length")
FREQUENCIES = {"single": ("period",), "rope": ROTARY, "sinusoidal": ("model_dim",)}
SCORED = ("offset", "length", "draws", "seed")

# The memory, in bytes, of Python with NumPy, SciPy, pandas and matplotlib.
LIBRARIES = 300_000_000
# Measured for all components in four formats: 2^20 positions took 0.3 s, with 32 pairs
# 0.6 s. In longer ranges, whose hashes do not fit into a cache, a position takes two to
# three times as long.
SECONDS_PER_POSITION = 1e-6
SECONDS_PER_ANGLE = 2e-8
# The cost of a drawn pair of vectors at one distance, with the intermediate results of
# three rotations.
SECONDS_PER_SCORE = 1e-7
BYTES_PER_SCORE = 200.0

# Most rows share a few counts, and an interval takes longer than all the rest of a row.
share_interval = cache(proportion_interval)


@dataclass(frozen=True, kw_only=True)
class Piece(Computation):
    """A computation from a config that has those of its fields that are among the
    inputs.
    """

    version: int = 2

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        more = dict(self.inputs)
        fields = {
            name: more.pop(name)
            for name in PrecisionConfig.model_fields
            if name in more
        }
        # Other fields have their defaults here, so that no table can depend on the
        # config's. They need not go together with these, so nothing is checked again.
        config = PrecisionConfig.model_construct(**fields)
        with context.progress(self.title, 1) as advance:
            return self.function(config, advance=advance, **more)


def piece(
    config: PrecisionConfig,
    names: Iterable[str],
    *,
    inputs: Mapping[str, Any],
    seconds: float,
    memory: float = 0.0,
    drawn: float = 0.0,
    **about: Any,
) -> Piece:
    """Make a cell from the named fields and more inputs; `memory`: bytes beside the
    libraries.
    """
    resources = Resources(
        seconds=seconds + drawn * SECONDS_PER_SCORE,
        memory_bytes=int(LIBRARIES + memory + drawn * BYTES_PER_SCORE),
    )
    fields = config.model_dump(mode="json", include=set(names))
    return Piece(inputs={**fields, **inputs}, resources=resources, **about)


def spectrum_of(config: PrecisionConfig, scheme: str = "rope") -> Spectrum:
    """Return the frequencies of a scheme; InputError: the method is unknown or rotates
    no pair.
    """
    if scheme == "single":
        return Spectrum(np.array([2 * math.pi / config.period]))
    if scheme == "sinusoidal":
        return Spectrum(
            inverse_frequencies(config.model_dim, 1e4), 1e4, config.model_dim
        )
    geometry = Geometry(config.rotated, config.base, config.train_len)
    length = config.offset + config.length
    scaled = scaling_for(config, length)[0].plan(geometry, length)
    if not scaled.inv_freq.any():
        raise InputError(
            f"no pair of {config.rotated} features rotates under {config.method}"
        )
    return Spectrum(scaled.inv_freq, config.base, config.rotated)


def formats_of(config: PrecisionConfig) -> list[str]:
    """Return the names of the formats, float64 first, each once."""
    return [
        format_named(name).name for name in dict.fromkeys(("float64", *config.formats))
    ]


def drawn_scores(config: PrecisionConfig, pairs: float) -> float:
    """Count the pairs of features that are drawn for scores at every power of two."""
    return config.draws * pairs * math.log2(config.length)


def powers_below(length: int) -> np.ndarray:
    """Return the powers of two below a length, as distances in float64."""
    return 2.0 ** np.arange((length - 1).bit_length())


def encoding_cells(config: PrecisionConfig) -> list[Piece]:
    """Return a cell per scheme, in all formats: they share its cosines."""
    formats = formats_of(config)
    rows = []
    for scheme in config.schemes:
        if scheme == "single":
            pairs = 1
            components = [c for c in config.components if c in OF_ONE_FREQUENCY]
        else:
            width = config.rotated if scheme == "rope" else config.model_dim
            pairs = width // 2
            components = list(config.components)

        hashes = 8 * min(config.length, HELD) * 2 * len(formats)
        per_position = SECONDS_PER_POSITION + pairs * SECONDS_PER_ANGLE
        cell = piece(
            config,
            (*FREQUENCIES[scheme], *SCORED, "tolerance", "samples"),
            kind="precision-encoding",
            version=4,
            title=f"which positions collide, {scheme}",
            function=encoding_tables,
            inputs={"scheme": scheme, "components": components, "formats": formats},
            seconds=config.length * per_position,
            memory=hashes + config.samples * pairs * 64,
            drawn=drawn_scores(config, pairs),
        )
        rows.append(cell)
    return rows


def encoding_tables(
    config: PrecisionConfig, *, scheme: str, advance: Advance
) -> Tables:
    """Return the tables of one scheme: resolution, collisions by octave, pairs, scores,
    margins.
    """
    spectrum = spectrum_of(config, scheme)
    formats = [FORMATS[name] for name in config.formats]
    resolution: list[dict[str, object]] = []
    collisions: list[dict[str, object]] = []

    for component in config.components:
        encoded = _encode(spectrum, component)
        counted = take_census(
            encoded,
            formats,
            config.offset,
            config.length,
            lambda part: advance(part / len(config.components)),
        )
        resolution += _list_resolution(config, encoded, formats, counted)
        collisions += _list_collisions(config, component, formats, counted)

    # Distance 0 too: a key that equals its query is where a score changes least.
    distances = np.append(0, powers_below(config.length))
    margins = scores.score_margins(
        spectrum.inv_freq, formats, distances, config.draws, config.seed
    )
    pairs = _pairs(config, spectrum, formats)
    tables = {
        "resolution": pd.DataFrame(resolution),
        "collisions": pd.DataFrame(collisions),
        "pairs": pairs,
        "limits": _limits(config, spectrum, formats, pairs),
        "scores": _scores(config, spectrum, formats),
        "score_margin": margins,
    }
    for table in tables.values():
        table.insert(0, "scheme", scheme)
    # If no components are compared, some tables are empty.
    return {name: table for name, table in tables.items() if len(table)}


def _encode(spectrum: Spectrum, component: str) -> encoding.PositionEncoding:
    """Return the numbers of a component: of all pairs, or of the slowest that rotates."""
    # The slowest pair is comparable to a single frequency. `vector` is all pairs,
    # `score` the attention score of aligned vectors.
    pairs = range(spectrum.pairs)
    if component in OF_ONE_FREQUENCY:
        slowest = int(np.flatnonzero(spectrum.inv_freq)[-1])
        pairs = range(slowest, slowest + 1)
    return encoding.PositionEncoding(Chain(CastPlan(), spectrum), component, pairs)


def _list_resolution(
    config: PrecisionConfig,
    encoded: encoding.PositionEncoding,
    formats: Sequence[FloatFormat],
    counted: Sequence[Census],
) -> Iterator[dict[str, object]]:
    """Yield the row of `resolution` of one component for each format."""
    offset = config.offset
    length = config.length
    # The last position is left out, because its neighbour is not in the range.
    sampled = scores.sample_positions(offset, max(length - 1, 1), config.samples)
    first, repeating = _repeating(encoded, offset, length)

    for fmt, census in zip(formats, counted, strict=True):
        steps = encoding.neighbour_steps(encoded, fmt, sampled)
        codes = census.distinct
        exact_codes = None
        if repeating is not None:
            codes = distinct_among(encoded, fmt, repeating)
            exact_codes = repeating.size
        yield {
            "format": fmt.name,
            "component": encoded.component,
            "pairs": len(encoded.pairs),
            "positions": census.positions,
            "distinct_codes": codes,
            "adjacent_collisions": census.adjacent_collisions,
            "first_collision_position": census.first_collision,
            "resolved_from_tokens": _resolved_from(encoded, fmt, offset, length),
            "period_tokens": first,
            "median_step_ulp": float(np.median(steps)),
            "min_step_ulp": float(steps.min()),
            "status": _status(fmt, census, exact_codes),
        }


def _list_collisions(
    config: PrecisionConfig,
    component: str,
    formats: Sequence[FloatFormat],
    counted: Sequence[Census],
) -> Iterator[dict[str, object]]:
    """Yield the rows of `collisions` of one component: one for each octave."""
    # The last position of the range has no neighbour in it.
    last = config.offset + config.length - 1
    for fmt, census in zip(formats, counted, strict=True):
        for start, stop, count in census.by_octave:
            end = min(stop, last)
            neighbours_inside = end - start
            if neighbours_inside <= 0:
                continue
            yield {
                "format": fmt.name,
                "component": component,
                "position_start": start,
                "position_end": end,
                "neighbours": neighbours_inside,
                "adjacent_collisions": count,
                "fraction": count / neighbours_inside,
            }


def _repeating(
    encoded: encoding.PositionEncoding, offset: int, length: int
) -> tuple[int, np.ndarray] | tuple[None, None]:
    """Return the first repetition in exact arithmetic, and one position per distinct
    value.
    """
    component = encoded.component
    period = None
    if len(encoded.pairs) == 1 and component in OF_ONE_FREQUENCY:
        period = encoding.whole_period(
            float(encoded.chain.spectrum.inv_freq[encoded.pairs.start])
        )
    if period is None or min(period, length) > HELD:  # too many to list
        return None, None
    found = encoding.distinct_positions(period, component, offset, length)
    if len(found) == length:
        return None, None
    return encoding.first_repeat(period, component), found.astype(np.float64)


def _resolved_from(
    encoded: encoding.PositionEncoding, fmt: FloatFormat, offset: int, length: int
) -> int | None:
    """Return the distance from which on a single cos or sin tells two places apart."""
    if encoded.component not in ("cos", "sin") or len(encoded.pairs) != 1:
        return None
    theta = float(encoded.chain.spectrum.inv_freq[encoded.pairs.start])
    return neighbours.first_resolved_distance(
        theta, encoded.component, fmt, offset, length
    )


def _limits(
    config: PrecisionConfig,
    spectrum: Spectrum,
    formats: Sequence[FloatFormat],
    pairs: pd.DataFrame,
) -> pd.DataFrame:
    """Return per format how slow a pair may be to keep its neighbours, and which do not.

    ``longest_kept_period_tokens`` is proved, ``losing_period_tokens`` was found by
    counting; both are missing where a pair of any period keeps them. ``score_step``:
    the root mean square change of a score over one token, random vectors, in standard
    deviations of the score; ``weight_change``: the relative weight of the two tokens.
    """
    step = scores.typical_step(spectrum.inv_freq)
    rows = []
    for fmt in formats:
        kept = neighbours.longest_kept_period(fmt, config.offset, config.length)
        lost = neighbours.shortest_losing_period(fmt, config.offset, config.length)
        own = pairs[pairs["format"] == fmt.name]
        losing = own.loc[own["equal_neighbours"] > 0, "pair"]
        status = "every pair keeps its neighbours"
        if len(losing):
            status = f"{len(losing)} of {spectrum.pairs} pairs lose neighbours"

        row: dict[str, object] = {
            "format": fmt.name,
            "longest_kept_period_tokens": kept if math.isfinite(kept) else math.nan,
            "losing_period_tokens": math.nan if lost is None else lost,
            "first_losing_pair": losing.min() if len(losing) else None,
            "losing_pairs": len(losing),
            "score_step": step,
            "weight_change": math.expm1(step),
            "status": status,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _status(fmt: FloatFormat, census: Census, repeating: int | None) -> str:
    neighbours = "neighbours collide" if census.adjacent_collisions else ""
    if repeating is None:
        if census.distinct == census.positions:
            return "all distinct"
        return neighbours or "distant positions collide"
    # float64 distinguishes values that are equal in exact arithmetic, by the noise of
    # its cosine.
    noise = census.distinct - repeating if fmt.name == "float64" else 0
    rounding = f"rounding in float64 tells {noise} more apart" if noise > 0 else ""
    return "; ".join(filter(None, ("comes back", rounding, neighbours)))


def _pairs(
    config: PrecisionConfig, spectrum: Spectrum, formats: Sequence[FloatFormat]
) -> pd.DataFrame:
    """Return the spacing of stored angles per pair and format."""
    # angle_step_rad: spacing of the format at the largest angle. token_step_ulp: motion
    # over one token in last places of a table value just below 1; below one half
    # neighbours mostly share their (cos, sin). period_tokens: the first position after
    # 0 with the encoding of 0.
    theta = spectrum.inv_freq
    angle = theta * (config.offset + config.length - 1)
    rotates = theta > 0
    returns = [encoding.whole_period(each) for each in theta.tolist()]
    # Pairs are looked at alone. A pair that does not rotate has no neighbours to lose.
    equal = [
        neighbours.count_equal_neighbours(each, formats, config.offset, config.length)
        if each
        else [0] * len(formats)
        for each in theta.tolist()
    ]
    tables = []
    for number, fmt in enumerate(formats):
        fits = angle <= fmt.largest
        step = np.where(fits, spacing(angle, fmt), np.nan)
        table = {
            "pair": range(spectrum.pairs),
            "inv_freq_rad": theta,
            "wavelength_tokens": 2 * math.pi / np.where(rotates, theta, np.nan),
            "period_tokens": pd.array(returns, dtype="Int64"),
            "format": fmt.name,
            "angle_at_length_rad": angle,
            "angle_step_rad": step,
            # This is no `>`: a step is nan where its angle overflows, which exceeds the
            # tolerance, too.
            "exceeds_tolerance": ~(step <= config.tolerance),
            "token_step_ulp": theta / (fmt.epsilon / 2),
            "equal_neighbours": np.array([counts[number] for counts in equal])
            / (config.length - 1),
            "status": np.where(
                rotates, np.where(fits, "ok", "angle overflows"), "does not turn"
            ),
        }
        tables.append(pd.DataFrame(table))
    return pd.concat(tables)


def _scores(
    config: PrecisionConfig, spectrum: Spectrum, formats: Sequence[FloatFormat]
) -> pd.DataFrame:
    """Return the change of an attention score over one token, in its format's last
    places.
    """
    # `unchanged_fraction` of the draws, with its interval, keep the same stored score.
    deltas = powers_below(config.length)
    tables = []
    for alignment in ("random", "aligned"):
        drawn = scores.draw(config.draws, spectrum.pairs, alignment, config.seed)
        here, there = scores.score_steps(spectrum, drawn, deltas)
        for fmt in formats:
            counts = (round_to(here, fmt) == round_to(there, fmt)).sum(0).tolist()
            shares = [share_interval(count, config.draws) for count in counts]
            table = {
                "format": fmt.name,
                "alignment": alignment,
                "delta_tokens": deltas.astype(int),
                "draws": config.draws,
                "median_step_ulp": np.median(
                    np.abs(there - here) / spacing(here, fmt), axis=0
                ),
                "unchanged_fraction": [share.value for share in shares],
                "ci_low": [share.low for share in shares],
                "ci_high": [share.high for share in shares],
            }
            tables.append(pd.DataFrame(table))
    return pd.concat(tables)


def explained_scheme(config: PrecisionConfig) -> str:
    """Return the scheme whose pair is explained: RoPE, unless only others are asked
    for.
    """
    if "rope" in config.schemes or not config.schemes:
        return "rope"
    return config.schemes[0]


def explain_table(
    config: PrecisionConfig, position: int, plans: Mapping[str, CastPlan]
) -> pd.DataFrame:
    """Return what becomes of a position: under each cast plan, else in each format."""
    spectrum = spectrum_of(config, explained_scheme(config))
    pair = config.explain_pair
    if pair >= spectrum.pairs:
        raise InputError(
            f"explain_pair is {pair}, not below {spectrum.pairs}, the number of pairs"
        )
    if plans:
        table = _explain_plans(spectrum, position, pair, plans)
    else:
        table = _explain_formats(config, spectrum, position)
    table.insert(0, "scheme", explained_scheme(config))
    return table


def _explain_plans(
    spectrum: Spectrum, position: int, pair: int, plans: Mapping[str, CastPlan]
) -> pd.DataFrame:
    """Return a row per plan: the position, angle and cosine as they are stored."""
    asked = np.array([float(position)])
    chosen = slice(pair, pair + 1)
    exact = Chain(CastPlan(), spectrum)
    true_angle = float(exact.angles(asked, chosen)[0, 0])
    rows = []
    for name, plan in {"float64": CastPlan(), **plans}.items():
        chain = Chain(plan, spectrum)
        angle = float(chain.angles(asked, chosen)[0, 0])
        row = {
            "cast": name,
            "position": float(chain.positions(asked)[0]),
            "pair": pair,
            "angle_rad": angle,
            "angle_error_rad": angle - true_angle,
            "cos": float(chain.table(asked, chosen)[0][0, 0]),
            "status": "ok" if math.isfinite(angle) else "overflow",
        }
        rows.append(row)
    return pd.DataFrame(rows).replace([math.inf, -math.inf], math.nan)


def _explain_formats(
    config: PrecisionConfig, spectrum: Spectrum, position: int
) -> pd.DataFrame:
    """Return per format a position as given and as stored, and the stored values beside
    it.
    """
    # Angles and cosines are exact, to show how far apart the values are that the format
    # can choose.
    pair = config.explain_pair
    theta = float(spectrum.inv_freq[pair])
    asked = np.array(float(position))
    rows = []
    for fmt in map(format_named, formats_of(config)):
        stored = round_to(asked, fmt)
        # Just below a power of two values are half as far apart as above it.
        below = stored - spacing(np.nextafter(stored, 0.0), fmt)
        above = round_to(stored + spacing(stored, fmt), fmt)
        candidates = {"asked": asked, "stored": stored, "below": below, "above": above}
        for what, value in candidates.items():
            known = bool(np.isfinite(value))
            at = float(value) if known else math.nan
            row = {
                "format": fmt.name,
                "what": what,
                "position": at,
                "step_tokens": float(spacing(asked, fmt)) if known else math.nan,
                "pair": pair,
                "angle_rad": at * theta,
                "cos": math.cos(at * theta),
                "status": "ok" if known else "overflow",
            }
            rows.append(row)
    return pd.DataFrame(rows)
