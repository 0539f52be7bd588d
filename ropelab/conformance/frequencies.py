"""Say why the frequencies of an implementation are wrong.

The frequency of a pair is the angle by which it turns per token. First the measured
frequencies are compared with the results of formulas that have one slip
(`formula_slips`). If no formula fits, mistakes are read off the numbers themselves.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np

from ropelab.conformance.angles import CLOSE, wrap_angles
from ropelab.conformance.blocks import FIRST_ROTATED, SECOND_ROTATED
from ropelab.conformance.expected import Expected
from ropelab.conformance.formula_slips import are_near, list_explanations
from ropelab.conformance.observation import Fault, Observed
from ropelab.conformance.usual import FACTORS, HALF_FORMATS, USUAL
from ropelab.math import scaling
from ropelab.math.frequencies import Frequencies, rotations
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.scaling.stretching import pair_with_rotations
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Float
from ropelab.runs.sentences import write_number

# The end of the answer if no known mistake gives the frequencies.
UNEXPLAINED = "no known mistake explains them"
# The largest angle, in radians, whose number of whole rotations is known. A frequency
# that is read off a table in bfloat16 is off by a share of about 2^-8. Up to this angle
# that is less than half a rotation.
LARGEST_KNOWN_ANGLE = 2**6
# YaRN divides a share of each frequency, which grows from 0 at one end of a ramp to 1 at
# its other end. A pair whose share is closer than this to 0 or to 1 may be beyond the
# ramp, and is not used to find its ends.
LEAST_SHARE = 0.05
# Bits behind the binary point of frequencies in fixed point.
FRACTION_BITS = (8, 10, 12, 14, 15, 16, 18, 20, 24)
# The lowest frequency, in radians per token, of a pair that counts as rotating.
SLOWEST = 1e-30
# The largest inverse of a frequency that is looked at.
LARGEST_INVERSE = 1e3


def explain_frequencies(observed: Observed, expected: Expected) -> Fault | None:
    """Name what makes the frequencies of a code wrong; None: they are right."""
    spec = expected.spec
    right = expected.inv_freq
    measured = recover_frequencies(observed)
    if len(measured) != len(right):
        answer = f"{2 * len(measured)} features rotate instead of {spec.rotary_dim}"
        return answer, f"rotate {spec.rotary_dim} features"
    is_close = np.isclose(measured, right, rtol=CLOSE, atol=1e-12)
    wrong_pairs = np.flatnonzero(~is_close)
    if not len(wrong_pairs):
        return None

    if are_near(measured, -right):
        # The fix is the formula of the rotation, with its two signs.
        return (
            "the rotation has the wrong sign",
            f"{FIRST_ROTATED} and {SECOND_ROTATED}",
        )
    for answer, frequencies in list_explanations(expected, measured):
        if len(frequencies) == len(measured) and are_near(measured, frequencies):
            return answer, "compare ropelab audit on the configuration"

    if are_near(-measured[wrong_pairs], right[wrong_pairs]):
        answer = (
            f"{len(wrong_pairs)} of {len(right)} pairs rotate the wrong way, from pair"
            f" {wrong_pairs[0]} on"
        )
        return answer, "one sign for all pairs"
    return (
        explain_inverted(measured, right)
        or explain_rounded(measured, expected)
        or explain_fixed_point(measured, right)
        or explain_chosen_tables(measured, observed, expected)
        or explain_geometric(measured, unscale_dynamic(expected))
        or explain_common_factor(measured, right)
        or explain_ramp(measured, right, spec)
        or describe_unexplained(measured, right)
    )


def recover_frequencies(observed: Observed) -> Frequencies:
    """Return radians per token, refined from small positions to large positions.

    Position 1 has to be among the observed positions.
    """
    order = np.argsort(observed.positions)
    angles = np.arctan2(observed.sin, observed.cos)[order]  # [n, pairs]
    positions = observed.positions[order].astype(np.float64)
    start = int(np.flatnonzero(positions == 1)[0])
    frequencies = angles[start].copy()

    # A larger position gives a frequency with a smaller error. Its angle is known up to
    # whole rotations, whose number follows from the frequency so far.
    for position, angle in zip(
        positions[start + 1 :], angles[start + 1 :], strict=True
    ):
        whole_rotations = np.round((frequencies * position - angle) / (2 * np.pi))
        refined = (angle + 2 * np.pi * whole_rotations) / position
        is_known = np.abs(frequencies) * position < LARGEST_KNOWN_ANGLE
        frequencies = np.where(is_known, refined, frequencies)
    return frequencies


def explain_inverted(measured: Frequencies, right: Frequencies) -> Fault | None:
    """Name angles that are positions divided by the frequencies."""
    inverse = 1 / np.where(right == 0, 1.0, right)
    # Larger angles are rounded in float32 by whole turns.
    is_known = inverse < LARGEST_INVERSE
    errors = np.abs(wrap_angles(measured - inverse))[is_known]
    if is_known.sum() < 3 or errors.max() > CLOSE:
        return None
    return "positions are divided by inv_freq", "multiply positions by base^(-2i/d)"


def explain_rounded(measured: Frequencies, expected: Expected) -> Fault | None:
    """Name frequencies 1 / base^(2i/d) that were rounded to a small format.

    The exponent, the power, the quotient, or several of them may be rounded.
    """
    spec = expected.spec
    pairs = len(expected.inv_freq)
    exact_exponents = np.arange(pairs) / pairs
    exact = FORMATS["float64"]

    for name in HALF_FORMATS:
        # Each of the three steps is exact, or rounded to this format.
        formats_of_steps = product((exact, FORMATS[name]), repeat=3)
        for exponent_format, power_format, quotient_format in formats_of_steps:
            exponents = round_to(exact_exponents, exponent_format)
            powers = round_to(spec.base**exponents, power_format)
            rounded = round_to(1 / powers, quotient_format)
            if np.allclose(measured, expected.scale(rounded), rtol=2e-4, atol=1e-12):
                return f"inv_freq is rounded to {name}", "compute it in float32"
    return None


def explain_fixed_point(measured: Frequencies, right: Frequencies) -> Fault | None:
    """Name frequencies that are multiples of a small step, as integers hold them."""
    for bits in FRACTION_BITS:
        for unit, name in ((1.0, "radians"), (math.tau, "turns")):
            step = unit / 2**bits
            steps = right / step
            for rounded in (np.round(steps), np.floor(steps)):
                # A step that changes nothing explains nothing, and one that is larger
                # than most frequencies could be any rounding.
                is_visible = not are_near(rounded * step, right)
                has_enough = np.count_nonzero(rounded) >= 3
                difference = np.abs(measured - rounded * step).max()
                if is_visible and has_enough and difference < step / 16:
                    answer = f"inv_freq is held in {name} with {bits} bits of fraction"
                    return answer, "compute it in float32"
    return None


def explain_chosen_tables(
    measured: Frequencies,
    observed: Observed,
    expected: Expected,
) -> Fault | None:
    """Name scaling by length in which each token has the frequencies for its own position.

    The length of the context has to choose one table, or one base, for all tokens.
    """
    positions = observed.positions
    trained = expected.spec.trained_len
    # The length by which the frequencies of each position are chosen.
    if isinstance(expected.spec.scaling, scaling.LongRope):
        lengths = np.where(positions < trained, trained, trained + 1)
        answer = "each token's position chooses its table"
        fix = "one table for all tokens"
    elif isinstance(expected.spec.scaling, scaling.DynamicNtk):
        lengths = np.maximum(positions + 1, trained)
        answer = "each token's position chooses its base"
        fix = "one base for all tokens, by the number of tokens"
    else:
        return None

    cos = np.empty_like(observed.cos)
    sin = np.empty_like(observed.sin)
    for length in np.unique(lengths):
        rows = lengths == length
        rotation_at_length = replace(expected, length=int(length)).rotation
        cos[rows], sin[rows] = rotation_at_length.tables(positions[rows])
    mixed = replace(observed, cos=cos, sin=sin)
    if are_near(measured, recover_frequencies(mixed)):
        return answer, fix
    return None


def explain_geometric(measured: Frequencies, spec: RopeSpec) -> Fault | None:
    """Name the base of frequencies that fall by one ratio from pair to pair.

    If the base is right, pairs may be counted from another number than 0.
    """
    if not (measured > 0).all() or len(measured) < 3:
        return None
    if are_near(measured, measured[:1]):
        answer = f"every pair turns by {measured[0]:.4g} rad per token"
        # In languages whose division of integers drops the fraction, 2i/d is 0 for all i.
        return answer, "base^(-2i/d), without a division of whole numbers"

    # The logarithms of frequencies that fall by one ratio are on a straight line:
    # log f_i = intercept + slope * i.
    pairs = np.arange(len(measured))
    slope, intercept = np.polyfit(pairs, np.log(measured), 1)
    if not are_near(measured, np.exp(intercept + slope * pairs)):
        return None
    right_slope = -2 * math.log(spec.base) / spec.rotary_dim
    if abs(slope - right_slope) * len(measured) < CLOSE:
        # The same line is log f_i = slope * (i + first_number): pairs are counted from
        # this number.
        first_number = intercept / slope
        is_whole = abs(first_number - round(first_number)) < CLOSE
        if abs(first_number) > 0.5 and is_whole:
            answer = f"pairs are counted from {round(first_number)} instead of 0"
            return answer, "2i/d with i from 0"
        return None
    # The frequency of pair 0 is base^0 = 1 for any base, with the logarithm 0.
    # Otherwise no other base explains the frequencies.
    if abs(intercept) > CLOSE:
        return None
    answer, fix = describe_base(math.exp(-slope * spec.rotary_dim / 2), spec)
    # Dynamic scaling is another base itself.
    is_unscaled = isinstance(spec.scaling, scaling.Unscaled | scaling.DynamicNtk)
    if not is_unscaled:
        answer += f", and the scaling is not applied: {spec.method} is missing"
        fix += f", and {spec.method}"
    return answer, fix


def unscale_dynamic(expected: Expected) -> RopeSpec:
    """Return the rotation, with dynamic scaling replaced by a larger base.

    At one length both give the same frequencies.
    """
    spec = expected.spec
    dynamic = spec.scaling
    is_beyond = expected.length > spec.trained_len
    if not (isinstance(dynamic, scaling.DynamicNtk) and is_beyond):
        return spec
    stretch = dynamic.stretch(spec.geometry, expected.length)
    base = scaling.ntk_base(spec.geometry, stretch)
    return replace(spec, base=base, scaling=scaling.Unscaled())


def describe_base(base: float, spec: RopeSpec) -> Fault:
    """Name another base, in the fewest digits that still differ from the right base."""
    shown_base = base
    # From many digits to few: the last rounding that differs from the right base wins.
    for digits in (17, 7, 4):
        rounded = float(f"{base:.{digits}g}")
        if rounded != spec.base:
            shown_base = rounded
    answer = f"base {write_number(shown_base)} instead of {write_number(spec.base)}"
    fix = f"base {write_number(spec.base)}"

    if math.isclose(base, math.exp(math.log10(spec.base)), rel_tol=CLOSE):
        return f"{answer}, as with log10 for ln", fix
    # NTK-aware scaling by s multiplies the base by s^(d / (d - 2)).
    width = spec.rotary_dim
    stretch = (base / spec.base) ** ((width - 2) / width)
    if isinstance(spec.scaling, scaling.DynamicNtk) and stretch > 1:
        tokens = spec.trained_len * (1 + (stretch - 1) / spec.scaling.factor)
        return f"{answer}, which dynamic scaling has at {tokens:.0f} tokens", fix
    factor = round(stretch)
    if 1 < factor <= max(FACTORS) and math.isclose(stretch, factor, rel_tol=CLOSE):
        answer += f", which NTK-aware scaling by {factor} gives"
    return answer, fix


def explain_common_factor(measured: Frequencies, right: Frequencies) -> Fault | None:
    """Name one factor on all frequencies.

    The factor follows from the slower half of the pairs, since fast pairs show it only
    up to whole rotations.
    """
    count_of_still = int((right <= 0).sum())
    slow_to_fast = np.argsort(right)[count_of_still:]
    if len(slow_to_fast) < 3:
        return None
    slow = slow_to_fast[: (len(slow_to_fast) + 1) // 2]
    factor = float(np.median(measured[slow] / right[slow]))
    if not factor or math.isclose(factor, 1, rel_tol=CLOSE):
        return None
    errors = np.abs(wrap_angles(measured - factor * right))
    if not are_near(measured[slow], factor * right[slow]) or errors.max() > CLOSE:
        return None

    for reason, value in USUAL["reasons"].items():
        if math.isclose(factor, value, rel_tol=CLOSE):
            return reason, "multiply positions by inv_freq once"
    answer = f"every angle is {factor:.4g} times what it should be"
    return answer, "angle = position * inv_freq"


def explain_ramp(
    measured: Frequencies, right: Frequencies, spec: RopeSpec
) -> Fault | None:
    """Name a ramp with wrong ends, or without ends; None: the scaling has no ramp, or
    this does not explain the frequencies.
    """
    method = spec.scaling
    # A factor of 1 changes nothing, so that no ramp shows.
    if not isinstance(method, scaling.Llama3 | scaling.Yarn) or method.factor == 1:
        return None
    if isinstance(method, scaling.Llama3):
        return explain_llama3_ramp(measured, right, spec, method)
    return explain_yarn_ramp(measured, right, spec, method)


def explain_yarn_ramp(
    measured: Frequencies,
    right: Frequencies,
    spec: RopeSpec,
    method: scaling.Yarn,
) -> Fault | None:
    """Name YaRN's ramp with wrong ends, or without ends.

    From one end of the ramp to its other end, the share of a frequency that is divided
    by the factor grows from 0 to 1, by the same amount from pair to pair.
    """
    pairs = np.arange(len(measured), dtype=np.float64)
    ratios = measured / spec.geometry.inv_freq
    shares = (1 - ratios) / (1 - 1 / method.factor)
    ends = fit_ramp(pairs, shares, fewest=3)
    if ends is None or not has_other_ramp(measured, right, shares):
        return None

    low, high = ends
    line = (pairs - low) / (high - low)
    if np.allclose(line, shares, rtol=CLOSE, atol=2 * CLOSE):
        return "the ramp goes on beyond its ends", "clip it to 0 and 1"
    if not np.allclose(np.clip(line, 0, 1), shares, atol=2 * CLOSE):
        return None
    answer = f"the ramp runs from pair {low:.3g} to {high:.3g}"
    return (
        answer + explain_ends(low, high, spec, method),
        "its ends come from the betas, 2 pi, the base and the original length",
    )


def explain_llama3_ramp(
    measured: Frequencies,
    right: Frequencies,
    spec: RopeSpec,
    method: scaling.Llama3,
) -> Fault | None:
    """Name other factors of Llama 3's ramp, from the pairs that are between its ends.

    The share of a frequency that is kept grows from 0 to 1 with the number of turns in
    the original length, between low_freq_factor and high_freq_factor turns.
    """
    unscaled = spec.geometry.inv_freq
    shares = (measured / unscaled - 1 / method.factor) / (1 - 1 / method.factor)
    turns = rotations(unscaled, spec.trained_len)
    ends = fit_ramp(turns, shares, fewest=2)
    if ends is None or not has_other_ramp(measured, right, shares):
        return None

    low, high = ends
    line = (turns - low) / (high - low)
    if not np.allclose(np.clip(line, 0, 1), shares, atol=2 * CLOSE):
        return None
    answer = (
        f"low_freq_factor {low:.3g} and high_freq_factor {high:.3g} instead of"
        f" {method.low_freq_factor:g} and {method.high_freq_factor:g}"
    )
    return answer, "the factors of the configuration, and its original length"


def has_other_ramp(
    measured: Frequencies, right: Frequencies, shares: Float[np.ndarray, " pairs"]
) -> bool:
    """Return True if most pairs between the ends of a ramp are wrong, as happens where an
    end is another one. A single wrong frequency moves no end.
    """
    is_in_ramp = (shares > LEAST_SHARE) & (shares < 1 - LEAST_SHARE)
    is_wrong = ~np.isclose(measured, right, rtol=CLOSE, atol=0)
    return bool(is_wrong[is_in_ramp].mean() > 0.5)


def fit_ramp(
    places: Float[np.ndarray, " pairs"],
    shares: Float[np.ndarray, " pairs"],
    fewest: int,
) -> tuple[float, float] | None:
    """Return the places at which a line through the shares of a ramp reaches 0 and 1.

    None: fewer than ``fewest`` pairs have a share between 0 and 1, or all have the same.
    """
    is_in_ramp = (shares > LEAST_SHARE) & (shares < 1 - LEAST_SHARE)
    if is_in_ramp.sum() < fewest:
        return None
    slope, start = np.polyfit(places[is_in_ramp], shares[is_in_ramp], 1)
    if slope == 0:
        return None
    return -start / slope, (1 - start) / slope


def explain_ends(
    low: float,
    high: float,
    spec: RopeSpec,
    method: scaling.Yarn,
) -> str:
    """Return a likely reason for the wrong ends of YaRN's ramp; empty if there is none.

    ``low`` and ``high``: the pairs at which the ramp begins and ends.
    """
    got = np.array([low, high])
    betas = np.array([method.beta_fast, method.beta_slow])
    # The pairs that complete beta_fast and beta_slow turns in the original length.
    ends = find_pairs_with_turns(betas, spec)

    rounded_otherwise = {
        "down": np.floor(ends),
        "up": np.ceil(ends),
        "to the nearest pair": np.round(ends),
    }
    for where, wrong_ends in rounded_otherwise.items():
        if np.abs(got - wrong_ends).max() < LEAST_SHARE:
            return f", both ends rounded {where} instead of outwards"

    reasons = {
        "as with beta_fast and beta_slow exchanged": ends[::-1],
        "half of the right pairs, as if it counted features": ends / 2,
        "twice the right pairs: the 2 of d / (2 ln base) is missing": 2 * ends,
        "as with beta_fast and beta_slow of 1 / beta": find_pairs_with_turns(
            1 / betas, spec
        ),
        "as with log10 of the base": ends * math.log(10),
        "as with log2 of the base": ends * math.log(2),
    }
    for reason, wrong_ends in reasons.items():
        # Ends may be rounded to whole pairs, before they are multiplied or after.
        if np.abs(got - wrong_ends).max() <= 1:
            return f", {reason}"

    # The ends alone may be made with another base. Bases are near to each other, so that
    # the ends have to be exactly those that this base has.
    for base in USUAL["bases"]:
        other_ends = ends * math.log(spec.base) / math.log(base)
        if method.truncate:
            other_ends = np.array([np.floor(other_ends[0]), np.ceil(other_ends[1])])
        if np.abs(got - other_ends).max() < LEAST_SHARE:
            return f", as with base {write_number(base)} for the ramp alone"
    return ""


def find_pairs_with_turns(
    turns: Float[np.ndarray, " ends"], spec: RopeSpec
) -> Float[np.ndarray, " ends"]:
    """Return the pairs, as real numbers, that turn so often in the original length."""
    return np.array([pair_with_rotations(spec.geometry, each) for each in turns])


def describe_unexplained(measured: Frequencies, right: Frequencies) -> Fault:
    """Say which frequencies are wrong, where no known mistake explains them."""
    is_close = np.isclose(measured, right, rtol=CLOSE, atol=1e-12)
    wrong_pairs = np.flatnonzero(~is_close)
    stands_still = np.abs(measured) < SLOWEST
    # If no pair at all rotates, the frequencies are memory to which nothing was written,
    # which is reported below.
    some_pair_rotates = not stands_still.all()
    if stands_still[wrong_pairs].all() and some_pair_rotates:
        answer = (
            f"{len(wrong_pairs)} of {len(right)} pairs do not rotate, from pair"
            f" {wrong_pairs[0]} on"
        )
        return answer, "rotate every pair"

    # Memory to which nothing was written holds mostly zeros, or numbers in no order.
    share_of_zeros = stands_still.mean()
    share_of_rises = (np.diff(measured) > 0).mean()
    if share_of_zeros > 0.5 or 0.25 < share_of_rises < 0.75:
        answer = (
            "the frequencies are no ladder that a configuration makes: uninitialised"
            " memory?"
        )
        return answer, "build inv_freq after the weights are on their device"

    right_frequencies = right[wrong_pairs]
    factors = measured[wrong_pairs] / np.where(
        right_frequencies == 0, np.nan, right_frequencies
    )
    answer = (
        f"{len(wrong_pairs)} of {len(right)} frequencies are wrong, pairs"
        f" {wrong_pairs[0]} to {wrong_pairs[-1]}, by factors from"
        f" {np.nanmin(factors):.4g} to {np.nanmax(factors):.4g}; {UNEXPLAINED}"
    )
    return answer, "compare inv_freq pair by pair"
