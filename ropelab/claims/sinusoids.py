"""Checks of claims about sinusoidal position codes: their shifts, columns, periods and
steps.

A code has a sine and a cosine per pair, [positions, width]. Spacing is the rule by which
the frequencies of the pairs differ.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ropelab.claims.arrays import (
    Array,
    frequencies,
    max_abs,
    rotation_matrix,
)
from ropelab.claims.record import Findings, Role, claim
from ropelab.runs.arrays import Float
from ropelab.runs.thresholds import EXACT

Spacing = Literal["exponential", "harmonic"]
# The base of exponential spacing.
BASE = 10000.0
# For the figures: the width of the code and the number of positions of each spacing.
SPACINGS: dict[Spacing, tuple[int, int]] = {
    "harmonic": (64, 512),
    "exponential": (512, 512),
}


def space_frequencies(
    spacing: Spacing, width: int, length: int
) -> Float[Array, " pairs"]:
    """Return the frequencies of all pairs in radians per token.

    With exponential spacing they are base^(-2i/d), with harmonic spacing the whole
    multiples of 2 pi / length.
    """
    if spacing == "exponential":
        return frequencies(width, BASE)
    return np.arange(1, width // 2 + 1) * (2 * math.pi / length)


def encode_positions(
    positions: ArrayLike, omega: Float[Array, " pairs"]
) -> Float[Array, "positions width"]:
    """Return the code (sin, cos, sin, cos, ...) of positions, which need not be whole
    numbers, for the frequencies omega of the pairs.
    """
    angles = np.asarray(positions, dtype=float)[:, None] * omega
    # An array [positions, pairs, 2], whose last two axes become one.
    by_pair = np.stack((np.sin(angles), np.cos(angles)), axis=-1)
    return by_pair.reshape(len(angles), -1)


@claim("sinusoid-shift", "sinusoid-shift-standard")
def compare_rotated_codes(
    findings: Findings, turnings: Sequence[str] = ("clockwise",), shift: int = 7
) -> None:
    """Multiply codes by a matrix of rotations, and compare them with the codes of later
    positions. `turnings` are the directions of the rotations.
    """
    omega = frequencies(512, BASE)
    positions = np.arange(512)
    codes = encode_positions(positions, omega)
    for turning in turnings:
        # `rotation_matrix` is counterclockwise. Since the sine comes first in a pair, the
        # shift should be a clockwise rotation, by the angle addition formulas.
        sign = -1 if turning == "clockwise" else 1
        rotated = codes @ rotation_matrix(sign * shift * omega).T
        difference = max_abs(rotated - encode_positions(positions + shift, omega))
        difference_from_earlier = max_abs(
            rotated - encode_positions(positions - shift, omega)
        )
        text = "more than rounding"
        if difference_from_earlier <= EXACT:
            text += f", and it gives the code of p - {shift}"
        what = (
            f"difference of PE(p + {shift}) and one matrix times PE(p), p < 512, blocks"
            f" turning {turning}"
        )
        # The first direction decides, and all other directions are limits.
        role: Role = "limit" if findings.findings else "part"
        findings.add_zero(what, difference, EXACT, role, text)

    findings.series["sinusoid_shift"] = make_shift_series()


def make_shift_series() -> pd.DataFrame:
    """Return one pair of the code as arrows (sin, cos): the code of x, the code of x +
    delta, and the code of x rotated by the standard matrix.
    """
    # With these angles, in radians, the three arrows are apart in the figure.
    x = 0.5
    delta = 0.9
    code_of_x = np.array([math.sin(x), math.cos(x)])
    code_of_sum = np.array([math.sin(x + delta), math.cos(x + delta)])
    cos = math.cos(delta)
    sin = math.sin(delta)
    standard_matrix = np.array([[cos, -sin], [sin, cos]])
    rotated = standard_matrix @ code_of_x

    arrows = [
        ("code of x", *code_of_x),
        ("code of x + δ", *code_of_sum),
        ("R(ωδ) times code of x", *rotated),
    ]
    return pd.DataFrame(arrows, columns=["vector", "x", "y"])


@claim("sinusoid-orthogonal")
def compare_columns(
    findings: Findings, spacing: Spacing = "exponential", width: int = 512
) -> None:
    """Compare the columns of the codes: each is one feature at all positions."""
    length = 512
    columns = encode_positions(
        np.arange(length), space_frequencies(spacing, width, length)
    )
    # With harmonic spacing the sine of the fastest pair is 0 at every position. The
    # clip keeps its column from being divided by 0.
    norms = np.linalg.norm(columns, axis=0).clip(EXACT)
    normalized = columns / norms
    cosines = np.abs(normalized.T @ normalized)  # [columns, columns]
    # A column is not compared with itself.
    np.fill_diagonal(cosines, 0)
    share = float((cosines > 0.1).sum() / (width * (width - 1)))

    what = f"largest |cosine| between two of {width} columns over {length} positions"
    template = f"{{:.6f}} ({share:.0%} of the pairs of columns exceed 0.1)"
    findings.add_at_most(what, max_abs(cosines), EXACT, template)

    # The table for the figure has a row per position and feature of a smaller code.
    values = pd.DataFrame(encode_positions(np.arange(64), frequencies(32, BASE)))
    table = values.rename_axis("position_tokens").reset_index()
    table = table.melt("position_tokens", var_name="feature", value_name="value")
    findings.series["sinusoid_code"] = table


@claim("sinusoid-periodic")
def compare_after_period(
    findings: Findings,
    spacing: Spacing = "exponential",
    width: int = 512,
    length: int = 512,
) -> None:
    """Compare the codes of the first positions with the codes one period later, a period
    of the slowest wave.
    """
    omega = space_frequencies(spacing, width, length)
    period = 2 * math.pi / float(omega.min())
    positions = np.arange(64)
    codes = encode_positions(positions, omega)
    change = max_abs(encode_positions(positions + period, omega) - codes)

    # The code repeats if all frequencies are whole multiples of the slowest one.
    ratios = omega / omega.min()
    whole_multiples = int((np.abs(ratios - ratios.round()) < 1e-9).sum())
    # Angles after 6e4 tokens are known to 1e-11 rad, so this bound is a wide one.
    bound = 1e-6

    findings.expected = f"the code repeats after {period:,.0f} tokens"
    what = f"largest change of a feature after {period:,.0f} tokens, d = {width}"
    size = "0 within rounding" if change <= bound else "{:.2g}"
    template = (
        f"{size} ({whole_multiples} of {len(ratios)} are whole multiples of the least"
        " frequency)"
    )
    findings.add_at_most(what, change, bound, template)
    findings.series["sinusoid_sum"] = make_sum_series()


def make_sum_series() -> pd.DataFrame:
    """Return the sum F(t) of all features, divided by the number of pairs: from position 0
    on, and from the position after one period of the slowest wave on.
    """
    positions = np.linspace(0, 64, 257)
    tables = []
    for spacing, (width, length) in SPACINGS.items():
        omega = space_frequencies(spacing, width, length)
        period = 2 * math.pi / float(omega.min())

        for name, start in (("0", 0.0), ("period", period)):
            sums = encode_positions(positions + start, omega).sum(axis=-1)
            columns = {
                "spacing": spacing,
                "period_tokens": period,
                "start": name,
                "position_tokens": positions,
                "value": sums / len(omega),
            }
            tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


@claim("period-needs-multiples")
def compare_three_codes(findings: Findings, broken_width: int = 512) -> None:
    """Ask of three codes whether they repeat after the period of their slowest wave."""
    # The words for a code, the inputs that make it, and True if it should repeat.
    harmonic: dict[str, Any] = {"spacing": "harmonic", "width": 64, "length": 4096}
    codes: list[tuple[str, dict[str, Any], bool]] = [
        ("a code of whole multiples", harmonic, True),
        (
            "the code of d = 8, base 10000, whose ratios are powers of 10",
            {"width": 8},
            True,
        ),
        (f"the code of d = {broken_width}, base 10000", {"width": broken_width}, False),
    ]
    for what, inputs, should_repeat in codes:
        findings_on_code = Findings()
        compare_after_period(findings_on_code, **inputs)
        (result,) = findings_on_code.findings
        agrees = result.agrees is should_repeat
        change = f"{what}: largest change of a feature after the longest period"
        findings.add_part(change, result.measured, agrees, result.value)


@claim("exponential-spacing")
def find_nearest_codes(findings: Findings, tokens: int = 16384) -> None:
    """Find the positions whose codes are nearest to each other, beside neighbours."""
    pairs = 64
    frequencies_by_name = {
        "uniform": np.arange(1, pairs + 1) / pairs,
        "exponential": frequencies(2 * pairs, BASE),
    }
    # A lag is the number of tokens between two positions.
    lags = np.arange(1, tokens)
    for name, omega in frequencies_by_name.items():
        # The distance between the codes of two positions, divided by the square root of
        # the number of pairs. The distance depends only on the lag, so that one pair of
        # positions for each lag is enough.
        squares = 2 - 2 * np.cos(lags[:, None] * omega)
        distances = np.sqrt(squares.mean(axis=-1))
        distance_at_one = float(distances[0])
        # Neighbours have the lag 1, and are left out.
        nearest = 1 + int(distances[1:].argmin())
        nearest_lag = int(lags[nearest])
        nearest_distance = float(distances[nearest])

        repeats = nearest_distance < distance_at_one
        should_repeat = name == "uniform"
        what = f"{pairs} {name} frequencies, positions nearest in code within {tokens}"
        measured = (
            f"{nearest_lag} tokens apart at {nearest_distance:.3f}, neighbours at"
            f" {distance_at_one:.3f}"
        )
        ratio = nearest_distance / distance_at_one
        findings.add_part(what, measured, repeats == should_repeat, ratio)
    findings.series["sinusoid_distance"] = make_distance_series()


def make_distance_series() -> pd.DataFrame:
    """Return the product of the codes of two positions by their distance, 1 at 0, with
    the columns spacing, distance_tokens and value.
    """
    distance = np.arange(1, 1281)
    values = {}
    for spacing, sizes in SPACINGS.items():
        angles = np.outer(distance, space_frequencies(spacing, *sizes))
        values[spacing] = np.cos(angles).mean(-1)
    table = pd.DataFrame(values).assign(distance_tokens=distance)
    table = table.melt("distance_tokens", var_name="spacing")
    return table[["spacing", "distance_tokens", "value"]]


@claim("uniform-geometric")
def compare_ratios(
    findings: Findings,
    in_logarithm: Spacing = "exponential",
    in_frequency: Spacing = "harmonic",
) -> None:
    """Compare the ratios of neighbouring frequencies: a geometric series has one ratio.

    `in_logarithm` is the spacing that is even in the logarithm of the frequency, and
    `in_frequency` the spacing that is even in the frequency.
    """
    spacings: tuple[tuple[Role, str, Spacing], ...] = (
        ("part", "the logarithm, as the Transformer has it", in_logarithm),
        ("limit", "the frequency", in_frequency),
    )
    for role, where, spacing in spacings:
        omega = np.sort(space_frequencies(spacing, 64, 512))
        ratios = omega[1:] / omega[:-1]
        are_equal = bool(np.ptp(ratios) <= EXACT)
        largest_to_smallest = float(ratios.max() / ratios.min())
        what = f"ratios of neighbours that are evenly spaced in {where}"
        measured = f"{ratios.min():.3g} to {ratios.max():.3g}"
        if are_equal:
            measured = f"all {ratios.mean():.4g}"
        findings.add(role, what, measured, are_equal, largest_to_smallest)


@claim("sinusoid-smooth")
def measure_steps(findings: Findings) -> None:
    """Measure the steps between the codes of neighbours, and the fastest rotation."""
    width = 512
    omega = frequencies(width, BASE)
    steps = np.diff(encode_positions(np.arange(512), omega), axis=0)
    step_lengths = np.linalg.norm(steps, axis=1)
    spread = float(np.ptp(step_lengths))
    # Each pair has the length 1, as sin^2 + cos^2 = 1.
    norm = math.sqrt(width / 2)
    what = f"step of the code between neighbours, d = {width} (its norm is {norm:.0f})"
    are_equal = spread <= EXACT
    measured = f"{step_lengths.mean():.2f}"
    if are_equal:
        measured += " everywhere"
    else:
        measured = f"{step_lengths.min():.2f} to {step_lengths.max():.2f}"
    findings.add_part(what, measured, are_equal, spread)

    # The first pair is the fastest.
    degrees = math.degrees(float(omega[0]))
    what = "angle by which the fastest pair jumps with each token"
    findings.add_limit(what, f"{degrees:.1f} degrees", degrees < 10, degrees)
