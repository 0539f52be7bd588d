"""Claims about printed numbers: periods, codes and angles of given frequencies."""

import math
from functools import partial

import numpy as np

from ropelab.claims.numbers import count_of, frequencies
from ropelab.claims.record import Claim, Evidence, Passage, part

HEAD, BASE = 64, 1e6
"""MiniMind's head, which the printed numbers are about."""
MORE = "ropelab freqs --base 1e6 --head-dim 64"


def periods(
    *,
    printed: tuple[tuple[int, float], ...] = ((0, 6.3), (15, 6283.0), (31, 6283185.0)),
    base: float = BASE,
    tolerance: float = 0.01,
) -> Evidence:
    """Compare printed periods, and say for which index a wrong one would be right."""
    true = (2 * math.pi / frequencies(HEAD, base)).tolist()
    findings = []
    for index, said in printed:
        right = abs(said / true[index] - 1) <= tolerance
        turns = math.log(said / (2 * math.pi), base)
        where = "" if right else f" (it would be index {HEAD / 2 * turns:.1f})"
        text = f"{true[index]:,.1f}, printed {said:,.10g}{where}"
        findings.append(part(f"index {index}", text, right, true[index]))
    return Evidence(
        expected=f"the printed periods within {tolerance:.0%}", findings=tuple(findings)
    )


def angle_falls(*, head_dim: int = 64, base: float = 10000.0) -> Evidence:
    """Is every pair slower than the one before?"""
    inv_freq = frequencies(head_dim, base)
    slower = int((np.diff(inv_freq) < 0).sum())
    return Evidence(
        expected="each of them",
        findings=(
            part(
                f"pairs that turn less than the one before, base {base:g}",
                f"{slower} of {len(inv_freq) - 1}",
                slower == len(inv_freq) - 1,
                slower,
            ),
        ),
    )


def code_of_position(
    *,
    first: tuple[float, ...] = (0.5403, 0.9997, 0.9999),
    last: float = 1.0,
    position: int = 1,
    digits: int = 4,
) -> Evidence:
    """Compare the cosines of the position with the printed ones, to the printed digits."""
    true = np.cos(position * frequencies(HEAD, BASE)).tolist()
    compared = [*zip(true, first, strict=False), (true[-1], last)]
    right = sum(abs(a - b) <= 0.5 * 10**-digits for a, b in compared)
    shown = ", ".join(f"{value:.{digits}f}" for value in true[: len(first)])
    return Evidence(
        expected=f"[{', '.join(map(str, first))}, ..., {last}]",
        findings=(
            part(
                f"cosines of position {position}",
                f"[{shown}, ..., {true[-1]:.{digits}f}], "
                f"{count_of(right, len(compared))} as printed",
                right == len(compared),
                right,
            ),
        ),
    )


def angles(
    *,
    printed: tuple[tuple[int, int, float], ...],
    base: float = BASE,
    tolerance_degrees: float = 0.5,
) -> Evidence:
    """Turn pairs and compare with (position, pair, degrees) as printed, modulo full turns."""
    findings = []
    for position, index, said in printed:
        degrees = math.degrees(position * float(frequencies(HEAD, base)[index]))
        off = abs((degrees - said + 180) % 360 - 180)
        text = f"{degrees % 360:.1f}, printed {said:g}"
        what = f"degrees at {position}, pair {index}"
        findings.append(part(what, text, off <= tolerance_degrees, degrees % 360))
    return Evidence(
        expected=f"the printed degrees within {tolerance_degrees}", findings=tuple(findings)
    )


def fingerprints(
    *,
    periods: tuple[float, ...] = (10, 100),
    positions: tuple[int, ...] = (0, 5, 10, 15, 50, 100),
) -> Evidence:
    """Look for positions whose phases agree in every period."""
    first: dict[tuple[float, ...], int] = {}
    equal = []
    for position in positions:
        phases = tuple(position % period for period in periods)
        if phases in first:
            equal.append((first[phases], position))
        first.setdefault(phases, position)
    shown = ", ".join(f"{a} and {b} agree" for a, b in equal) or "all differ"
    return Evidence(
        expected="all differ",
        findings=(
            part(f"phases of {len(positions)} positions", shown, not equal, float(len(first))),
        ),
    )


