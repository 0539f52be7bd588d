"""Claims about printed numbers: periods, codes and angles of given frequencies."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ropelab.experiments.claims.record import Claim, Evidence, count_of, part
from ropelab.rope.frequencies import inverse_frequencies, wavelengths

MORE = "ropelab freqs --base 1e6 --head-dim 64"


@dataclass(frozen=True, kw_only=True)
class Head:
    """The head that the printed numbers are about: MiniMind's."""

    head_dim: int = 64
    base: float = 1e6

    @property
    def inv_freq(self) -> Float[np.ndarray, "pairs"]:
        """Radians per token of every pair."""
        return inverse_frequencies(self.head_dim, self.base)


@dataclass(frozen=True, kw_only=True)
class Periods(Head):
    """Printed periods in tokens, by pair index."""

    printed: tuple[tuple[int, float], ...] = ((0, 6.3), (15, 6283.0), (31, 6283185.0))
    tolerance: float = 0.01


def periods(given: Periods) -> Evidence:
    """Compare printed periods, and say for which index a wrong one would be right."""
    true = wavelengths(given.inv_freq).tolist()
    findings = []
    for index, printed in given.printed:
        right = abs(printed / true[index] - 1) <= given.tolerance
        turns = math.log(printed / (2 * math.pi), given.base)
        where = "" if right else f" (it would be index {given.head_dim / 2 * turns:.1f})"
        text = f"{true[index]:,.1f}, printed {printed:,.10g}{where}"
        findings.append(part(f"index {index}", text, right, true[index]))
    return Evidence(
        expected=f"the printed periods within {given.tolerance:.0%}", findings=tuple(findings)
    )


@dataclass(frozen=True, kw_only=True)
class Code(Head):
    """The first entries and the last entry of a printed list of cosines of one position."""

    position: int = 1
    first: tuple[float, ...] = (0.5403, 0.9997, 0.9999)
    last: float = 1.0
    digits: int = 4


def code_of_position(given: Code) -> Evidence:
    """Compare the cosines of the position with the printed ones, to the printed digits."""
    true = np.cos(given.position * given.inv_freq).tolist()
    compared = [*zip(true, given.first, strict=False), (true[-1], given.last)]
    right = sum(abs(a - b) <= 0.5 * 10**-given.digits for a, b in compared)
    shown = ", ".join(f"{value:.{given.digits}f}" for value in true[: len(given.first)])
    return Evidence(
        expected=f"[{', '.join(map(str, given.first))}, ..., {given.last}]",
        findings=(
            part(
                f"cosines of position {given.position}",
                f"[{shown}, ..., {true[-1]:.{given.digits}f}], "
                f"{count_of(right, len(compared))} as printed",
                right == len(compared),
                right,
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Angles(Head):
    """Printed angles in degrees, by position and pair index; a full turn counts as none."""

    printed: tuple[tuple[int, int, float], ...]
    tolerance_degrees: float = 0.5


def angles(given: Angles) -> Evidence:
    """Turn the pairs and compare, modulo full turns."""
    findings = []
    for position, index, printed in given.printed:
        degrees = math.degrees(position * float(given.inv_freq[index]))
        off = abs((degrees - printed + 180) % 360 - 180)
        text = f"{degrees % 360:.1f}, printed {printed:g}"
        what = f"degrees at {position}, pair {index}"
        findings.append(part(what, text, off <= given.tolerance_degrees, degrees % 360))
    return Evidence(
        expected=f"the printed degrees within {given.tolerance_degrees}", findings=tuple(findings)
    )


@dataclass(frozen=True, kw_only=True)
class Fingerprints:
    """A few positions and a few periods."""

    periods: tuple[float, ...] = (10, 100)
    positions: tuple[int, ...] = (0, 5, 10, 15, 50, 100)


def fingerprints(given: Fingerprints) -> Evidence:
    """Look for positions whose phases agree in every period."""
    first: dict[tuple[float, ...], int] = {}
    equal = []
    for position in given.positions:
        phases = tuple(position % period for period in given.periods)
        if phases in first:
            equal.append((first[phases], position))
        first.setdefault(phases, position)
    shown = ", ".join(f"{a} and {b} agree" for a, b in equal) or "all differ"
    return Evidence(
        expected="all differ",
        findings=(
            part(
                f"phases of {len(given.positions)} positions",
                shown,
                not equal,
                float(len(first)),
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="minimind-periods",
        source="note 001 §5.5; rope_multi_frequency.py",
        statement="MiniMind's frequencies (base 1e6, head_dim 64) have periods of 6.3 tokens at "
        "index 0, 6,283 at 15 and 6,283,185 at 31.",
        inputs=Periods(),
        check=periods,
        command=MORE,
    ),
    Claim(
        id="minimind-period-15",
        source="MiniMind knowledge base §2.4",
        statement="MiniMind's frequency 15 has a period of 1,000 tokens.",
        inputs=Periods(printed=((15, 1000.0),)),
        check=periods,
        command=MORE,
    ),
    Claim(
        id="position-1-code",
        source="note 001 §5.5",
        statement="With MiniMind's frequencies position 1 is coded [0.5403, 0.9997, 0.9999, ..., "
        "1.0].",
        inputs=Code(),
        check=code_of_position,
        command=MORE,
    ),
    Claim(
        id="script-dimension-angles",
        source="rope_multi_frequency.py",
        statement="With MiniMind's frequencies dimension 0 has turned by 100 degrees at position "
        "10, dimension 3 by only 0.1 degrees at position 1000.",
        inputs=Angles(printed=((10, 0, 100.0), (1000, 3, 0.1))),
        check=angles,
        command=MORE,
    ),
    Claim(
        id="knowledge-base-angles",
        source="MiniMind knowledge base, question 11",
        statement="With MiniMind's frequencies the first pairs stand at 57, 37, 24 degrees at "
        "position 1 and at 213, 12, 242 degrees at position 10.",
        inputs=Angles(
            printed=(
                (1, 0, 57.0),
                (1, 1, 37.0),
                (1, 2, 24.0),
                (10, 0, 213.0),
                (10, 1, 12.0),
                (10, 2, 242.0),
            )
        ),
        check=angles,
        command=MORE,
    ),
    Claim(
        id="script-two-periods",
        source="rope_multi_frequency.py",
        statement="Two frequencies with periods 10 and 100 give positions 0, 5, 10, 15, 50 and "
        "100 different codes.",
        inputs=Fingerprints(),
        check=fingerprints,
    ),
    Claim(
        id="script-three-periods",
        source="rope_why_multi_frequency.py, experiment 3",
        statement="Three frequencies with periods 10, 100 and 1000 give positions 0, 1, 10, 100 "
        "and 500 different codes.",
        inputs=Fingerprints(periods=(10, 100, 1000), positions=(0, 1, 10, 100, 500)),
        check=fingerprints,
    ),
)
