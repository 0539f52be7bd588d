"""Checks of sinusoidal position codes: their shifts, columns, periods and steps."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ropelab.claims.arrays import (
    Array,
    frequencies,
    largest,
    rotation_matrix,
    write_magnitude,
)
from ropelab.claims.record import Findings, Role, claim
from ropelab.runs.arrays import Float
from ropelab.runs.thresholds import EXACT

Spacing = Literal["exponential", "harmonic"]
BASE = 10000.0
# The width of the code and the number of positions with which the figures show each
# spacing.
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


def code(
    positions: ArrayLike, omega: Float[Array, " pairs"]
) -> Float[Array, "n width"]:
    """Return the code (sin, cos, sin, cos, ...) of positions, which need not be
    whole.
    """
    angles = np.asarray(positions, dtype=float)[:, None] * omega
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(len(angles), -1)


@claim("sinusoid-shift", "sinusoid-shift-standard")
def shift_is_rotation(
    findings: Findings, turnings: Sequence[str] = ("clockwise",), shift: int = 7
) -> None:
    omega = frequencies(512, BASE)
    positions = np.arange(512)
    for turning in turnings:
        # `rotation_matrix` is counterclockwise. Since the sine comes first in a pair, the
        # shift should be a clockwise rotation, by the angle addition formulas.
        sign = -1 if turning == "clockwise" else 1
        rotated = code(positions, omega) @ rotation_matrix(sign * shift * omega).T
        off = largest(rotated - code(positions + shift, omega))
        off_from_earlier = largest(rotated - code(positions - shift, omega))
        also = ""
        if off_from_earlier <= EXACT < off:
            also = f", and gives the code of p - {shift}"
        what = (
            f"PE(p + {shift}) against one matrix times PE(p), p < 512, blocks turning"
            f" {turning}"
        )
        role: Role = "limit" if findings.findings else "part"
        findings.within(what, off, EXACT, "{} apart" + also, role)

    findings.series["sinusoid_shift"] = shift_series()


def shift_series() -> pd.DataFrame:
    """Return one pair of the code as an arrow (sin, cos): at x, at x + delta, and that
    at x rotated by the standard matrix.
    """
    # With these angles, in radians, the three arrows are apart in the figure.
    x = 0.5
    delta = 0.9
    before = np.array([math.sin(x), math.cos(x)])
    after = np.array([math.sin(x + delta), math.cos(x + delta)])
    c = math.cos(delta)
    s = math.sin(delta)
    rotated = np.array([[c, -s], [s, c]]) @ before
    arrows = [
        ("code of x", *before),
        ("code of x + δ", *after),
        ("R(ωδ) times code of x", *rotated),
    ]
    return pd.DataFrame(arrows, columns=["vector", "x", "y"])


@claim("sinusoid-orthogonal")
def columns_orthogonal(
    findings: Findings, spacing: Spacing = "exponential", width: int = 512
) -> None:
    length = 512
    columns = code(np.arange(length), space_frequencies(spacing, width, length))
    # With harmonic spacing the sine of the fastest pair is 0 at every position. The
    # clip keeps its column from being divided by 0.
    columns = columns / np.linalg.norm(columns, axis=0).clip(EXACT)
    overlap = np.abs(columns.T @ columns)
    # A column is not compared with itself.
    np.fill_diagonal(overlap, 0)
    share = float((overlap > 0.1).sum() / (width * (width - 1)))

    what = f"largest |cosine| between two columns over {length} positions"
    text = f"{{:.6f}} ({share:.0%} of the pairs of columns exceed 0.1)"
    findings.within(what, largest(overlap), EXACT, text)
    values = pd.DataFrame(code(np.arange(64), frequencies(32, BASE)))
    table = values.rename_axis("position_tokens").reset_index()
    table = table.melt("position_tokens", var_name="feature", value_name="value")
    findings.series["sinusoid_code"] = table


@claim("sinusoid-periodic")
def slowest_period_repeats(
    findings: Findings,
    spacing: Spacing = "exponential",
    width: int = 512,
    length: int = 512,
) -> None:
    omega = space_frequencies(spacing, width, length)
    period = 2 * math.pi / float(omega.min())
    positions = np.arange(64)
    ratios = omega / omega.min()
    whole = int((np.abs(ratios - ratios.round()) < 1e-9).sum())
    findings.expected = f"the code repeats after {period:,.0f} tokens"

    findings.within(
        f"largest change of a feature after {period:,.0f} tokens, d = {width}",
        largest(code(positions + period, omega) - code(positions, omega)),
        # Angles after 6e4 tokens are known to 1e-11 rad, so this bound is a wide one.
        1e-6,
        f"{{:.2g}} ({whole} of {len(ratios)} are whole multiples of the least"
        " frequency)",
    )

    findings.series["sinusoid_sum"] = sum_series()


def sum_series() -> pd.DataFrame:
    """Return the sum F(t) of all features, from position 0 on, and from one period of
    the slowest wave on.
    """
    after = np.linspace(0, 64, 257)
    tables = []
    for spacing, (width, multiple) in SPACINGS.items():
        omega = space_frequencies(spacing, width, multiple)
        period = 2 * math.pi / float(omega.min())
        for name, start in (("0", 0.0), ("period", period)):
            value = code(after + start, omega).sum(-1) / len(omega)
            about = {"spacing": spacing, "period_tokens": period, "start": name}
            tables.append(
                pd.DataFrame({**about, "position_tokens": after, "value": value})
            )
    return pd.concat(tables, ignore_index=True)


@claim("period-needs-multiples")
def period_needs_multiples(findings: Findings, broken_width: int = 512) -> None:
    # The words for a code, the inputs that make it, and True if it should repeat.
    harmonic: dict[str, Any] = {"spacing": "harmonic", "width": 64, "length": 4096}
    codes: list[tuple[str, dict[str, Any], bool]] = [
        ("whole multiples", harmonic, True),
        ("d = 8, base 10000: every ratio is a power of 10", {"width": 8}, True),
        (f"d = {broken_width}, base 10000", {"width": broken_width}, False),
    ]
    for what, inputs, should_repeat in codes:
        of_code = Findings()
        slowest_period_repeats(of_code, **inputs)
        result = of_code.findings[0]
        agrees = result.agrees is should_repeat
        findings.part(what, result.measured, agrees, result.value)


@claim("exponential-spacing")
def exponential_repeats_less(findings: Findings, tokens: int = 16384) -> None:
    lags = np.arange(1, tokens)[:, None]
    pairs = 64
    spacings = {
        "uniform": np.arange(1, pairs + 1) / pairs,
        "exponential": frequencies(128, BASE),
    }
    for name, omega in spacings.items():
        # The distance between the codes of two positions, divided by the square root of
        # the number of pairs. It depends on the lag of the positions only, so that one
        # pair of positions for each lag is enough.
        distance = np.sqrt((2 - 2 * np.cos(lags * omega)).mean(-1))
        of_neighbours = float(distance[0])
        # The lag of 1 is at index 0, and neighbours are left out.
        nearest_lag = int(distance[1:].argmin()) + 2
        of_nearest = float(distance[nearest_lag - 1])

        repeats = of_nearest < of_neighbours
        should_repeat = name == "uniform"
        what = f"{name} frequencies, positions nearest in code within {tokens}"
        text = (
            f"{nearest_lag} tokens apart at {of_nearest:.3f}, neighbours at"
            f" {of_neighbours:.3f}"
        )
        ratio = of_nearest / of_neighbours
        findings.part(what, text, repeats == should_repeat, ratio)
    findings.series["sinusoid_distance"] = distance_series()


def distance_series() -> pd.DataFrame:
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
def uniform_is_geometric(findings: Findings, spacing: Spacing = "harmonic") -> None:
    omega = np.sort(space_frequencies(spacing, 64, 512))
    ratios = omega[1:] / omega[:-1]
    exponential = frequencies(64, BASE)
    own = exponential[:-1] / exponential[1:]
    said = (
        f"the Transformer's are all {own.mean():.4g}: its own spacing is the"
        " geometric one"
    )
    text = f"{ratios.min():.3g} to {ratios.max():.3g} ({said})"
    equal = bool(np.ptp(ratios) <= EXACT)
    spread = float(ratios.max() / ratios.min())
    findings.part(
        "ratios of neighbouring evenly spaced frequencies",
        text,
        equal,
        spread,
    )


@claim("sinusoid-smooth")
def is_smooth(findings: Findings) -> None:
    width = 512
    omega = frequencies(width, BASE)
    steps = np.linalg.norm(np.diff(code(np.arange(512), omega), axis=0), axis=1)
    spread = float(np.ptp(steps))
    degrees = math.degrees(float(omega[0]))
    # Each pair has the length 1, as sin^2 + cos^2 = 1.
    norm = math.sqrt(width / 2)

    what = f"step of the code between neighbours, d = {width} (its norm is {norm:.0f})"
    findings.part(
        what,
        f"{steps.mean():.2f} everywhere, to {write_magnitude(spread)}",
        spread <= EXACT,
        spread,
    )
    what = "angle by which the fastest pair jumps with each token"
    findings.limit(what, f"{degrees:.1f} degrees", degrees < 10, degrees)
