"""Checks of periods: one slow frequency, the hands of a clock, many frequencies,
printed tables.
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

# The single slow frequency of note 001, §5.2: one turn in a million tokens.
PERIOD = 1_000_000.0
# Codes that are closer than this are the same. Rounding leaves them 1e-15 apart after a
# full turn; a step of one token at PERIOD is 6e-6.
BACK = 1e-9
# MiniMind's head, which the printed numbers are about.
HEAD = 64
BASE = 1e6
# Seconds in which the three hands of a clock go round (note 001, §5.6).
HANDS = (60, 3600, 43200)
COMPARED = ("float32", "float16", "bfloat16")
# The number of positions whose codes are counted.
LENGTH = 131072
# The part of a code that is compared, by the words for it.
CHANNELS: dict[str, str] = {"cos": "cos", "cos and sin": "vector"}


def _distance_to_start(angle: float) -> float:
    """Return the distance of the code (cos, sin) of an angle from that of 0."""
    return math.hypot(math.cos(angle) - 1, math.sin(angle))


@claim("one-frequency-cos")
def cos_of_neighbours(
    findings: Findings, period: float = PERIOD, dtype: str = "float32"
) -> None:
    # Printed in note 001, §5.3.
    printed_cos = 0.999999999980261
    printed_difference = 1.97e-11
    theta = 2 * math.pi / period
    # 1 - cos(theta) would lose all but five digits.
    cosine = math.cos(theta)
    difference = 2 * math.sin(theta / 2) ** 2
    stored = np.cos(np.array([0, theta])).astype(dtype)
    findings.expected = f"{printed_cos:.15f}, {printed_difference:g}, and 1.0 twice"

    off = abs(cosine - printed_cos)
    margin = margin_below(off, 1e-15)
    findings.part("cos at 1", f"{cosine:.15f}", off < 1e-15, cosine, margin)

    off = abs(difference - printed_difference)
    # Half a unit of the last printed digit.
    last_digit = 0.005e-11
    margin = margin_below(off, last_digit)
    what = "cos at 0 minus cos at 1"
    findings.part(what, f"{difference:.4e}", off <= last_digit, difference, margin)
    shown = " and ".join(f"{float(value):.10g}" for value in stored)
    findings.part(f"the two in {dtype}", shown, bool((stored == 1).all()))


@claim("one-frequency-degrees")
def degrees_of_one_step(findings: Findings, printed: float = 0.00000628) -> None:
    # The printed number is the angle in radians.
    degrees = 360 / PERIOD
    radians = 2 * math.pi / PERIOD
    text = f"{degrees:g} degrees, which is {radians:.3g} radians"
    findings.part(
        "angle of position 1",
        text,
        math.isclose(degrees, printed, rel_tol=0.01),
        degrees,
    )


@claim("turn-comes-back")
def turn_comes_back(findings: Findings, degrees_per_token: float = 1.0) -> None:
    apart = _distance_to_start(math.radians(360 * degrees_per_token))
    findings.within("codes of positions 0 and 360", apart, BACK)


@claim("script-covers-everything")
def covers_everything(findings: Findings, period: float = PERIOD) -> None:
    apart = _distance_to_start(round(period) * (2 * math.pi / period))
    findings.beyond(f"codes of positions 0 and {round(period)}", apart, BACK)


@claim("float32-precision")
def float32_precision(findings: Findings, printed: float = 1e-7) -> None:
    sine = 2 * math.pi / PERIOD
    at_one, at_sine = (float(np.spacing(np.float32(x))) for x in (1, sine))
    findings.part(
        "step of float32 at 1", f"{at_one:.3g}", 0.5 < at_one / printed < 2, at_one
    )
    what = f"step at {sine:.3g}, the sine at position 1"
    text = f"{at_sine:.1g}: the precision is relative"
    findings.limit(what, text, 0.5 < at_sine / printed < 2, at_sine)


@claim("script-cos-step")
def cos_step(findings: Findings, printed: float = 3.94e-11) -> None:
    theta = 2 * math.pi / PERIOD

    def step_from(start: float) -> float:
        # The step is written as a product, since the difference of two cosines would lose
        # all but five digits.
        return 2 * math.sin(theta * (start + 0.5)) * math.sin(theta / 2)

    steps: tuple[tuple[Role, str, float], ...] = (
        ("part", "step of cos around position 1, from 0.5 to 1.5", 0.5),
        ("limit", "step of cos from position 0 to 1", 0.0),
        ("limit", "step of cos from position 1 to 2", 1.0),
    )
    for role, what, start in steps:
        step = step_from(start)
        text = f"{step:.3e} = {step / theta**2:.2f} theta^2"
        findings.add(role, what, text, abs(step - printed) <= 0.01e-11, step)


@claim("clock-hour", "clock-unique")
def clock_is_unique(
    findings: Findings, hands: Sequence[int] = HANDS, until: int = 86400
) -> None:
    # All hands are back when the time is a multiple of every period.
    back = math.lcm(*hands)
    findings.part("all hands are back after", f"{back:,} s", back >= until, back)


@claim("second-hand")
def hand_comes_back(findings: Findings, hand: int = HANDS[0], said: int = 3600) -> None:
    late = said % hand
    findings.part(
        f"where it stands after {said:,} s", f"{late} s past its start", late == 0, late
    )
    findings.limit(
        "when it is back for the first time", f"{hand:,} s", hand == said, hand
    )


@claim("clock-like-rope", "calendar-like-rope")
def clock_like_rope(
    findings: Findings,
    periods: Sequence[float] = (),
    base: float = BASE,
    exactly: bool = True,
) -> None:
    chosen = np.array(periods or 2 * math.pi / frequencies(HEAD, base))
    ratios = chosen[1:] / chosen[:-1]
    whole = int((np.abs(ratios - ratios.round()) < 1e-9).sum())

    text = (
        f"{whole} (each is {ratios[0]:.4g} times the one before; a clock's are 60"
        " and 12)"
    )
    if not exactly:
        findings.count(
            "periods longer than the one before", int((ratios > 1).sum()), len(ratios)
        )
    what = f"periods that are whole multiples of the one before, of {len(ratios)}"
    findings.add(
        "part" if exactly else "limit", what, text, whole == len(ratios), whole
    )


# One slow frequency against many: codes that number formats can tell apart


def one_frequency(period: float) -> Spectrum:
    """Return the spectrum of a single period, in tokens."""
    # Two features are one pair, whose frequency is 1 under any base.
    return Spectrum(inverse_frequencies(2, 1.5) * (2 * math.pi / period))


def rope_frequencies(head_dim: int = HEAD, base: float = BASE) -> Spectrum:
    """Return the spectrum of RoPE."""
    return Spectrum(inverse_frequencies(head_dim, base))


def census(
    spectrum: Spectrum, channel: str, length: int, formats: Sequence[str] = COMPARED
) -> dict[str, Census]:
    """Count the codes below `length` by format, of tables that are exact before
    rounding.
    """
    code = PositionEncoding(
        Chain(CastPlan(), spectrum), channel, range(len(spectrum.inv_freq))
    )
    counted = take_census(code, [FORMATS[fmt] for fmt in formats], 0, length)
    return dict(zip(formats, counted, strict=True))


@claim("one-frequency-neighbours", "one-frequency-formats")
def neighbours_lost(findings: Findings, format_: str = "float32") -> None:
    neighbours = LENGTH - 1
    rows = []
    shares = {}
    for scheme, spectrum in {
        "one": one_frequency(PERIOD),
        "many": rope_frequencies(),
    }.items():
        for name, channel in CHANNELS.items():
            for fmt, codes in census(spectrum, channel, LENGTH).items():
                equal = codes.adjacent_collisions
                about = (scheme, spectrum.pairs, fmt, name, neighbours)
                rows.append((*about, equal, codes.distinct))
                shares[scheme, fmt, name] = equal / neighbours
    columns = ["scheme", "pairs", "format", "component", "neighbours"]
    columns += ["adjacent_collisions", "distinct_codes"]
    # The format that is asked about decides; the others put a condition on it.
    others = [fmt for fmt in COMPARED if fmt != format_]
    for fmt in (format_, *others):
        share = shares["one", fmt, "cos and sin"]
        what = f"neighbours below {LENGTH} with cos and sin alike, {fmt}"
        role: Role = "part" if fmt == format_ else "limit"
        findings.add(role, what, write_percent(share), share > 0.5, share)

    theta = 2 * math.pi / PERIOD
    scores = np.cos(np.array([0, theta])).astype(np.float32)

    what = "float32 scores of equal q and k, one pair, at distances 0 and 1"
    text = " and ".join(f"{float(score):.10g}" for score in scores)
    findings.limit(what, text, bool(scores[0] == scores[1]))
    for fmt in COMPARED:
        share = shares["one", fmt, "cos"]
        what = f"neighbours with cos alike, {fmt}"
        findings.limit(what, write_percent(share), share > 0.5, share)
    for fmt in COMPARED:
        share = shares["many", fmt, "cos and sin"]
        what = f"neighbours with all of RoPE's pairs alike, {fmt}"
        findings.limit(what, write_percent(share), share <= 0.5, share)
    findings.series["resolution"] = pd.DataFrame(rows, columns=columns)


@claim("one-frequency-signal")
def signal_of_next_token(findings: Findings, period: float = PERIOD) -> None:
    """Compare how much a score changes when its key stands one token further away."""
    # For independent normal queries and keys a pair adds (q1 + i q2) (k1 - i k2) times
    # a rotation. One token on, its change has 2 sin(theta / 2) times its deviation.
    slow = 2 * math.sin(math.pi / period)
    changes = 2 * np.sin(inverse_frequencies(HEAD, BASE) / 2)
    with_rope = math.sqrt(float(np.mean(changes**2)))
    what = "change of a score by the next token, of its standard deviation,"
    findings.within(f"{what} one frequency", slow, with_rope / 100, "{}")
    what = f"{what} RoPE's {len(changes)} frequencies"
    findings.beyond(what, with_rope, slow, "{:.2g}")


def write_percent(share: float) -> str:
    """Write a share in percent; none and all are written so."""
    if share in (0, 1):
        return "none" if share == 0 else "all"
    return f"{share:.1%}"


@claim("one-frequency-unique")
def one_is_unique(findings: Findings, period: float = PERIOD) -> None:
    length = round(period)
    for fmt, counted in census(one_frequency(period), "vector", length).items():
        what = f"different codes of {length:,} positions in {fmt}"
        role: Role = "part" if fmt == "float32" else "limit"
        findings.add(role, what, f"{counted.distinct:,}", counted.distinct == length)


@claim("fast-pair-separates")
def fastest_pair_separates(findings: Findings, printed_degrees: float = 57.3) -> None:
    degrees = math.degrees(float(frequencies(HEAD, BASE)[0]))
    # Half a unit of the printed digit.
    near = abs(degrees - printed_degrees) <= 0.05
    margin = margin_below(abs(degrees - printed_degrees), 0.05)
    what = "angle between neighbours in pair 0"
    findings.part(what, f"{degrees:.2f} degrees", near, degrees, margin)
    for fmt, counted in census(one_frequency(2 * math.pi), "pair", LENGTH).items():
        same = counted.adjacent_collisions
        what = f"neighbours below {LENGTH} with the same pair 0 in {fmt}"
        findings.add(
            "part" if fmt == "float32" else "limit", what, str(same), same == 0, same
        )


@claim("many-unique")
def positions_unique(
    findings: Findings, base: float = BASE, length: int = 1 << 20
) -> None:
    spectrum = rope_frequencies(HEAD, base)
    period = float(wavelengths(spectrum.inv_freq)[-1])
    what = "the slowest pair alone repeats after"
    findings.beyond(what, period, length, "{:,.0f} tokens")
    for fmt, counted in census(spectrum, "vector", length).items():
        what = f"distinct codes of the first {length} positions in {fmt}"
        findings.part(
            what, f"{counted.distinct}", counted.distinct == length, counted.distinct
        )


@claim("slow-pairs-unique")
def slow_pairs_unique(
    findings: Findings, first: int = HEAD // 4, length: int = 1 << 20
) -> None:
    """Count the codes of the slower half of the pairs, from pair `first` on."""
    slow = Spectrum(inverse_frequencies(HEAD, BASE)[first:])
    for fmt, counted in census(slow, "vector", length).items():
        what = f"distinct codes of the first {length} positions in {fmt}"
        what = f"{what}, pairs {first} to {HEAD // 2 - 1}"
        # The source names no format here. Elsewhere it speaks about float32.
        role: Role = "part" if fmt == "float32" else "limit"
        is_unique = counted.distinct == length
        findings.add(role, what, f"{counted.distinct}", is_unique, counted.distinct)


@claim("minimind-periods", "minimind-period-15")
def periods(
    findings: Findings,
    printed: Sequence[tuple[int, float]],
    base: float = BASE,
    tolerance: float = 0.01,
) -> None:
    true = (2 * math.pi / frequencies(HEAD, base)).tolist()
    for index, said in printed:
        right = abs(said / true[index] - 1) <= tolerance
        # The index i at which 2 pi base^(2i/d) is the printed period.
        fits = HEAD / 2 * math.log(said / (2 * math.pi), base)
        where = "" if right else f" (it would be index {fits:.1f})"
        text = f"{true[index]:,.1f}, printed {said:,.10g}{where}"
        findings.part(f"index {index}", text, right, true[index])


@claim("angle-falls")
def angle_falls(findings: Findings, base: float = 10000.0) -> None:
    slower = np.diff(frequencies(HEAD, base)) < 0
    what = f"pairs that turn less than the one before, base {base:g}"
    findings.count(what, int(slower.sum()), len(slower))


@claim("position-1-code")
def code_of_position(
    findings: Findings,
    first: Sequence[float] = (0.5403, 0.9997, 0.9999),
    last: float = 1.0,
) -> None:
    true = np.cos(frequencies(HEAD, BASE)).tolist()
    # The note prints the first features and the last, to four digits.
    compared = [*zip(true, first, strict=False), (true[-1], last)]
    right = sum(abs(a - b) <= 0.5e-4 for a, b in compared)

    shown = ", ".join(f"{value:.4f}" for value in true[: len(first)])
    findings.expected = f"[{', '.join(map(str, first))}, ..., {last}]"
    text = (
        f"[{shown}, ..., {true[-1]:.4f}], {write_hits(right, len(compared))} as printed"
    )
    findings.part("cosines of position 1", text, right == len(compared), right)


@claim("script-dimension-angles", "knowledge-base-angles")
def angles(
    findings: Findings,
    printed: Sequence[tuple[int, int, float]],
    base: float = BASE,
    tolerance_degrees: float = 0.5,
) -> None:
    for position, index, said in printed:
        degrees = math.degrees(position * float(frequencies(HEAD, base)[index]))
        # Full turns are not printed, so the shorter way round counts.
        off = abs((degrees - said + 180) % 360 - 180)
        right = off <= tolerance_degrees
        shown = degrees % 360
        text = f"{shown:.1f}, printed {said:g}"
        what = f"degrees at {position}, pair {index}"
        margin = margin_below(off, tolerance_degrees)
        findings.part(what, text, right, shown, margin)


@claim("script-two-periods", "script-three-periods")
def fingerprints(
    findings: Findings,
    periods: Sequence[float] = (10, 100),
    positions: Sequence[int] = (0, 5, 10, 15, 50, 100),
) -> None:
    first: dict[tuple[float, ...], int] = {}
    equal = []
    for position in positions:
        phases = tuple(position % period for period in periods)
        if phases in first:
            equal.append((first[phases], position))
        first.setdefault(phases, position)

    shown = ", ".join(f"{a} and {b} agree" for a, b in equal) or "all differ"
    findings.part(
        f"phases of {len(positions)} positions", shown, not equal, float(len(first))
    )
