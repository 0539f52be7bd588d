"""Claims about sinusoidal position codes: their shifts, columns, periods and steps."""

import math
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float

from ropelab.claims.arithmetic.turning import rotation_matrix
from ropelab.claims.arithmetic.waves import (
    BASE,
    Spacing,
    code,
    code_series,
    distance_series,
    shift_series,
    spaced,
    sum_series,
)
from ropelab.claims.numbers import Array, frequencies, largest, tiny
from ropelab.claims.record import Claim, Evidence, Finding, Passage, limit, part
from ropelab.runs.thresholds import EXACT


def shift_is_rotation(
    *, turning: Literal["clockwise", "standard"] = "clockwise", width: int = 512, shift: int = 7
) -> Evidence:
    """Apply one block-diagonal rotation by omega delta at many positions."""
    omega, positions = spaced("exponential", width, 512), np.arange(512)
    sign = -1 if turning == "clockwise" else 1
    matrix = rotation_matrix(sign * shift * omega)
    moved = code(positions, omega) @ matrix.T
    off = largest(moved - code(positions + shift, omega))
    back = largest(moved - code(positions - shift, omega))
    also = f", and gives the code of p - {shift}" if back <= EXACT < off else ""
    return Evidence(
        expected="one rotation matrix fits all positions",
        findings=(
            part(
                f"PE(p + {shift}) against one matrix times PE(p), p < 512, blocks turning "
                + (turning if turning == "clockwise" else "as a standard rotation does"),
                f"{tiny(off)} apart{also}",
                off <= EXACT,
                off,
            ),
        ),
        series={"sinusoid_shift": shift_series()},
    )


def columns_orthogonal(
    *, spacing: Spacing = "exponential", width: int = 512, length: int = 512
) -> Evidence:
    """Cosines of the angles between all columns of the code over the positions."""
    columns = code(np.arange(length), spaced(spacing, width, length))
    columns = columns / np.linalg.norm(columns, axis=0).clip(EXACT)
    overlap = np.abs(columns.T @ columns)
    np.fill_diagonal(overlap, 0)
    share = float((overlap > 0.1).sum() / (width * (width - 1)))
    return Evidence(
        expected="cosines of 0 between different columns",
        findings=(
            part(
                f"largest |cosine| between two columns over {length} positions",
                f"{largest(overlap):.6f} ({share:.0%} of the pairs of columns exceed 0.1)",
                largest(overlap) <= EXACT,
                largest(overlap),
            ),
        ),
        series={"sinusoid_code": code_series()},
    )


def slowest_period_repeats(
    *, spacing: Spacing = "exponential", width: int = 512, length: int = 512
) -> Evidence:
    """Move by one period of the slowest pair: does the whole code come back?"""
    omega = spaced(spacing, width, length)
    period = 2 * math.pi / float(omega.min())
    positions = np.arange(64)
    off = largest(code(positions + period, omega) - code(positions, omega))
    ratios = omega / omega.min()
    whole = int((np.abs(ratios - ratios.round()) < 1e-9).sum())
    return Evidence(
        expected=f"the code repeats after {period:,.0f} tokens",
        findings=(
            part(
                f"largest change of a feature after {period:,.0f} tokens, d = {width}",
                f"{off:.2g} ({whole} of {len(ratios)} are whole multiples of the least frequency)",
                off <= 1e-6,
                off,
            ),
        ),
        series={"sinusoid_sum": sum_series()},
    )


def period_needs_multiples(*, broken_width: int = 512) -> Evidence:
    """Try the slowest period on whole multiples, and on the spacing of the Transformer."""
    multiples = slowest_period_repeats(spacing="harmonic", width=64, length=4096).findings[0]
    powers = slowest_period_repeats(width=8).findings[0]
    broken = slowest_period_repeats(width=broken_width).findings[0]

    def told(what: str, found: Finding, agrees: bool) -> Finding:
        return part(what, found.measured, agrees, found.value)

    return Evidence(
        expected="the slowest period repeats the code exactly where frequencies are multiples",
        findings=(
            told("whole multiples", multiples, multiples.agrees is True),
            told("d = 8, base 10000: every ratio is a power of 10", powers, powers.agrees is True),
            told(f"d = {broken_width}, base 10000", broken, broken.agrees is False),
        ),
    )