CLAIMS = (
    Claim(
        id="angle-falls",
        passages=(
            Passage(
                "000",
                "§3, on theta",
                55,
                "指数项的负号确保随着维度i增加,旋转角度逐渐减小",
                "the minus sign in the exponent makes the angle shrink as the dimension i grows",
            ),
            Passage(
                "004",
                "§2",
                27,
                "注意到这个f随着维度越来越高不断减小",
                "note that this f keeps falling as the dimension rises",
            ),
        ),
        statement="The minus sign in the exponent makes each pair turn less than the one before.",
        check=angle_falls,
        command="ropelab freqs --base 1e4 --head-dim 64",
    ),
    Claim(
        id="minimind-periods",
        passages=(
            Passage(
                "001",
                "§5.5",
                344,
                "中频(15)6,283平衡精度和范围",
                "middle frequency (15): 6,283, balances precision and range",
            ),
            Passage(
                "001",
                "§5.5",
                345,
                "低频(31)6,283,185标识远距离位置",
                "low frequency (31): 6,283,185, marks distant positions",
            ),
            Passage("rope_multi_frequency"),
        ),
        statement="MiniMind's frequencies (base 1e6, head_dim 64) have periods of 6.3 tokens at "
        "index 0, 6,283 at 15 and 6,283,185 at 31.",
        check=periods,
        command=MORE,
    ),
    Claim(
        id="minimind-period-15",
        passages=(Passage("minimind-knowledge", "§2.4"),),
        statement="MiniMind's frequency 15 has a period of 1,000 tokens.",
        check=partial(periods, printed=((15, 1000.0),)),
        command=MORE,
    ),
    Claim(
        id="position-1-code",
        passages=(Passage("001", "§5.5", 350, "[0.5403, 0.9997, 0.9999, ..., 1.0]"),),
        statement="With MiniMind's frequencies position 1 is coded [0.5403, 0.9997, 0.9999, ..., "
        "1.0].",
        check=code_of_position,
        command=MORE,
    ),
    Claim(
        id="script-dimension-angles",
        passages=(Passage("rope_multi_frequency"),),
        statement="With MiniMind's frequencies dimension 0 has turned by 100 degrees at position "
        "10, dimension 3 by only 0.1 degrees at position 1000.",
        check=partial(angles, printed=((10, 0, 100.0), (1000, 3, 0.1))),
        command=MORE,
    ),
    Claim(
        id="knowledge-base-angles",
        passages=(Passage("minimind-knowledge", "question 11"),),
        statement="With MiniMind's frequencies the first pairs stand at 57, 37, 24 degrees at "
        "position 1 and at 213, 12, 242 degrees at position 10.",
        check=partial(
            angles,
            printed=(
                (1, 0, 57.0),
                (1, 1, 37.0),
                (1, 2, 24.0),
                (10, 0, 213.0),
                (10, 1, 12.0),
                (10, 2, 242.0),
            ),
        ),
        command=MORE,
    ),
    Claim(
        id="script-two-periods",
        passages=(Passage("rope_multi_frequency"),),
        statement="Two frequencies with periods 10 and 100 give positions 0, 5, 10, 15, 50 and "
        "100 different codes.",
        check=fingerprints,
    ),
    Claim(
        id="script-three-periods",
        passages=(Passage("rope_why_multi_frequency", "experiment 3"),),
        statement="Three frequencies with periods 10, 100 and 1000 give positions 0, 1, 10, 100 "
        "and 500 different codes.",
        check=partial(fingerprints, periods=(10, 100, 1000), positions=(0, 1, 10, 100, 500)),
    ),
)
