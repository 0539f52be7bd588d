"""Checks of claims about periods: of one slow frequency, of the hands of a clock, of many
frequencies, and in printed tables.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ropelab.claims.arrays import frequencies, write_hits
from ropelab.claims.margins import margin_below
from ropelab.claims.record import Findings, Role, claim
from ropelab.math.frequencies import inverse_frequencies, wavelengths
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import FORMATS
from ropelab.math.numerics.resolution import Census, take_census
from ropelab.runs.sentences import write_count

# The period of the single slow frequency of note 001, §5.2, in tokens.
PERIOD = 1_000_000.0
# The largest distance of two codes that count as the same. After a full turn, rounding
# leaves codes 1e-15 apart. One token at PERIOD moves a code by 6e-6.
SAME_CODE = 1e-9
# The features of a head of MiniMind, and the base of MiniMind, which the printed numbers
# are about.
HEAD = 64
BASE = 1e6
# The periods of the three hands of a clock, in seconds (note 001, §5.6).
HANDS = (60, 3600, 43200)
# The number formats in which codes are counted, and the number of counted positions.
FORMATS_COMPARED = ("float32", "float16", "bfloat16")
LENGTH = 131072
# The components of a code that are compared, by the words for them. A vector is the cos
# and sin of all pairs.
COMPONENTS: dict[str, str] = {"cos": "cos", "cos and sin": "vector"}


def _measure_distance_to_start(angle: float) -> float:
    """Return the distance between the code (cos, sin) of an angle and the code of 0."""
    return math.hypot(math.cos(angle) - 1, math.sin(angle))


@claim("one-frequency-cos")
def compare_cosines_of_neighbours(
    findings: Findings, period: float = PERIOD, dtype: str = "float32"
) -> None:
    """Compute the cosines of positions 0 and 1, exactly and in a number format."""
    # These are printed in note 001, §5.3.
    printed_cos = 0.999999999980261
    printed_difference = 1.97e-11
    findings.expected = f"{printed_cos:.15f}, {printed_difference:g}, and 1.0 twice"

    theta = 2 * math.pi / period
    cosine = math.cos(theta)
    error = abs(cosine - printed_cos)
    margin = margin_below(error, 1e-15)
    findings.add_part("cos at 1", f"{cosine:.15f}", error < 1e-15, cosine, margin)

    # This is 1 - cos(theta), which would lose all but five digits.
    difference = 2 * math.sin(theta / 2) ** 2
    error = abs(difference - printed_difference)
    # Half a unit of the last printed digit.
    tolerance = 0.005e-11
    margin = margin_below(error, tolerance)
    what = "cos at 0 minus cos at 1"
    findings.add_part(what, f"{difference:.4e}", error <= tolerance, difference, margin)

    stored = np.cos(np.array([0, theta])).astype(dtype)
    measured = " and ".join(f"{float(value):.10g}" for value in stored)
    findings.add_part(f"the two in {dtype}", measured, bool((stored == 1).all()))


@claim("one-frequency-degrees")
def check_degrees_of_position_1(
    findings: Findings, printed: float = 0.00000628
) -> None:
    """Compute the angle of position 1. The note prints a number of degrees, which is in
    fact the angle in radians.
    """
    degrees = 360 / PERIOD
    radians = 2 * math.pi / PERIOD
    measured = f"{degrees:g} degrees, which is {radians:.3g} radians"
    is_printed = math.isclose(degrees, printed, rel_tol=0.01)
    findings.add_part("angle of position 1", measured, is_printed, degrees)


@claim("turn-comes-back")
def check_full_turn(findings: Findings, degrees_per_token: float = 1.0) -> None:
    """Compare the code after 360 tokens with the code of position 0."""
    distance = _measure_distance_to_start(math.radians(360 * degrees_per_token))
    what = "difference of the codes of positions 0 and 360"
    findings.add_zero(what, distance, SAME_CODE)


@claim("script-covers-everything")
def check_repetition_after_period(findings: Findings, period: float = PERIOD) -> None:
    """Compare the code after one period with the code of position 0."""
    position = round(period)
    distance = _measure_distance_to_start(position * (2 * math.pi / period))
    what = (
        f"difference of the codes of positions 0 and {position:,}, period {period:,.10g}"
        " tokens"
    )
    findings.add_nonzero(what, distance, SAME_CODE)


@claim("float32-precision")
def check_steps_of_float32(findings: Findings, printed: float = 1e-7) -> None:
    """Compare the step between neighbouring float32 numbers with the printed step: at 1,
    near which the cosines are, and at the sine of position 1.
    """

    def is_near_printed(step: float) -> bool:
        return 0.5 < step / printed < 2

    step = float(np.spacing(np.float32(1)))
    findings.add_part(
        "step of float32 at 1", f"{step:.3g}", is_near_printed(step), step
    )
    # The sine of so small an angle equals the angle.
    sine = 2 * math.pi / PERIOD
    step = float(np.spacing(np.float32(sine)))
    what = f"step at {sine:.3g}, the sine at position 1"
    measured = f"{step:.1g}: the precision is relative"
    findings.add_limit(what, measured, is_near_printed(step), step)


@claim("script-cos-step")
def check_steps_of_cosine(findings: Findings, printed: float = 3.94e-11) -> None:
    """Compute the change of the cosine over one token, before and after position 1."""
    theta = 2 * math.pi / PERIOD

    def step_from(start: float) -> float:
        # This is cos(theta start) - cos(theta (start + 1)), which would lose all but five
        # digits.
        return 2 * math.sin(theta * (start + 0.5)) * math.sin(theta / 2)

    before = step_from(0.0)
    after = step_from(1.0)
    mean = (before + after) / 2
    steps: tuple[tuple[Role, str, float], ...] = (
        ("part", "mean of the steps of cos before and after position 1", mean),
        ("limit", "step of cos from position 0 to 1", before),
        ("limit", "step of cos from position 1 to 2", after),
    )
    for role, what, step in steps:
        measured = f"{step:.3e} = {step / theta**2:.2f} theta^2"
        findings.add(role, what, measured, abs(step - printed) <= 0.01e-11, step)


@claim("clock-hour", "clock-unique")
def find_time_of_clock(
    findings: Findings,
    hands: Sequence[int] = HANDS,
    until: int = HANDS[-1],
    longer: int = 0,
) -> None:
    """Find the time after which all hands of a clock are back.

    Args:
        findings: the findings.
        hands: the periods of the hands, in seconds.
        until: the claim says that no two times within these seconds look the same.
        longer: a longer time for which this is asked, too, as a limit; 0 for none.
    """
    # All hands are back when the time is a multiple of every period.
    seconds = math.lcm(*hands)
    what = f"all hands are back after, of {until:,} s to tell apart"
    findings.add_part(what, f"{seconds:,} s", seconds >= until, seconds)
    if longer:
        what = f"all hands are back after, of {longer:,} s to tell apart"
        findings.add_limit(what, f"{seconds:,} s", seconds >= longer, seconds)


@claim("second-hand")
def find_place_of_hand(
    findings: Findings, hand: int = HANDS[0], said: int = 3600
) -> None:
    """Find where a hand of a clock is after `said` seconds, the time after which a source
    says that it is back at its start. `hand` is the period of the hand in seconds.
    """
    past_start = said % hand
    what = f"where the hand of {hand} s stands after {said:,} s"
    measured = f"{past_start} s past its start, as every {hand} s"
    findings.add_part(what, measured, past_start == 0, past_start)


@claim("clock-like-rope", "calendar-like-rope")
def compare_with_clock(
    findings: Findings,
    periods: Sequence[float] = (),
    base: float = BASE,
    length: int = LENGTH,
    in_whole: bool = True,
) -> None:
    """Compare the periods of RoPE, or given periods, with those of a clock, whose hands go
    from fast to slow and together tell every time.

    Each period of a clock is a whole multiple of the period before, so that all hands come
    back at the same time. Periods that have everything but this in common with a clock are
    like a clock with a condition. A calendar has no such rule: its months differ in length.

    Args:
        findings: the findings.
        periods: the periods in tokens, the shortest first; empty for the periods of RoPE.
        base: the base of RoPE.
        length: the number of positions that all periods together are to tell apart; 0 if
            the source does not say that they do.
        in_whole: True if periods are to be whole multiples of each other, as those of a
            clock are. A month of 365.2425 / 12 days is no whole number of days.
    """
    if periods:
        compared = np.array(periods)
    else:
        compared = 2 * math.pi / frequencies(HEAD, base)
    ratios = compared[1:] / compared[:-1]
    whole_count = int((np.abs(ratios - ratios.round()) < 1e-9).sum())

    longer_count = int((ratios > 1).sum())
    findings.add_count("periods longer than the one before", longer_count, len(ratios))
    if length:
        spectrum = Spectrum(2 * math.pi / compared)
        counts = count_codes(spectrum, "vector", length, ("float32",))["float32"]
        what = (
            f"positions of the first {length:,} that all together tell apart, float32"
        )
        measured = f"{counts.distinct:,}"
        findings.add_part(what, measured, counts.distinct == length, counts.distinct)
    if not in_whole:
        return
    what = f"periods that are whole multiples of the one before, of {len(ratios)}"
    measured = (
        f"{whole_count} (each is {ratios[0]:.4g} times the one before; a clock's are 60"
        " and 12)"
    )
    findings.add_limit(what, measured, whole_count == len(ratios), whole_count)


# One slow frequency against many: codes that number formats can distinguish


def make_one_frequency(period: float) -> Spectrum:
    """Return the spectrum of a single period, in tokens."""
    return Spectrum(np.array([2 * math.pi / period]))


def make_rope_frequencies(head_dim: int = HEAD, base: float = BASE) -> Spectrum:
    """Return the spectrum of RoPE."""
    return Spectrum(inverse_frequencies(head_dim, base))


def count_codes(
    spectrum: Spectrum,
    component: str,
    length: int,
    formats: Sequence[str] = FORMATS_COMPARED,
) -> dict[str, Census]:
    """Count the different codes of the positions below `length`, rounded to each format,
    and the neighbours with equal codes.
    """
    # The codes are exact before they are rounded.
    chain = Chain(CastPlan(), spectrum)
    all_pairs = range(len(spectrum.inv_freq))
    code = PositionEncoding(chain, component, all_pairs)
    censuses = take_census(code, [FORMATS[fmt] for fmt in formats], 0, length)
    return dict(zip(formats, censuses, strict=True))


@claim("one-frequency-neighbours", "one-frequency-formats")
def count_equal_neighbours(findings: Findings, format_: str = "float32") -> None:
    """Count neighbouring positions with equal codes, by one frequency and by RoPE."""
    neighbours = LENGTH - 1
    spectra = {"one": make_one_frequency(PERIOD), "many": make_rope_frequencies()}
    rows = []
    # The share of neighbours with equal codes, by scheme, format and component.
    shares = {}
    for scheme, spectrum in spectra.items():
        for name, component in COMPONENTS.items():
            for fmt, counts in count_codes(spectrum, component, LENGTH).items():
                equal_count = counts.adjacent_collisions
                shares[scheme, fmt, name] = equal_count / neighbours
                row = {
                    "scheme": scheme,
                    "pairs": spectrum.pairs,
                    "format": fmt,
                    "component": name,
                    "neighbours": neighbours,
                    "adjacent_collisions": equal_count,
                    "distinct_codes": counts.distinct,
                }
                rows.append(row)
    findings.series["resolution"] = pd.DataFrame(rows)

    # The format that the claim is about decides. All other formats put a condition on the
    # claim.
    other_formats = [fmt for fmt in FORMATS_COMPARED if fmt != format_]
    for fmt in (format_, *other_formats):
        share = shares["one", fmt, "cos and sin"]
        what = f"neighbours below {LENGTH} with cos and sin alike, {fmt}"
        role: Role = "part" if fmt == format_ else "limit"
        findings.add(role, what, write_percent(share), share > 0.5, share)

    # A source may speak of the first two positions alone.
    theta = 2 * math.pi / PERIOD
    angles = np.array([0, theta])
    cosines = np.cos(angles).astype(np.float32)
    sines = np.sin(angles).astype(np.float32)
    what = "positions 0 and 1 in float32"
    measured = (
        f"cos {cosines[0]:.10g} and {cosines[1]:.10g}, sin {sines[0]:.3g} and"
        f" {sines[1]:.3g}"
    )
    are_equal = bool(cosines[0] == cosines[1] and sines[0] == sines[1])
    findings.add_limit(what, measured, are_equal)

    # RoPE rotates a query and a key that are equal by the angles of their positions. The
    # angle between the two is then theta times their distance, and the score of a pair of
    # features of length 1 is its cosine.
    what = "float32 scores of equal q and k, one pair, at distances 0 and 1"
    measured = " and ".join(f"{float(score):.10g}" for score in cosines)
    findings.add_limit(what, measured, bool(cosines[0] == cosines[1]))

    for fmt in FORMATS_COMPARED:
        share = shares["one", fmt, "cos"]
        what = f"neighbours with cos alike, {fmt}"
        findings.add_limit(what, write_percent(share), share > 0.5, share)
    for fmt in FORMATS_COMPARED:
        share = shares["many", fmt, "cos and sin"]
        what = f"neighbours with all of RoPE's pairs alike, {fmt}"
        findings.add_limit(what, write_percent(share), share <= 0.5, share)


@claim("one-frequency-signal")
def compare_signal_of_next_token(findings: Findings, period: float = PERIOD) -> None:
    """Compare how much a score changes when its key is one token further away, with one
    frequency and with the frequencies of RoPE.
    """
    # The score of random queries and keys is a sum of terms, one for each pair of features.
    # If the key is one token further away, the term of a pair with frequency theta changes.
    # The standard deviation of this change is 2 sin(theta / 2) times the standard deviation
    # of the term. The mean of the squares over all pairs gives the change of the whole
    # score. A single pair has theta = 2 pi / period.
    change_with_one = 2 * math.sin(math.pi / period)
    changes_of_pairs = 2 * np.sin(inverse_frequencies(HEAD, BASE) / 2)
    change_with_rope = math.sqrt(float(np.mean(changes_of_pairs**2)))

    # The source compares the two with a millimetre and a metre stick. Here a hundredth
    # already counts as tiny.
    largest_tiny_change = change_with_rope / 100
    lead = "change of a score by the next token, of its standard deviation,"
    what = f"{lead} one frequency"
    findings.add_at_most(what, change_with_one, largest_tiny_change, "{}")
    what = f"{lead} RoPE's {len(changes_of_pairs)} frequencies (base {BASE:g})"
    findings.add_above(what, change_with_rope, change_with_one, "{:.2g}")


def write_percent(share: float) -> str:
    """Write a share in percent, `none` for 0 and `all` for 1."""
    if share == 0:
        return "none"
    if share == 1:
        return "all"
    return f"{share:.1%}"


@claim("one-frequency-unique")
def count_codes_of_one_frequency(findings: Findings, period: float = PERIOD) -> None:
    """Count the different codes by one frequency of the positions of its period."""
    length = round(period)
    for fmt, counts in count_codes(
        make_one_frequency(period), "vector", length
    ).items():
        what = f"different codes of {length:,} positions in {fmt}"
        role: Role = "part" if fmt == "float32" else "limit"
        findings.add(role, what, f"{counts.distinct:,}", counts.distinct == length)


@claim("fast-pair-separates")
def check_fastest_pair(findings: Findings, printed_degrees: float = 57.3) -> None:
    """Compute the angle of the fastest pair over one token, and count neighbours that it
    does not distinguish.
    """
    degrees = math.degrees(float(frequencies(HEAD, BASE)[0]))
    error = abs(degrees - printed_degrees)
    # Half a unit of the printed digit.
    tolerance = 0.05
    margin = margin_below(error, tolerance)
    what = "angle between neighbours in pair 0"
    findings.add_part(
        what, f"{degrees:.2f} degrees", error <= tolerance, degrees, margin
    )
    # The fastest pair rotates by one radian per token.
    for fmt, counts in count_codes(
        make_one_frequency(2 * math.pi), "pair", LENGTH
    ).items():
        equal_count = counts.adjacent_collisions
        what = f"neighbours below {LENGTH} with the same pair 0 in {fmt}"
        role: Role = "part" if fmt == "float32" else "limit"
        findings.add(role, what, str(equal_count), equal_count == 0, equal_count)


@claim("many-unique")
def count_codes_of_rope(
    findings: Findings, base: float = BASE, length: int = 1 << 20
) -> None:
    """Count the different codes of RoPE at the first positions."""
    spectrum = make_rope_frequencies(HEAD, base)
    slowest_period = float(wavelengths(spectrum.inv_freq)[-1])
    what = "the slowest pair alone repeats after"
    findings.add_above(what, slowest_period, length, "{:,.0f} tokens")
    for fmt, counts in count_codes(spectrum, "vector", length).items():
        what = f"distinct codes of the first {length} positions in {fmt}"
        is_unique = counts.distinct == length
        findings.add_part(what, f"{counts.distinct}", is_unique, counts.distinct)


@claim("slow-pairs-unique")
def count_codes_of_slow_pairs(
    findings: Findings, first: int = HEAD // 4, length: int = 1 << 20
) -> None:
    """Count the codes of the slower half of the pairs, from pair `first` on."""
    slow = Spectrum(inverse_frequencies(HEAD, BASE)[first:])
    last_pair = HEAD // 2 - 1
    for fmt, counts in count_codes(slow, "vector", length).items():
        what = (
            f"distinct codes of the first {length} positions in {fmt}, pairs {first} to"
            f" {last_pair}"
        )
        # The source names no format here. Elsewhere it speaks about float32.
        role: Role = "part" if fmt == "float32" else "limit"
        is_unique = counts.distinct == length
        findings.add(role, what, f"{counts.distinct}", is_unique, counts.distinct)


@claim("minimind-periods", "minimind-period-15")
def compare_periods(
    findings: Findings,
    printed: Sequence[tuple[int, float]],
    base: float = BASE,
    tolerance: float = 0.01,
) -> None:
    """Compare printed periods, each with the index of its pair, with the true periods."""
    true_periods = (2 * math.pi / frequencies(HEAD, base)).tolist()
    for index, printed_period in printed:
        true_period = true_periods[index]
        is_right = abs(printed_period / true_period - 1) <= tolerance
        measured = f"{true_period:,.1f}, printed {printed_period:,.10g}"
        if not is_right:
            # The index i at which 2 pi base^(2i/d) is the printed period.
            fitting_index = HEAD / 2 * math.log(printed_period / (2 * math.pi), base)
            measured += f" (it would be index {fitting_index:.1f})"
        findings.add_part(
            f"period at index {index}, in tokens", measured, is_right, true_period
        )


@claim("angle-falls")
def count_slower_pairs(findings: Findings, base: float = 10000.0) -> None:
    """Count the pairs that rotate slower than the pair before."""
    is_slower = np.diff(frequencies(HEAD, base)) < 0
    what = f"pairs that turn less than the one before, base {base:g}"
    findings.add_count(what, int(is_slower.sum()), len(is_slower))


@claim("position-1-code")
def compare_cosines_of_position_1(
    findings: Findings,
    first: Sequence[float] = (0.5403, 0.9997, 0.9999),
    last: float = 1.0,
) -> None:
    """Compare printed cosines of position 1, those of the `first` and of the `last`
    pairs, with the true cosines.
    """
    cosines = np.cos(frequencies(HEAD, BASE)).tolist()
    printed = [*first, last]
    true = [*cosines[: len(first)], cosines[-1]]
    right_count = 0
    for true_cosine, printed_cosine in zip(true, printed, strict=True):
        # Half a unit of the last of four printed digits.
        if abs(true_cosine - printed_cosine) <= 0.5e-4:
            right_count += 1

    findings.expected = f"[{', '.join(map(str, first))}, ..., {last}]"
    first_true = ", ".join(f"{cosine:.4f}" for cosine in cosines[: len(first)])
    hits = write_hits(right_count, len(printed))
    measured = f"[{first_true}, ..., {cosines[-1]:.4f}], {hits} as printed"
    findings.add_part(
        "cosines of position 1", measured, right_count == len(printed), right_count
    )


@claim("script-dimension-angles", "knowledge-base-angles")
def compare_angles(
    findings: Findings,
    printed: Sequence[tuple[int, int, float]],
    base: float = BASE,
    tolerance_degrees: float = 0.5,
) -> None:
    """Compare printed angles, each with its position and the index of its pair, with
    the true angles.
    """
    for position, index, printed_degrees in printed:
        degrees = math.degrees(position * float(frequencies(HEAD, base)[index]))
        # Full turns are not printed, so the shorter way round counts: between -180 and
        # 180 degrees.
        error = abs((degrees - printed_degrees + 180) % 360 - 180)
        margin = margin_below(error, tolerance_degrees)
        within_turn = degrees % 360
        what = f"degrees at {position}, pair {index}"
        measured = f"{within_turn:.1f}"
        turns = int(degrees // 360)
        if turns:
            measured += (
                f" past {write_count(turns, 'whole turn')}, {degrees:,.1f} in all"
            )
        measured += f", printed {printed_degrees:g}"
        findings.add_part(
            what, measured, error <= tolerance_degrees, within_turn, margin
        )


@claim("script-two-periods", "script-three-periods")
def find_equal_phases(
    findings: Findings,
    periods: Sequence[float] = (10, 100),
    positions: Sequence[int] = (0, 5, 10, 15, 50, 100),
) -> None:
    """Look for positions that have equal phases under all periods."""
    first_with_phases: dict[tuple[float, ...], int] = {}
    agreeing = []
    for position in positions:
        phases = tuple(position % period for period in periods)
        if phases in first_with_phases:
            agreeing.append(f"{first_with_phases[phases]} and {position} agree")
        else:
            first_with_phases[phases] = position

    measured = ", ".join(agreeing) or "all differ"
    different_phases = float(len(first_with_phases))
    what = f"phases of {len(positions)} positions"
    findings.add_part(what, measured, not agreeing, different_phases)
