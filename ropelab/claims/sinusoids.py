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
# Width and length at which the figures show each spacing.
SPACINGS: dict[Spacing, tuple[int, int]] = {
    "harmonic": (64, 512),
    "exponential": (512, 512),
}


def space_frequencies(
    spacing: Spacing, width: int, length: int
) -> Float[Array, " pairs"]:
    """Return radians per token: base^(-2i/d), or whole multiples of 2 pi / length."""
    if spacing == "exponential":
        return frequencies(width, BASE)
    return np.arange(1, width // 2 + 1) * (2 * math.pi / length)


def code(
    positions: ArrayLike, omega: Float[Array, " pairs"]
) -> Float[Array, "n width"]:
    """Return (sin, cos, sin, cos, ...) at positions, which need not be whole."""
    angles = np.asarray(positions, dtype=float)[:, None] * omega
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(len(angles), -1)


@claim("sinusoid-shift", "sinusoid-shift-standard")
def shift_is_rotation(
    findings: Findings, turnings: Sequence[str] = ("clockwise",), shift: int = 7
) -> None:
    omega = frequencies(512, BASE)
    positions = np.arange(512)
    for turning in turnings:
        # With (sin, cos) in this order the angle addition formulas give a clockwise
        # rotation.
        sign = -1 if turning == "clockwise" else 1
        moved = code(positions, omega) @ rotation_matrix(sign * shift * omega).T
        off = largest(moved - code(positions + shift, omega))
        back = largest(moved - code(positions - shift, omega))
        also = f", and gives the code of p - {shift}" if back <= EXACT < off else ""
        what = (
            f"PE(p + {shift}) against one matrix times PE(p), p < 512, blocks turning"
            f" {turning}"
        )
        role: Role = "limit" if findings.findings else "part"
        findings.within(what, off, EXACT, "{} apart" + also, role)
    # One pair as an arrow (sin, cos), for the figure: at x, at x + delta, and x rotated
    # by the standard matrix. omega x = 0.5 rad and omega delta = 0.9 rad keep the three
    # apart.
    here, later = (np.array([math.sin(a), math.cos(a)]) for a in (0.5, 0.5 + 0.9))
    c = math.cos(0.9)
    s = math.sin(0.9)
    standard = np.array([[c, -s], [s, c]]) @ here
    arrows = [
        ("code of x", *here),
        ("code of x + δ", *later),
        ("R(ωδ) times code of x", *standard),
    ]
    findings.series["sinusoid_shift"] = pd.DataFrame(
        arrows, columns=["vector", "x", "y"]
    )


@claim("sinusoid-orthogonal")
def columns_orthogonal(
    findings: Findings, spacing: Spacing = "exponential", width: int = 512
) -> None:
    length = 512
    columns = code(np.arange(length), space_frequencies(spacing, width, length))
    # The sine of the fastest evenly spaced pair is 0 at every position.
    columns = columns / np.linalg.norm(columns, axis=0).clip(EXACT)
    overlap = np.abs(columns.T @ columns)
    np.fill_diagonal(overlap, 0)  # a column with itself
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
        1e-6,  # angles after 6e4 tokens are known to 1e-11 rad
        f"{{:.2g}} ({whole} of {len(ratios)} are whole multiples of the least"
        " frequency)",
    )

    findings.series["sinusoid_sum"] = sum_series()


def sum_series() -> pd.DataFrame:
    """Sum all features to F(t), from 0 on and from one period of the slowest wave
    on.
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
    tried: dict[str, dict[str, Any]] = {
        "whole multiples": {"spacing": "harmonic", "width": 64, "length": 4096},
        "d = 8, base 10000: every ratio is a power of 10": {"width": 8},
        f"d = {broken_width}, base 10000": {"width": broken_width},
    }
    for (what, inputs), repeats in zip(tried.items(), (True, True, False), strict=True):
        one = Findings()
        slowest_period_repeats(one, **inputs)
        result = one.findings[0]
        findings.part(what, result.measured, result.agrees is repeats, result.value)


@claim("exponential-spacing")
def exponential_repeats_less(findings: Findings, tokens: int = 16384) -> None:
    lags = np.arange(1, tokens)[:, None]
    pairs = 64
    spacings = {
        "uniform": np.arange(1, pairs + 1) / pairs,
        "exponential": frequencies(128, BASE),
    }
    for name, omega in spacings.items():
        # Distance between the codes of positions 1, 2, ... apart, per square root of
        # the pairs. It depends on the lag only, so no pair of positions has to be
        # compared.
        distance = np.sqrt((2 - 2 * np.cos(lags * omega)).mean(-1))
        nearest = int(distance[1:].argmin()) + 2
        apart = float(distance[nearest - 1])
        beside = float(distance[0])
        what = f"{name} frequencies, positions nearest in code within {tokens}"
        text = f"{nearest} tokens apart at {apart:.3f}, neighbours at {beside:.3f}"
        findings.part(
            what, text, (apart < beside) == (name == "uniform"), apart / beside
        )
    findings.series["sinusoid_distance"] = distance_series()


def distance_series() -> pd.DataFrame:
    """Multiply the codes of two positions: spacing, distance_tokens, value (1 at 0)."""
    distance = np.arange(1, 1281)
    values = {
        spacing: np.cos(np.outer(distance, space_frequencies(spacing, *sizes))).mean(-1)
        for spacing, sizes in SPACINGS.items()
    }
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
    norm = math.sqrt(width / 2)  # sin^2 + cos^2 = 1 for each pair

    what = f"step of the code between neighbours, d = {width} (its norm is {norm:.0f})"
    findings.part(
        what,
        f"{steps.mean():.2f} everywhere, to {write_magnitude(spread)}",
        spread <= EXACT,
        spread,
    )
    what = "angle by which the fastest pair jumps with each token"
    findings.limit(what, f"{degrees:.1f} degrees", degrees < 10, degrees)