def exponential_repeats_less(*, width: int = 128, tokens: int = 16384) -> Evidence:
    """How near any two different positions come, for uniform and for exponential frequencies."""
    pairs = width // 2
    findings = []
    for name, omega in (
        ("uniform", np.arange(1, pairs + 1) / pairs),
        ("exponential", frequencies(width, BASE)),
    ):
        distance = _distances(omega, tokens)
        nearest = int(distance[1:].argmin()) + 2
        repeats = bool(distance[nearest - 1] < distance[0])
        findings.append(
            part(
                f"{name} frequencies, positions nearest in code within {tokens}",
                f"{nearest} tokens apart at {float(distance[nearest - 1]):.3f}, "
                f"neighbours at {float(distance[0]):.3f}",
                repeats == (name == "uniform"),
                float(distance[nearest - 1] / distance[0]),
            )
        )
    return Evidence(
        expected="only with uniform frequencies do far positions look nearer than neighbours",
        findings=tuple(findings),
        series={"sinusoid_distance": distance_series()},
    )


def _distances(omega: Float[Array, " pairs"], tokens: int) -> Float[Array, " tokens"]:
    """Distance between the codes of positions 1, 2, ... apart, per square root of the pairs."""
    lags = np.arange(1, tokens)[:, None]
    return np.sqrt((2 - 2 * np.cos(lags * omega)).mean(-1))


def uniform_is_geometric(*, spacing: Spacing = "harmonic", width: int = 64) -> Evidence:
    """Ratios of neighbouring frequencies: a geometric series has one, evenly spaced ones do not."""
    omega = np.sort(spaced(spacing, width, 512))
    ratios, exponential = omega[1:] / omega[:-1], frequencies(width, BASE)
    own = exponential[:-1] / exponential[1:]
    return Evidence(
        expected="one ratio for all neighbours",
        findings=(
            part(
                "ratios of neighbouring evenly spaced frequencies",
                f"{ratios.min():.3g} to {ratios.max():.3g} (the Transformer's are all "
                f"{own.mean():.4g}: its own spacing is the geometric one)",
                bool(np.ptp(ratios) <= EXACT),
                float(ratios.max() / ratios.min()),
            ),
        ),
    )


def is_smooth(*, width: int = 512, length: int = 512) -> Evidence:
    """Steps of the code from position to position, of the whole and of the fastest pair."""
    omega = spaced("exponential", width, length)
    steps = np.linalg.norm(np.diff(code(np.arange(length), omega), axis=0), axis=1)
    spread, degrees = float(np.ptp(steps)), math.degrees(float(omega[0]))
    norm = math.sqrt(width / 2)
    return Evidence(
        expected="steps that are equal, and small against the code",
        findings=(
            part(
                f"step of the code between neighbours, d = {width} (its norm is {norm:.0f})",
                f"{steps.mean():.2f} everywhere, to {tiny(spread)}",
                spread <= EXACT,
                spread,
            ),
            limit(
                "angle by which the fastest pair jumps with each token",
                f"{degrees:.1f} degrees",
                degrees < 10,
                degrees,
            ),
        ),
    )


