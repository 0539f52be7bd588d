"""Position encodings: which positions stay distinct when they are stored in each
format.

A scheme (single, rope, sinusoidal) has the frequencies of its pairs. A component is a
number, or several numbers, that represent a position: cos and sin of a pair, all pairs,
or a score. Each component is rounded to each format and compared at all positions. Two
positions collide if their stored encodings are equal. Neighbours are positions that
follow each other. A pair keeps its neighbours if no two neighbours of the range collide
in it, and loses them otherwise. The columns of tables call an encoding `code`.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pandas as pd

from ropelab.experiments.precision import OF_ONE_FREQUENCY, PrecisionConfig
from ropelab.experiments.precision.shared import (
    FREQUENCIES,
    SCORED,
    PrecisionCell,
    count_scores,
    list_formats,
    list_powers_below,
    make_cell,
    make_spectrum,
)
from ropelab.math.numerics import encoding, neighbours, scores
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, FloatFormat, round_to, spacing
from ropelab.math.numerics.resolution import (
    HASHES_IN_MEMORY,
    Census,
    count_by_first_equals,
    count_distinct_among,
    take_census,
)
from ropelab.runs.cell import Advance
from ropelab.runs.stats import estimate_proportion
from ropelab.runs.tables import Tables

# The processor seconds of a position, and of each pair at a position. Measured for all
# components in four formats: 2^20 positions of one pair took 0.3 s, of 32 pairs 0.6 s. In
# longer ranges, whose hashes do not fit into a cache, a position takes two to three times
# as long.
SECONDS_PER_POSITION = 1e-6
SECONDS_PER_ANGLE = 2e-8
# The memory, in bytes, of a hash, and of a sampled position of one pair.
BYTES_PER_HASH = 8
BYTES_PER_SAMPLE = 64

# Intervals of shares are cached: most rows have one of a few counts, and to compute an
# interval takes longer than all the rest of a row.
estimate_share = cache(estimate_proportion)


def make_encoding_cells(config: PrecisionConfig) -> list[PrecisionCell]:
    """Return a cell per scheme. A cell has all formats, since all of them round the same
    cosines.
    """
    formats = list_formats(config)
    cells = []
    for scheme in config.schemes:
        if scheme == "single":
            pairs = 1
            components = [c for c in config.components if c in OF_ONE_FREQUENCY]
        else:
            width = config.rotated if scheme == "rope" else config.model_dim
            pairs = width // 2
            components = list(config.components)

        # Two lists of hashes are held for each format.
        hash_bytes = (
            2 * len(formats) * min(config.length, HASHES_IN_MEMORY) * BYTES_PER_HASH
        )
        sample_bytes = config.samples * pairs * BYTES_PER_SAMPLE
        per_position = SECONDS_PER_POSITION + pairs * SECONDS_PER_ANGLE
        cell = make_cell(
            config,
            (*FREQUENCIES[scheme], *SCORED, "tolerance", "samples"),
            kind="precision-encoding",
            version=5,
            title=f"which positions collide, {scheme}",
            function=measure_encodings,
            inputs={"scheme": scheme, "components": components, "formats": formats},
            seconds=config.length * per_position,
            memory=hash_bytes + sample_bytes,
            scores=count_scores(config, pairs),
        )
        cells.append(cell)
    return cells


def measure_encodings(
    config: PrecisionConfig, *, scheme: str, advance: Advance
) -> Tables:
    """Return the tables of one scheme, without empty tables.

    - resolution: a row per component and format, the count of equal encodings;
    - collisions: the count of equal encodings by octave of positions;
    - pairs: a row per pair and format, the spacing of stored angles;
    - limits: a row per format, how slow a pair may be to keep its neighbours;
    - scores: the change of a score over one token;
    - score_margin: this change, compared with the spacing of the format.
    """
    spectrum = make_spectrum(config, scheme)
    formats = [FORMATS[name] for name in config.formats]
    resolution: list[dict[str, object]] = []
    collisions: list[dict[str, object]] = []

    def advance_component(share: float) -> None:
        advance(share / len(config.components))

    for component in config.components:
        encoded = _encode(spectrum, component)
        censuses = take_census(
            encoded, formats, config.offset, config.length, advance_component
        )
        repetition = _find_repetition(encoded, config.offset, config.length)
        if repetition is not None:
            censuses = _count_exact_collisions(config, encoded, formats, censuses)
        resolution += _list_resolution(config, encoded, formats, censuses, repetition)
        collisions += _list_collisions(config, component, formats, censuses)

    # Distance 0 is added to the powers of two, because the score of a key that equals its
    # query changes least there.
    distances = np.append(0, list_powers_below(config.length))
    margins = scores.measure_score_margins(
        spectrum.head_frequencies, formats, distances, config.draws, config.seed
    )
    pairs = _list_pairs(config, spectrum, formats)
    tables = {
        "resolution": pd.DataFrame(resolution),
        "collisions": pd.DataFrame(collisions),
        "pairs": pairs,
        "limits": _list_limits(config, spectrum, formats, pairs),
        "scores": _list_score_steps(config, spectrum, formats),
        "score_margin": margins,
    }
    for table in tables.values():
        table.insert(0, "scheme", scheme)
    # If no components are compared, some tables are empty.
    return {name: table for name, table in tables.items() if len(table)}


def _encode(spectrum: Spectrum, component: str) -> encoding.PositionEncoding:
    """Return the unrounded encoding of positions by a component, with the frequencies of
    a spectrum.
    """
    unrounded = Chain(CastPlan(), spectrum)
    if component not in OF_ONE_FREQUENCY:
        # A vector and a score are made of all pairs.
        all_pairs = range(spectrum.pairs)
        return encoding.PositionEncoding(unrounded, component, all_pairs)

    # Of several pairs, the slowest pair that rotates is taken, since it is comparable to
    # the scheme of a single frequency.
    rotating = np.flatnonzero(spectrum.inv_freq)
    slowest = int(rotating[-1])
    one_pair = range(slowest, slowest + 1)
    return encoding.PositionEncoding(unrounded, component, one_pair)


def _count_exact_collisions(
    config: PrecisionConfig,
    encoded: encoding.PositionEncoding,
    formats: Sequence[FloatFormat],
    censuses: list[Census],
) -> list[Census]:
    """Return the censuses of a component whose encoding repeats, with collisions that
    hold in exact arithmetic where neighbours are equal without any rounding.
    """
    period = encoding.find_whole_period(_find_only_frequency(encoded))
    assert period is not None, "an encoding that repeats has a period"
    first_equals = encoding.find_first_equals(
        period, encoded.component, config.offset, config.length
    )
    if (first_equals[1:] != first_equals[:-1]).all():
        return censuses
    return [
        count_by_first_equals(census, encoded, fmt, first_equals)
        for census, fmt in zip(censuses, formats, strict=True)
    ]


def _list_resolution(
    config: PrecisionConfig,
    encoded: encoding.PositionEncoding,
    formats: Sequence[FloatFormat],
    censuses: Sequence[Census],
    repetition: tuple[int, np.ndarray] | None,
) -> Iterator[dict[str, object]]:
    """Yield the row of `resolution` of one component for each format.

    `repetition` is the result of `_find_repetition`.
    """
    offset = config.offset
    length = config.length
    # The last position is left out, because its neighbour is not in the range.
    sampled = scores.sample_positions(offset, max(length - 1, 1), config.samples)

    for fmt, census in zip(formats, censuses, strict=True):
        steps = encoding.measure_neighbour_steps(encoded, fmt, sampled)
        distinct_codes = census.distinct
        period = None
        exact_codes = None
        if repetition is not None:
            period, representatives = repetition
            distinct_codes = count_distinct_among(encoded, fmt, representatives)
            exact_codes = representatives.size
        yield {
            "format": fmt.name,
            "component": encoded.component,
            "pairs": len(encoded.pairs),
            "positions": census.positions,
            "distinct_codes": distinct_codes,
            "adjacent_collisions": census.adjacent_collisions,
            "first_collision_position": census.first_collision,
            "resolved_from_tokens": _find_resolved_distance(
                encoded, fmt, offset, length
            ),
            "period_tokens": period,
            "median_step_ulp": float(np.median(steps)),
            "min_step_ulp": float(steps.min()),
            "status": _describe_census(fmt, census, exact_codes),
        }


def _list_collisions(
    config: PrecisionConfig,
    component: str,
    formats: Sequence[FloatFormat],
    censuses: Sequence[Census],
) -> Iterator[dict[str, object]]:
    """Yield a row of `collisions` for each format and octave of one component."""
    # The last position of the range has no neighbour in it.
    last_position = config.offset + config.length - 1
    for fmt, census in zip(formats, censuses, strict=True):
        for start, stop, collisions in census.by_octave:
            end = min(stop, last_position)
            neighbours_inside = end - start
            if neighbours_inside <= 0:
                continue

            yield {
                "format": fmt.name,
                "component": component,
                "position_start": start,
                "position_end": end,
                "neighbours": neighbours_inside,
                "adjacent_collisions": collisions,
                "fraction": collisions / neighbours_inside,
            }


def _find_repetition(
    encoded: encoding.PositionEncoding, offset: int, length: int
) -> tuple[int, np.ndarray] | None:
    """Return where an encoding repeats in exact arithmetic, without any rounding.

    The result has the first position that repeats an earlier one, and one position per
    distinct value in the range. It is None if the encoding does not repeat in the range,
    or if there are too many positions before the repetition to list them.
    """
    component = encoded.component
    if len(encoded.pairs) != 1 or component not in OF_ONE_FREQUENCY:
        return None

    period = encoding.find_whole_period(_find_only_frequency(encoded))
    if period is None or min(period, length) > HASHES_IN_MEMORY:
        return None
    representatives = encoding.list_distinct_positions(
        period, component, offset, length
    )
    if len(representatives) == length:
        return None
    first_repeat = encoding.find_first_repeat(period, component)
    return first_repeat, representatives.astype(np.float64)


def _find_resolved_distance(
    encoded: encoding.PositionEncoding, fmt: FloatFormat, offset: int, length: int
) -> int | None:
    """Return the distance from which on a single cos or sin distinguishes two positions.

    None: the encoding is not a single cos or sin, or no distance distinguishes them.
    """
    if encoded.component not in ("cos", "sin") or len(encoded.pairs) != 1:
        return None
    return neighbours.find_resolved_distance(
        _find_only_frequency(encoded), encoded.component, fmt, offset, length
    )


def _find_only_frequency(encoded: encoding.PositionEncoding) -> float:
    """Return the frequency of an encoding that has one pair, in radians per token."""
    (pair,) = encoded.pairs
    return float(encoded.chain.spectrum.inv_freq[pair])


def _describe_census(fmt: FloatFormat, census: Census, exact_codes: int | None) -> str:
    """Say which positions collide.

    `exact_codes` is the number of distinct encodings without rounding; None if all
    positions have distinct encodings.
    """
    colliding_neighbours = ""
    if census.adjacent_collisions:
        colliding_neighbours = "neighbours collide"
    if exact_codes is None:
        if census.distinct == census.positions:
            return "all distinct"
        return colliding_neighbours or "distant positions collide"

    # The cosine in float64 has an error, so that it differs at positions where the
    # exact values are equal.
    rounding = ""
    if fmt.name == "float64" and census.distinct > exact_codes:
        more = census.distinct - exact_codes
        rounding = f"rounding in float64 tells {more} more apart"
    parts = ("comes back", rounding, colliding_neighbours)
    return "; ".join(part for part in parts if part)


def _list_limits(
    config: PrecisionConfig,
    spectrum: Spectrum,
    formats: Sequence[FloatFormat],
    pairs: pd.DataFrame,
) -> pd.DataFrame:
    """Return per format how slow a pair may be to keep its neighbours, and which pairs
    lose neighbours. `pairs` is the table `pairs`.

    ``longest_kept_period_tokens``: up to this period a pair is proved to keep its
    neighbours. ``losing_period_tokens``: a period at which a count finds equal neighbours.
    Both are missing if a pair of any period keeps its neighbours.
    ``score_step``: the root mean square change of a score over one token, for random
    vectors, in standard deviations of the score. ``weight_change``: the share by which
    such a change raises the attention weight of one of two neighbouring keys over the
    other.
    """
    step = scores.compute_typical_step(spectrum.head_frequencies)
    rows = []
    for fmt in formats:
        kept_period = neighbours.find_longest_kept_period(
            fmt, config.offset, config.length
        )
        if not math.isfinite(kept_period):
            kept_period = math.nan
        losing_period = neighbours.find_losing_period(fmt, config.offset, config.length)
        if losing_period is None:
            losing_period = math.nan

        pairs_in_format = pairs[pairs["format"] == fmt.name]
        is_losing = pairs_in_format["equal_neighbours"] > 0
        losing_pairs = pairs_in_format.loc[is_losing, "pair"]
        status = "every pair keeps its neighbours"
        if len(losing_pairs):
            status = f"{len(losing_pairs)} of {spectrum.pairs} pairs lose neighbours"

        row: dict[str, object] = {
            "format": fmt.name,
            "longest_kept_period_tokens": kept_period,
            "losing_period_tokens": losing_period,
            "first_losing_pair": losing_pairs.min() if len(losing_pairs) else None,
            "losing_pairs": len(losing_pairs),
            "score_step": step,
            "weight_change": math.expm1(step),
            "status": status,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _list_pairs(
    config: PrecisionConfig, spectrum: Spectrum, formats: Sequence[FloatFormat]
) -> pd.DataFrame:
    """Return the spacing of stored angles, a row per format and pair.

    ``angle_step_rad``: spacing of the format at the largest angle of the range, missing
    if that angle overflows. ``token_step_ulp``: motion over one token, in last places
    of a cos or sin just below 1; if it is below one half, most neighbours have equal
    (cos, sin).
    ``period_tokens``: the first position after 0 whose encoding equals the encoding of
    position 0.
    ``equal_neighbours``: the share of neighbours that the pair does not distinguish.
    """
    inv_freq = spectrum.inv_freq  # [pairs], radians per token
    largest_angles = inv_freq * (config.offset + config.length - 1)
    rotates = inv_freq > 0

    periods = []
    equal_counts = []  # [pairs, formats]
    for theta in inv_freq.tolist():
        period = encoding.find_whole_period(theta)
        periods.append(period)
        # A pair that does not rotate has no neighbours to lose. A pair that completes
        # rotations in each token loses all of them, in exact arithmetic.
        counts = [0] * len(formats)
        if theta and period == 1:
            counts = [config.length - 1] * len(formats)
        elif theta:
            counts = neighbours.count_equal_neighbours(
                theta, formats, config.offset, config.length
            )
        equal_counts.append(counts)

    tables = []
    for number, fmt in enumerate(formats):
        fits = largest_angles <= fmt.largest
        step = np.where(fits, spacing(largest_angles, fmt), np.nan)
        equal_in_format = np.array([counts[number] for counts in equal_counts])
        status_of_rotating = np.where(fits, "ok", "angle overflows")
        table = {
            "pair": range(spectrum.pairs),
            "inv_freq_rad": inv_freq,
            "wavelength_tokens": 2 * math.pi / np.where(rotates, inv_freq, np.nan),
            "period_tokens": pd.array(periods, dtype="Int64"),
            "format": fmt.name,
            "angle_at_length_rad": largest_angles,
            "angle_step_rad": step,
            # A step is nan if its angle overflows, which exceeds the tolerance, too. So
            # this cannot be written as step > tolerance.
            "exceeds_tolerance": ~(step <= config.tolerance),
            "token_step_ulp": inv_freq / (fmt.epsilon / 2),
            "equal_neighbours": equal_in_format / (config.length - 1),
            "status": np.where(rotates, status_of_rotating, "does not turn"),
        }
        tables.append(pd.DataFrame(table))
    return pd.concat(tables)


def _list_score_steps(
    config: PrecisionConfig, spectrum: Spectrum, formats: Sequence[FloatFormat]
) -> pd.DataFrame:
    """Return the change of a score over one token, by vectors, format and distance.

    ``median_step_ulp``: the median of the change, in last places of the format.
    ``unchanged_fraction``: the share of draws whose stored score stays the same, with its
    interval.
    """
    distances = list_powers_below(config.length)
    tables = []
    for alignment in ("random", "aligned"):
        drawn = scores.draw(config.draws, spectrum.head_pairs, alignment, config.seed)
        # Both are [draws, distances].
        scores_here, scores_next = scores.compute_neighbouring_scores(
            spectrum, drawn, distances
        )

        for fmt in formats:
            is_equal = round_to(scores_here, fmt) == round_to(scores_next, fmt)
            shares = []
            for count in is_equal.sum(axis=0).tolist():
                shares.append(estimate_share(count, config.draws))

            steps = np.abs(scores_next - scores_here) / spacing(scores_here, fmt)
            table = {
                "format": fmt.name,
                "alignment": alignment,
                "delta_tokens": distances.astype(int),
                "draws": config.draws,
                "median_step_ulp": np.median(steps, axis=0),
                "unchanged_fraction": [share.value for share in shares],
                "ci_low": [share.low for share in shares],
                "ci_high": [share.high for share in shares],
            }
            tables.append(pd.DataFrame(table))
    return pd.concat(tables)