def length_is_limited(*, far: int = 10**6, width: int = 64) -> Evidence:
    """Is the printed formula defined far away, and does it still give a new code?"""
    omega = frequencies(width, BASE)
    here, there = code([far], omega), code(np.arange(512), omega)
    nearest = float(np.linalg.norm(there - here, axis=1).min())
    return Evidence(
        expected="no code beyond some length",
        findings=(
            part(
                f"code of position {far:,} by the printed formula",
                f"defined, and {nearest:.1f} away from all of the first 512",
                not math.isfinite(nearest) or nearest <= EXACT,
                nearest,
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="sinusoid-shift",
        passages=(
            Passage(
                "003",
                "§4",
                189,
                "这两个向量之间差了一个旋转矩阵的作用",
                "the two vectors differ by the action of a rotation matrix",
            ),
        ),
        statement="The sinusoidal code of position p + delta is a fixed block-diagonal rotation "
        "of the code of p, the same for all p.",
        check=shift_is_rotation,
    ),
    Claim(
        id="sinusoid-shift-as-printed",
        passages=(
            Passage(
                "003",
                "§4",
                192,
                "这个变换其实就是二维平面上的一个标准旋转",
                "this transformation is in fact a standard rotation of the plane",
            ),
            Passage(
                "003",
                "§4",
                201,
                r"= R(\omega\delta) \begin{bmatrix} \sin(\omega x) \\ \cos(\omega x)",
            ),
        ),
        statement="A standard rotation R(omega delta) takes (sin omega x, cos omega x) to the code "
        "of x + delta.",
        check=partial(shift_is_rotation, turning="standard"),
    ),
    Claim(
        id="sinusoid-orthogonal",
        passages=(
            Passage("003", "§4", 152, "不同列之间是正交的", "different columns are orthogonal"),
        ),
        statement="The columns of the sinusoidal code are orthogonal to each other.",
        check=columns_orthogonal,
    ),
    Claim(
        id="sinusoid-periodic",
        passages=(
            Passage(
                "003",
                "§3",
                107,
                "最小频率决定了整个函数的周期",
                "the least frequency decides the period of the whole function",
            ),
        ),
        statement="The sinusoidal code is a periodic function whose period is 2 pi over its least "
        "frequency.",
        check=slowest_period_repeats,
    ),
    Claim(
        id="period-needs-multiples",
        passages=(
            Passage(
                "003",
                "§3",
                109,
                "只有当频率是基本频率的整数倍时,叠加后才是一个标准的周期函数",
                "only when the frequencies are whole multiples of the basic one is the sum a "
                "proper periodic function",
            ),
        ),
        statement="The sum of the waves has that common period only if all frequencies are whole "
        "multiples of the least.",
        check=period_needs_multiples,
    ),
    Claim(
        id="exponential-spacing",
        passages=(
            Passage(
                "003",
                "§4",
                158,
                "稍长一点的序列就会出现重复的位置编码",
                "slightly longer sequences would get repeated codes",
            ),
            Passage(
                "003",
                "§4",
                164,
                "支持更长的输入序列(如上万个 token)而不重复",
                "supports longer inputs (such as ten thousand tokens) without repeating",
            ),
        ),
        statement="Evenly spaced frequencies would repeat codes within a long text; exponential "
        "spacing keeps them apart over 10,000 tokens and more.",
        check=exponential_repeats_less,
    ),
    Claim(
        id="uniform-geometric",
        passages=(
            Passage(
                "003",
                "§4",
                157,
                "将频率均匀划分(等比增长)",
                "divide the frequencies evenly (growing geometrically)",
            ),
        ),
        statement="Evenly spaced frequencies grow geometrically.",
        check=uniform_is_geometric,
    ),
    Claim(
        id="sinusoid-smooth",
        passages=(
            Passage(
                "003",
                "methods, sinusoidal",
                411,
                "编码向量的变化是平滑连续的",
                "the code vector changes smoothly and continuously",
            ),
        ),
        statement="The sinusoidal code changes smoothly as the position grows.",
        check=is_smooth,
    ),
    Claim(
        id="absolute-limited",
        passages=(
            Passage(
                "002",
                "§1",
                21,
                "绝对位置编码对能处理的序列长度有限制",
                "absolute position encoding limits the length of sequences it can handle",
            ),
        ),
        statement="The fixed absolute code, given by the sinusoidal formula, limits the length "
        "of a sequence.",
        check=length_is_limited,
    ),
)
